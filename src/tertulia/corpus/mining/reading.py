"""Reading a chunk of a source: blocks of lines or rows, as columns of intact messages and a list of damaged ones."""

from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tertulia.artefacts.files import DAMAGED
from tertulia.artefacts.stores import is_url
from tertulia.core.errors import DataError
from tertulia.core.lazy import LazyModule
from tertulia.corpus.mining.lines import BYTE_ORDER_MARK, MAX_LINE, TOO_LONG, Damage, ParsedBlock, parse_lines
from tertulia.corpus.mining.packed import lines_of_frames, open_packed
from tertulia.corpus.mining.schemas import Cleaning, Schema, columns, get_schema
from tertulia.corpus.mining.sources import Chunk, Source

if TYPE_CHECKING:
    import polars as pl
else:
    pl = LazyModule("polars")  # a third of a second to import

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


def read_chunk(
    chunk: Chunk, *, size: int, fields: Mapping[str, str], cleaning: Cleaning, keep: tuple[str, ...] = ()
) -> Iterator[Block]:
    """The messages of a chunk, in blocks of about `size` bytes.

    A compressed file that is cut off or corrupt gives what can be read of it, and then a block with the damage.
    """
    schema = get_schema(chunk.source.schema, fields, keep)
    if chunk.source.is_parquet:
        yield from _read_rows(chunk, schema, cleaning)
        return
    try:
        with chunk.source.open() as file:
            blocks = _packed_blocks(chunk, file, size) if chunk.source.is_compressed else _blocks(chunk, file, size)
            for block in blocks:
                if block:
                    lines = int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n")))
                    yield Block(parse_lines(block, schema, cleaning), lines + (not block.endswith(b"\n")), len(block))
    except DAMAGED as error:
        nothing = parse_lines(b"", schema, cleaning).frame
        yield Block(ParsedBlock(nothing, [Damage(1, f"the file cannot be read to its end: {error}")]), 0, 0)
    except FileNotFoundError:
        raise DataError(
            f"{chunk.source.path} is gone, or not on this machine.",
            hint="All machines of a cluster need the input: on a disk that they share, or by a URL (s3://...).",
        ) from None
    except OSError as error:
        raise DataError(f"Cannot read {chunk.source.path} to its end: {error}.") from None


def lines_before(chunk: Chunk) -> int:
    """How many lines of the source precede the chunk; the source is read up to there."""
    if chunk.source.is_parquet:
        with chunk.source.open_parquet() as parquet:
            return sum(parquet.metadata.row_group(i).num_rows for i in range(chunk.start))
    with chunk.source.open() as file:
        if chunk.source.is_compressed:
            return sum(piece.count(b"\n") for piece in lines_of_frames(file, 0, chunk.start))
        count, remaining = 0, _seek_line(file, chunk.start)
        file.seek(0)
        while remaining and (block := file.read(min(remaining, 1 << 20))):
            count, remaining = count + block.count(b"\n"), remaining - len(block)
    return count


def _blocks(chunk: Chunk, file: IO[bytes], size: int) -> Iterator[bytes]:
    """The lines that begin within each `size` bytes of the range: each line belongs to exactly one block."""
    position = _seek_line(file, chunk.start)
    for start in range(chunk.start, chunk.end, size):
        end = min(start + size, chunk.end)
        if position >= end:
            continue  # all of it belongs to a line that began earlier
        is_first = position == 0
        block = _read_to_line_end(file, position, end, seekable=not is_url(chunk.source.path))
        position = file.tell()
        yield block.removeprefix(BYTE_ORDER_MARK) if is_first else block


def _read_to_line_end(file: IO[bytes], start: int, end: int, *, seekable: bool) -> bytes:
    """From `start`, where the file is, to the end of the line that holds the byte before `end`.

    On a disk the end of that line is looked for first, so that megabytes need not be copied to append a few bytes.
    """
    if seekable:
        file.seek(end - 1)
        rest = file.readline(MAX_LINE + 1)
        file.seek(start)
        if len(rest) <= MAX_LINE:
            return file.read(end - 1 - start + len(rest))
    block = file.read(end - start)
    return block if block.endswith(b"\n") else block + _rest_of_line(file)


def _seek_line(file: IO[bytes], position: int) -> int:
    """Move to the first position from here on at which a line begins."""
    if position == 0:
        return 0
    file.seek(position - 1)
    while (piece := file.readline(_PIECE)) and not piece.endswith(b"\n"):
        pass
    return file.tell()


def _rest_of_line(file: IO[bytes]) -> bytes:
    """The line up to its end; of one that is too long, no more than shows that it is."""
    rest = file.readline(MAX_LINE + 1)
    piece = rest
    while piece and not piece.endswith(b"\n"):
        piece = file.readline(_PIECE)
    return rest if rest.endswith(b"\n") or not piece else rest + b"\n"


def _packed_blocks(chunk: Chunk, file: IO[bytes], size: int) -> Iterator[bytes]:
    """Blocks of complete lines; what follows the last newline of a block is carried over to the next one.

    Of a damaged file, the lines before the damage come first, but for the last few that were decompressed with it.
    """
    rest, is_first = b"", chunk.start == 0
    pieces = _pieces(chunk.source, file) if (chunk.start, chunk.end) == (0, chunk.source.size) else None
    for block, damage in _gather(pieces or lines_of_frames(file, chunk.start, chunk.end), size):
        cut = block.rfind(b"\n") + 1
        if cut:
            whole = rest + block[:cut]
            yield whole.removeprefix(BYTE_ORDER_MARK) if is_first else whole
            is_first = False
        rest = block[cut:] if cut else rest + block
        if len(rest) > MAX_LINE:
            rest = rest[: MAX_LINE + 1]  # no more than shows that the line is too long
        if damage:
            raise damage
    yield rest.removeprefix(BYTE_ORDER_MARK) if is_first else rest


def _pieces(source: Source, file: IO[bytes]) -> Iterator[bytes]:
    unpacked: Any = open_packed(file, source.name)
    while piece := unpacked.read1(_PIECE):
        yield piece


def _gather(pieces: Iterator[bytes], size: int) -> Iterator[tuple[bytes, Exception | None]]:
    """The pieces in blocks of `size` bytes; before damage, what was read, together with the damage."""
    gathered: list[bytes] = []
    missing = size
    try:
        for piece in pieces:
            while len(piece) >= missing:
                yield b"".join([*gathered, piece[:missing]]), None
                piece, gathered, missing = piece[missing:], [], size
            gathered.append(piece)
            missing -= len(piece)
    except DAMAGED as error:
        yield b"".join(gathered), error
        return
    yield b"".join(gathered), None


def _read_rows(chunk: Chunk, schema: Schema, cleaning: Cleaning) -> Iterator[Block]:
    with chunk.source.open_parquet() as file:
        available = {field.name: field.type for field in file.schema_arrow}
        wanted = [name for name in schema.polars if name in available and name != "meta"]
        _check_types(chunk.source, {name: available[name] for name in wanted})
        groups = list(range(chunk.start, chunk.end))
        try:
            for batch in file.iter_batches(batch_size=_ROWS, row_groups=groups, columns=wanted):
                yield _rows_block(batch, schema, cleaning, wanted)
        except (pa.ArrowException, pl.exceptions.PolarsError, OSError) as error:
            raise DataError(
                f"{chunk.source.path} cannot be read: {error}", hint="Download or write the file again."
            ) from None


def _rows_block(batch: pa.RecordBatch, schema: Schema, cleaning: Cleaning, wanted: list[str]) -> Block:
    rows = pl.DataFrame(pl.from_arrow(batch)).with_columns(_as_text(batch.schema))
    absent = [pl.lit(None, kind).alias(name) for name, kind in schema.polars.items() if name not in wanted]
    frame = columns(schema, rows.with_columns(absent), cleaning)
    damage: list[Damage] = []
    if frame["id"].null_count() or frame["text"].null_count():
        incomplete = (frame["id"].is_null() | frame["text"].is_null()).to_list()
        damage = [Damage(i, "a message needs 'id' and 'text'") for i, missing in enumerate(incomplete, 1) if missing]
    long = frame["text"].str.len_bytes().fill_null(0) > MAX_LINE
    if long.any():
        damage += [Damage(i, TOO_LONG) for i, is_long in enumerate(long.to_list(), 1) if is_long]
        frame = frame.filter(~long)
    return Block(ParsedBlock(frame.drop_nulls(["id", "text"]), sorted(damage)), batch.num_rows, batch.nbytes)


def _check_types(source: Source, types: Mapping[str, Any]) -> None:
    """Lists and structs are no texts."""
    for name, kind in types.items():
        if pa.types.is_nested(kind):
            raise DataError(
                f"The column {name!r} of {source.path} holds {kind}, not one value per message.",
                hint="Name the column of texts, ids or authors with --field, such as --field text=body.",
            )


def _as_text(types: pa.Schema) -> "Iterator[pl.Expr]":
    """All columns as text. Whole numbers in a column of floats are written as whole numbers: a table that lacks the
    parent of a first message has floats for parents where it has integers for ids."""
    for field in types:
        column = pl.col(field.name)
        if pa.types.is_floating(field.type):
            value = column.fill_nan(None)
            is_whole = (value == value.round()) & (value.abs() < _EXACT)
            whole = pl.when(is_whole).then(value).otherwise(None).cast(pl.Int64).cast(pl.String)
            column = pl.coalesce(whole, value.cast(pl.String))
        yield column.cast(pl.String).alias(field.name)


_EXACT = float(1 << 53)
"""Up to here a float holds every whole number."""
