"""Stage one: a part of the input becomes columns, cut into buckets by a hash of the thread, so that a thread is whole
in one bucket; beside them the hashes of the texts, cut by range, and a sample of texts to learn subwords from.

A task leaves its files and then a marker that names them with their sizes: a marker whose files are as it says means
that the task is done.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from tertulia.corpus.mining.columns import Ints, whole_array
from tertulia.corpus.mining.files import appearing, read_json, write_json
from tertulia.corpus.mining.forest import message_keys
from tertulia.corpus.mining.hashing import Hashes, hash_texts, mixed
from tertulia.corpus.mining.kernel import COLUMNS
from tertulia.corpus.mining.reading import Block, read_part
from tertulia.corpus.mining.segments import write_segments
from tertulia.corpus.mining.shapes import Cleaning
from tertulia.corpus.mining.sources import Part

HASHES = pa.schema([("text", pa.uint64()), ("key", pa.uint64())])
"""A text's hash, and that of the message it stands in."""
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class ScatterTask:
    """One part of the input."""

    number: int
    part: Part
    folder: str
    buckets: int
    ranges: int
    block_bytes: int
    fields: Mapping[str, str]
    cleaning: Cleaning
    sample: float
    """Texts to sample for each byte of input; 0 where a subword model was given."""
    seed: int

    @property
    def marker(self) -> Path:
        """Where the task says that it is done."""
        return Path(self.folder) / f"part-{self.number:05d}.json"


@dataclass(slots=True)
class Scattered:
    """What came of a part."""

    number: int
    messages: int = 0
    lines: int = 0
    damaged: int = 0
    examples: list[tuple[int, str]] = field(default_factory=list)
    """Line within the part and what was wrong, of the first few damaged lines."""
    files: dict[str, int] = field(default_factory=dict)
    """Names and sizes of the files written."""

    def paths(self, folder: Path, kind: str) -> list[str]:
        """The files of one kind (`messages`, `hashes`, `sample`), in the order of the input."""
        return [str(folder / name) for name in self.files if name.startswith(kind)]

    def is_whole(self, folder: Path) -> bool:
        """Whether all files are there as they were written."""
        return all((p := folder / n).is_file() and p.stat().st_size == size for n, size in self.files.items())


def scatter(task: ScatterTask) -> Scattered:
    """Do one part, unless it is done."""
    done = scattered(task)
    if done:
        return done
    found = Scattered(task.number)
    for number, block in enumerate(read_part(task.part, **_reading(task))):
        for line, why in block.parsed.damage[: _EXAMPLES - len(found.examples)]:
            found.examples.append((found.lines + line, why))
        found.damaged += len(block.parsed.damage)
        found.lines += block.lines
        found.messages += block.parsed.frame.height
        for path in _write_block(task, number, block):
            found.files[path.name] = path.stat().st_size
    write_json(task.marker, found)
    return found


def scattered(task: ScatterTask) -> Scattered | None:
    """What came of a task that was done before; None where it has to be done."""
    if not task.marker.is_file():
        return None
    found = Scattered(**read_json(task.marker))
    return found if found.is_whole(Path(task.folder)) else None


def _reading(task: ScatterTask) -> dict[str, Any]:
    return {"size": task.block_bytes, "fields": task.fields, "cleaning": task.cleaning}


def _write_block(task: ScatterTask, number: int, block: Block) -> Iterator[Path]:
    folder, name = Path(task.folder), f"{task.number:05d}-{number:05d}.arrow"
    table = block.parsed.frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    table = pa.table({n: whole_array(table[n].cast(COLUMNS.field(n).type)) for n in table.column_names})
    threads = hash_texts(whole_array(table["thread"]))
    texts = hash_texts(whole_array(table["text"]))
    keys = message_keys(threads, whole_array(table["id"]))
    table = table.append_column("text_hash", pa.array(texts)).append_column("thread_hash", pa.array(threads))
    write_segments(
        folder / f"messages-{name}", table, (threads % np.uint64(task.buckets)).astype(np.int64), count=task.buckets
    )
    yield folder / f"messages-{name}"
    hashes = pa.table({"text": texts, "key": keys}, HASHES)
    write_segments(folder / f"hashes-{name}", hashes, range_of(texts, task.ranges), count=task.ranges, packed=False)
    yield folder / f"hashes-{name}"
    if task.sample:
        size = int(np.ceil(task.sample * block.size))
        _write_sample(folder / f"sample-{name}", table["text"], _lowest_lots(keys, size, task.seed))
        yield folder / f"sample-{name}"


def range_of(hashes: Hashes, ranges: int) -> Ints:
    """In which of so many equal ranges each hash lies."""
    return ((hashes >> np.uint64(32)) * np.uint64(ranges) >> np.uint64(32)).astype(np.int64)


def _lowest_lots(keys: Hashes, size: int, seed: int) -> Ints:
    """So many rows at random, in order: those whose hash with the seed is lowest."""
    lots = mixed(keys ^ mixed(np.array([seed], np.uint64)))
    return np.sort(np.argsort(lots, kind="stable")[:size])


def _write_sample(path: Path, texts: Any, chosen: Ints) -> None:
    sample = pa.table({"text": texts.take(pa.array(chosen))})
    with appearing(path) as file, pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, sample.schema) as out:
        out.write_table(sample)


def read_sample(paths: list[str]) -> Iterator[str]:
    """The sampled texts, in the order of the input."""
    for path in paths:
        with pa.OSFile(path, "rb") as file:
            yield from pa.ipc.open_file(file).read_all()["text"].to_pylist()
