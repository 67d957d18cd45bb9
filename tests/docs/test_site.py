"""The parts of the docs site: `make docs` builds it strictly; here its checks are checked, and links of the files."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from tests.docs.markdown import ROOT


def script(name: str) -> ModuleType:
    """A script of docs/, which is no package."""
    spec = spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


links, figures = script("links"), script("figures")


def test_links_and_anchors_of_the_files_lead_somewhere() -> None:
    files = links.markdown_files()
    assert len(files) > 50
    assert [problem for path in files for problem in links.broken_in_markdown(path)] == []


def test_a_broken_link_or_anchor_of_a_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "ROOT", tmp_path)
    (tmp_path / "other.md").write_text("# Ours\n## A *fine* day, `ok`\n## A fine day\n```\n# not a heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md#a-fine-day-ok) [b](other.md) [c](none.md) `[d](none.md)` [e](other.md#not-a-heading) [f](#no)"
    )
    named = [problem.split(": ", 1)[1] for problem in links.broken_in_markdown(page)]
    assert named == ["none.md: no such file", "other.md#not-a-heading: no such heading", "#no: no such heading"]


def test_what_a_site_loads_from_elsewhere_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<link rel="canonical" href="https://x.org"><script src="https://x.org/a.js"></script>'
        '<p id="here"><a href="#here">ok</a><a href="#there">no</a><img src="none.png"><a href="https://x.org">ok</a>'
    )
    (tmp_path / "site.css").write_text("@import url('//x.org/font.css'); a { background: url(data:image/png;base64,) }")
    assert [problem.split(": ", 1)[1] for problem in links.broken_on_site(tmp_path)] == [
        "loads https://x.org/a.js",
        "#there: no such anchor",
        "none.png: no such file",
        "loads url('//x.org/font.css",
    ]


def test_pages_for_the_file_view_become_pages_of_the_site() -> None:
    pytest.importorskip("mkdocs")
    hooks = script("hooks")
    adapted = list(hooks._lines("Text:\n- one\n- two\n\n```\nText:\n- code\n```\n| `a\\|b` |\n|---|"))
    assert adapted[:4] == ["Text:", "", "- one", "- two"]
    assert adapted[5:9] == ["```", "Text:", "- code", "```"]
    assert adapted[9:] == ["", "| `a|b` |", "|---|"]
    pages = ("CHANGELOG.md", "docs/verbs.md", "docs/design", "docs/notebooks/compare-bots.ipynb", "benchmarks/house.py")
    assert [hooks._page_of(path) for path in pages] == [
        "changelog.md",
        "verbs.md",
        "design/index.md",
        "notebooks/compare-bots.md",
        "source/benchmarks/house.py.md",
    ]


def test_the_index_of_figures_knows_every_script() -> None:
    text = figures.text()
    assert (ROOT / "docs/figures.md").read_text(encoding="utf-8") == text, "run: python docs/figures.py"
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert [name for name in scripts - set(figures.SHARED) if f"[{name}.py]" not in text] == []
