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
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy
from numpy.typing import NDArray
from pydantic import Field, field_validator

from tertulia.artefacts.outputs import Force, Output
from tertulia.core.dialogue import Dialogue, Json
from tertulia.core.errors import DataError
from tertulia.corpus.config import ReadConfig
from tertulia.corpus.duplicates import similar_pairs
from tertulia.corpus.scale import (
    Ending,
    WorkerConfig,
    hashes_of,
)

SPLITS = ("train", "valid", "test")
_DATES = ("time", "date", "created", "utcTimestamp")
"""What the meta of a dialogue or turn calls the time, in several formats."""
_EDGES = 1 << 22
"""Links between dialogues that are joined at a time."""


class SplitConfig(ReadConfig, WorkerConfig):
    """How to split a corpus."""

    out: Annotated[Path, Output("folder")] = Path("split")
    """Folder for train, valid and test."""
    by: Literal["random", "time", "author"] = "random"
    """Split at random, by time (the earliest dialogues are for training), or by author (no author is in two splits)."""
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """Shares of train, valid and test."""
    seed: int = 0
    """Random seed."""
    near: float = Field(default=0.7, gt=0, le=1)
    """A dialogue of valid or test counts as a near-duplicate if it is at least this similar to one in train."""
    drop_near: bool = False
    """Drop near-duplicates from valid and test instead of only counting them."""
    ending: Ending = ".jsonl"
    """Ending, and so the type, of the files to write."""
    force: Force = False

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


def split_dialogues(dialogues: Iterable[Dialogue], config: SplitConfig) -> SplitOutcome:
    """Split dialogues in memory into train, valid and test."""
    corpus = list(dialogues)
    index = index_dialogues(corpus, config.by)
    chosen = plan(group_dialogues(len(corpus), [index.keys], [index.owners]), config, index.ids, [index.times])
    parts = {name: [corpus[i] for i in order.tolist()] for name, order in zip(SPLITS, chosen.orders, strict=True)}
    near = {name: _near_train(parts["train"], parts[name], config.near) for name in SPLITS[1:]}
    if config.drop_near:
        parts |= {name: [d for i, d in enumerate(parts[name]) if i not in near[name]] for name in near}
    return SplitOutcome(parts, {name: len(indices) for name, indices in near.items()}, chosen.largest_group)


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


class DialogueIndex(NamedTuple):
    """What decides in which split dialogues are."""

    keys: NDArray[np.uint64]
    """Hashes of what dialogues must share to stay together: their thread, and by author their speakers."""
    owners: NDArray[np.int64]
    """For each key, the position of its dialogue."""
    ids: list[str]
    times: NDArray[np.float64]
    """nan where unknown; empty unless the split is by time."""


def index_dialogues(dialogues: Sequence[Dialogue], by: str) -> DialogueIndex:
    """What a split by this needs to know of the dialogues."""
    keys_of: Callable[[Dialogue], list[str]] = _authors if by == "author" else _conversation
    keys = [keys_of(dialogue) for dialogue in dialogues]
    times = [dialogue_time(dialogue) for dialogue in dialogues] if by == "time" else []
    return DialogueIndex(
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


class DialogueGroups(NamedTuple):
    """Dialogues that stay together; groups are numbered in the order of their first dialogues."""

    of: NDArray[np.int64]
    """The group of each dialogue."""
    first: NDArray[np.int64]
    """The first dialogue of each group."""
    sizes: NDArray[np.int64]


def group_dialogues(n: int, keys: Sequence[NDArray[np.uint64]], owners: Sequence[NDArray[np.int64]]) -> DialogueGroups:
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
        edges = scipy.sparse.coo_matrix(
            (np.ones(len(some), np.int8), (labels[first[some]], labels[sharing[some]])), shape=(n, n)
        )
        labels = scipy.sparse.csgraph.connected_components(edges, directed=False)[1].astype(np.int64)[labels]
    return _numbered(labels)


def _numbered(labels: NDArray[np.int64]) -> DialogueGroups:
    _, first, inverse, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return DialogueGroups(rank[inverse], first[order], sizes[order])


class SplitPlan(NamedTuple):
    """Which dialogues are in which split, in which order."""

    orders: list[NDArray[np.int64]]
    """Of each split, the positions of its dialogues."""
    largest_group: int


def plan(
    groups: DialogueGroups, config: SplitConfig, ids: Sequence[str], times: Sequence[NDArray[np.float64]]
) -> SplitPlan:
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
    return SplitPlan([in_order[splits == i] for i in range(len(SPLITS))], int(groups.sizes.max()))


def _shuffled(groups: DialogueGroups, seed: int, ids: Sequence[str]) -> NDArray[np.int64]:
    """The groups in random order, the largest first, so that a huge group gets the split with the most room."""
    first_ids = ids if len(ids) == len(groups.first) else [ids[i] for i in groups.first.tolist()]
    by_id = array("q", pc.sort_indices(pa.array(first_ids, pa.large_string())).to_pylist())
    random.Random(seed).shuffle(by_id)
    shuffled = np.frombuffer(by_id, np.int64)
    return shuffled[np.argsort(-groups.sizes[shuffled], kind="stable")]


def _by_time(groups: DialogueGroups, times: NDArray[np.float64]) -> NDArray[np.int64]:
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
