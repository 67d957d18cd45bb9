"""Reading a chunk of a source: blocks of lines or rows, as columns of intact messages and a list of damaged ones."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from tertulia.artefacts.files import DAMAGED, open_bytes
from tertulia.core.errors import DataError
from tertulia.corpus.mining.lines import BYTE_ORDER_MARK, Damage, ParsedBlock, parse_lines
from tertulia.corpus.mining.schemas import Cleaning, Schema, columns, get_schema
from tertulia.corpus.mining.sources import Chunk
from tertulia.corpus.shards import open_parquet

_ROWS = 50_000
"""Rows of a Parquet file read at once."""


_PIECE = 1 << 17
"""Bytes decompressed at once."""


class Block(NamedTuple):
    """Messages read at once, and what was damaged among them."""

    parsed: ParsedBlock
    lines: int
    """Lines (or rows) read, including damaged and empty ones."""
    size: int
    """Bytes read."""


def read_chunk(chunk: Chunk, *, size: int, fields: Mapping[str, str], cleaning: Cleaning) -> Iterator[Block]:
    """The messages of a chunk, in blocks of about `size` bytes.

    A compressed file that is cut off or corrupt gives what can be read of it, and then a block with the damage.
    """
    schema = get_schema(chunk.source.schema, fields)
    if chunk.source.is_parquet:
        yield from _read_rows(chunk, schema, cleaning)
        return
    try:
        blocks = _stream(chunk.source.path, size) if chunk.source.is_compressed else iter([_byte_range(chunk)])
        for block in blocks:
            if block:
                lines = int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n"))) + (not block.endswith(b"\n"))
                yield Block(parse_lines(block, schema, cleaning), lines, len(block))
    except DAMAGED as error:
        nothing = parse_lines(b"", schema, cleaning).frame
        yield Block(ParsedBlock(nothing, [Damage(1, f"the file cannot be read to its end: {error}")]), 0, 0)
    except OSError as error:
        raise DataError(f"Cannot read {chunk.source.path} to its end: {error}.") from None


def lines_before(chunk: Chunk) -> int:
    """How many lines of the source precede the chunk."""
    if chunk.source.is_parquet:
        metadata = open_parquet(chunk.source.path).metadata
        return sum(metadata.row_group(i).num_rows for i in range(chunk.start))
    count, remaining = 0, _line_start(chunk.source.path, chunk.start)
    with open_bytes(chunk.source.path) as file:
        while remaining and (block := file.read(min(remaining, 1 << 20))):
            count, remaining = count + block.count(b"\n"), remaining - len(block)
    return count


def _byte_range(chunk: Chunk) -> bytes:
    """The lines that begin within the range: each line belongs to exactly one chunk."""
    with Path(chunk.source.path).open("rb") as file:
        start = file.seek(_line_start(chunk.source.path, chunk.start))
        if start >= chunk.end:
            return b""
        block = file.read(chunk.end - start)
        block += b"" if block.endswith(b"\n") else file.readline()
    return block.removeprefix(BYTE_ORDER_MARK) if start == 0 else block


def _line_start(path: str, position: int) -> int:
    """The first position from here on at which a line begins."""
    if position == 0:
        return 0
    with Path(path).open("rb") as file:
        file.seek(position - 1)
        file.readline()
        return file.tell()


def _stream(path: str, size: int) -> Iterator[bytes]:
    """Blocks of complete lines; what follows the last newline of a block is carried over to the next one.

    Of a damaged file, the lines before the damage come first, but for the last few that were decompressed with it.
    """
    rest = b""
    with open_bytes(path) as file:
        while True:
            block, damage = _read(file, size)
            cut = block.rfind(b"\n") + 1
            if cut:
                yield (rest + block[:cut]).removeprefix(BYTE_ORDER_MARK)
            rest = block[cut:] if cut else rest + block
            if damage:
                raise damage
            if not block:
                break
    yield rest


def _read(file: Any, size: int) -> tuple[bytes, Exception | None]:
    """The next `size` bytes, or fewer at the end and before damage."""
    pieces, left = [], size
    try:
        while left and (piece := file.read1(min(left, _PIECE))):
            pieces.append(piece)
            left -= len(piece)
    except DAMAGED as error:
        return b"".join(pieces), error
    return b"".join(pieces), None


def _read_rows(chunk: Chunk, schema: Schema, cleaning: Cleaning) -> Iterator[Block]:
    with open_parquet(chunk.source.path) as file:
        available = set(file.schema_arrow.names)
        wanted = [name for name in schema.polars if name in available and name != "meta"]
        for batch in file.iter_batches(batch_size=_ROWS, row_groups=[chunk.start], columns=wanted):
            rows = pl.DataFrame(pl.from_arrow(batch)).with_columns(pl.all().cast(pl.String))
            absent = [pl.lit(None, kind).alias(name) for name, kind in schema.polars.items() if name not in wanted]
            frame = columns(schema, rows.with_columns(absent), cleaning)
            incomplete = (frame["id"].is_null() | frame["text"].is_null()).to_list() if _has_nulls(frame) else []
            damage = [
                Damage(i, "a message needs 'id' and 'text'") for i, missing in enumerate(incomplete, 1) if missing
            ]
            yield Block(ParsedBlock(frame.drop_nulls(["id", "text"]), damage), batch.num_rows, batch.nbytes)


def _has_nulls(frame: pl.DataFrame) -> bool:
    return bool(frame["id"].null_count() or frame["text"].null_count())
