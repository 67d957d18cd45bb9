"""Columns of texts as flat bytes, so that NumPy can process all rows at once.

Arrow stores a column of strings as one UTF-8 buffer with offsets; everything here works on that form. Classes of bytes
are tested by comparison, not by table lookup, because processors compare 32 bytes at once. Unsigned bytes wrap around,
so `byte - low < count` tests a range with a single comparison.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tertulia.corpus.rules import is_letter

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
StringArray = Any
"""A `pyarrow.StringArray`; pyarrow has no type stubs."""


BLOCK = 16_384
"""Rows processed together: enough that a batch of threads is one block, few enough that a thread of a hundred thousand
messages does not need memory for all its bytes at once."""


def blocks(rows: int) -> Iterator[slice]:
    """Slices of BLOCK rows that cover all rows; at least one slice, even for no rows."""
    return (slice(start, start + BLOCK) for start in range(0, max(1, rows), BLOCK))


class Texts(NamedTuple):
    """A column of texts as bytes."""

    data: Bytes  # (bytes,)
    offsets: Ints  # (rows + 1,)
    """Start of each row; the first is 0, the last is the length of the data."""

    @property
    def sizes(self) -> Ints:
        """Bytes in each row."""
        return np.diff(self.offsets)


def contiguous(column: Any) -> Any:
    """A column as a single Arrow array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])


_ARROW_TYPES = {
    np.dtype(np.int32): pa.int32(),
    np.dtype(np.int64): pa.int64(),
    np.dtype(np.uint64): pa.uint64(),
    np.dtype(np.float64): pa.float64(),
}


def to_arrow(values: npt.NDArray[Any]) -> Any:
    """Numbers or flags as an Arrow array, numbers without a copy.

    `pa.array` would do, but imports pandas, if that is installed, for half a second in every worker.
    """
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(
            pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))]
        )
    kind = _ARROW_TYPES[values.dtype]
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def numbers_of(column: Any) -> npt.NDArray[Any]:
    """The numbers of a column without nulls; `to_numpy` would import pandas, too."""
    array = contiguous(column)
    dtype = np.dtype(str(array.type))
    return np.frombuffer(array.buffers()[1] or b"", dtype)[array.offset : array.offset + len(array)]


def flags_of(column: Any) -> Flags:
    """The flags of a column without nulls."""
    array = contiguous(column)
    packed = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    bits = np.unpackbits(packed, count=array.offset + len(array), bitorder="little")
    return np.asarray(bits[array.offset :].view(np.bool_))


def strings_to_arrow(texts: Sequence[str]) -> StringArray:
    """Texts as an Arrow array; for the same reason."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, encoded), np.int32, len(encoded)), out=offsets[1:])
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def replace_rows(array: StringArray, rows: Ints, texts: StringArray) -> StringArray:
    """The array with other texts in some rows; `pc.replace_with_mask`, in less time."""
    index = np.arange(len(array))
    index[rows] = np.arange(len(array), len(array) + len(texts))
    return pa.concat_arrays([array, texts]).take(to_arrow(index))


_EMPTY = strings_to_arrow([""])[0]
FALSE = to_arrow(np.zeros(1, np.bool_))[0]
"""Arrow's scalars, which it would import pandas to make."""


def texts_of(array: StringArray) -> Texts:
    """The bytes of a string array; null rows are empty, whatever bytes the buffer holds for them."""
    if array.null_count:
        array = array.fill_null(_EMPTY)
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = array.buffers()[2]
    flat = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
    return Texts(flat[offsets[0] : offsets[-1]], offsets - offsets[0])


def sparse_positions(flags: Flags) -> Ints:
    """Where flags are set, if few are: `np.flatnonzero`, eight flags at a time.

    >>> sparse_positions(np.array([False] * 9 + [True, False])).tolist()
    [9]
    """
    whole = len(flags) & ~7
    eights = np.flatnonzero(flags[:whole].view(np.uint64) != 0)
    row, place = np.nonzero(flags[:whole].reshape(-1, 8)[eights])
    positions = (eights[row] << 3) + place
    return np.concatenate([positions, np.flatnonzero(flags[whole:]) + whole])


def sum_in_rows(values: Ints, offsets: Ints) -> Ints:
    """The sum of each row's values."""
    total = np.zeros(len(offsets) - 1, np.int64)
    rows = np.flatnonzero(np.diff(offsets))  # reduceat cannot handle empty rows
    total[rows] = np.add.reduceat(values, offsets[rows]) if len(rows) else 0
    return total


_ONES = np.uint64(0x0101010101010101)
"""Times this, the highest of eight small bytes is the sum of them all."""
LOW_BYTES = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
"""LOW_BYTES[n] masks the first n of eight bytes."""


def count_in_rows(flags: Flags | Bytes, offsets: Ints) -> Ints:
    """How many flags (0 or 1) of each row are set: `sum_in_rows`, eight at a time.

    >>> count_in_rows(np.array([True, False, True, True]), np.array([0, 1, 1, 4])).tolist()
    [1, 0, 2]
    """
    eights = np.zeros(len(flags) // 8 + 1, "<u8")
    eights.view(np.uint8)[: len(flags)] = flags
    before = np.zeros(len(eights) + 1, np.int64)
    np.cumsum((eights * _ONES >> np.uint64(56)).view(np.int64), out=before[1:])
    whole, rest = offsets >> 3, offsets & 7
    begun = (eights[whole] & LOW_BYTES[rest]) * _ONES >> np.uint64(56)
    return np.asarray(np.diff(before[whole] + begun.view(np.int64)))


class Runs(NamedTuple):
    """Runs of bytes in order, none of which crosses the end of a row."""

    starts: Ints
    ends: Ints
    rows: Ints
    """The row of each run; non-decreasing."""
    offsets: Ints
    """First run of each row, and how many there are."""


def runs_in_rows(inside: Flags, offsets: Ints) -> Runs:
    """The maximal runs of consecutive bytes that are inside, split at the ends of rows."""
    breaks = ~inside
    first, last = ~breaks, ~breaks
    first[1:] &= breaks[:-1]  # a run starts where the byte before is outside ...
    last[:-1] &= breaks[1:]  # ... and ends where the byte after is
    edges = offsets[1:-1]
    edges = edges[(edges > 0) & (edges < len(inside))]
    first[edges] = inside[edges]  # every row boundary also starts a run, and ends the one before it
    last[edges - 1] = inside[edges - 1]
    starts = np.flatnonzero(first)
    counts = count_in_rows(first, offsets)
    rows = np.repeat(np.arange(len(counts)), counts)
    return Runs(starts, np.flatnonzero(last) + 1, rows, np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]))


def are_letters(data: Bytes) -> Flags:
    """ASCII letters."""
    return np.asarray(((data | 32) - np.uint8(97)) < 26)


def are_digits(data: Bytes) -> Flags:
    """ASCII digits."""
    return np.asarray((data - np.uint8(48)) < 10)


def are_blanks(data: Bytes) -> Flags:
    """The whitespace people type: space, newline, tab, carriage return."""
    return np.asarray((data == 32) | (data == 10) | (data == 9) | (data == 13))


def to_lower_case(data: Bytes) -> Bytes:
    """ASCII letters in lower case, all other bytes unchanged."""
    return np.asarray(data + ((data - np.uint8(65)) < 26).view(np.uint8) * np.uint8(32))


def row_starts(texts: Texts) -> Flags:
    """For each byte whether a row begins there; the end of the data counts, too."""
    starts = np.zeros(len(texts.data) + 1, np.bool_)
    starts[texts.offsets] = True
    return starts


def rows_containing(texts: Texts, positions: Ints) -> Flags:
    """Flags the rows that contain any of the byte positions."""
    rows = np.zeros(len(texts.offsets) - 1, np.bool_)
    rows[np.searchsorted(texts.offsets, positions, side="right") - 1] = True
    return rows


def plain_rows(texts: Texts) -> Flags:
    """Rows made of printable ASCII and typed whitespace only: where the shortcuts of the rules are exact."""
    others = sparse_positions((texts.data - np.uint8(32)) >= 95)
    return ~rows_containing(texts, others[~are_blanks(texts.data[others])])


def letters_and_length(texts: Texts, plain: Flags) -> tuple[Ints, Ints]:
    """Letters and characters of each row, as `is_letter` and `len` count them; `plain` rows are pure ASCII."""
    letters, length = count_in_rows(are_letters(texts.data), texts.offsets), texts.sizes
    other = np.flatnonzero(~plain)
    if len(other):
        rows = take_rows(texts, other)
        length = length.copy()
        length[other] -= count_in_rows((rows.data & 0xC0) == 0x80, rows.offsets)  # UTF-8 continuation bytes
        code_points = np.frombuffer(rows.data.tobytes().decode().encode("utf-32-le"), np.uint32)
        ends = np.concatenate([[0], np.cumsum(length[other])])
        letters[other] = count_in_rows(_alphabetic(code_points), ends)
    return letters, length


def take_rows(texts: Texts, rows: Ints) -> Texts:
    """The given rows, in the given order."""
    sizes = texts.sizes[rows]
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    # For each output byte its input position: the distance between the two is constant within a row.
    positions = np.arange(ends[-1]) + np.repeat(texts.offsets[rows] - ends[:-1], sizes)
    return Texts(texts.data[positions], ends)


_UNKNOWN = 2
_ALPHABETIC = np.full(0x110000, _UNKNOWN, np.uint8)
"""For every code point, whether the rules call it a letter; filled in on first use."""


def _alphabetic(code_points: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    new = code_points[_ALPHABETIC[code_points] == _UNKNOWN]
    if len(new):
        distinct = np.unique(new)
        _ALPHABETIC[distinct] = [is_letter(chr(c)) for c in distinct.tolist()]
    return _ALPHABETIC[code_points]
