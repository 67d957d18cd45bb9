"""Split a corpus into train, valid and test: at random, by time or by author, and check for near-duplicates.

Dialogues from one source conversation (mined pairs of one thread, `meta["thread"]`) stay in one split. Splitting by
author puts no speaker into two splits: dialogues that share a speaker form one group, which can be huge in a busy chat
room; the shares may then differ from the requested ones, and the report shows the actual counts.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from tertulia.core.dialogue import Dialogue
from tertulia.core.errors import DataError
from tertulia.corpus.config import ReadConfig
from tertulia.corpus.duplicates import similar_pairs

SPLITS = ("train", "valid", "test")


class SplitConfig(ReadConfig):
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
    ending: Literal[".jsonl", ".jsonl.gz", ".parquet"] = ".jsonl"
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


def split_dialogues(dialogues: Iterable[Dialogue], config: SplitConfig) -> SplitOutcome:
    """Split a corpus into train, valid and test."""
    corpus = list(dialogues)
    if not corpus:
        raise DataError("There are no dialogues to split.")
    groups = _groups(corpus, _authors if config.by == "author" else _conversation)
    parts: dict[str, list[Dialogue]] = {name: [] for name in SPLITS}
    goal = {name: share * len(corpus) for name, share in zip(SPLITS, config.shares, strict=True)}
    for group in _order(groups, config):
        parts[_neediest(parts, goal, in_order=config.by == "time")] += group
    near = {name: _near_train(parts["train"], parts[name], config.near) for name in SPLITS[1:]}
    if config.drop_near:
        parts |= {name: [d for i, d in enumerate(parts[name]) if i not in near[name]] for name in near}
    return SplitOutcome(parts, {name: len(indices) for name, indices in near.items()}, max(map(len, groups)))


def dialogue_time(dialogue: Dialogue) -> float | None:
    """When a dialogue took place, in seconds since 1970, if its source says so."""
    time = dialogue.meta.get("time")
    return float(time) if isinstance(time, int | float) and not isinstance(time, bool) else None


def authors_of(dialogue: Dialogue) -> list[str]:
    """The speakers: the id of the persona behind a role ("a", "user") if there is one, otherwise the speaker's name."""
    personas = {speaker: dialogue.persona_of(speaker) for speaker in dialogue.speakers}
    return [persona.id if persona and persona.id else speaker for speaker, persona in personas.items()]


def _groups(dialogues: Sequence[Dialogue], keys: Callable[[Dialogue], Iterable[str]]) -> list[list[Dialogue]]:
    """Group dialogues that share a key, directly or through others (union-find)."""
    parent = list(range(len(dialogues)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]  # path halving
            i = parent[i]
        return i

    first: dict[str, int] = {}
    for i, dialogue in enumerate(dialogues):
        for key in keys(dialogue):
            parent[root(i)] = root(first.setdefault(key, i))
    groups: dict[int, list[Dialogue]] = defaultdict(list)
    for i, dialogue in enumerate(dialogues):
        groups[root(i)].append(dialogue)
    return list(groups.values())


def _conversation(dialogue: Dialogue) -> Iterable[str]:
    yield str(dialogue.meta.get("thread") or dialogue.id)


def _authors(dialogue: Dialogue) -> Iterable[str]:
    yield f"thread {dialogue.meta.get('thread') or dialogue.id}"
    yield from (f"author {author}" for author in authors_of(dialogue))


def _order(groups: list[list[Dialogue]], config: SplitConfig) -> list[list[Dialogue]]:
    if config.by != "time":
        shuffled = sorted(groups, key=lambda group: group[0].id)
        random.Random(config.seed).shuffle(shuffled)
        # The largest first, so that a huge group gets the split with the most room.
        return sorted(shuffled, key=len, reverse=True)
    times = [[dialogue_time(d) for d in group] for group in groups]
    if missing := sum(t is None for group in times for t in group):
        raise DataError(
            f"{missing} dialogues have no time.", hint="Splitting by time needs meta 'time' (seconds since 1970)."
        )
    first = [min(t for t in group if t is not None) for group in times]
    return [group for _, _, group in sorted(zip(first, range(len(groups)), groups, strict=True), key=lambda g: g[:2])]


def _neediest(parts: dict[str, list[Dialogue]], goal: dict[str, float], *, in_order: bool) -> str:
    """The split for the next group: by time the first that is not full, otherwise the one that lacks most."""
    if in_order:
        return next((name for name in SPLITS if len(parts[name]) + 0.5 <= goal[name]), SPLITS[-1])
    return max(
        SPLITS, key=lambda name: (goal[name] - len(parts[name])) / (goal[name] or float("inf")) if goal[name] else -1.0
    )


def _near_train(train: Sequence[Dialogue], held_out: Sequence[Dialogue], threshold: float) -> set[int]:
    pairs = similar_pairs([_text(d) for d in train], [_text(d) for d in held_out], threshold=threshold)
    return {pair.right for pair in pairs}


def _text(dialogue: Dialogue) -> str:
    return "\n".join(turn.text for turn in dialogue.turns)


def author_overlap(parts: dict[str, list[Dialogue]]) -> int:
    """Number of speakers in more than one split (0 after a split by author)."""
    seen = Counter(a for part in parts.values() for a in {a for d in part for a in authors_of(d)})
    return sum(n > 1 for n in seen.values())
