"""Columns of texts as flat bytes, so that NumPy can count in all rows at once.

Arrow keeps a column of strings as one run of UTF-8 with offsets; everything here works on that form. Counting per row
is a running sum over the bytes, read off at the offsets.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
StringArray = Any
"""A `pyarrow.StringArray`; pyarrow comes without types."""


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


def count_in_rows(texts: Texts, chosen: npt.NDArray[Any]) -> Ints:
    """For each row, how many of its bytes are chosen (`chosen` holds 0 or 1 for each of the 256 bytes)."""
    return sum_in_rows(chosen[texts.data], texts.offsets)


def sum_in_rows(values: npt.NDArray[Any], offsets: Ints) -> Ints:
    """The sum of each row's values."""
    running = np.zeros(len(values) + 1, np.int32)
    np.cumsum(values, out=running[1:])
    return (running[offsets[1:]] - running[offsets[:-1]]).astype(np.int64)


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


def bytes_table(*parts: bytes | range) -> npt.NDArray[np.uint8]:
    """1 for the bytes named, 0 for all others.

    >>> bytes_table(b"ab", range(48, 58)).sum()
    np.uint64(12)
    """
    table = np.zeros(256, np.uint8)
    for part in parts:
        table[list(part)] = 1
    return table


LETTERS = bytes_table(range(65, 91), range(97, 123))
PLAIN = bytes_table(range(32, 127), b"\t\n\r")
"""Printable ASCII and the blanks people type: where the rules' shortcuts are exact."""
CONTINUES = bytes_table(range(128, 192))
"""Bytes of UTF-8 that go on with a character, and begin none."""


def letters_and_length(texts: Texts, plain: Flags) -> tuple[Ints, Ints]:
    """Letters and characters of each row, as `str.isalpha` and `len` count them. `plain` rows are ASCII alone."""
    letters, length = count_in_rows(texts, LETTERS), texts.sizes
    odd = np.flatnonzero(~plain)
    if len(odd):
        rows = take_rows(texts, odd)
        length = length.copy()
        length[odd] -= count_in_rows(rows, CONTINUES)
        code_points = np.frombuffer(rows.data.tobytes().decode().encode("utf-32-le"), np.uint32)
        ends = np.concatenate([[0], np.cumsum(length[odd])])
        letters[odd] = sum_in_rows(_alphabetic()[code_points], ends)
    return letters, length


def take_rows(texts: Texts, rows: Ints) -> Texts:
    """Some rows, in the order asked for."""
    sizes = texts.sizes[rows]
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    places = np.arange(ends[-1]) + np.repeat(texts.offsets[rows] - ends[:-1], sizes)
    return Texts(texts.data[places], ends)


@cache
def _alphabetic() -> Flags:
    """For every code point, whether Python calls it a letter."""
    every = np.arange(0x110000, dtype=np.uint32)
    return np.fromiter((chr(c).isalpha() for c in every.tolist()), np.bool_, len(every))
