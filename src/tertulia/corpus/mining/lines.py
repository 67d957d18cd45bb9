"""JSON lines to columns: a block at once if all its lines are intact, line by line if some are damaged.

Polars parses a block quickly, but rejects all of it for one bad line, and reads an unpaired surrogate as a zero byte.
A block that it rejects, or that could contain such a surrogate, is therefore read again line by line to find out which
lines are damaged and why.
"""

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import orjson

from tertulia.core.dialogue import Json
from tertulia.core.lazy import LazyModule
from tertulia.corpus.mining.columns import sparse_positions
from tertulia.corpus.mining.schemas import TEXT_FIELDS, Cleaning, Schema, columns

if TYPE_CHECKING:
    import polars as pl
else:
    pl = LazyModule("polars")  # a third of a second to import

_SURROGATES = re.compile(rb"\\u[dD](?:[89abAB]..(?:\\u[dD][c-fC-F]..)?|[c-fC-F]..)", re.DOTALL)
"""An escaped surrogate pair, or a single surrogate."""


BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_LINE = 1 << 20
"""Bytes of the longest line, and of the longest text: the memory for one message is bounded by this."""
TOO_LONG = f"it is longer than {MAX_LINE:,} bytes"


class Damage(NamedTuple):
    """A line that could not be read."""

    line: int
    """Within the block, from 1."""
    why: str


class ParsedBlock(NamedTuple):
    """A block of lines."""

    frame: "pl.DataFrame"
    """The intact messages, as `schemas.columns` returns them."""
    damage: list[Damage]


def parse_lines(block: bytes, schema: Schema, cleaning: Cleaning) -> ParsedBlock:
    """The messages of a block of complete lines, and what is wrong with the other lines."""
    if _may_have_long_line(block):
        return _parse_line_by_line(block, schema, cleaning)
    try:
        frame = columns(schema, pl.read_ndjson(block, schema=schema.polars), cleaning)
    except pl.exceptions.PolarsError:
        return _parse_line_by_line(block, schema, cleaning)
    complete = not frame["id"].null_count() and not frame["text"].null_count()
    if complete and not (_may_have_surrogates(block) and _has_zeros(frame) and _has_lone_surrogate(block)):
        return ParsedBlock(frame, [])
    return _parse_line_by_line(block, schema, cleaning)


def _may_have_long_line(block: bytes) -> bool:
    """Whether half the longest line fits between two line breaks somewhere."""
    half = MAX_LINE // 2
    return len(block) > MAX_LINE and any(
        block.find(b"\n", start, start + half) < 0 for start in range(0, len(block) - half, half)
    )


def _may_have_surrogates(block: bytes) -> bool:
    """Whether the start of an escaped surrogate is somewhere."""
    data = np.frombuffer(block, np.uint8)
    escapes = sparse_positions(data[:-2] == ord("\\"))
    escapes = escapes[data[escapes + 1] == ord("u")]
    return bool(((data[escapes + 2] | 32) == ord("d")).any())


def _has_zeros(frame: "pl.DataFrame") -> bool:
    return any(frame[name].str.contains("\0", literal=True).any() for name in TEXT_FIELDS)


def _has_lone_surrogate(block: bytes) -> bool:
    """Whether an escaped surrogate is unpaired (or seems so: it may be an escaped backslash before a u)."""
    return any(len(match.group()) == 6 for match in _SURROGATES.finditer(block))


def _parse_line_by_line(block: bytes, schema: Schema, cleaning: Cleaning) -> ParsedBlock:
    intact, damage = [], []
    for number, line in enumerate(block.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            intact.append(_readable(line, schema))
        except ValueError as error:
            damage.append(Damage(number, str(error)))
    return ParsedBlock(columns(schema, pl.read_ndjson(b"\n".join(intact), schema=schema.polars), cleaning), damage)


def _readable(line: bytes, schema: Schema) -> bytes:
    """The line in a form that Polars can read; raises ValueError if it is damaged."""
    if len(line) > MAX_LINE:
        raise ValueError(TOO_LONG)
    record = _record(line, schema)
    if schema.has_marks and not isinstance(record.get("meta"), dict | None):
        return orjson.dumps(schema.select(record))  # drops a `meta` that is not an object and so marks nothing
    return line


def _record(line: bytes, schema: Schema) -> dict[str, Json]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not valid JSON ({error.msg.split(':')[0]})") from None
    if not isinstance(record, dict):
        raise ValueError("a message must be an object")  # noqa: TRY004 - damage of the line like any other
    if missing := schema.missing(record):
        raise ValueError(f"a message needs {missing!r}")
    return record
