"""Train, valid and test: by chance, time or author, never one conversation in two of them, and checked for copies.

Dialogues that come from one source conversation (mined pairs of one thread, `meta["thread"]`) stay together. By author
means that nobody speaks in two splits: dialogues that share a speaker are one group, which in a busy room can be huge;
the report then says how far the shares are from what was asked for.
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
from tertulia.corpus.minhash import alike
from tertulia.corpus.tasks import ReadConfig

SPLITS = ("train", "valid", "test")


class SplitConfig(ReadConfig):
    """How a corpus is cut."""

    out: Path = Path("split")
    """Folder for train, valid and test."""
    by: Literal["random", "time", "author"] = "random"
    """What decides: chance, time (the earliest are for training), or authors (nobody is in two splits)."""
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """Shares of train, valid and test."""
    seed: int = 0
    """For chance."""
    near: float = Field(0.7, gt=0, le=1)
    """From which similarity on a dialogue of valid or test counts as a near-duplicate of one in train."""
    drop_near: bool = False
    """Leave near-duplicates out of valid and test instead of only counting them."""
    ending: Literal[".jsonl", ".jsonl.gz", ".parquet"] = ".jsonl"
    """Kind of files to write."""

    @field_validator("shares")
    @classmethod
    def _whole(cls, shares: tuple[float, float, float]) -> tuple[float, float, float]:
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
            raise ValueError("shares must be at least 0 and add up to 1")
        return shares


@dataclass(frozen=True, slots=True)
class SplitOutcome:
    """The parts, and what there is to know about them."""

    parts: dict[str, list[Dialogue]]
    near_duplicates: dict[str, int]
    """Of valid and test: dialogues much like one in train."""
    largest_group: int
    """Most dialogues that had to stay together."""

    @property
    def counts(self) -> dict[str, int]:
        """Dialogues per split."""
        return {name: len(part) for name, part in self.parts.items()}


def split_dialogues(dialogues: Iterable[Dialogue], config: SplitConfig) -> SplitOutcome:
    """Cut a corpus in three."""
    everything = list(dialogues)
    if not everything:
        raise DataError("There are no dialogues to split.")
    groups = _groups(everything, _authors if config.by == "author" else _conversation)
    ordered = _ordered(groups, config)
    parts: dict[str, list[Dialogue]] = {name: [] for name in SPLITS}
    goal = {name: share * len(everything) for name, share in zip(SPLITS, config.shares, strict=True)}
    for group in ordered:
        parts[_neediest(parts, goal, in_order=config.by == "time")] += group
    near = {name: _near_train(parts["train"], parts[name], config.near) for name in SPLITS[1:]}
    if config.drop_near:
        parts |= {name: [d for i, d in enumerate(parts[name]) if i not in near[name]] for name in near}
    return SplitOutcome(parts, {name: len(found) for name, found in near.items()}, max(map(len, groups)))


def dialogue_time(dialogue: Dialogue) -> float | None:
    """When a dialogue took place, in seconds since 1970, where its source told."""
    time = dialogue.meta.get("time")
    return float(time) if isinstance(time, int | float) and not isinstance(time, bool) else None


def authors_of(dialogue: Dialogue) -> list[str]:
    """Who speaks: the person behind a role ("a", "user") where the persona tells, else the speaker's name."""
    known = {speaker: dialogue.persona_of(speaker) for speaker in dialogue.speakers}
    return [persona.id if persona and persona.id else speaker for speaker, persona in known.items()]


def _groups(dialogues: Sequence[Dialogue], keys: Callable[[Dialogue], Iterable[str]]) -> list[list[Dialogue]]:
    """Dialogues that share a key, directly or through others, together (union-find)."""
    parent = list(range(len(dialogues)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first: dict[str, int] = {}
    for i, dialogue in enumerate(dialogues):
        for key in keys(dialogue):
            parent[root(i)] = root(first.setdefault(key, i))
    found: dict[int, list[Dialogue]] = defaultdict(list)
    for i, dialogue in enumerate(dialogues):
        found[root(i)].append(dialogue)
    return list(found.values())


def _conversation(dialogue: Dialogue) -> Iterable[str]:
    yield str(dialogue.meta.get("thread") or dialogue.id)


def _authors(dialogue: Dialogue) -> Iterable[str]:
    yield f"thread {dialogue.meta.get('thread') or dialogue.id}"
    yield from (f"author {author}" for author in authors_of(dialogue))


def _ordered(groups: list[list[Dialogue]], config: SplitConfig) -> list[list[Dialogue]]:
    if config.by != "time":
        shuffled = sorted(groups, key=lambda group: group[0].id)
        random.Random(config.seed).shuffle(shuffled)
        # The largest first, so that a huge group lands where there is most room for it.
        return sorted(shuffled, key=len, reverse=True)
    times = [[dialogue_time(d) for d in group] for group in groups]
    if missing := sum(t is None for group in times for t in group):
        raise DataError(
            f"{missing} dialogues have no time.", hint="Splitting by time needs meta 'time' (seconds since 1970)."
        )
    first = [min(t for t in group if t is not None) for group in times]
    return [group for _, _, group in sorted(zip(first, range(len(groups)), groups, strict=True), key=lambda g: g[:2])]


def _neediest(parts: dict[str, list[Dialogue]], goal: dict[str, float], *, in_order: bool) -> str:
    """Where the next group goes: in order of time, the first split that is not full; else the one that lacks most."""
    if in_order:
        return next((name for name in SPLITS if len(parts[name]) + 0.5 <= goal[name]), SPLITS[-1])
    return max(
        SPLITS, key=lambda name: (goal[name] - len(parts[name])) / (goal[name] or float("inf")) if goal[name] else -1.0
    )


def _near_train(train: Sequence[Dialogue], held_out: Sequence[Dialogue], threshold: float) -> set[int]:
    return {a.right for a in alike([_text(d) for d in train], [_text(d) for d in held_out], threshold=threshold)}


def _text(dialogue: Dialogue) -> str:
    return "\n".join(turn.text for turn in dialogue.turns)


def author_overlap(parts: dict[str, list[Dialogue]]) -> int:
    """How many speakers are in more than one split (0 after a split by author)."""
    seen = Counter(a for part in parts.values() for a in {a for d in part for a in authors_of(d)})
    return sum(n > 1 for n in seen.values())
