"""Check links and anchors: of Markdown in the repository's file view, and of the site (`python docs/links.py SITE`).

Nothing is fetched: links to other hosts are not followed. But the site may not load anything from elsewhere, neither
scripts nor styles, fonts or pictures.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
HEADING = re.compile(r"#{1,6} +(.*?)(?: +#+)?$")
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}
"""Elements that load what an attribute names, and that attribute; `link` is looked at by its kind."""


def markdown_files() -> list[Path]:
    """The pages of the repository."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines outside of code blocks."""
    fence = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if opened := re.match(r"\s*(```+|~~~+)", line):
            fence = "" if fence and opened[1].startswith(fence) else fence or opened[1]
        elif not fence:
            yield number, line


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a Markdown file in the file view of Git hosts."""
    seen: Counter[str] = Counter()
    names = set()
    for _, line in text_lines(path):
        if heading := HEADING.match(line):
            text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1])
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            names.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return frozenset(names)


def broken_in_markdown(path: Path) -> Iterator[str]:
    """Links of a Markdown file that lead nowhere."""
    for number, line in text_lines(path):
        for link in LINK.finditer(CODE.sub("", line)):
            url = urlsplit(link[1])
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            where = f"{path.relative_to(ROOT)}:{number}: {link[1]}"
            if not target.exists():
                yield f"{where}: no such file"
            elif not target.is_relative_to(ROOT):
                yield f"{where}: outside of the repository"
            elif url.fragment and (target.suffix != ".md" or url.fragment not in anchors(target)):
                yield f"{where}: no such heading"


class PageParser(HTMLParser):
    """The links, loaded resources and ids of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element links to, loads and is called."""
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") != "canonical":
            self.loaded.append(values.get("href", ""))
        elif tag in LOADING and LOADING[tag] in values:
            self.loaded.append(values[LOADING[tag]])


@cache
def page(path: Path) -> PageParser:
    """A parsed page."""
    parser = PageParser()
    parser.feed(path.read_text(encoding="utf-8"))
    return parser


def broken_on_site(site: Path) -> Iterator[str]:
    """Links of the built site that lead nowhere, and whatever it loads from other hosts."""
    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":  # served at any path, so its links are absolute
            continue
        parsed, name = page(path), path.relative_to(site)
        yield from (f"{name}: loads {url}" for url in parsed.loaded if urlsplit(url).netloc)
        for link in (*parsed.links, *parsed.loaded):
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{name}: {link}: no such file"
            elif url.fragment and target.suffix == ".html" and unquote(url.fragment) not in page(target).ids:
                yield f"{name}: {link}: no such anchor"
    for style in sorted(site.rglob("*.css")):
        remote = re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']+", style.read_text(encoding="utf-8"))
        yield from (f"{style.relative_to(site)}: loads {url}" for url in remote)


def main() -> int:
    """Print everything that is broken; 1 if anything is."""
    files = markdown_files()
    broken = [problem for path in files for problem in broken_in_markdown(path)]
    checked = f"{len(files)} files"
    if len(sys.argv) > 1:
        site = Path(sys.argv[1]).resolve()
        pages = list(site.rglob("*.html"))
        if not pages:
            sys.exit(f"{site} has no pages: build the site first (mkdocs build --strict)")
        broken += broken_on_site(site)
        checked += f" and {len(pages)} pages"
    for problem in broken:
        print(problem)
    print(f"Links: {checked} checked, {len(broken)} broken.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
