"""Near-duplicates in a corpus that does not fit in memory: MinHash and banding (LSH), then the exact similarity.

Each part writes the n-grams of its texts, and for each text and band a key with the text's address, ordered by key. A
task then reads one range of keys from all parts: texts with the same key are candidates, and of those the exact
Jaccard similarity decides. So nothing is removed that is not similar; what is missed is what shares no band (`BANDS`).

Memory depends on the sizes of parts and ranges. The disk holds 512 bytes and four per n-gram for each text.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tertulia.core.progress import Progress
from tertulia.corpus.engines.base import Engine
from tertulia.corpus.parts import CorpusPart
from tertulia.corpus.scale import PART_SHIFT, Addresses
from tertulia.corpus.shingles import BANDS, Hashes, band_keys, joined_shingle_sets, signatures

RANGE_TEXTS = 40_000
"""Texts per range of keys: about 20 MB of keys and addresses."""
_BLOCK_TEXTS = 20_000
"""Texts of a part whose keys are ordered together."""
_CACHED_SETS = 20_000
_CELL = np.dtype([("key", np.uint64), ("address", np.uint64)])
_LOCAL = np.uint64((1 << 40) - 1)
HELD_OUT, TRAIN = 1, 0


def ranges_for(parts: Sequence[CorpusPart]) -> int:
    """Into how many ranges the keys of a corpus are divided."""
    return 1 + sum(part.rows for part in parts) // RANGE_TEXTS


class SketchWriter:
    """Writes what is needed to find the near-duplicates of the texts of one part."""

    def __init__(self, work: Path, part: int, ranges: int, *, min_words: int = 1) -> None:
        self._work, self._part, self._ranges, self._min_words = work, part, ranges, min_words
        self._values = (work / f"sets-{part:06d}.bin").open("wb")
        self._ends: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
        self._keys: list[NDArray[np.uint64]] = []
        self._waiting = self._written = self._blocks = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # what failed before is the error that counts
            self._values.close()

    def add(self, texts: Sequence[Sequence[str]]) -> None:
        """The next texts of the part, in pieces: the turns of dialogues."""
        sets = joined_shingle_sets(texts, min_words=self._min_words)
        self._values.write(sets.values.tobytes())
        self._ends.append(sets.offsets[1:] + self._ends[-1][-1])
        self._keys.append(band_keys(signatures(sets)))
        self._waiting += len(texts)
        if self._waiting >= _BLOCK_TEXTS:
            self._write_block()

    def close(self) -> int:
        """Write the rest; returns the number of blocks."""
        self._write_block()
        self._values.close()
        np.save(self._work / f"sets-{self._part:06d}.npy", np.concatenate(self._ends))
        return self._blocks

    def _write_block(self) -> None:
        if not self._keys:
            return
        keys = np.concatenate(self._keys)
        first = (np.uint64(self._part) << PART_SHIFT) + np.uint64(self._written)
        cells = np.empty(keys.size, _CELL)
        cells["key"] = keys.reshape(-1)
        cells["address"] = np.repeat(first + np.arange(len(keys), dtype=np.uint64), BANDS)
        cells = cells[cells["key"] != 0]  # texts without words
        cells = cells[np.argsort(cells["key"], kind="stable")]
        edges = np.searchsorted(cells["key"], _range_edges(self._ranges))
        with _block_file(self._work, self._part, self._blocks).open("wb") as file:
            np.concatenate([[0], edges, [len(cells)]]).astype(np.int64).tofile(file)
            cells.tofile(file)
        self._written += len(keys)
        self._blocks += 1
        self._keys, self._waiting = [], 0


def _range_edges(ranges: int) -> NDArray[np.uint64]:
    """The least keys of all ranges but the first."""
    return np.array([(i << 64) // ranges for i in range(1, ranges)], np.uint64)


def _block_file(work: Path, part: int, block: int) -> Path:
    return work / f"bands-{part:06d}-{block:04d}.bin"


class Similar(NamedTuple):
    """Texts that are similar to another one, by address, with that one and the similarity."""

    addresses: Addresses
    others: Addresses
    similarities: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NearTask:
    """One range of keys."""

    work: str
    number: int
    ranges: int
    blocks: tuple[int, ...]
    """Number of blocks of each part."""
    threshold: float
    held_out: str = ""
    """File with a byte for each text of the corpus: 1 if it is held out. Then held-out texts are compared with all
    others; without it, every text is compared with those before it."""
    counts: tuple[int, ...] = ()
    """Number of texts of each part, if some are held out."""


def find_similar(task: NearTask) -> Similar:
    """The texts of a range of keys that are similar to another: to one for training, or to an earlier one."""
    cells = _read_cells(task)
    sets = _StoredSets(Path(task.work))
    similar: dict[int, tuple[int, float]] = {}
    for run in _runs(cells, task):
        if task.held_out:
            earlier = run.addresses[run.roles == TRAIN]
            for address in run.addresses[run.roles == HELD_OUT].tolist():
                if address not in similar:
                    _compare(address, earlier, sets, task.threshold, similar)
        else:
            addresses = np.sort(run.addresses)
            for i in range(1, len(addresses)):
                if int(addresses[i]) not in similar:
                    _compare(int(addresses[i]), addresses[:i], sets, task.threshold, similar)
    sets.close()
    return Similar(
        np.fromiter(similar, np.uint64, count=len(similar)),
        np.array([other for other, _ in similar.values()], np.uint64),
        np.array([similarity for _, similarity in similar.values()], np.float64),
    )


def near_duplicates_of(
    work: Path,
    blocks: Sequence[int],
    *,
    ranges: int,
    threshold: float,
    engine: Engine,
    progress: Progress,
    held_out: Path | None = None,
    counts: Sequence[int] = (),
) -> Similar:
    """The near-duplicates of a corpus whose parts have written their sketches, in the order of the corpus."""
    tasks = [
        NearTask(str(work), number, ranges, tuple(blocks), threshold, str(held_out) if held_out else "", tuple(counts))
        for number in range(ranges)
    ]
    progress.step("Comparing", total=len(tasks))
    results = []
    for result in engine.map(find_similar, tasks):
        results.append(result)
        progress.advance()
    addresses, others, similarities = (np.concatenate(column) for column in zip(*results, strict=True))
    # A text may be found in several ranges: the most similar counts, then the earliest.
    order = np.lexsort((others, -similarities, addresses))
    addresses, others, similarities = addresses[order], others[order], similarities[order]
    first = np.append(True, addresses[1:] != addresses[:-1])[: len(addresses)]
    return Similar(addresses[first], others[first], similarities[first])


def _read_cells(task: NearTask) -> NDArray[np.void]:
    pieces = [np.zeros(0, _CELL)]
    head = 8 * (task.ranges + 1)
    for part, blocks in enumerate(task.blocks):
        for block in range(blocks):
            file = _block_file(Path(task.work), part, block)
            start, end = np.fromfile(file, np.int64, count=2, offset=8 * task.number).tolist()
            pieces.append(np.fromfile(file, _CELL, count=end - start, offset=head + start * _CELL.itemsize))
    return np.concatenate(pieces)


class _Run(NamedTuple):
    """Texts with the same key."""

    addresses: Addresses
    roles: NDArray[np.uint8]
    """Whether each is held out; empty if none is."""


def _runs(cells: NDArray[np.void], task: NearTask) -> Iterator[_Run]:
    """Texts with the same key, where there are at least two; with held-out texts, at least one of either role."""
    order = np.argsort(cells["key"], kind="stable")
    keys, addresses = cells["key"][order], cells["address"][order]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    lengths = np.diff(np.append(starts, len(keys)))
    roles = _roles(addresses, task) if task.held_out else np.zeros(0, np.uint8)
    chosen = lengths > 1
    if task.held_out and len(starts):
        held_out = np.add.reduceat(roles, starts, dtype=np.int64)
        chosen = (held_out > 0) & (held_out < lengths)
    for start, length in zip(starts[chosen].tolist(), lengths[chosen].tolist(), strict=True):
        yield _Run(addresses[start : start + length], roles[start : start + length])


def _roles(addresses: Addresses, task: NearTask) -> NDArray[np.uint8]:
    flags, starts = _held_out(task.held_out, task.counts)
    owners = (addresses >> PART_SHIFT).astype(np.int64)
    return np.asarray(flags[starts[owners] + (addresses & _LOCAL).astype(np.int64)])


@lru_cache(maxsize=1)
def _held_out(file: str, counts: tuple[int, ...]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    lengths = np.array(counts, np.int64)
    return np.fromfile(file, np.uint8), np.cumsum(lengths) - lengths


class _StoredSets:
    """The sets of n-grams of texts, read from disk by address; the last ones are kept."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._file: tuple[int, IO[bytes]] | None = None
        self._ends = lru_cache(maxsize=64)(self._load_ends)
        self.get = lru_cache(maxsize=_CACHED_SETS)(self._read)

    def sizes(self, addresses: Addresses) -> NDArray[np.int64]:
        """How many n-grams each text has."""
        owners, local = (addresses >> PART_SHIFT).astype(np.int64), (addresses & _LOCAL).astype(np.int64)
        sizes = np.empty(len(addresses), np.int64)
        for part in np.unique(owners).tolist():
            rows = owners == part
            ends = self._ends(part)
            sizes[rows] = ends[local[rows] + 1] - ends[local[rows]]
        return sizes

    def close(self) -> None:
        if self._file:
            self._file[1].close()

    def _load_ends(self, part: int) -> NDArray[np.int64]:
        return np.asarray(np.load(self._work / f"sets-{part:06d}.npy", mmap_mode="r"))

    def _read(self, address: int) -> Hashes:
        part, local = address >> 40, address & ((1 << 40) - 1)
        ends = self._ends(part)
        start, end = int(ends[local]), int(ends[local + 1])
        if self._file is None or self._file[0] != part:
            self.close()
            self._file = (part, (self._work / f"sets-{part:06d}.bin").open("rb", buffering=0))
        return np.frombuffer(os.pread(self._file[1].fileno(), 4 * (end - start), 4 * start), np.uint32)


def _compare(
    address: int, others: Addresses, sets: _StoredSets, threshold: float, similar: dict[int, tuple[int, float]]
) -> None:
    """Remember the first of the other texts that is similar enough, if there is one."""
    own = sets.get(address)
    sizes = sets.sizes(others)
    # The smaller set over the larger one is an upper bound of the similarity.
    possible = np.minimum(sizes, len(own)) >= threshold * np.maximum(sizes, len(own)) - 1e-9
    for group in _groups(others[possible]):
        similarities = _similarities(own, [sets.get(other) for other in group])
        enough = np.flatnonzero(similarities >= threshold)
        if len(enough):
            similar[address] = (group[int(enough[0])], float(similarities[enough[0]]))
            return


def _groups(addresses: Addresses) -> Iterator[list[int]]:
    """One, then a hundred at a time: the first is often similar already."""
    listed = addresses.tolist()
    yield listed[:1]
    for start in range(1, len(listed), 100):
        yield listed[start : start + 100]


def _similarities(own: Hashes, others: list[Hashes]) -> NDArray[np.float64]:
    """Jaccard similarities of one set with others; none of them is empty."""
    if not others:
        return np.zeros(0)
    lengths = np.array([len(other) for other in others])
    values = np.concatenate(others)
    indices = np.minimum(np.searchsorted(own, values), len(own) - 1)
    shared = np.add.reduceat((own[indices] == values).astype(np.int64), np.cumsum(lengths) - lengths)
    return np.asarray(shared / (lengths + len(own) - shared))
