"""Rows of CSV as Python's csv module writes them, each with the line it begins on, and a row of cells as such a line.

A cell may hold line breaks, so a quote that never closes would swallow the rows after it. Quoting is strict here: at
the next quote (or at the longest cell the csv module allows, 131,072 characters) the row is found to be damaged, and
reading starts over at the line below the one it began on. So damage costs its own row.
"""

import csv
import io
from collections import deque
from collections.abc import Iterable, Iterator

from tertulia.corpus.readers.base import is_whole
from tertulia.corpus.readers.records import Record


class _Feed:
    """Lines that can be given back."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines, self._back = iter(lines), deque[str]()
        self.taken: list[str] = []
        """Those of the row that is being read."""
        self.number = 0

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        line = self._back.popleft() if self._back else next(self._lines)
        self.taken.append(line)
        self.number += 1
        return line

    def give_back(self) -> str:
        """Give back all lines of the row but the first, which is returned."""
        first, *rest = self.taken
        self._back.extendleft(reversed(rest))
        self.number -= len(rest)
        return first


def csv_rows(lines: Iterable[str]) -> Iterator[Record]:
    """Each row that is not blank as a list of cells; of a damaged one, what stands between the commas of its line.

    >>> [(row.line, row.value, bool(row.damage)) for row in csv_rows(['a,"b\\n', 'c"\\n', 'd,"e\\n', 'f,"g"\\n'])]
    [(1, ['a', 'b\\nc'], False), (3, ['d', '"e'], True), (4, ['f', 'g'], False)]
    """
    feed = _Feed(lines)
    rows = csv.reader(feed, strict=True)
    while True:
        feed.taken.clear()
        start = feed.number + 1
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as why:
            yield Record(start, feed.give_back().rstrip("\n").split(","), str(why))
        else:
            if cells:
                yield Record(start, cells, "" if all(map(is_whole, cells)) else "half a character: not valid UTF-8")


def csv_line(cells: Iterable[str]) -> str:
    """A row, line end included. Line ends within cells are those of Unix: a file's own would read as the same.

    >>> csv_line(["a", "b,c", "d"])
    'a,"b,c",d\\n'
    """
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(map(unix_lines, cells))
    return line.getvalue()


def unix_lines(text: str) -> str:
    """The text with line feeds alone at the ends of its lines."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def columns_of(head: str) -> tuple[str, ...]:
    """The first row of a table.

    >>> columns_of('Context,"Utterance",Label\\nhi __eou__ __eot__,hello __eou__,1')
    ('Context', 'Utterance', 'Label')
    """
    first = next(csv_rows(head.split("\n", 1)[:1]), None)
    return tuple(first.value) if first and not first.damage else ()
