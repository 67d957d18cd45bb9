"""JSON lines to columns: all at once where every line is whole, one by one where some are damaged.

Polars reads a block of lines quickly but refuses it altogether for one bad line, and takes half a surrogate pair for a
zero. So a block that it refuses, or that could hold such a half, is read a second time line by line, to say which
lines are damaged and why.
"""

import re
from typing import NamedTuple

import orjson
import polars as pl

from tertulia.core.dialogue import Json
from tertulia.corpus.mining.shapes import FIELDS, Cleaning, Shape, columns

_SURROGATES = re.compile(rb"\\u[dD](?:[89abAB]..(?:\\u[dD][c-fC-F]..)?|[c-fC-F]..)", re.DOTALL)
"""A pair of them, or one that is alone."""


BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Damage(NamedTuple):
    """A line that could not be read."""

    line: int
    """Within the block, from 1."""
    why: str


class Parsed(NamedTuple):
    """A block of lines."""

    frame: pl.DataFrame
    """As `shapes.columns` makes it; whole rows only."""
    damage: list[Damage]


def parse_lines(block: bytes, shape: Shape, cleaning: Cleaning) -> Parsed:
    """The messages of a block of whole lines, and what was wrong with the others."""
    try:
        frame = columns(shape, pl.read_ndjson(block, schema=shape.schema), cleaning)
    except pl.exceptions.PolarsError:
        return _line_by_line(block, shape, cleaning)
    whole = not frame["id"].null_count() and not frame["text"].null_count()
    if whole and not (_has_zeros(frame) and _has_half_a_pair(block)):
        return Parsed(frame, [])
    return _line_by_line(block, shape, cleaning)


def _has_zeros(frame: pl.DataFrame) -> bool:
    return any(frame[name].str.contains("\0", literal=True).any() for name in FIELDS)


def _has_half_a_pair(block: bytes) -> bool:
    """Whether some escaped surrogate stands alone (or looks so: it may be a backslash before a u)."""
    return any(len(found.group()) == 6 for found in _SURROGATES.finditer(block))


def _line_by_line(block: bytes, shape: Shape, cleaning: Cleaning) -> Parsed:
    whole, damage = [], []
    for number, line in enumerate(block.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            whole.append(_readable(line, shape))
        except ValueError as error:
            damage.append(Damage(number, str(error)))
    return Parsed(columns(shape, pl.read_ndjson(b"\n".join(whole), schema=shape.schema), cleaning), damage)


def _readable(line: bytes, shape: Shape) -> bytes:
    """The line as Polars can read it; raises ValueError where it is damaged."""
    record = _record(line, shape)
    if shape.marks and not isinstance(record.get("meta"), dict | None):
        return orjson.dumps(shape.pick(record))  # without that meta, which marks nothing
    return line


def _record(line: bytes, shape: Shape) -> dict[str, Json]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not valid JSON ({error.msg.split(':')[0]})") from None
    if not isinstance(record, dict):
        raise ValueError("a message must be an object")  # noqa: TRY004 - a fault of the line, as any other
    if missing := shape.missing(record):
        raise ValueError(f"a message needs {missing!r}")
    return record
