"""A report told twice, as a page and as plain text: the same parts, and the pictures as files of their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tertulia.judge.report import Section, figure, paragraph, table, write_report

PAGE, TEXT = "report.html", "report.md"


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture, the name of its file, and what it shows."""

    name: str
    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Part:
    """A heading, and what stands below it: pictures, a table, remarks."""

    title: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()
    notes: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()


def write_pages(folder: Path, *, title: str, lead: str, parts: Sequence[Part]) -> None:
    """Leave page, text and pictures in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        for picture in part.pictures:
            (folder / picture.name).write_text(picture.svg, encoding="utf-8")
    write_report(folder / PAGE, title=title, lead=lead, sections=[_section(part) for part in parts])
    text = [f"# {title}", lead, *(line for part in parts for line in _lines(part))]
    (folder / TEXT).write_text("\n\n".join(text) + "\n", encoding="utf-8")


def _section(part: Part) -> Section:
    pictures = [figure(picture.svg, picture.caption) for picture in part.pictures]
    rows = [table(part.head, part.rows)] if part.rows else []
    return Section(part.title, (*pictures, *rows, *(paragraph(note, quiet=bool(rows)) for note in part.notes)))


def _lines(part: Part) -> list[str]:
    pictures = [f"![{picture.caption}]({picture.name})" for picture in part.pictures]
    rows = [markdown_table(part.head, part.rows)] if part.rows else []
    return [f"## {part.title}", *pictures, *rows, *part.notes]


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as Markdown has it; bars in cells do not part them.

    >>> print(markdown_table(("run", "ppl"), [("a|b", 3)]))
    | run | ppl |
    |---|---|
    | a\\|b | 3 |
    """
    lines = [head, *rows]
    cells = ["| " + " | ".join(" ".join(str(c).replace("|", "\\|").split()) for c in line) + " |" for line in lines]
    return "\n".join([cells[0], "|" + "---|" * len(head), *cells[1:]])
