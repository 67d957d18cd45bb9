"""What all commands share: tables, JSON, progress bars on stderr.

Everything that is printed passes here, and no text reaches the terminal as it is: characters that would control it are
shown, not sent. Colours are for terminals, and never if NO_COLOR is set.
"""

import errno
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from tertulia.cli.verbosity import verbosity
from tertulia.core.codec import Problems
from tertulia.core.progress import Pace, duration
from tertulia.core.text import plural, visible


class SafeConsole(Console):
    """A console that shows control characters in texts; its own, for colours and cursors, are not in texts."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The segments of anything that is printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Leave it to `ending`; rich's own way would silence the console for good."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


out = SafeConsole(highlight=False, markup=False, emoji=False, soft_wrap=True)
err = SafeConsole(stderr=True, highlight=False, markup=False, emoji=False)
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\ud800-\udfff]")
_FIGURE = re.compile(r"\s*(?:x |[-+−<~])?[\d.]|\s*(?:[-–]|nan|n/a)(?:[\s]|$)")
_UNBROKEN = re.compile(r"\[-?[\d.]+, -?[\d.]+\]|\(n = \d+\)")
"""Intervals and counts, which stay on one line."""
WIDE = 100
"""Columns of a terminal on which a progress bar has room for everything."""
MISSING = "–"
"""What a table shows where there is no value."""
GAP = 2
"""Spaces between two columns of a table."""
MAX_WORD = 16
"""Longer words of a cell may be broken rather than have a table in parts: paths, names of models."""
MAX_NAME = 24
"""Of the first column, which says what a row is about."""


def print_json(value: Any) -> None:
    """One JSON document on stdout. What JSON allows and a terminal or UTF-8 does not is escaped: the values stay."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    typer.echo(_UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text))


def print_text(text: str) -> None:
    """A text as it is, without wrapping and without a line break at the end."""
    typer.echo(visible(text), nl=False)


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", left: bool = False) -> None:
    """A table for people; cells are text, never markup. One that is too wide is printed in parts, below each other.

    Figures are aligned to the right, texts to the left; with `left`, everything.
    """
    cells = [[visible(cell_text(cell)) for cell in row] for row in rows]
    for k, columns in enumerate(table_parts(head, cells, out.width)):
        table = Table(
            title=Text(title, style="table.title") if title and not k else None,
            title_justify="left",
            box=None,
            pad_edge=False,
            header_style="bold",
        )
        texts = [[head[i], *(row[i] for row in cells if i < len(row))] for i in columns]
        for i, column, width in zip(columns, texts, _widths(texts, out.width), strict=True):
            table.add_column(
                head[i],
                justify="right" if i and not left and _is_numeric(column[1:]) else "left",
                overflow="fold",  # a cut name is ambiguous
                width=width,
            )
        for row in cells:
            table.add_row(*(Text(row[i]) for i in columns if i < len(row)))
        if k:
            out.print()
        out.print(table)


def cell_text(value: object) -> str:
    """A value as people read it: what is missing or undefined is a dash.

    >>> cell_text(None), cell_text(float("nan")), cell_text(3)
    ('–', '–', '3')
    """
    undefined = value is None or (isinstance(value, float) and value != value)
    return MISSING if undefined else str(value)


def table_parts(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Which columns stand in each part, so that words need not be broken: the first one in all of them, and p-values
    beside what they are of.

    >>> table_parts(["bot", "sentiment", "coherence"], [["anna", "0.068 [0.007, 0.189]", "1"]], 80)
    [[0, 1, 2]]
    >>> table_parts(["bot", "sentiment", "coherence"], [["anna", "0.068\\n[0.007, 0.189]", "1"]], 24)
    [[0, 1], [0, 2]]
    >>> table_parts(["bot", "hits@1", "p", "mrr", "p"], [["anna", ".134", "<.001", ".5", ".2"]], 24)
    [[0, 1, 2], [0, 3, 4]]
    """
    columns = [[name, *(row[i] for row in rows if i < len(row))] for i, name in enumerate(head)]
    widths = [size + GAP for size in _least_widths(columns)]
    together: list[list[int]] = []
    for i, name in enumerate(head[1:], 1):
        together[-1].append(i) if name == "p" and together else together.append([i])
    parts, room = [[0]], width - sum(widths[:1])
    for group in together:
        size = sum(widths[i] for i in group)
        if size > room and len(parts[-1]) > 1:
            parts.append([0])
            room = width - widths[0]
        parts[-1] += group
        room -= size
    return parts if head else []


def _widths(columns: Sequence[Sequence[str]], room: int) -> list[int | None]:
    """How wide columns are: the widest ones give way first, and none is narrower than its words. None where there is
    room for everything, or not even for the words.
    """
    full = [max(len(line) for text in texts for line in text.split("\n")) for texts in columns]
    least = [min(few, most) for few, most in zip(_least_widths(columns), full, strict=True)]
    room -= GAP * (len(columns) - 1)
    if sum(full) <= room or sum(least) > room:
        return [None] * len(columns)
    limit = max(full)
    while sum(widths := [max(few, min(most, limit)) for few, most in zip(least, full, strict=True)]) > room:
        limit -= 1
    return [*widths]


def _least_widths(columns: Sequence[Sequence[str]]) -> list[int]:
    """How narrow columns may be, so that words, intervals and counts are not broken."""
    limits = [MAX_NAME, *[MAX_WORD] * (len(columns) - 1)]
    return [
        max(min(limit, _longest_word(texts)), _longest_line(texts))
        for limit, texts in zip(limits, columns, strict=False)
    ]


def _is_numeric(column: Sequence[str]) -> bool:
    """Whether a column has figures, which stand on the right; texts stand on the left."""
    return all(not cell.strip() or _FIGURE.match(cell) for cell in column)


def _longest_word(texts: Sequence[str]) -> int:
    return max(map(len, " ".join(texts).split()), default=0)


def _longest_line(texts: Sequence[str]) -> int:
    """Of a column with intervals or counts, which are never broken; 0 for any other."""
    cells = texts[1:]
    if not any(map(_UNBROKEN.search, cells)):
        return 0
    return max(len(line) for line in (*texts[0].split(), *"\n".join(cells).split("\n")))


def print_problems(problems: Problems) -> None:
    """Print what was skipped, if anything was."""
    if problems.count:
        err.print(Text(f"Skipped {plural(problems.count, 'damaged line')}, for example:", style="yellow"))
        for example in problems.examples:
            err.print(Text(f"  {example}", style="yellow"))


class CountColumn(MofNCompleteColumn):
    """How much of a step is done; nothing for a step that is not counted."""

    def render(self, task: Task) -> Text:
        """The count, with the total where it is known."""
        if task.fields["counted"]:
            return super().render(task)
        return Text(f"{task.completed:g}" if task.completed and not task.finished else "", style="progress.download")


def _bar_columns(width: int) -> list[ProgressColumn]:
    """What a bar shows: on a narrow terminal only what matters, on one line, because a line that wraps is drawn anew
    with every step."""

    def text(template: str, **options: Any) -> TextColumn:
        column = Column(no_wrap=True, overflow="ellipsis", **options)
        return TextColumn(template, markup=False, table_column=column)

    wide, free = width >= WIDE, width - (60 if width >= WIDE else 28)
    has_note = width >= 60
    title = text("{task.description}", max_width=max(8, free // 2 if has_note else free))
    bar: list[ProgressColumn] = [BarColumn(bar_width=24)] if wide else []
    times: list[ProgressColumn] = [TimeElapsedColumn()] if wide else []
    note: list[ProgressColumn] = [text("{task.fields[note]}", max_width=max(8, free // 2))] if has_note else []
    left: list[ProgressColumn] = [text("{task.fields[left]}")] if width >= 30 else []
    return [SpinnerColumn(finished_text="[green]✓"), title, *bar, CountColumn(), *times, *left, *note]


class Bars(AbstractContextManager["Bars"]):
    """Progress bars on stderr: one line per step, with its elapsed and remaining time and its note.

    Without a terminal, plain lines: one at the end of each step, and one per minute during a long step.
    """

    LINE_SECONDS = 60.0
    """Seconds between two plain lines."""

    def __init__(self) -> None:
        quiet = verbosity().quiet
        self._lines = not err.is_terminal and not quiet
        self._progress = Progress(*_bar_columns(err.width), console=err, disable=quiet or not err.is_terminal)
        self._task: TaskID | None = None
        self._title, self._start, self._note, self._last_line = "", 0.0, "", 0.0
        self._pace = Pace(None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._end()
        self._progress.stop()

    def step(self, title: str, total: int | None = None) -> None:
        """End the previous step and begin this one."""
        self._end()
        self._title, self._start, self._pace = title, time.perf_counter(), Pace(total)
        self._last_line = self._start
        self._task = self._progress.add_task(title, total=total, left="", note="", counted=total is not None)

    def advance(self, n: int = 1) -> None:
        """Move the bar, or print a line from time to time."""
        if self._task is None:
            return
        self._pace.advance(n)
        self._progress.update(self._task, advance=n, left=self._remaining())
        now = time.perf_counter()
        if self._lines and now - self._last_line >= self.LINE_SECONDS:
            self._last_line = now
            of = f"{self._pace.done}/{self._pace.total}" if self._pace.total else f"{self._pace.done}"
            line = ", ".join(part for part in (f"{self._title} {of}", self._remaining(), self._note) if part)
            err.print(Text(line), soft_wrap=True)

    def note(self, text: str) -> None:
        """Shown next to the step."""
        self._note = text
        if self._task is not None:
            self._progress.update(self._task, note=text)

    def _remaining(self) -> str:
        left = self._pace.left()
        return "" if left is None else f"{duration(left)} left"

    def _end(self) -> None:
        if self._task is None:
            return
        title = f"{self._title}: {self._note}" if self._note else self._title
        task = self._progress.tasks[self._task]
        done = task.total or 1
        self._progress.update(self._task, description=title, total=done, completed=done, left="", note="")
        if self._lines:
            err.print(Text(f"{title} ({time.perf_counter() - self._start:.1f} s)"), soft_wrap=True)
        self._task, self._note = None, ""
