"""Split a corpus of any size into files: the same splits, in the same order, as `split_dialogues` makes in memory.

Dialogues are read once, in parts, and set aside on disk with what decides their split and what finds near-duplicates;
after the plan is made, they are written in its order. Only numbers are kept in memory, less than 200 bytes a dialogue.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tertulia.artefacts.files import save_config
from tertulia.core.codec import Problems
from tertulia.core.errors import UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.card import licence_of, write_card
from tertulia.corpus.engines.base import Engine
from tertulia.corpus.history import HistoryStep, read_history, settings_of, write_history
from tertulia.corpus.near import SketchWriter, near_duplicates_of, ranges_for
from tertulia.corpus.parts import CorpusPart, batches, merge_problems, parts_of, read_dialogues
from tertulia.corpus.scale import (
    DistinctValues,
    Ending,
    SpoolWriter,
    addresses_of,
    hashes_of,
    open_engine,
    positions_of,
    working_folder,
    write_in_order,
)
from tertulia.corpus.split import SPLITS, DialogueIndex, SplitConfig, authors_of, group_dialogues, index_dialogues, plan


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """The statistics of splits that were written to files."""

    counts: dict[str, int]
    """Dialogues per split."""
    near_duplicates: dict[str, int]
    largest_group: int
    shared_authors: int
    """Speakers in more than one split."""
    problems: Problems


def split_corpus(config: SplitConfig, progress: Progress | None = None) -> SplitFiles:
    """Split a corpus into files, with a history and a card."""
    progress = progress or Silent()
    if config.out.is_dir() and Path(config.target).is_dir() and config.out.samefile(config.target):
        raise UsageError(f"{config.out} would replace what it is made from.", hint="Choose another folder with --out.")
    parts = parts_of(config, wanted="dialogues")
    with working_folder(config.out) as work, open_engine(config, parts) as engine:
        ranges = ranges_for(parts)
        tasks = [_IndexTask(part, str(work), config.by, ranges) for part in parts]
        progress.step("Reading", total=len(tasks))
        indexed: dict[int, _Indexed] = {}
        for result in engine.map(_index, tasks):
            indexed[result.number] = result
            progress.advance()
        written = _Written(work, [indexed[part.number] for part in parts], ranges)
        files = _split_written(written, config, engine, progress)
        if config.force:
            _remove_other_endings(config)
        save_config(config, config.out / "config.toml")
        _record(config, files, sum(written.counts))
    return files


def _remove_other_endings(config: SplitConfig) -> None:
    """Splits of an earlier run, replaced with `force`, that end otherwise: both would be read as one corpus."""
    for name in SPLITS:
        for ending in get_args(Ending):
            if ending != config.ending:
                (config.out / f"{name}{ending}").unlink(missing_ok=True)


def _record(config: SplitConfig, files: SplitFiles, read: int) -> None:
    """The history of the splits, and their card."""
    kept = sum(files.counts.values())
    removed = {"near-duplicate of train": read - kept} if config.drop_near else {}
    before = read_history(config.target)
    step = HistoryStep(
        "split",
        Path(config.target).name,
        settings_of(config),
        read,
        kept,
        removed,
        damaged_lines=files.problems.count,
        counts=files.counts,
        licence=licence_of(config.target, before),
    )
    write_history(config.out, before, step)
    write_card(config.out)


@dataclass(frozen=True, slots=True)
class _IndexTask:
    """Read one part, set its dialogues aside and index them."""

    part: CorpusPart
    work: str
    by: str
    ranges: int


@dataclass(slots=True)
class _Indexed:
    """What is known of a part."""

    number: int
    count: int = 0
    blocks: int = 0
    problems: Problems = field(default_factory=Problems)


def _index(task: _IndexTask) -> _Indexed:
    work, number = Path(task.work), task.part.number
    result = _Indexed(number)
    indices: list[DialogueIndex] = []
    authors: list[NDArray[np.uint64]] = []
    author_counts: list[NDArray[np.int64]] = []
    with SpoolWriter(work, number) as spool, SketchWriter(work, number, task.ranges) as sketches:
        for batch in batches(read_dialogues(task.part, result.problems)):
            spool.write(batch)
            sketches.add([[turn.text for turn in dialogue.turns] for dialogue in batch])
            index = index_dialogues(batch, task.by)
            indices.append(index._replace(owners=index.owners + result.count))
            names = [authors_of(dialogue) for dialogue in batch]
            authors.append(hashes_of(name for own in names for name in own))
            author_counts.append(np.array([len(own) for own in names], np.int64))
            result.count += len(batch)
        spool.close()
        result.blocks = sketches.close()
    columns = _joined(indices)
    np.savez(
        work / f"index-{number:06d}.npz",
        keys=columns.keys,
        owners=columns.owners,
        times=columns.times,
        authors=np.concatenate([np.zeros(0, np.uint64), *authors]),
        author_counts=np.concatenate([np.zeros(0, np.int64), *author_counts]),
    )
    with pa.OSFile(str(work / f"ids-{number:06d}.arrow"), "wb") as file:
        table = pa.table({"id": pa.array(columns.ids, pa.large_string())})
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return result


def _joined(indices: Sequence[DialogueIndex]) -> DialogueIndex:
    empty = DialogueIndex(np.zeros(0, np.uint64), np.zeros(0, np.int64), [], np.zeros(0))
    keys, owners, ids, times = zip(empty, *indices, strict=True)
    return DialogueIndex(
        np.concatenate(keys), np.concatenate(owners), [name for own in ids for name in own], np.concatenate(times)
    )


@dataclass(frozen=True, slots=True)
class _Written:
    """The parts of a corpus on disk."""

    work: Path
    parts: list[_Indexed]
    ranges: int

    @property
    def counts(self) -> list[int]:
        return [part.count for part in self.parts]

    def columns(self, name: str) -> list[NDArray[np.generic]]:
        """One column of the index of all parts."""
        columns = []
        for part in self.parts:
            with np.load(self.work / f"index-{part.number:06d}.npz") as index:
                columns.append(index[name])
        return columns

    def ids(self, positions: NDArray[np.int64]) -> list[str]:
        """The ids of the dialogues at these positions, which are in order."""
        ids: list[str] = []
        start = 0
        for part in self.parts:
            chosen = positions[np.searchsorted(positions, start) : np.searchsorted(positions, start + part.count)]
            with pa.OSFile(str(self.work / f"ids-{part.number:06d}.arrow")) as file, pa.ipc.open_file(file) as table:
                ids += table.read_all()["id"].take(pa.array(chosen - start)).to_pylist()
            start += part.count
        return ids


def _split_written(written: _Written, config: SplitConfig, engine: Engine, progress: Progress) -> SplitFiles:
    counts = written.counts
    n = sum(counts)
    progress.step(f"Splitting {n} dialogues by {config.by}")
    starts = np.cumsum([0, *counts])
    owners = [own + start for own, start in zip(written.columns("owners"), starts[:-1], strict=True)]
    groups = group_dialogues(n, written.columns("keys"), owners)  # type: ignore[arg-type]
    ids = [] if config.by == "time" else written.ids(groups.first)
    chosen = plan(groups, config, ids, written.columns("times"))  # type: ignore[arg-type]
    del groups, ids, owners
    split_of = np.empty(n, np.uint8)
    for number, order in enumerate(chosen.orders):
        split_of[order] = number
    near = _near_positions(written, split_of, config, engine, progress)
    near_counts = {name: int((split_of[near] == i).sum()) for i, name in enumerate(SPLITS) if i}
    kept = np.ones(n, np.bool_)
    if config.drop_near:
        kept[near] = False
    addresses = addresses_of(counts)
    for name, order in zip(SPLITS, chosen.orders, strict=True):
        own = addresses[order[kept[order]]]
        path = config.out / f"{name}{config.ending}"
        write_in_order(own, path, work=written.work, engine=engine, progress=progress, ending=config.ending)
    problems = Problems()
    for part in written.parts:
        merge_problems(problems, part.problems)
    sizes = {name: int(kept[order].sum()) for name, order in zip(SPLITS, chosen.orders, strict=True)}
    return SplitFiles(sizes, near_counts, chosen.largest_group, _shared_authors(written, split_of, kept), problems)


def _near_positions(
    written: _Written, split_of: NDArray[np.uint8], config: SplitConfig, engine: Engine, progress: Progress
) -> NDArray[np.int64]:
    """The positions of held-out dialogues that are similar to one for training."""
    held_out = written.work / "held-out.bin"
    (split_of > 0).astype(np.uint8).tofile(held_out)
    similar = near_duplicates_of(
        written.work,
        [part.blocks for part in written.parts],
        ranges=written.ranges,
        threshold=config.near,
        engine=engine,
        progress=progress,
        held_out=held_out,
        counts=written.counts,
    )
    return positions_of(similar.addresses, written.counts)


def _shared_authors(written: _Written, split_of: NDArray[np.uint8], kept: NDArray[np.bool_]) -> int:
    """Speakers in more than one split: of their hashes, the last two bits are replaced by the split."""
    distinct = DistinctValues()
    start = 0
    for part in written.parts:
        with np.load(written.work / f"index-{part.number:06d}.npz") as index:
            authors, lengths = index["authors"], index["author_counts"]
        own = slice(start, start + part.count)
        splits, stays = np.repeat(split_of[own], lengths), np.repeat(kept[own], lengths)
        distinct.add(((authors & ~np.uint64(3)) | splits.astype(np.uint64))[stays])
        start += part.count
    shared = 0
    for values in distinct.ranges():
        bare = values & ~np.uint64(3)
        repeated = bare[1:][bare[1:] == bare[:-1]]
        shared += len(np.unique(repeated))
    distinct.close()
    return shared
