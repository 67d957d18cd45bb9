"""Runs of turns that conversations share with each other or with the training data (Ghandeharioun et al. 2019).

If self-play conversations contain the same runs of turns, the bot has a small repertoire; if runs stand in the training
set, it recites. Turns are the same if their words are (`turn_key`); runs of blank turns do not count.

"shared run of N turns" is the share of pairs of conversations with an identical run. As a score, the value of a
conversation is the number of others that share a run with it, its weight the number of others: the sums give the share
of pairs. It is a figure of the set as a whole and has no interval: pairs are not independent, and drawing a
conversation twice would make a pair that shares everything.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tertulia.metrics.metric import ConversationExample, Floats, Metric, MetricFamily
from tertulia.metrics.repetition import turn_key

Hashes = NDArray[np.uint64]
Ints = NDArray[np.int64]
PAPER = "Ghandeharioun et al. 2019"
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Odd, and far from a power of two: multiplying by it spreads hashes over all bits."""
BITSET = 64
"""Groups with more members than that are sets of bits: many conversations may share the same run."""


class HashedTurns(NamedTuple):
    """The turns of many conversations as hashes, one after another."""

    hashes: Hashes
    owner: Ints
    """The index of each turn's conversation."""

    @classmethod
    def of(cls, conversations: Iterable[Iterable[str]]) -> "HashedTurns":
        """From texts; a blank turn has the hash 0."""
        hashes: list[int] = []
        lengths = []
        for turns in conversations:
            before = len(hashes)
            hashes += (_hash(turn_key(text)) for text in turns)
            lengths.append(len(hashes) - before)
        owner = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
        return cls(np.array(hashes, dtype=np.uint64), owner)

    def runs(self, n: int) -> "HashedTurns":
        """All runs of n turns, with their conversations."""
        count = max(0, len(self.hashes) - n + 1)
        keys, spoken = np.zeros(count, dtype=np.uint64), np.zeros(count, dtype=np.bool_)
        for step in range(n):
            part = self.hashes[step : step + count]
            keys = (keys ^ part) * _FACTOR
            keys ^= keys >> np.uint64(29)
            spoken |= part != 0
        inside = self.owner[:count] == self.owner[n - 1 : n - 1 + count]
        return HashedTurns(keys[inside & spoken], self.owner[:count][inside & spoken])


class TrainingTurns:
    """The turns of a training set, to look up runs in."""

    def __init__(self, dialogues: Iterable[Iterable[str]]) -> None:
        self._turns = HashedTurns.of(dialogues)
        self._runs: dict[int, Hashes] = {}

    def has_runs(self, runs: Hashes, n: int) -> NDArray[np.bool_]:
        """Which of these runs of n turns stand in the training set."""
        if n not in self._runs:
            self._runs[n] = np.unique(self._turns.runs(n).hashes)
        return np.isin(runs, self._runs[n])


def shared_runs(batch: Sequence[ConversationExample], *, n: int) -> tuple[Ints, Ints]:
    """For each conversation: how many others have a run of n turns of it, and how many others there are.

    >>> turns = ("a", "b", "c"), ("x", "a", "B!"), ("b", "a", "z")
    >>> chats = [ConversationExample(own, (True,) * 3) for own in turns]
    >>> [column.tolist() for column in shared_runs(chats, n=2)]
    [[1, 1, 0], [2, 2, 2]]
    """
    runs = HashedTurns.of(one.turns for one in batch).runs(n)
    groups = _groups(runs)
    own_groups: list[list[int]] = [[] for _ in batch]
    for i, members in enumerate(groups):
        for member in members.tolist():
            own_groups[member].append(i)
    bitsets = {i: _bits(members, len(batch)) for i, members in enumerate(groups) if len(members) > BITSET}
    counted: dict[tuple[int, ...], int] = {(): 1}
    values = []
    for own in map(tuple, own_groups):
        if own not in counted:
            counted[own] = _union_size(own, groups, bitsets)
        values.append(counted[own] - 1)
    return np.array(values, dtype=np.int64), np.full(len(batch), max(0, len(batch) - 1), dtype=np.int64)


def copied_runs(batch: Sequence[ConversationExample], *, training_turns: TrainingTurns, n: int) -> Floats:
    """1 for each conversation that has a run of n turns of the training set, else 0; nan if it has no such run.

    >>> known = TrainingTurns([("How are you?", "Fine, thanks.")])
    >>> chat = ConversationExample(("Hi!", "How are you", "fine thanks"), (True,) * 3)
    >>> copied_runs([chat], training_turns=known, n=2).tolist()
    [1.0]
    """
    runs = HashedTurns.of(one.turns for one in batch).runs(n)
    values = np.full(len(batch), np.nan)
    values[runs.owner] = 0.0
    values[runs.owner[training_turns.has_runs(runs.hashes, n)]] = 1.0
    return values


def _hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode("utf-8", "replace"), digest_size=8).digest()) if key else 0


def _groups(runs: HashedTurns) -> list[Ints]:
    """The conversations that have the same run, for each run that several have."""
    order = np.lexsort((runs.owner, runs.hashes))
    hashes, owner = runs.hashes[order], runs.owner[order]
    new = np.concatenate([[True], (hashes[1:] != hashes[:-1]) | (owner[1:] != owner[:-1])])[: len(hashes)]
    hashes, owner = hashes[new], owner[new]
    return [g for g in np.split(owner, np.flatnonzero(hashes[1:] != hashes[:-1]) + 1) if len(g) > 1]


def _bits(members: Ints, size: int) -> int:
    flags = np.zeros(size, dtype=np.uint8)
    flags[members] = 1
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def _union_size(own: Iterable[int], groups: Sequence[Ints], bitsets: dict[int, int]) -> int:
    """How many conversations are in any of these groups."""
    bits, few = 0, set[int]()
    for group in own:
        if group in bitsets:
            bits |= bitsets[group]
        else:
            few.update(groups[group].tolist())
    return bits.bit_count() + sum(not bits >> member & 1 for member in few)


def _shared(name: str, n: int) -> Metric:
    return Metric(
        name,
        "conversation",
        "pooled",
        f"share of pairs of conversations with an identical run of {n} turns",
        PAPER,
        False,
        compute=partial(shared_runs, n=n),
    )


def _copied(name: str, n: int) -> Metric:
    return Metric(
        name,
        "conversation",
        "mean",
        f"share of conversations with a run of {n} turns that stands in the training set",
        PAPER,
        False,
        bounded=True,
        compute=partial(copied_runs, n=n),
        needs=("training_turns",),
    )


SHARED = MetricFamily(
    "shared run of N turns", _shared, "share of pairs of conversations with an identical run of N turns"
)
COPIED = MetricFamily(
    "copied run of N turns", _copied, "share of conversations with a run of N turns of the training set"
)
