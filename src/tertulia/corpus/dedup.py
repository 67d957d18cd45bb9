"""Remove near-duplicates from a corpus of any size: of texts that are similar, the first one stays.

A dialogue is removed if it is similar to an earlier one, whether that one stays or not. Similar means that the Jaccard
similarity of their word 3-grams is at least a threshold; candidates are found by MinHash and banding (`corpus.near`).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tertulia.core.codec import Problems
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.derived import (
    DeriveConfig,
    DeriveCounts,
    check_out,
    ending_for,
    publish,
    shard_name,
    tag_columns,
    turns_of,
    write_shard,
)
from tertulia.corpus.load import holds
from tertulia.corpus.near import SketchWriter, near_duplicates_of, ranges_for
from tertulia.corpus.parts import CorpusPart, batches, merge_problems, parts_of, read_part
from tertulia.corpus.readers.base import Holds, Item
from tertulia.corpus.scale import PART_SHIFT, SpoolWriter, decode_item, open_engine, spool_file, working_folder

NEAR, EXACT = "near-duplicate", "duplicate"
"""Reasons to remove an item: similar to an earlier one, or the same words in the same n-grams."""


class DedupConfig(DeriveConfig):
    """Which near-duplicates to remove."""

    on: Literal["dialogue", "reply"] = "dialogue"
    """What must be similar: all turns, or the last turn alone. Mined pairs of one thread share their context: for
    these, `reply` is what removes repetitions."""
    threshold: float = Field(default=0.7, gt=0, le=1)
    """Jaccard similarity of word 3-grams from which on two texts are similar."""
    min_words: int = Field(default=4, ge=1)
    """Texts of fewer words are never removed: "thanks a lot" is not a duplicate but a habit."""


def remove_duplicates(config: DedupConfig, progress: Progress | None = None) -> DeriveCounts:
    """Write a corpus without near-duplicates."""
    progress = progress or Silent()
    check_out(config)
    kind = holds(config.target, split=config.split, format=config.format)
    parts = parts_of(config, wanted="dialogues" if kind == "dialogues" else None)
    ranges = ranges_for(parts)
    with working_folder(config.out) as work, open_engine(config, parts) as engine:
        tasks = [_SketchTask(part, str(work), config.on, config.min_words, ranges) for part in parts]
        progress.step("Reading", total=len(tasks))
        sketched: dict[int, _Sketched] = {}
        for result in engine.map(_sketch, tasks):
            sketched[result.number] = result
            progress.advance()
        similar = near_duplicates_of(
            work,
            [sketched[part.number].blocks for part in parts],
            ranges=ranges,
            threshold=config.threshold,
            engine=engine,
            progress=progress,
        )
        counts = DeriveCounts()
        for part in parts:
            counts.read += sketched[part.number].count
            merge_problems(counts.problems, sketched[part.number].problems)
        counts.kept = counts.read - len(similar.addresses)
        exact = int((similar.similarities == 1).sum())
        counts.removed = Counter({NEAR: len(similar.addresses) - exact, EXACT: exact})
        columns = tag_columns(parts)
        writing = [
            _WriteTask(
                part, str(work), ending_for(config, kind), kind, _positions(similar.addresses, part.number), columns
            )
            for part in parts
        ]
        progress.step(f"Writing {config.out}", total=len(writing))
        for _ in engine.map(_write_kept, writing):
            progress.advance()
        publish(config, work, counts, command="dedup")
    return counts


@dataclass(frozen=True, slots=True)
class _SketchTask:
    part: CorpusPart
    work: str
    on: str
    min_words: int
    ranges: int


@dataclass(slots=True)
class _Sketched:
    number: int
    count: int = 0
    blocks: int = 0
    problems: Problems = field(default_factory=Problems)


def _sketch(task: _SketchTask) -> _Sketched:
    """Read one part, set its items aside and write their sketches."""
    work, number = Path(task.work), task.part.number
    result = _Sketched(number)
    with (
        SpoolWriter(work, number) as spool,
        SketchWriter(work, number, task.ranges, min_words=task.min_words) as sketches,
    ):
        for batch in batches(read_part(task.part, result.problems)):
            spool.write(batch)
            turns = [turns_of(item) for item in batch]
            sketches.add([[turn.text for turn in (own[-1:] if task.on == "reply" else own)] for own in turns])
            result.count += len(batch)
        spool.close()
        result.blocks = sketches.close()
    return result


def _positions(addresses: NDArray[np.uint64], part: int) -> NDArray[np.int64]:
    """The positions of a part among sorted addresses."""
    first, end = np.uint64(part) << PART_SHIFT, np.uint64(part + 1) << PART_SHIFT
    own = addresses[np.searchsorted(addresses, first) : np.searchsorted(addresses, end)]
    return (own - first).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _WriteTask:
    part: CorpusPart
    work: str
    ending: str
    kind: Holds
    removed: NDArray[np.int64]
    columns: dict[str, str]


def _write_kept(task: _WriteTask) -> None:
    work = Path(task.work)
    spool = spool_file(work, task.part.number)
    kept = _kept(spool, set(task.removed.tolist()), task.kind)
    write_shard(kept, work / shard_name(task.part, task.ending), task.columns)
    spool.unlink()


def _kept(spool: Path, removed: set[int], kind: Holds) -> Iterator[Item]:
    with spool.open("rb") as lines:
        for position, line in enumerate(lines):
            if position not in removed:
                yield decode_item(line, kind)
