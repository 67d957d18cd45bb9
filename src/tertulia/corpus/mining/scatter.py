"""Stage one: a part of the input becomes columns, distributed over segments by a hash of the thread, so that a thread
lies completely in one bucket; beside them the hashes of the texts, split by range, and a sample of texts for learning
subwords.

A task writes its files and then a marker that lists them with their sizes: if the marker is there and its files have
these sizes, the task is done.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tertulia.artefacts.folders import Folder, read_json_from, write_json_to
from tertulia.core.dialogue import Json
from tertulia.core.lazy import LazyModule
from tertulia.corpus.mining.columns import Ints, StringArray, contiguous, to_arrow
from tertulia.corpus.mining.filters import COLUMNS
from tertulia.corpus.mining.hashing import Hashes, combine, hash_contents, hash_texts, mix
from tertulia.corpus.mining.plan import Layout
from tertulia.corpus.mining.reading import Block, read_chunk
from tertulia.corpus.mining.schemas import Cleaning
from tertulia.corpus.mining.segments import SegmentFile, SortedBlock, sort_block, write_segments
from tertulia.corpus.mining.sources import Chunk

if TYPE_CHECKING:
    import polars as pl
else:
    pl = LazyModule("polars")  # a third of a second to import

HASHES = pa.schema([("text", pa.uint64()), ("key", pa.uint64())])
"""The hash of a text, and the key of its message."""
_EXAMPLES = 5
_FORMAT = 2
"""Of the files of a part: those of another one are written again."""


@dataclass(frozen=True, slots=True)
class ScatterJob:
    """What all tasks share."""

    folder: Folder
    plan: Layout
    block_bytes: int
    fields: Mapping[str, str]
    cleaning: Cleaning
    sample_rate: float
    """Texts to sample per byte of input; 0 if a subword model is given."""
    seed: int
    keep: tuple[str, ...] = ()
    """More fields to keep."""
    compress: bool = True
    """Whether the messages are compressed; not needed to read them again."""
    thread_hashes: Callable[[Folder, StringArray, Hashes], Hashes] | None = None
    """How the threads of messages that name none are found; otherwise they are all one thread."""


@dataclass(frozen=True, slots=True)
class ScatterTask:
    """One part of the input."""

    number: int
    chunk: Chunk

    @property
    def marker(self) -> str:
        """The file that says that the task is done."""
        return f"part-{self.number:05d}.json"


@dataclass(slots=True)
class ScatterResult:
    """What was read from a part."""

    number: int
    messages: int = 0
    lines: int = 0
    damaged: int = 0
    threadless: int = 0
    """Messages that name no thread."""
    examples: list[tuple[int, str]] = field(default_factory=list)
    """Line within the part and reason, of the first few damaged lines."""
    files: dict[str, SegmentFile] = field(default_factory=dict)
    """The files written, by name."""
    format: int = _FORMAT

    def of_kind(self, kind: str) -> list[tuple[str, SegmentFile]]:
        """The files of one kind (`messages`, `hashes`, `sample`), in input order."""
        return [(name, file) for name, file in self.files.items() if name.startswith(kind)]

    def is_intact(self, sizes: Mapping[str, int]) -> bool:
        """Whether all files are there as they were written; `sizes` are those of the folder."""
        return self.format == _FORMAT and all(sizes.get(name) == file.size for name, file in self.files.items())

    @classmethod
    def from_json(cls, record: dict[str, Json]) -> "ScatterResult":
        """What a marker holds."""
        files = {name: SegmentFile(**file) for name, file in record["files"].items()}
        known: dict[str, Json] = {"format": 1, **record, "files": files}
        return cls(**known)


@dataclass(slots=True)
class _Run:
    """Blocks that are written together, sorted by segment."""

    bytes: int = 0
    messages: list[SortedBlock] = field(default_factory=list)
    hashes: list[SortedBlock] = field(default_factory=list)
    sample: list[pa.Table] = field(default_factory=list)


def scatter(job: ScatterJob, task: ScatterTask) -> ScatterResult:
    """Process one part."""
    result = ScatterResult(task.number)
    blocks = read_chunk(task.chunk, size=job.block_bytes, fields=job.fields, cleaning=job.cleaning, keep=job.keep)
    run, written = _Run(), 0
    for block in blocks:
        for line, why in block.parsed.damage[: _EXAMPLES - len(result.examples)]:
            result.examples.append((result.lines + line, why))
        result.damaged += len(block.parsed.damage)
        result.lines += block.lines
        result.messages += block.parsed.frame.height
        result.threadless += block.parsed.frame["thread"].null_count()
        _add_block(job, run, block)
        if run.bytes >= job.plan.part_bytes:  # a compressed file can be longer than a part
            result.files |= _write_run(job, f"{task.number:05d}-{written:05d}.arrow", run)
            run, written = _Run(), written + 1
    if run.messages:
        result.files |= _write_run(job, f"{task.number:05d}-{written:05d}.arrow", run)
    write_json_to(job.folder, task.marker, result)
    return result


def finished_scatter(folder: Folder, task: ScatterTask, sizes: Mapping[str, int]) -> ScatterResult | None:
    """The result of a task that an earlier run finished; None if it has to be done."""
    if task.marker not in sizes:
        return None
    result = ScatterResult.from_json(read_json_from(folder, task.marker))
    return result if result.is_intact(sizes) else None


def _add_block(job: ScatterJob, run: _Run, block: Block) -> None:
    table = block.parsed.frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    table = pa.table({n: contiguous(table[n].cast(COLUMNS.field(n).type)) for n in table.column_names})
    ids, texts = hash_texts(contiguous(table["id"])), hash_contents(contiguous(table["text"]))
    named = contiguous(table["thread"])
    threads = job.thread_hashes(job.folder, named, ids) if job.thread_hashes else hash_texts(named)
    keys = combine(threads, ids)
    if job.sample_rate:
        size = int(np.ceil(job.sample_rate * block.size))
        rows = _random_rows(keys, size, job.seed)
        run.sample.append(pa.table({"text": table["text"].take(to_arrow(rows))}))
    table = table.append_column("text_hash", to_arrow(texts)).append_column("thread_hash", to_arrow(threads))
    run.messages.append(sort_block(table, segments_of(threads, job.plan), count=job.plan.segments))
    hashes = pa.table({"text": to_arrow(texts), "key": to_arrow(keys)}, HASHES)
    run.hashes.append(sort_block(hashes, range_of(texts, job.plan.ranges), count=job.plan.ranges))
    run.bytes += block.size


def _write_run(job: ScatterJob, name: str, run: _Run) -> dict[str, SegmentFile]:
    files = {f"messages-{name}": write_segments(job.folder, f"messages-{name}", run.messages, compress=job.compress)}
    files[f"hashes-{name}"] = write_segments(job.folder, f"hashes-{name}", run.hashes, compress=False)
    if run.sample:
        files[f"sample-{name}"] = _write_sample(job.folder, f"sample-{name}", pa.concat_tables(run.sample))
    return files


def buckets_of(threads: Hashes, buckets: int) -> Ints:
    """The bucket of each message, by the hash of its thread."""
    return (threads % np.uint64(buckets)).astype(np.int64)


def bundles_of(threads: Hashes, plan: Layout) -> Ints:
    """The bundle of each message's bucket."""
    buckets = buckets_of(threads, plan.buckets)
    return buckets if plan.bundles == plan.buckets else buckets * plan.bundles // plan.buckets


def segments_of(threads: Hashes, plan: Layout) -> Ints:
    """The segment of a part that each message belongs to: its bundle of buckets, or the partition of that."""
    bundles = bundles_of(threads, plan)
    return bundles * plan.partitions // plan.bundles if plan.partitions else bundles


def range_of(hashes: Hashes, ranges: int) -> Ints:
    """Which of the equally large ranges each hash lies in: the product's high half, computed from the high 32 bits."""
    return ((hashes >> np.uint64(32)) * np.uint64(ranges) >> np.uint64(32)).astype(np.int64)


def _random_rows(keys: Hashes, size: int, seed: int) -> Ints:
    """`size` random rows in order: those with the lowest hash of key and seed, whoever reads them and when."""
    priority = mix(keys ^ mix(np.array([seed], np.uint64)))
    return np.sort(np.argsort(priority, kind="stable")[:size])


def _write_sample(folder: Folder, name: str, sample: Any) -> SegmentFile:
    with folder.write(name) as file:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, sample.schema) as out:
            out.write_table(sample)
        return SegmentFile(file.stat().st_size, [])


def read_sample(folder: Folder, names: list[str]) -> Iterator[str]:
    """The sampled texts, in input order."""
    for name in names:
        yield from pa.ipc.open_stream(folder.read(name)).read_all()["text"].to_pylist()
