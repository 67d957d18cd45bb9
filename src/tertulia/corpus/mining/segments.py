"""Tables split into numbered segments in one file, each of which can be read alone.

A segment is one Arrow message, compressed. Where each begins is not in the file but in the marker of the task that
wrote it, and from there in an index that the next stage has in memory: so that a segment costs one read, however many
there are, and an empty one costs nothing. Within a segment rows keep their order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tertulia.artefacts.folders import ByteRange, Folder
from tertulia.core.errors import DataError
from tertulia.corpus.mining.columns import Ints, to_arrow

_BUFFER = 1 << 20
"""Bytes that are written at once."""


@dataclass(frozen=True, slots=True)
class SortedBlock:
    """Rows in the order of their segments."""

    table: pa.Table
    edges: Ints  # (segments + 1,)
    """First row of each segment."""


def sort_block(table: pa.Table, segment: Ints, *, count: int) -> SortedBlock:
    """Order a table by segment; `segment` assigns each row to one of `count`."""
    # NumPy sorts 16-bit integers stably with a radix sort, in linear time.
    order = np.argsort(segment.astype(np.uint16) if count <= 1 << 16 else segment, kind="stable")
    edges = np.searchsorted(segment[order], np.arange(count + 1))
    return SortedBlock(table.take(to_arrow(order)).combine_chunks(), edges)


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """What was written."""

    size: int
    """Bytes of the file."""
    offsets: list[int]
    """Where each segment begins, and where the last one ends."""


def write_segments(folder: Folder, name: str, blocks: Sequence[SortedBlock], *, compress: bool = True) -> SegmentFile:
    """Write blocks, which all have the same number of segments, as one file."""
    schema = blocks[0].table.schema
    options = pa.ipc.IpcWriteOptions(compression="lz4" if compress else None)
    sources = [(batches[0], block.edges.tolist()) for block in blocks if (batches := block.table.to_batches())]
    head = schema.serialize().size  # an Arrow stream begins with its schema, as soon as there is a batch
    offsets = [head]
    with folder.write(name) as file:
        with open_buffered(file, _BUFFER) as sink, pa.ipc.new_stream(sink, schema, options=options) as out:
            for number in range(len(blocks[0].edges) - 1):
                pieces = [
                    batch.slice(edges[number], edges[number + 1] - edges[number])
                    for batch, edges in sources
                    if edges[number] < edges[number + 1]
                ]
                if pieces:
                    out.write_batch(pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces))
                offsets.append(max(head, sink.tell()))
        return SegmentFile(file.stat().st_size, offsets)


def open_buffered(file: Path, size: int) -> Any:
    """A file to write to in pieces of about `size` bytes: Arrow writes dozens of small ones for every segment and row
    group, each of which would be a call of the system."""
    return pa.output_stream(str(file), compression=None, buffer_size=size)


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """Where the segments of some files are."""

    names: tuple[str, ...]
    offsets: Ints  # (files, segments + 1)

    def ranges(self, number: int) -> list[ByteRange]:
        """The bytes of one segment in all files that have rows of it, in the order of the files."""
        starts, ends = self.offsets[:, number].tolist(), self.offsets[:, number + 1].tolist()
        return [
            ByteRange(name, start, end)
            for name, start, end in zip(self.names, starts, ends, strict=True)
            if start < end
        ]


def index_of(files: Iterable[tuple[str, SegmentFile]]) -> SegmentIndex:
    """The index of files, in this order."""
    named = list(files)
    return SegmentIndex(tuple(name for name, _ in named), np.array([file.offsets for _, file in named], np.int64))


def read_segments(folder: Folder, ranges: Sequence[ByteRange], schema: pa.Schema) -> pa.Table:
    """The rows of some segments, in this order."""
    try:
        contents = folder.read_ranges(ranges)
        batches = [pa.ipc.read_record_batch(pa.py_buffer(content), schema) for content in contents]
    except (pa.ArrowException, OSError, EOFError) as error:
        names = folder.location(ranges[0].name)
        raise DataError(
            f"Cannot read the working files, such as {names} ({error}).", hint="Start over with --fresh."
        ) from None
    return pa.Table.from_batches(batches, schema)
