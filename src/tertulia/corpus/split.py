"""Split a corpus into train, valid and test: at random, by time or by author, and check for near-duplicates.

Dialogues from one source conversation (mined pairs of one thread, `meta["thread"]`) stay in one split. Splitting by
author puts no speaker into two splits: dialogues that share a speaker form one group, which can be huge in a busy chat
room; the shares may then differ from the requested ones, and the report shows the actual counts.

`split_corpus` reads a corpus of any size in parts, on any engine; `split_dialogues` takes dialogues in memory. Both use
the same plan, so that the splits are the same.
"""

import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field, field_validator
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from tertulia.core.codec import Problems
from tertulia.core.config import save
from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.card import licence_of, write_card
from tertulia.corpus.config import ReadConfig
from tertulia.corpus.duplicates import similar_pairs
from tertulia.corpus.engines.base import Engine
from tertulia.corpus.history import HistoryStep, read_history, settings_of, write_history
from tertulia.corpus.near import SketchWriter, near_duplicates_of, ranges_for
from tertulia.corpus.parts import Part, batches, merge_problems, parts_of, read_dialogues
from tertulia.corpus.scale import (
    DistinctValues,
    Ending,
    EngineConfig,
    SpoolWriter,
    addresses_of,
    hashes_of,
    open_engine,
    positions_of,
    working_folder,
    write_in_order,
)

SPLITS = ("train", "valid", "test")
_DATES = ("time", "date", "created", "utcTimestamp")
"""What the meta of a dialogue or turn calls the time, in several formats."""
_EDGES = 1 << 22
"""Links between dialogues that are joined at a time."""


class SplitConfig(ReadConfig, EngineConfig):
    """How to split a corpus."""

    out: Path = Path("split")
    """Folder for train, valid and test."""
    by: Literal["random", "time", "author"] = "random"
    """Split at random, by time (the earliest dialogues are for training), or by author (no author is in two splits)."""
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """Shares of train, valid and test."""
    seed: int = 0
    """Random seed."""
    near: float = Field(0.7, gt=0, le=1)
    """A dialogue of valid or test counts as a near-duplicate if it is at least this similar to one in train."""
    drop_near: bool = False
    """Drop near-duplicates from valid and test instead of only counting them."""
    ending: Ending = ".jsonl"
    """Ending, and so the type, of the files to write."""

    @field_validator("shares")
    @classmethod
    def _check_shares(cls, shares: tuple[float, float, float]) -> tuple[float, float, float]:
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
            raise ValueError("must be at least 0 and add up to 1")
        return shares


@dataclass(frozen=True, slots=True)
class SplitOutcome:
    """The splits and their statistics."""

    parts: dict[str, list[Dialogue]]
    near_duplicates: dict[str, int]
    """For valid and test: dialogues that are similar to one in train."""
    largest_group: int
    """Size of the largest group of dialogues that had to stay together."""

    @property
    def counts(self) -> dict[str, int]:
        """Dialogues per split."""
        return {name: len(part) for name, part in self.parts.items()}


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
    """Split a corpus of any size into files; the same splits, in the same order, as `split_dialogues`.

    Dialogues are read once and set aside on disk. Only numbers are kept in memory: about 50 bytes for each dialogue.
    """
    progress = progress or Silent()
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
        save(config, config.out / "config.toml")
        _record(config, files, sum(written.counts))
    return files


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


def split_dialogues(dialogues: Iterable[Dialogue], config: SplitConfig) -> SplitOutcome:
    """Split dialogues in memory into train, valid and test."""
    corpus = list(dialogues)
    index = _index_of(corpus, config.by)
    plan = _plan(_groups_of(len(corpus), [index.keys], [index.owners]), config, index.ids, [index.times])
    parts = {name: [corpus[i] for i in order.tolist()] for name, order in zip(SPLITS, plan.orders, strict=True)}
    near = {name: _near_train(parts["train"], parts[name], config.near) for name in SPLITS[1:]}
    if config.drop_near:
        parts |= {name: [d for i, d in enumerate(parts[name]) if i not in near[name]] for name in near}
    return SplitOutcome(parts, {name: len(indices) for name, indices in near.items()}, plan.largest_group)


def dialogue_time(dialogue: Dialogue) -> float | None:
    """When a dialogue took place, in seconds since 1970: as its meta says, or else its earliest dated turn.

    >>> from tertulia.core.dialogue import Turn
    >>> dialogue_time(Dialogue("d", (Turn("a", "hi"), Turn("b", "hello", meta={"date": "1970-01-01T00:01:00Z"}))))
    60.0
    """
    own = _time_in(dialogue.meta)
    if own is not None:
        return own
    return min((time for turn in dialogue.turns if (time := _time_in(turn.meta)) is not None), default=None)


def _time_in(meta: Json) -> float | None:
    """A number of seconds, or a date as ISO 8601 has it (without a zone it is UTC), under one of the usual names."""
    for name in _DATES:
        value = meta.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, str) and (time := _iso_time(value)) is not None:
            return time
    return None


def _iso_time(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def authors_of(dialogue: Dialogue) -> list[str]:
    """The speakers: the id of the persona behind a role ("a", "user") if there is one, otherwise the speaker's name."""
    personas = {speaker: dialogue.persona_of(speaker) for speaker in dialogue.speakers}
    return [persona.id if persona and persona.id else speaker for speaker, persona in personas.items()]


def author_overlap(parts: dict[str, list[Dialogue]]) -> int:
    """Number of speakers in more than one split (0 after a split by author)."""
    seen = Counter(a for part in parts.values() for a in {a for d in part for a in authors_of(d)})
    return sum(n > 1 for n in seen.values())


class _DialogueIndex(NamedTuple):
    """What decides in which split dialogues are."""

    keys: NDArray[np.uint64]
    """Hashes of what dialogues must share to stay together: their thread, and by author their speakers."""
    owners: NDArray[np.int64]
    """For each key, the position of its dialogue."""
    ids: list[str]
    times: NDArray[np.float64]
    """nan where unknown; empty unless the split is by time."""


def _index_of(dialogues: Sequence[Dialogue], by: str) -> _DialogueIndex:
    keys_of: Callable[[Dialogue], list[str]] = _authors if by == "author" else _conversation
    keys = [keys_of(dialogue) for dialogue in dialogues]
    times = [dialogue_time(dialogue) for dialogue in dialogues] if by == "time" else []
    return _DialogueIndex(
        hashes_of(key for own in keys for key in own),
        np.repeat(np.arange(len(keys)), [len(own) for own in keys]),
        [dialogue.id for dialogue in dialogues],
        np.array([np.nan if time is None else time for time in times], np.float64),
    )


def _conversation(dialogue: Dialogue) -> list[str]:
    return [str(dialogue.meta.get("thread") or dialogue.id)]


def _authors(dialogue: Dialogue) -> list[str]:
    thread = f"thread {dialogue.meta.get('thread') or dialogue.id}"
    return [thread, *(f"author {author}" for author in authors_of(dialogue))]


class _Groups(NamedTuple):
    """Dialogues that stay together; groups are numbered in the order of their first dialogues."""

    of: NDArray[np.int64]
    """The group of each dialogue."""
    first: NDArray[np.int64]
    """The first dialogue of each group."""
    sizes: NDArray[np.int64]


def _groups_of(n: int, keys: Sequence[NDArray[np.uint64]], owners: Sequence[NDArray[np.int64]]) -> _Groups:
    """Group dialogues that share a key, directly or through others. Each dialogue has at least one key."""
    if not n:
        raise DataError("There are no dialogues to split.")
    all_keys, all_owners = np.concatenate(keys), np.concatenate(owners)
    order = np.argsort(all_keys, kind="stable")
    starts = np.append(True, all_keys[order][1:] != all_keys[order][:-1])
    sharing = all_owners[order]
    del all_keys, all_owners, order
    first = sharing[np.flatnonzero(starts)][np.cumsum(starts) - 1]  # of all dialogues with the key
    linked = np.flatnonzero(first != sharing)
    labels = np.arange(n)
    for some in (linked[i : i + _EDGES] for i in range(0, len(linked), _EDGES)):
        edges = coo_matrix((np.ones(len(some), np.int8), (labels[first[some]], labels[sharing[some]])), shape=(n, n))
        labels = connected_components(edges, directed=False)[1].astype(np.int64)[labels]
    return _numbered(labels)


def _numbered(labels: NDArray[np.int64]) -> _Groups:
    _, first, inverse, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return _Groups(rank[inverse], first[order], sizes[order])


class _Plan(NamedTuple):
    """Which dialogues are in which split, in which order."""

    orders: list[NDArray[np.int64]]
    """Of each split, the positions of its dialogues."""
    largest_group: int


def _plan(groups: _Groups, config: SplitConfig, ids: Sequence[str], times: Sequence[NDArray[np.float64]]) -> _Plan:
    """`ids` are those of all dialogues, or of the first dialogues of the groups."""
    n = len(groups.of)
    order = _by_time(groups, np.concatenate(times)) if config.by == "time" else _shuffled(groups, config.seed, ids)
    goal = {name: share * n for name, share in zip(SPLITS, config.shares, strict=True)}
    filled = dict.fromkeys(SPLITS, 0)
    split_of = np.empty(len(order), np.int8)
    for group, size in zip(order.tolist(), groups.sizes[order].tolist(), strict=True):
        name = _neediest(filled, goal, in_order=config.by == "time")
        filled[name] += size
        split_of[group] = SPLITS.index(name)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    in_order = np.argsort(rank[groups.of], kind="stable")
    splits = split_of[groups.of[in_order]]
    return _Plan([in_order[splits == i] for i in range(len(SPLITS))], int(groups.sizes.max()))


def _shuffled(groups: _Groups, seed: int, ids: Sequence[str]) -> NDArray[np.int64]:
    """The groups in random order, the largest first, so that a huge group gets the split with the most room."""
    first_ids = ids if len(ids) == len(groups.first) else [ids[i] for i in groups.first.tolist()]
    by_id = array("q", pc.sort_indices(pa.array(first_ids, pa.large_string())).to_pylist())
    random.Random(seed).shuffle(by_id)
    shuffled = np.frombuffer(by_id, np.int64)
    return shuffled[np.argsort(-groups.sizes[shuffled], kind="stable")]


def _by_time(groups: _Groups, times: NDArray[np.float64]) -> NDArray[np.int64]:
    """The groups by the time of their earliest dialogues."""
    if missing := int(np.isnan(times).sum()):
        raise DataError(
            f"{missing} dialogues have no time.",
            hint="Splitting by time needs 'time' (seconds since 1970) or 'date' (ISO 8601) in the meta of each dialogue"
            " or of one of its turns.",
        )
    earliest = np.full(len(groups.first), np.inf)
    np.minimum.at(earliest, groups.of, times)
    return np.argsort(earliest, kind="stable")


def _neediest(filled: dict[str, int], goal: dict[str, float], *, in_order: bool) -> str:
    """The split for the next group: by time the first that is not full, otherwise the one that lacks most."""
    if in_order:
        return next((name for name in SPLITS if filled[name] + 0.5 <= goal[name]), SPLITS[-1])
    return max(SPLITS, key=lambda name: (goal[name] - filled[name]) / goal[name] if goal[name] else -1.0)


def _near_train(train: Sequence[Dialogue], held_out: Sequence[Dialogue], threshold: float) -> set[int]:
    pairs = similar_pairs([_text(d) for d in train], [_text(d) for d in held_out], threshold=threshold)
    return {pair.right for pair in pairs}


def _text(dialogue: Dialogue) -> str:
    return "\n".join(turn.text for turn in dialogue.turns)


@dataclass(frozen=True, slots=True)
class _IndexTask:
    """Read one part, set its dialogues aside and index them."""

    part: Part
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
    spool, sketches = SpoolWriter(work, number), SketchWriter(work, number, task.ranges)
    indices: list[_DialogueIndex] = []
    authors: list[NDArray[np.uint64]] = []
    author_counts: list[NDArray[np.int64]] = []
    for batch in batches(read_dialogues(task.part, result.problems)):
        spool.write(batch)
        sketches.add([[turn.text for turn in dialogue.turns] for dialogue in batch])
        index = _index_of(batch, task.by)
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


def _joined(indices: Sequence[_DialogueIndex]) -> _DialogueIndex:
    empty = _DialogueIndex(np.zeros(0, np.uint64), np.zeros(0, np.int64), [], np.zeros(0))
    keys, owners, ids, times = zip(empty, *indices, strict=True)
    return _DialogueIndex(
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
    groups = _groups_of(n, written.columns("keys"), owners)  # type: ignore[arg-type]
    ids = [] if config.by == "time" else written.ids(groups.first)
    plan = _plan(groups, config, ids, written.columns("times"))  # type: ignore[arg-type]
    del groups, ids, owners
    split_of = np.empty(n, np.uint8)
    for number, order in enumerate(plan.orders):
        split_of[order] = number
    near = _near_positions(written, split_of, config, engine, progress)
    near_counts = {name: int((split_of[near] == i).sum()) for i, name in enumerate(SPLITS) if i}
    kept = np.ones(n, np.bool_)
    if config.drop_near:
        kept[near] = False
    addresses = addresses_of(counts)
    for name, order in zip(SPLITS, plan.orders, strict=True):
        chosen = addresses[order[kept[order]]]
        path = config.out / f"{name}{config.ending}"
        write_in_order(chosen, path, work=written.work, engine=engine, progress=progress, ending=config.ending)
    problems = Problems()
    for part in written.parts:
        merge_problems(problems, part.problems)
    sizes = {name: int(kept[order].sum()) for name, order in zip(SPLITS, plan.orders, strict=True)}
    return SplitFiles(sizes, near_counts, plan.largest_group, _shared_authors(written, split_of, kept), problems)


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
