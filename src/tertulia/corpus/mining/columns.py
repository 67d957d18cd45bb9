"""Columns of texts as flat bytes, so that NumPy can count in all rows at once.

Arrow keeps a column of strings as one run of UTF-8 with offsets; everything here works on that form. Kinds of bytes
are told by comparing, not by looking up in a table: processors compare 32 bytes at once. Unsigned bytes wrap around, so
that `byte - low < count` asks for a range with one comparison.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tertulia.corpus.rules import is_letter

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
StringArray = Any
"""A `pyarrow.StringArray`; pyarrow comes without types."""


BLOCK = 16_384
"""Rows whose bytes are looked at together: so much that a batch of threads is one block, and a thread of a hundred
thousand messages does not need memory for all its bytes at once."""


def blocks(rows: int) -> Iterator[slice]:
    """All rows (at least one block), so many at a time."""
    return (slice(start, start + BLOCK) for start in range(0, max(1, rows), BLOCK))


class Texts(NamedTuple):
    """A column of texts as bytes."""

    data: Bytes
    offsets: Ints
    """Where each row begins; one more than rows, from 0 to the length of the data."""

    @property
    def sizes(self) -> Ints:
        """Bytes in each row."""
        return np.diff(self.offsets)


def whole_array(column: Any) -> Any:
    """A column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def texts_of(array: StringArray) -> Texts:
    """The bytes of a string array; null rows are empty, whatever bytes lie under them."""
    if array.null_count:
        array = array.fill_null("")
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = array.buffers()[2]
    flat = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
    return Texts(flat[offsets[0] : offsets[-1]], offsets - offsets[0])


def sum_in_rows(values: npt.NDArray[Any], offsets: Ints) -> Ints:
    """The sum of each row's values."""
    total = np.zeros(len(offsets) - 1, np.int64)
    rows = np.flatnonzero(np.diff(offsets))
    total[rows] = np.add.reduceat(values, offsets[rows], dtype=np.int32) if len(rows) else 0
    return total


class Runs(NamedTuple):
    """Runs of bytes that never reach over the end of a row, in their order."""

    starts: Ints
    ends: Ints
    rows: Ints


def runs_in_rows(inside: Flags, offsets: Ints) -> Runs:
    """The longest runs of neighbouring bytes that are inside, each within one row."""
    breaks = ~inside
    first, last = ~breaks, ~breaks
    first[1:] &= breaks[:-1]
    last[:-1] &= breaks[1:]
    edges = offsets[1:-1]
    edges = edges[(edges > 0) & (edges < len(inside))]
    first[edges] = inside[edges]
    last[edges - 1] = inside[edges - 1]
    starts = np.flatnonzero(first)
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(np.searchsorted(starts, offsets)))
    return Runs(starts, np.flatnonzero(last) + 1, rows)


def are_letters(data: Bytes) -> Flags:
    """ASCII letters."""
    return np.asarray(((data | 32) - np.uint8(97)) < 26)


def are_digits(data: Bytes) -> Flags:
    """ASCII digits."""
    return np.asarray((data - np.uint8(48)) < 10)


def are_blanks(data: Bytes) -> Flags:
    """The blanks people type."""
    return np.asarray((data == 32) | (data == 10) | (data == 9) | (data == 13))


def in_lower_case(data: Bytes) -> Bytes:
    """ASCII letters in lower case, all else as it was."""
    return np.asarray(data | (((data - np.uint8(65)) < 26).view(np.uint8) << 5))


def rows_at(texts: Texts, places: Ints) -> Flags:
    """The rows in which some bytes lie."""
    found = np.zeros(len(texts.offsets) - 1, np.bool_)
    found[np.searchsorted(texts.offsets, places, side="right") - 1] = True
    return found


def plain_rows(texts: Texts) -> Flags:
    """Rows of printable ASCII and the blanks people type alone: where the rules' shortcuts are exact."""
    return ~rows_at(texts, np.flatnonzero(~(((texts.data - np.uint8(32)) < 95) | are_blanks(texts.data))))


def letters_and_length(texts: Texts, plain: Flags) -> tuple[Ints, Ints]:
    """Letters and characters of each row, as `is_letter` and `len` count them. `plain` rows are ASCII alone."""
    letters, length = sum_in_rows(are_letters(texts.data), texts.offsets), texts.sizes
    odd = np.flatnonzero(~plain)
    if len(odd):
        rows = take_rows(texts, odd)
        length = length.copy()
        length[odd] -= sum_in_rows((rows.data & 0xC0) == 0x80, rows.offsets)  # bytes that go on with a character
        code_points = np.frombuffer(rows.data.tobytes().decode().encode("utf-32-le"), np.uint32)
        ends = np.concatenate([[0], np.cumsum(length[odd])])
        letters[odd] = sum_in_rows(_alphabetic(code_points), ends)
    return letters, length


def take_rows(texts: Texts, rows: Ints) -> Texts:
    """Some rows, in the order asked for."""
    sizes = texts.sizes[rows]
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    places = np.arange(ends[-1]) + np.repeat(texts.offsets[rows] - ends[:-1], sizes)
    return Texts(texts.data[places], ends)


_UNKNOWN = 2
_ALPHABETIC = np.full(0x110000, _UNKNOWN, np.uint8)
"""For every code point, whether the rules call it a letter; filled in as they come."""


def _alphabetic(code_points: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    new = code_points[_ALPHABETIC[code_points] == _UNKNOWN]
    if len(new):
        every = np.unique(new)
        _ALPHABETIC[every] = [is_letter(chr(c)) for c in every.tolist()]
    return _ALPHABETIC[code_points]
