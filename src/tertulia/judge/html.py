"""A report as one self-contained HTML file: text, tables, plots and conversations, readable in ten years.

Everything that comes from data is escaped. Web pages are made in web; this is a document, so a few functions suffice.
A document that holds data behind its cells has one script, ours; a content security policy names its digest, so that
the browser would refuse any other.
"""

import base64
import csv
import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from tertulia import __version__
from tertulia.artefacts.outputs import write_output
from tertulia.core.dialogue import Dialogue

ASSETS = Path(__file__).parent / "page"
_NUMERIC = re.compile(r"(?:x |[-+−<])?[.\d]|-$|nan$|–$")
"""How the text of a numeric cell begins; a dash stands for a missing figure."""
_TOKEN = re.compile(r"(?:x |[-+−<])?(?:\d[\d,]*\d|\d)?(?:\.\d+)?(?:e[-+]?\d+)?")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What makes a spreadsheet take a cell for a formula."""
PRINTED_COLUMNS = 7
"""Columns of figures with intervals that fit on a page, beside the first column."""


@dataclass(frozen=True, slots=True)
class HtmlSection:
    """A heading and HTML that is already escaped, as the functions below make it."""

    title: str
    parts: tuple[str, ...]


class CellLink(NamedTuple):
    """A cell of a table that leads to what it was computed from."""

    text: str
    number: int
    """Of the cell, in the page's data."""
    kind: str = ""
    """A class for its looks: best or tied."""
    spoken: str = ""
    """What its looks mean, for screen readers."""

    def __str__(self) -> str:
        return self.text


def paragraph(text: str, *, quiet: bool = False) -> str:
    """A paragraph of plain text."""
    return f'<p class="quiet">{escape(text)}</p>' if quiet else f"<p>{escape(text)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, label: str = "") -> str:
    """A table. Numbers do not wrap and are aligned at their decimal points; columns of text are on the left.

    On a screen a wide table scrolls. Paper does not, so there it is printed in parts of `PRINTED_COLUMNS` columns, each
    with the first one.
    """
    cells = [list(row) for row in rows]
    columns = [[str(row[i]) if i < len(row) else "" for row in cells] for i in range(len(head))]
    aligned = [_aligned(column) if _is_numeric(column) else None for column in columns]
    name = f' role="region" aria-label="{escape(label)}" tabindex="0"' if label else ""
    whole = _table(head, cells, aligned, range(len(head)), links=True)
    if len(head) - 1 <= PRINTED_COLUMNS:
        return f'<div class="wide"{name}>{whole}</div>'
    parts = (range(start, min(start + PRINTED_COLUMNS, len(head))) for start in range(1, len(head), PRINTED_COLUMNS))
    printed = "".join(_table(head, cells, aligned, (0, *part), links=False) for part in parts)
    return f'<div class="wide screen"{name}>{whole}</div><div class="printed">{printed}</div>'


def _table(
    head: Sequence[str],
    cells: Sequence[Sequence[object]],
    aligned: Sequence[Sequence[str] | None],
    columns: Sequence[int],
    *,
    links: bool,
) -> str:
    """Some columns of a table; without links, a cell is marked as its link would be."""

    def body() -> Iterator[str]:
        for r, row in enumerate(cells):
            yield "<tr>"
            for i in columns:
                if i >= len(row):
                    continue
                cell, numbers = row[i], aligned[i]
                inner = (_breakable(str(cell)) if i == 0 else escape(str(cell))) if numbers is None else numbers[r]
                if isinstance(cell, CellLink):
                    inner = _button(cell, inner) if links else f'<span class="{_cell_class(cell)}">{inner}</span>'
                tag = "th scope=row" if i == 0 and numbers is None else "td"
                side = ' class="n"' if numbers is not None else ""
                yield f'<{tag}{side} dir="auto">{inner}</{tag.split()[0]}>'
            yield "</tr>"

    top = "".join(
        f'<th scope="col"{" class=n" if aligned[i] is not None else ""}>{escape(head[i])}</th>'
        if head[i]
        else "<td></td>"
        for i in columns
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(body())}</tbody></table>"


def _breakable(text: str) -> str:
    """A name that may be broken after the parts of a path."""
    return re.sub(r"([/:?])", r"\1<wbr>", text) if not re.search(r"[<>&\"']", text) else escape(text)


def _is_numeric(column: Sequence[str]) -> bool:
    """Whether all cells are numbers; ranges such as 3-4 are not."""
    return all(not text or (_NUMERIC.match(text) and not re.search(r"\d-\d", text)) for text in column)


def _button(cell: CellLink, inner: str) -> str:
    spoken = f'<span class="spoken"> {escape(cell.spoken)}</span>' if cell.spoken else ""
    return f'<button type="button" class="{_cell_class(cell)}" data-cell="{cell.number}">{inner}{spoken}</button>'


def _cell_class(cell: CellLink) -> str:
    return f"cell {escape(cell.kind)}" if cell.kind else "cell"


def _aligned(column: Sequence[str]) -> list[str]:
    """Cells whose numbers stand below each other: the k-th number of each has its point at the same place.

    A number is moved by padding, not by splitting it, so that it is copied and read aloud as one word.
    """
    split = [list(_tokens(text)) for text in column]
    width = max((len(tokens) for tokens in split), default=0)
    before, after = [0] * width, [0] * width
    for tokens in split:
        for k, token in enumerate(tokens):
            whole, rest = _at_point(token)
            before[k], after[k] = max(before[k], whole), max(after[k], rest)
    cells = []
    for tokens in split:
        parts = []
        for k, token in enumerate(tokens):
            whole, rest = _at_point(token)
            left, right = (before[k] - whole, after[k] - rest) if whole + rest else (0, 0)
            right = right if k < width - 1 else 0
            style = f"{f'padding-left:{left}ch' if left else ''}{';' if left and right else ''}"
            style += f"padding-right:{right}ch" if right else ""
            parts.append(f'<span style="{style}">{escape(token)}</span>' if style else escape(token))
        cells.append("".join(parts))
    return cells


def _tokens(text: str) -> Iterator[str]:
    """A text cut into numbers and what is between them, in turn, beginning with a number.

    >>> list(_tokens("+.020 [-.010, .050]"))
    ['+.020', ' [', '-.010', ', ', '.050', ']']
    """
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        end = match.end() if match else at
        yield text[at:end]
        start = end
        while end < len(text) and not (text[end].isdigit() or text[end] in ".-+−<"):
            end += 1
        if end > start:
            yield text[start:end]
        elif end == at:  # a sign without a number
            yield text[end]
            end += 1
        at = end


def _at_point(token: str) -> tuple[int, int]:
    """Characters before the decimal point, and from it on; nothing for what is no number."""
    if not any(character.isdigit() for character in token):
        return 0, 0
    whole, point, rest = token.partition(".")
    return len(whole), len(point + rest)


def figure(svg: str, caption: str) -> str:
    """A plot (SVG that we rendered) with a caption, which is also its text for screen readers."""
    words = escape(caption)
    return f'<figure role="img" tabindex="0" aria-label="{words}">{svg}</figure><p class="quiet">{words}</p>'


def conversation(dialogue: Dialogue) -> str:
    """A dialogue as chat bubbles: the first speaker on the left, the others on the right."""
    return bubbles((turn.speaker, turn.text) for turn in dialogue.turns)


def bubbles(turns: Iterable[tuple[str, str]]) -> str:
    """Speakers and texts as chat bubbles."""
    first: str | None = None
    parts = []
    for speaker, text in turns:
        first = speaker if first is None else first
        side = "left" if speaker == first else "right"
        parts.append(f'<div class="turn {side}" dir="auto"><small>{escape(speaker)}</small>{escape(text)}</div>')
    return f'<div class="conversation">{"".join(parts)}</div>'


def details(summary: str, parts: Iterable[str], *, is_open: bool = False) -> str:
    """Something to unfold."""
    state = " open" if is_open else ""
    return f"<details{state}><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def code(text: str) -> str:
    """Preformatted text."""
    return f"<pre>{escape(text)}</pre>"


def csv_link(head: Sequence[str], rows: Iterable[Sequence[object]], name: str) -> str:
    """A link that saves a table as CSV; the file is in the link itself, so that it needs no network and no script."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([[csv_cell(cell) for cell in row] for row in (head, *rows)])
    address = f"data:text/csv;charset=utf-8,{quote(text.getvalue().encode('utf-8', 'replace'))}"
    stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "table"
    spoken = f'<span class="spoken"> of {escape(name)}</span>'
    return f'<p class="tools"><a download="{stem}.csv" href="{address}">CSV{spoken}</a></p>'


def saved_table(head: Sequence[str], rows: Iterable[Sequence[object]], name: str) -> str:
    """A table with a link that saves it."""
    cells = [list(row) for row in rows]
    return table(head, cells, label=name) + csv_link(head, cells, name)


def csv_cell(value: object) -> str:
    """A value as the text of a CSV cell that no spreadsheet runs as a formula.

    >>> csv_cell("=1+1"), csv_cell("-.020 [-.050, .010]"), csv_cell(-1.5), csv_cell("-help")
    ("'=1+1", '-.020 [-.050, .010]', '-1.5', "'-help")
    """
    text = str(value)
    if not text.lstrip().startswith(_FORMULA) or re.match(r"[-+]?\.?\d[\d.]*(?: \[[-.\d, ]+\])?$", text):
        return text
    return f"'{text}"


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def write_html(
    path: Path,
    *,
    title: str,
    lead: str,
    sections: Iterable[HtmlSection],
    identity: Iterable[tuple[str, str]] = (),
    warnings: Iterable[str] = (),
    data: str = "",
) -> None:
    """Write the document. `identity` says what it is about, `warnings` why not to trust it.

    `data` are the elements that the page's script reads; without them it has no script.
    """
    given = list(sections)
    body = "".join(
        f'<section id="s{i}"><h2>{escape(s.title)}</h2>{"".join(s.parts)}</section>' for i, s in enumerate(given)
    )
    contents = "".join(f'<li><a href="#s{i}">{escape(s.title)}</a></li>' for i, s in enumerate(given))
    menu = f'<nav aria-label="Sections"><ul>{contents}</ul></nav>' if data and len(given) > 2 else ""
    script = _asset("report.js") if data else ""
    allowed = f" script-src '{_digest(script)}';" if script else ""
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:;{allowed} base-uri 'none'; form-action 'none'"
    )
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{_asset('report.css')}</style>"
    )
    footer = f'<p class="quiet">Made by Tertulia {escape(__version__)}.</p>'
    top = f"<h1>{escape(title)}</h1><p>{escape(lead)}</p>{_facts(identity)}"
    top += "".join(f'<p class="warning" role="note"><strong>Warning.</strong> {escape(text)}</p>' for text in warnings)
    main = f"<main>{top}{menu}{body}{footer}</main>"
    tail = f"{data}<script>{script}</script>" if data else ""
    page = f'<!doctype html><html lang="en"><head>{head}</head><body>{main}{tail}</body></html>\n'
    with write_output(path) as file:
        file.write_text(page, encoding="utf-8")


def _facts(pairs: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f'<dt>{escape(name)}</dt><dd dir="auto">{_breakable(value)}</dd>' for name, value in pairs)
    return f'<dl class="identity">{rows}</dl>' if rows else ""


def _digest(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
