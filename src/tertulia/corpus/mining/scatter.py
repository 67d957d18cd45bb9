"""Stage one: a chunk of the input becomes columns, distributed over buckets by a hash of the thread, so that a thread
lies completely in one bucket; beside them the hashes of the texts, split by range, and a sample of texts for learning
subwords.

A task writes its files and then a marker that lists them with their sizes: if the marker is there and its files have
these sizes, the task is done.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from tertulia.artefacts.files import atomic_write, read_json, write_json
from tertulia.corpus.mining.columns import Ints, contiguous
from tertulia.corpus.mining.filters import COLUMNS
from tertulia.corpus.mining.forest import message_keys
from tertulia.corpus.mining.hashing import Hashes, hash_texts, mix
from tertulia.corpus.mining.reading import Block, read_chunk
from tertulia.corpus.mining.schemas import Cleaning
from tertulia.corpus.mining.segments import write_segments
from tertulia.corpus.mining.sources import Chunk

HASHES = pa.schema([("text", pa.uint64()), ("key", pa.uint64())])
"""The hash of a text, and the key of its message."""
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class ScatterTask:
    """One chunk of the input."""

    number: int
    chunk: Chunk
    folder: str
    buckets: int
    ranges: int
    block_bytes: int
    fields: Mapping[str, str]
    cleaning: Cleaning
    sample_rate: float
    """Texts to sample per byte of input; 0 if a subword model is given."""
    seed: int

    @property
    def marker(self) -> Path:
        """The file that says that the task is done."""
        return Path(self.folder) / f"part-{self.number:05d}.json"


@dataclass(slots=True)
class ScatterResult:
    """What was read from a chunk."""

    number: int
    messages: int = 0
    lines: int = 0
    damaged: int = 0
    examples: list[tuple[int, str]] = field(default_factory=list)
    """Line within the chunk and reason, of the first few damaged lines."""
    files: dict[str, int] = field(default_factory=dict)
    """Names and sizes of the files written."""

    def paths(self, folder: Path, kind: str) -> list[str]:
        """The files of one kind (`messages`, `hashes`, `sample`), in input order."""
        return [str(folder / name) for name in self.files if name.startswith(kind)]

    def is_intact(self, folder: Path) -> bool:
        """Whether all files still have the size they were written with."""
        return all((p := folder / n).is_file() and p.stat().st_size == size for n, size in self.files.items())


def scatter(task: ScatterTask) -> ScatterResult:
    """Process one chunk, unless it is done."""
    if previous := finished_scatter(task):
        return previous
    result = ScatterResult(task.number)
    blocks = read_chunk(task.chunk, size=task.block_bytes, fields=task.fields, cleaning=task.cleaning)
    for number, block in enumerate(blocks):
        for line, why in block.parsed.damage[: _EXAMPLES - len(result.examples)]:
            result.examples.append((result.lines + line, why))
        result.damaged += len(block.parsed.damage)
        result.lines += block.lines
        result.messages += block.parsed.frame.height
        for path in _write_block(task, number, block):
            result.files[path.name] = path.stat().st_size
    write_json(task.marker, result)
    return result


def finished_scatter(task: ScatterTask) -> ScatterResult | None:
    """The result of a task that an earlier run finished; None if it has to be done."""
    if not task.marker.is_file():
        return None
    result = ScatterResult(**read_json(task.marker))
    return result if result.is_intact(Path(task.folder)) else None


def _write_block(task: ScatterTask, number: int, block: Block) -> Iterator[Path]:
    folder, name = Path(task.folder), f"{task.number:05d}-{number:05d}.arrow"
    table = block.parsed.frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    table = pa.table({n: contiguous(table[n].cast(COLUMNS.field(n).type)) for n in table.column_names})
    threads = hash_texts(contiguous(table["thread"]))
    texts = hash_texts(contiguous(table["text"]))
    keys = message_keys(threads, contiguous(table["id"]))
    table = table.append_column("text_hash", pa.array(texts)).append_column("thread_hash", pa.array(threads))
    write_segments(
        folder / f"messages-{name}", table, (threads % np.uint64(task.buckets)).astype(np.int64), count=task.buckets
    )
    yield folder / f"messages-{name}"
    hashes = pa.table({"text": texts, "key": keys}, HASHES)
    write_segments(folder / f"hashes-{name}", hashes, range_of(texts, task.ranges), count=task.ranges, compress=False)
    yield folder / f"hashes-{name}"
    if task.sample_rate:
        size = int(np.ceil(task.sample_rate * block.size))
        _write_sample(folder / f"sample-{name}", table["text"], _random_rows(keys, size, task.seed))
        yield folder / f"sample-{name}"


def range_of(hashes: Hashes, ranges: int) -> Ints:
    """Which of the equally large ranges each hash lies in: the product's high half, computed from the high 32 bits."""
    return ((hashes >> np.uint64(32)) * np.uint64(ranges) >> np.uint64(32)).astype(np.int64)


def _random_rows(keys: Hashes, size: int, seed: int) -> Ints:
    """`size` random rows in order: those with the lowest hash of key and seed, whoever reads them and when."""
    priority = mix(keys ^ mix(np.array([seed], np.uint64)))
    return np.sort(np.argsort(priority, kind="stable")[:size])


def _write_sample(path: Path, texts: Any, rows: Ints) -> None:
    sample = pa.table({"text": texts.take(pa.array(rows))})
    with atomic_write(path) as file, pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, sample.schema) as out:
        out.write_table(sample)


def read_sample(paths: list[str]) -> Iterator[str]:
    """The sampled texts, in input order."""
    for path in paths:
        with pa.OSFile(path, "rb") as file:
            yield from pa.ipc.open_file(file).read_all()["text"].to_pylist()
