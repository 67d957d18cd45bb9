"""A report as a value: sections of tables, plots, examples and notes, rendered as HTML, Markdown and JSON."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tertulia.artefacts.outputs import write_output
from tertulia.core.dialogue import Json
from tertulia.core.estimate import Estimate
from tertulia.judge.html import CellLink, HtmlSection, bubbles, csv_link, details, figure, paragraph, table, write_html
from tertulia.judge.report_leaderboard import SIGNS, Mark
from tertulia.judge.report_texts import ShownTurn

HTML, MARKDOWN = "report.html", "report.md"
SPOKEN: dict[Mark, str] = {"best": "best", "tied": "not significantly different from the best", "": ""}
_INTERVAL = re.compile(r"(?:x )?([-+−]?[\d.]+) \[([-−]?[\d.]+), ([-−]?[\d.]+)\]")
"""A figure with its interval, as text."""
MAX_EXAMPLE = 600
"""Longest text of an example, in characters; the data behind the cells has all of it."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot, the name of its file, and what it shows in words."""

    name: str
    svg: str
    caption: str


class FigureCell(NamedTuple):
    """A figure in a table, with its place among the best, and its number in the data of the page."""

    estimate: Estimate
    mark: Mark
    number: int

    def __str__(self) -> str:
        return f"{self.estimate}{SIGNS[self.mark] and ' '}{SIGNS[self.mark]}"


class Example(NamedTuple):
    """A conversation or an exchange to read, and why it is shown."""

    title: str
    turns: tuple[ShownTurn, ...]


class ExampleGroup(NamedTuple):
    """Examples of one subject."""

    title: str
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with plots, a table, examples and notes below it."""

    title: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()
    notes: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    detail: bool = False
    """Whether it belongs into the files only, not on the terminal."""
    examples: tuple[ExampleGroup, ...] = ()
    better: Mapping[str, bool | None] = field(default_factory=dict)
    """For columns that are metrics: whether higher is better."""

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
    identity: tuple[tuple[str, str], ...] = ()
    """What it is about: command, date, version, data, checkpoints."""
    warnings: tuple[str, ...] = ()
    """Why the figures may not be what they seem, to be read before them."""


def write_document(document: Document, folder: Path, *, data: str = "") -> None:
    """Write report.html, report.md and the plots into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for section in document.sections:
        for plot in section.plots:
            with write_output(folder / plot.name) as file:
                file.write_text(plot.svg, encoding="utf-8")
    write_html_document(document, folder / HTML, data=data)
    with write_output(folder / MARKDOWN) as file:
        file.write_text(markdown_document(document), encoding="utf-8")


def markdown_document(document: Document) -> str:
    """The report in Markdown."""
    head = [f"# {document.title}", document.lead, *([_facts(document.identity)] if document.identity else [])]
    head += [f"> **Warning:** {_plain_line(text)}" for text in document.warnings]
    lines = [*head, *(line for section in document.sections for line in _markdown(section))]
    return "\n\n".join(lines) + "\n"


def write_html_document(document: Document, path: Path, *, data: str = "") -> None:
    """Write the report as one self-contained HTML file; `data` is what its cells lead to."""
    sections = [_html(section) for section in document.sections]
    write_html(
        path,
        title=document.title,
        lead=document.lead,
        identity=document.identity,
        warnings=document.warnings,
        sections=sections,
        data=data,
    )


def _html(section: Section) -> HtmlSection:
    plots = [figure(plot.svg, plot.caption) for plot in section.plots]
    rows = []
    if section.rows:
        head, body = _shown(section)
        rows = [table(head, body, label=section.title), csv_link(*_for_csv(section), section.title)]
    groups = [details(g.title, _example_parts(g), is_open=i == 0) for i, g in enumerate(section.examples)]
    notes = [paragraph(note, quiet=bool(rows)) for note in section.notes]
    return HtmlSection(section.title, (*plots, *rows, *notes, *groups))


def _example_parts(group: ExampleGroup) -> Iterator[str]:
    for example in group.examples:
        turns = ((_speaker(turn), _cut(turn.text)) for turn in example.turns)
        yield paragraph(example.title, quiet=True) + bubbles(turns)


def _speaker(turn: ShownTurn) -> str:
    return f"{turn.speaker} ({turn.role})" if turn.role in ("reply", "reference") else turn.speaker


def _cut(text: str) -> str:
    return text if len(text) <= MAX_EXAMPLE else f"{text[:MAX_EXAMPLE]}…"


def _shown(section: Section) -> tuple[list[str], list[list[object]]]:
    """The table as a page shows it: figures in short form, and the number of units in a column of its own."""
    arrows = {True: " ↑", False: " ↓", None: ""}
    head = [f"{name}{arrows[section.better.get(name)]}" for name in section.head]
    if not any(isinstance(cell, FigureCell) for row in section.rows for cell in row):
        return head, [list(row) for row in section.rows]
    columns = [[row[i] for row in section.rows] for i in range(len(head))]
    styles = [NumberStyle.of(c.estimate for c in column if isinstance(c, FigureCell)) for column in columns]
    rows = [
        [
            *(_link(c, style) if isinstance(c, FigureCell) else c for c, style in zip(row, styles, strict=True)),
            _units([cell.estimate for cell in row if isinstance(cell, FigureCell)]),
        ]
        for row in section.rows
    ]
    return [*head, "n"], rows


def _units(estimates: Sequence[Estimate]) -> str:
    """How many units a row has; what pooled figures pool is counted only if there is nothing else."""
    with_interval = [estimate for estimate in estimates if not math.isnan(estimate.low)]
    counts = sorted({estimate.n for estimate in with_interval or estimates})
    return "" if not counts else str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


class NumberStyle(NamedTuple):
    """How all figures of a column are written, so that they can be compared at a glance."""

    digits: int
    zero: bool
    """Whether there is a zero before the point."""

    @classmethod
    def of(cls, estimates: Iterable[Estimate]) -> "NumberStyle":
        """Two digits if a figure is large, else three; no zeros before the point if none is needed."""
        numbers = [abs(x) for e in estimates for x in (e.value, e.low, e.high) if not math.isnan(x)]
        largest = max(numbers, default=0.0)
        return cls(2 if largest >= 2 else 3, zero=largest >= 0.9995)

    def text(self, estimate: Estimate) -> str:
        """A value and its interval.

        >>> NumberStyle(3, zero=False).text(Estimate(0.4912, 0.478, 0.503, 7801))
        '.491 [.478, .503]'
        """
        if estimate.n == 0:
            return "-"
        value, low, high = (self._number(x) for x in (estimate.value, estimate.low, estimate.high))
        return value if math.isnan(estimate.low) else f"{value} [{low}, {high}]"

    def _number(self, value: float) -> str:
        text = f"{value:.{self.digits}f}"
        return text if self.zero else text.replace("0.", ".", 1)


def _link(cell: FigureCell, style: NumberStyle) -> CellLink:
    return CellLink(style.text(cell.estimate), cell.number, cell.mark, SPOKEN[cell.mark])


def _for_csv(section: Section) -> tuple[list[str], list[list[object]]]:
    """The table to compute with: intervals in columns of their own, and figures with all digits, n and mark."""
    columns = [[row[i] if i < len(row) else "" for row in section.rows] for i in range(len(section.head))]
    kinds = [_csv_columns(column) for column in columns]
    names = _unique(section.head)
    head = [f"{name}{part}" for name, parts in zip(names, kinds, strict=True) for part in parts]
    rows = [
        [value for cell, parts in zip(row, kinds, strict=False) for value in _csv_values(cell, len(parts))]
        for row in section.rows
    ]
    return head, rows


def _unique(names: Sequence[str]) -> list[str]:
    """Names of columns, of which those that repeat get the name of the column before.

    >>> _unique(["subject", "hits@1", "p", "mrr", "p"])
    ['subject', 'hits@1', 'hits@1 p', 'mrr', 'mrr p']
    """
    return [f"{names[i - 1]} {name}" if i and names.count(name) > 1 else name for i, name in enumerate(names)]


def _csv_columns(column: Sequence[object]) -> tuple[str, ...]:
    """What is added to the name of a column for each of the columns that it has in a CSV file."""
    if any(isinstance(cell, FigureCell) for cell in column):
        return ("", " low", " high", " n", " mark")
    return ("", " low", " high") if any(_INTERVAL.fullmatch(str(cell)) for cell in column) else ("",)


def _csv_values(cell: object, count: int) -> list[object]:
    """A cell as `count` values.

    >>> _csv_values("+.020 [-.010, .050]", 3), _csv_values("-", 3)
    (['+.020', '-.010', '.050'], ['-', '', ''])
    """
    if isinstance(cell, FigureCell):
        return [cell.estimate.value, cell.estimate.low, cell.estimate.high, cell.estimate.n, cell.mark]
    parts = _INTERVAL.fullmatch(str(cell)) if count == 3 else None
    return [*parts.groups()] if parts else [cell, *[""] * (count - 1)]


def _markdown(section: Section) -> list[str]:
    plots = [f"![{plot.caption}]({plot.name})" for plot in section.plots]
    rows = [markdown_table(section.head, section.rows)] if section.rows else []
    examples = [part for group in section.examples for part in _markdown_examples(group)]
    return [f"## {section.title}", *plots, *rows, *section.notes, *examples]


def _markdown_examples(group: ExampleGroup) -> Iterator[str]:
    yield f"### {group.title}"
    for example in group.examples:
        turns = [f"- **{_plain_line(_speaker(t))}**: {_plain_line(_cut(t.text))}" for t in example.turns]
        yield "\n".join([f"{example.title}", "", *turns])


def _facts(pairs: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"- {_plain_line(name)}: {_plain_line(value)}" for name, value in pairs)


def _plain_line(text: str) -> str:
    """Text in one line that Markdown does not take for HTML or for a table."""
    return " ".join(text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").split())


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
