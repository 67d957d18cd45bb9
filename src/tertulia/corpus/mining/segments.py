"""Tables split into numbered segments in one Arrow file, each of which can be read alone."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from tertulia.artefacts.files import atomic_write
from tertulia.core.errors import DataError
from tertulia.corpus.mining.columns import Ints


def write_segments(path: Path, table: pa.Table, segment: Ints, *, count: int, compress: bool = True) -> None:
    """Write a table as `count` segments; `segment` assigns each row to one. Within a segment rows keep their order."""
    # NumPy sorts 16-bit integers stably with a radix sort, in linear time.
    order = np.argsort(segment.astype(np.uint16) if count <= 1 << 16 else segment, kind="stable")
    edges = np.searchsorted(segment[order], np.arange(count + 1))
    table = table.take(pa.array(order)).combine_chunks()
    options = pa.ipc.IpcWriteOptions(compression="lz4" if compress else None)
    with (
        atomic_write(path) as file,
        pa.OSFile(str(file), "wb") as sink,
        pa.ipc.new_file(sink, table.schema, options=options) as out,
    ):
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            rows = table.slice(start, end - start).to_batches()
            out.write_batch(rows[0] if rows else pa.RecordBatch.from_pylist([], table.schema))


def read_segment(files: Iterable[str], number: int, schema: pa.Schema) -> pa.Table:
    """One segment of several files, in the order of the files."""
    batches = []
    for name in files:
        try:
            with pa.OSFile(name, "rb") as file:
                batch = pa.ipc.open_file(file).get_batch(number)
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"Cannot read the working file {name} ({error}).", hint="Start over with --fresh."
            ) from None
        if batch.num_rows:
            batches.append(batch)
    return pa.Table.from_batches(batches, schema)
