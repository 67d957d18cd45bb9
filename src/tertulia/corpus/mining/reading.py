"""Reading a part of a source: blocks of lines or rows, as columns of whole messages and a list of the damaged ones."""

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import zstandard

from tertulia.core.errors import DataError
from tertulia.corpus.mining.files import open_bytes, open_parquet
from tertulia.corpus.mining.lines import BYTE_ORDER_MARK, Damage, Parsed, parse_lines
from tertulia.corpus.mining.shapes import Cleaning, columns, shape_named
from tertulia.corpus.mining.sources import Part

_ROWS = 50_000
"""Rows of a Parquet file read at once."""


class Block(NamedTuple):
    """Messages read at once, and what was damaged among them."""

    parsed: Parsed
    lines: int
    """Lines (or rows) read, damaged and empty ones included."""
    size: int
    """Bytes read."""


def read_part(part: Part, *, size: int, fields: Mapping[str, str], cleaning: Cleaning) -> Iterator[Block]:
    """The messages of a part, in blocks of about `size` bytes."""
    shape = shape_named(part.source.shape, fields)
    if part.source.is_parquet:
        yield from _read_rows(part, fields, cleaning)
        return
    try:
        blocks = _stream(part.source.path, size) if part.source.is_packed else iter([_byte_range(part)])
        for block in blocks:
            if block:
                lines = int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n"))) + (not block.endswith(b"\n"))
                yield Block(parse_lines(block, shape, cleaning), lines, len(block))
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise DataError(f"{part.source.path} cannot be read to its end: {error}.") from None


def lines_before(part: Part) -> int:
    """How many lines of the source come before the part."""
    if part.source.is_parquet:
        about = open_parquet(part.source.path).metadata
        return sum(about.row_group(i).num_rows for i in range(part.start))
    count, left = 0, _line_start(part.source.path, part.start)
    with open_bytes(part.source.path) as file:
        while left and (block := file.read(min(left, 1 << 20))):
            count, left = count + block.count(b"\n"), left - len(block)
    return count


def _byte_range(part: Part) -> bytes:
    """The lines that begin within the range: each line belongs to exactly one part."""
    with Path(part.source.path).open("rb") as file:
        start = file.seek(_line_start(part.source.path, part.start))
        if start >= part.end:
            return b""
        block = file.read(part.end - start)
        block += b"" if block.endswith(b"\n") else file.readline()
    return block.removeprefix(BYTE_ORDER_MARK) if start == 0 else block


def _line_start(path: str, place: int) -> int:
    """The first place from here on where a line begins."""
    if place == 0:
        return 0
    with Path(path).open("rb") as file:
        file.seek(place - 1)
        file.readline()
        return file.tell()


def _stream(path: str, size: int) -> Iterator[bytes]:
    rest = b""
    with open_bytes(path) as file:
        while block := file.read(size):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield (rest + block[:cut]).removeprefix(BYTE_ORDER_MARK)
            rest = block[cut:] if cut else rest + block
    yield rest


def _read_rows(part: Part, fields: Mapping[str, str], cleaning: Cleaning) -> Iterator[Block]:
    shape = shape_named(part.source.shape, fields)
    with open_parquet(part.source.path) as file:
        there = set(file.schema_arrow.names)
        wanted = [name for name in shape.schema if name in there and name != "meta"]
        for batch in file.iter_batches(batch_size=_ROWS, row_groups=[part.start], columns=wanted):
            rows = pl.DataFrame(pl.from_arrow(batch)).with_columns(pl.all().cast(pl.String))
            absent = [pl.lit(None, kind).alias(name) for name, kind in shape.schema.items() if name not in wanted]
            frame = columns(shape, rows.with_columns(absent), cleaning)
            holes = (frame["id"].is_null() | frame["text"].is_null()).to_list() if _has_holes(frame) else []
            damage = [Damage(i, "a message needs 'id' and 'text'") for i, hole in enumerate(holes, 1) if hole]
            yield Block(Parsed(frame.drop_nulls(["id", "text"]), damage), batch.num_rows, batch.nbytes)


def _has_holes(frame: pl.DataFrame) -> bool:
    return bool(frame["id"].null_count() or frame["text"].null_count())
