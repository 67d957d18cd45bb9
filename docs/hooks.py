"""Hooks of the docs site: the same Markdown works here and in the repository's file view.

The file view of Git hosts is the stricter reader, so pages are written for it: links lead to files of the repository,
lists and tables may follow a line of text. This module adapts them when the site is built. Files outside of docs/
that a page links to become pages of the site: the changelog and the guide for contributors in place, source files as
listings under source/. Notebooks become pages with their stored outputs.
"""

import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS))

from notebooks import to_markdown  # noqa: E402 (mkdocs loads this file by its path, without its folder)

PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "README.md": "index.md"}
"""Files of the repository's root, and the pages of the site that they are."""

LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".yaml": "yaml", ".sh": "sh"}
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"\s*(```+|~~~+)")
ITEM = re.compile(r"\s*([-*+]|\d+\.) ")
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the design notes into the navigation: each new note is there by itself."""
    for section in config.nav or []:
        if "Design" in section:
            section["Design"] += sorted(f"design/{note.name}" for note in (DOCS / "design").glob("0*.md"))
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are made from files outside of docs/, and from notebooks."""
    logo = ROOT / "src/tertulia/web/static/logo.svg"
    files.append(File.generated(config, "images/logo.svg", abs_src_path=str(logo)))
    for name, page in PAGES.items():
        if name != "README.md":
            files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    for notebook in sorted((DOCS / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=to_markdown(notebook)))
    for path in sorted(_linked_sources()):
        files.append(File.generated(config, f"source/{path}.md", content=_listing(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adapt a page that was written for the file view."""
    base = "" if page.file.src_uri in PAGES.values() and page.file.src_uri != "index.md" else "docs"
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    if page.file.src_uri == "design/index.md":
        markdown += _list_of_notes()
    markdown = "\n".join(_lines(markdown))
    return _outside_of_code(markdown, lambda text: LINK.sub(lambda link: _site_link(link, base, page), text))


def _list_of_notes() -> str:
    """The table of notes that the file view shows as the files of the folder."""
    rows = ["", "", "| | |", "|---|---|"]
    for note in sorted((DOCS / "design").glob("0*.md")):
        number, _, title = note.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").partition(". ")
        rows.append(f"| {int(number)} | [{title}]({note.name}) |")
    return "\n".join(rows) + "\n"


def _lines(markdown: str) -> Iterator[str]:
    """Lists and tables get the blank line that Python-Markdown needs, `\\|` in the code of a table its plain form."""
    fence, before = "", ""
    for line in markdown.splitlines():
        if opened := FENCE.match(line):
            fence = "" if fence and opened[1].startswith(fence) else fence or opened[1]
        elif not fence:
            starts_list = ITEM.match(line) and not ITEM.match(before) and not before.startswith((" ", "\t"))
            starts_table = line.startswith("|") and not before.startswith("|")
            if before.strip() and (starts_list or starts_table):
                yield ""
            if line.startswith("|"):
                line = CODE.sub(lambda code: code[0].replace("\\|", "|"), line)
        yield line
        before = line


def _outside_of_code(markdown: str, change: Any) -> str:
    parts, fence = [], ""
    for line in markdown.splitlines():
        if opened := FENCE.match(line):
            fence = "" if fence and opened[1].startswith(fence) else fence or opened[1]
        elif not fence:
            line = change(line)
        parts.append(line)
    return "\n".join(parts)


def _site_link(link: re.Match[str], base: str, page: Page) -> str:
    """The link as it must be on the site; links of the repository are relative to the page's file there."""
    before, target, after = link.groups()
    if "://" in target or target.startswith(("mailto:", "/")):
        return link[0]
    folder = posixpath.join(base, posixpath.dirname(page.file.src_uri)) if base else ""
    path = posixpath.normpath(posixpath.join(folder, target))
    return before + posixpath.relpath(_page_of(path), posixpath.dirname(page.file.src_uri) or ".") + after


def _page_of(path: str) -> str:
    """The page of the site (or its file) for a path of the repository."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        inside = path.removeprefix("docs/")
        if inside.endswith(".ipynb"):
            return inside.removesuffix(".ipynb") + ".md"
        return f"{inside}/index.md" if (ROOT / path).is_dir() else inside
    return f"source/{path}.md"


def _linked_sources() -> set[str]:
    """Files outside of docs/, other than Markdown of the root, that some page links to."""
    pages = [*DOCS.rglob("*.md"), *(ROOT / name for name in PAGES)]
    paths = set()
    for page in pages:
        for link in LINK.finditer(page.read_text(encoding="utf-8")):
            path = (page.parent / link[2]).resolve()
            if path.is_file() and path.is_relative_to(ROOT) and not path.is_relative_to(DOCS):
                paths.add(path.relative_to(ROOT).as_posix())
    return paths - set(PAGES)


def _listing(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8").rstrip("\n")
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"---\nsearch:\n  exclude: true\n---\n# {path}\n````{language}\n{text}\n````\n"
