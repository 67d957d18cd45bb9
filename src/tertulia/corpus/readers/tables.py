"""Read and write rows of CSV as Python's csv module writes them, each with the line it begins on.

A cell may contain line breaks, so an unclosed quote would swallow the rows after it. Quoting is strict here: at the
next quote (or at the longest cell that the csv module allows, 131,072 characters) the row turns out to be damaged, and
reading continues on the line after the one it began on. So damage is limited to its own row.
"""

import csv
import io
from collections import deque
from collections.abc import Iterable, Iterator

from tertulia.corpus.readers.base import INVALID_UTF8, is_valid_text, unix_lines
from tertulia.corpus.readers.records import Record


class _Lines:
    """An iterator over lines that can be returned to it."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines, self._returned = iter(lines), deque[str]()
        self.taken: list[str] = []
        """The lines of the current row."""
        self.number = 0

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._returned.popleft() if self._returned else next(self._lines)
        self.taken.append(line)
        self.number += 1
        return line

    def return_all_but_first(self) -> str:
        """Return all lines of the row but the first to the iterator; the result is the first."""
        first, *rest = self.taken
        self._returned.extendleft(reversed(rest))
        self.number -= len(rest)
        return first


def csv_rows(lines: Iterable[str]) -> Iterator[Record]:
    """Each row that is not blank as a list of cells; of a damaged row, its line split at commas.

    >>> [(row.line, row.value, bool(row.damage)) for row in csv_rows(['a,"b\\n', 'c"\\n', 'd,"e\\n', 'f,"g"\\n'])]
    [(1, ['a', 'b\\nc'], False), (3, ['d', '"e'], True), (4, ['f', 'g'], False)]
    """
    source = _Lines(lines)
    rows = csv.reader(source, strict=True)
    while True:
        source.taken.clear()
        start = source.number + 1
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as why:
            yield Record(start, source.return_all_but_first().rstrip("\n").split(","), str(why))
        else:
            if cells:
                yield Record(start, cells, "" if all(map(is_valid_text, cells)) else INVALID_UTF8)


def csv_line(cells: Iterable[str]) -> str:
    """A row as a line, with its line end. Line ends within cells become line feeds, as reading would make them.

    >>> csv_line(["a", "b,c", "d"])
    'a,"b,c",d\\n'
    """
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(map(unix_lines, cells))
    return line.getvalue()


def columns_of(head: str) -> tuple[str, ...]:
    """The column names of a table: its first row.

    >>> columns_of('Context,"Utterance",Label\\nhi __eou__ __eot__,hello __eou__,1')
    ('Context', 'Utterance', 'Label')
    """
    row = next(csv_rows(head.split("\n", 1)[:1]), None)
    return tuple(row.value) if row and not row.damage else ()
