"""What commands on whole corpora share: the choice of an engine, a folder for intermediate files, counting distinct
values, and writing what was set aside (the spool) in another order. All in memory that does not depend on the corpus.
"""

import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tertulia.artefacts.files import atomic_write, exclusive_lock
from tertulia.core.codec import dialogue_from_json, dialogue_to_json, dump_line, exchange_from_json, exchange_to_json
from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress
from tertulia.corpus.engines.base import Engine, InProcess
from tertulia.corpus.engines.pool import Pool
from tertulia.corpus.engines.ray import RayEngine
from tertulia.corpus.parts import CorpusPart
from tertulia.corpus.readers.base import Holds, Item
from tertulia.corpus.shards import write_parquet
from tertulia.corpus.shingles import sorted_unique

Addresses = NDArray[np.uint64]
"""Where items are: the number of their part in the upper 24 bits, their position in it in the lower 40. They sort in
the order of the corpus."""
PART_SHIFT = np.uint64(40)
_LOCAL = np.uint64((1 << 40) - 1)
WORK = "_work"
_LOCK = "lock"
_SMALL = 20_000
"""Corpora of fewer dialogues, by estimate, are worked on in this process."""
_GATHERED = 20_000
"""Items written by one task."""
Ending = Literal[".jsonl", ".jsonl.gz", ".parquet"]


class WorkerConfig(Config):
    """Where to run."""

    engine: Literal["pool", "ray"] = "pool"
    """Where to run: in processes on this machine, or on a Ray cluster with a shared disk."""
    address: str | None = None
    """Address of the Ray cluster; by default a local one is started."""
    workers: int | None = Field(default=None, ge=1)
    """Number of processes; by default one per core, and none for a small corpus."""


@contextmanager
def open_engine(config: WorkerConfig, parts: Sequence[CorpusPart]) -> Iterator[Engine]:
    """The engine of a config; a small corpus is worked on in this process unless workers are asked for."""
    engine: Engine
    if config.engine == "ray":
        engine = RayEngine(address=config.address, workers=config.workers)
    elif config.workers is None and (len(parts) < 2 or sum(part.rows for part in parts) < _SMALL):
        engine = InProcess()
    else:
        engine = Pool(config.workers or os.cpu_count() or 1)
    with closing(engine):
        yield engine


@contextmanager
def working_folder(out: Path) -> Iterator[Path]:
    """A folder for intermediate files in `out`, which is removed at the end; so is `out` if nothing was written.

    What a killed run left there is removed first. Only one process at a time may work there.
    """
    work, is_new = out / WORK, not out.exists()
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"Cannot write to {out}: {error.strerror}.") from None
    with exclusive_lock(work / _LOCK):
        for leftover in work.iterdir():
            if leftover.name != _LOCK:
                leftover.unlink()
        try:
            yield work.resolve()
        finally:
            shutil.rmtree(work, ignore_errors=True)
            if is_new and out.is_dir() and not any(out.iterdir()):
                out.rmdir()


def hashes_of(texts: Iterable[str]) -> NDArray[np.uint64]:
    """64 bits of each text, the same on every machine: of ten million, two have the same hash with a probability of one
    in 300,000."""
    digests = b"".join(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


class DistinctValues:
    """Counts distinct 64-bit hashes. Beyond a few million they go to disk, divided by their upper bits."""

    RANGES = 64
    LIMIT = 1 << 21

    def __init__(self) -> None:
        self._waiting: list[NDArray[np.uint64]] = []
        self._held = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def add(self, values: NDArray[np.uint64]) -> None:
        """Add hashes, some of which may have been added before."""
        self._waiting.append(values)
        self._held += len(values)
        if self._held > self.LIMIT:
            merged = sorted_unique(np.concatenate(self._waiting))
            self._waiting, self._held = [merged], len(merged)
            if self._held > self.LIMIT // 2:
                self._spill(merged)

    def ranges(self) -> Iterator[NDArray[np.uint64]]:
        """All distinct hashes, sorted, in pieces."""
        rest = sorted_unique(np.concatenate([np.zeros(0, np.uint64), *self._waiting]))
        if self._folder is None:
            yield rest
            return
        self._spill(rest)
        for file in sorted(Path(self._folder.name).iterdir()):
            yield sorted_unique(np.fromfile(file, np.uint64))

    def count(self) -> int:
        """How many there are."""
        return sum(len(values) for values in self.ranges())

    def close(self) -> None:
        """Remove what is on disk."""
        if self._folder is not None:
            self._folder.cleanup()

    def _spill(self, values: NDArray[np.uint64]) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="tertulia-")
        edges = np.arange(1, self.RANGES, dtype=np.uint64) << np.uint64(58)
        bounds = [0, *np.searchsorted(values, edges).tolist(), len(values)]
        for number in range(self.RANGES):
            with (Path(self._folder.name) / f"{number:02d}").open("ab") as file:
                values[bounds[number] : bounds[number + 1]].tofile(file)
        self._waiting, self._held = [], 0


def encode_item(item: Item) -> bytes:
    """An item as one line of Tertulia's own JSON."""
    record = dialogue_to_json(item) if isinstance(item, Dialogue) else exchange_to_json(item)
    return (dump_line(record) + "\n").encode("utf-8", "replace")


def decode_item(line: bytes, kind: Holds) -> Item:
    """The item that `encode_item` encoded."""
    value = json.loads(line)
    return dialogue_from_json(value) if kind == "dialogues" else exchange_from_json(value)


class SpoolWriter:
    """Sets the items of one part aside on disk as lines, so that each can be found again by its address."""

    def __init__(self, work: Path, part: int) -> None:
        self._lines = spool_file(work, part).open("wb")
        self._ends: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
        self._index = _index_file(work, part)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # what failed before is the error that counts
            self._lines.close()

    def write(self, items: Iterable[Item]) -> None:
        """Append items."""
        lines = [encode_item(item) for item in items]
        ends = np.cumsum([len(line) for line in lines], dtype=np.int64) + self._ends[-1][-1]
        self._lines.write(b"".join(lines))
        if len(ends):
            self._ends.append(ends)

    def close(self) -> None:
        """Write where the lines end."""
        self._lines.close()
        np.save(self._index, np.concatenate(self._ends))


def spool_file(work: Path, part: int) -> Path:
    """The lines of a part."""
    return work / f"spool-{part:06d}.jsonl"


def _index_file(work: Path, part: int) -> Path:
    return work / f"spool-{part:06d}.npy"


@dataclass(frozen=True, slots=True)
class GatherTask:
    """Some items of a file to write, by their addresses in the order of the file."""

    work: str
    order: str
    """File of addresses."""
    start: int
    count: int
    out: str
    gzipped: bool


def gather(task: GatherTask) -> str:
    """Write the lines of some items; returns the file."""
    with open_lines(Path(task.out), gzipped=task.gzipped) as out:
        addresses = np.fromfile(task.order, np.uint64, count=task.count, offset=8 * task.start)
        for batch in np.array_split(addresses, max(1, len(addresses) // 1000)):
            out.writelines(_lines_at(Path(task.work), batch))
    return task.out


@contextmanager
def open_lines(path: Path, *, gzipped: bool) -> Iterator[IO[bytes]]:
    """Open a file of lines for writing; compressed, the same lines give the same bytes."""
    with path.open("wb") as file:
        if gzipped:
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as out:
                yield out  # type: ignore[misc]
        else:
            yield file


def _lines_at(work: Path, addresses: Addresses) -> list[bytes]:
    lines: list[bytes] = [b""] * len(addresses)
    owners = (addresses >> PART_SHIFT).astype(np.int64)
    for part in np.unique(owners).tolist():
        rows = np.flatnonzero(owners == part)
        index = np.load(_index_file(work, part), mmap_mode="r")
        local = (addresses[rows] & _LOCAL).astype(np.int64)
        starts, ends = index[local], index[local + 1]
        with spool_file(work, part).open("rb", buffering=0) as file:
            for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
                lines[row] = os.pread(file.fileno(), end - start, start)
    return lines


def write_in_order(
    addresses: Addresses, path: Path, *, work: Path, engine: Engine, progress: Progress, ending: str
) -> None:
    """Write the spooled items with these addresses, in this order, as one file."""
    order = work / f"order-{path.name}.bin"
    addresses.tofile(order)
    tasks = [
        GatherTask(
            str(work),
            str(order),
            start,
            min(_GATHERED, len(addresses) - start),
            str(work / f"{path.name}-{start:012d}"),
            ending.endswith(".gz"),
        )
        for start in range(0, len(addresses), _GATHERED)
    ]
    progress.step(f"Writing {path.name}", total=len(tasks))
    for _ in engine.map(gather, tasks):
        progress.advance()
    files = [Path(task.out) for task in tasks]
    if ending == ".parquet":
        write_parquet((dialogue_from_json(json.loads(line)) for line in _read_lines(files)), path)
    else:
        with atomic_write(path) as unfinished:
            concatenate(files, unfinished, gzipped=ending.endswith(".gz"))


def _read_lines(files: Sequence[Path]) -> Iterator[bytes]:
    for file in files:
        with file.open("rb") as lines:
            yield from lines
        file.unlink()


def concatenate(files: Sequence[Path], path: Path, *, gzipped: bool) -> None:
    """Join files (or gzip files, which together are one again) and remove them."""
    with path.open("wb") as out:
        if not files and gzipped:
            out.write(gzip.compress(b"", mtime=0))
        for file in files:
            with file.open("rb") as lines:
                shutil.copyfileobj(lines, out, 1 << 20)
            file.unlink()


def addresses_of(counts: Sequence[int]) -> Addresses:
    """The addresses of all items of parts with so many items each."""
    lengths = np.array(counts, np.int64)
    owners = np.repeat(np.arange(len(lengths), dtype=np.uint64), lengths)
    local = np.arange(int(lengths.sum()), dtype=np.uint64) - np.repeat(
        (np.cumsum(lengths) - lengths).astype(np.uint64), lengths
    )
    return np.asarray((owners << PART_SHIFT) | local)


def positions_of(addresses: Addresses, counts: Sequence[int]) -> NDArray[np.int64]:
    """Where items with these addresses are in the corpus, counted from 0."""
    lengths = np.array(counts, np.int64)
    starts = np.cumsum(lengths) - lengths
    owners = (addresses >> PART_SHIFT).astype(np.int64)
    return np.asarray(starts[owners] + (addresses & _LOCAL).astype(np.int64))
