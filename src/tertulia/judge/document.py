"""A report as a value: sections of tables, plots and notes, rendered as HTML, Markdown and JSON from the same parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tertulia.core.dialogue import Json
from tertulia.core.estimate import Estimate
from tertulia.judge.html import HtmlSection, figure, paragraph, table, write_html

HTML, MARKDOWN = "report.html", "report.md"


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot, the name of its file, and what it shows in words."""

    name: str
    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with plots, a table and notes below it."""

    title: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()
    notes: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    detail: bool = False
    """Whether it belongs into the files only, not on the terminal."""

    def as_json(self) -> dict[str, Json]:
        """The table and its notes; cells are text."""
        rows = [[str(cell) for cell in row] for row in self.rows]
        return {"title": self.title, "head": list(self.head), "rows": rows, "notes": list(self.notes)}


@dataclass(frozen=True, slots=True)
class Document:
    """A complete report."""

    title: str
    lead: str
    sections: tuple[Section, ...]


def write_document(document: Document, folder: Path) -> None:
    """Write report.html, report.md and the plots into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for section in document.sections:
        for plot in section.plots:
            (folder / plot.name).write_text(plot.svg, encoding="utf-8")
    write_html_document(document, folder / HTML)
    lines = [f"# {document.title}", document.lead, *(line for s in document.sections for line in _markdown(s))]
    (folder / MARKDOWN).write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def write_html_document(document: Document, path: Path) -> None:
    """Write the report as one self-contained HTML file."""
    sections = [_html(section) for section in document.sections]
    write_html(path, title=document.title, lead=document.lead, sections=sections)


def _html(section: Section) -> HtmlSection:
    plots = [figure(plot.svg, plot.caption) for plot in section.plots]
    rows = [table(section.head, section.rows)] if section.rows else []
    notes = [paragraph(note, quiet=bool(rows)) for note in section.notes]
    return HtmlSection(section.title, (*plots, *rows, *notes))


def _markdown(section: Section) -> list[str]:
    plots = [f"![{plot.caption}]({plot.name})" for plot in section.plots]
    rows = [markdown_table(section.head, section.rows)] if section.rows else []
    return [f"## {section.title}", *plots, *rows, *section.notes]


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown; vertical bars in cells are escaped.

    >>> print(markdown_table(("run", "ppl"), [("a|b", 3)]))
    | run | ppl |
    |---|---|
    | a\\|b | 3 |
    """
    lines = [head, *rows]
    cells = ["| " + " | ".join(" ".join(str(c).replace("|", "\\|").split()) for c in line) + " |" for line in lines]
    return "\n".join([cells[0], "|" + "---|" * len(head), *cells[1:]])


def short(estimate: Estimate, *, percent: bool = False) -> str:
    """A value and its interval in little room.

    >>> short(Estimate(0.4912, 0.478, 0.503, 7801)), short(Estimate(0.4912, 0.478, 0.503, 7801), percent=True)
    ('.491 [.478, .503]', '49.1 [47.8, 50.3]')
    >>> short(Estimate(float("nan"))), short(Estimate(0.25, n=9)), short(Estimate(38.0812, 37.0, 39.2149, 12))
    ('-', '.250', '38.08 [37.00, 39.21]')
    """
    if estimate.n == 0:
        return "-"
    large = abs(estimate.value) >= 2
    value, low, high = (_plain(x, percent=percent, large=large) for x in (estimate.value, estimate.low, estimate.high))
    return value if low == "nan" else f"{value} [{low}, {high}]"


def _plain(value: float, *, percent: bool, large: bool) -> str:
    """One digit in per cent, two digits of large figures, else three digits without the zero before the point."""
    if percent:
        return f"{100 * value:.1f}"
    if large:
        return f"{value:.2f}"
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"
