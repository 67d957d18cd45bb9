"""A report as one self-contained HTML file: text, tables, plots and conversations, readable in ten years.

Everything that comes from data is escaped. Web pages are made in web; this is a document, so a few functions suffice.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tertulia import __version__
from tertulia.core.dialogue import Dialogue

STYLE = """
:root {
  color-scheme: light dark;
  --ink: #2b2a27; --paper: #fbf9f4; --quiet: #6d675c; --line: #ddd5c6; --left: #f1e9da; --right: #e3ecec;
}
@media (prefers-color-scheme: dark) {
  :root { --ink: #ece7dc; --paper: #1d1c1a; --quiet: #a49d90; --line: #3b3833; --left: #33302a; --right: #24302f; }
}
body {
  font: 17px/1.55 Georgia, 'Times New Roman', serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
}
h1 { font-size: 2rem; margin-bottom: .2rem }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem }
.quiet { color: var(--quiet); font-size: .9rem }
table { border-collapse: collapse; width: 100%; font-size: .88rem }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line) }
td { vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.wide { overflow-x: auto }
figure { margin: 1rem 0; background: #fff; border-radius: 8px; padding: .6rem; overflow-x: auto }
figure svg { max-width: 100%; height: auto }
.conversation { display: flex; flex-direction: column; gap: .4rem; margin: 1rem 0 }
.turn { padding: .45rem .8rem; border-radius: 12px; max-width: 80%; white-space: pre-wrap; overflow-wrap: anywhere }
.turn.left { background: var(--left); align-self: flex-start }
.turn.right { background: var(--right); align-self: flex-end }
.turn small { display: block; color: var(--quiet) }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--left); padding: .8rem; border-radius: 8px }
"""


_NUMBER = re.compile(r"[-+−]?[.\d]|-$|nan$")
"""How the text of a numeric cell begins; a dash stands for a missing figure."""


@dataclass(frozen=True, slots=True)
class HtmlSection:
    """A heading and HTML that is already escaped, as the functions below make it."""

    title: str
    parts: tuple[str, ...]


def paragraph(text: str, *, quiet: bool = False) -> str:
    """A paragraph of plain text."""
    return f'<p class="quiet">{escape(text)}</p>' if quiet else f"<p>{escape(text)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table. Columns of numbers are aligned to the right and do not wrap, columns of text to the left."""
    cells = [[str(cell) for cell in row] for row in rows]
    numeric = [all(not row[i] or _NUMBER.match(row[i]) for row in cells if i < len(row)) for i in range(len(head))]

    def line(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="n">{escape(cell)}</{tag}>' if number else f"<{tag}>{escape(cell)}</{tag}>"
            for cell, number in zip(row, numeric, strict=False)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in cells)
    return f'<div class="wide"><table><thead><tr>{line("th", head)}</tr></thead><tbody>{body}</tbody></table></div>'


def figure(svg: str, caption: str) -> str:
    """A plot (SVG that we rendered) with a caption, which is also its text for screen readers."""
    return f'<figure role="img" aria-label="{escape(caption)}">{svg}</figure><p class="quiet">{escape(caption)}</p>'


def conversation(dialogue: Dialogue) -> str:
    """A dialogue as chat bubbles: the first speaker on the left, the others on the right."""
    first = dialogue.speakers[0] if dialogue.speakers else ""
    turns = "".join(_turn(t.speaker, t.text, "left" if t.speaker == first else "right") for t in dialogue.turns)
    return f'<div class="conversation">{turns}</div>'


def _turn(speaker: str, text: str, side: str) -> str:
    return f'<div class="turn {side}" dir="auto"><small>{escape(speaker)}</small>{escape(text)}</div>'


def code(text: str) -> str:
    """Preformatted text."""
    return f"<pre>{escape(text)}</pre>"


def write_html(path: Path, *, title: str, lead: str, sections: Iterable[HtmlSection]) -> None:
    """Write the document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "".join(f"<section><h2>{escape(s.title)}</h2>{''.join(s.parts)}</section>" for s in sections)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    footer = f'<p class="quiet">Made by Tertulia {escape(__version__)}.</p>'
    main = f"<main><h1>{escape(title)}</h1><p>{escape(lead)}</p>{body}{footer}</main>"
    page = f'<!doctype html><html lang="en"><head>{head}</head><body>{main}</body></html>\n'
    path.write_text(page, encoding="utf-8")
