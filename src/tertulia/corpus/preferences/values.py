"""Preferences as plain values, and their division into a part to train on and a held-out part.

A `PreferencePair` says which of two replies to the same context is better (for DPO); a `LabelledReply` says of one
reply alone whether it is wanted (for KTO). The context is a dialogue with personas and evidence; its id, if it has one,
is that of the conversation it was taken from. Preferences of one conversation never end up on both sides of a split:
what was learned about a context must not be measured on it.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tertulia.core.dialogue import Dialogue

MIN_SHARED_TURNS = 2
"""A context of so many turns that another one begins with is taken to be of the same dialogue."""


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two replies to one context, and which is better."""

    context: Dialogue
    speaker: str
    """Who replies."""
    chosen: str
    rejected: str


@dataclass(frozen=True, slots=True)
class LabelledReply:
    """One reply to a context, and whether it is wanted."""

    context: Dialogue
    speaker: str
    """Who replies."""
    reply: str
    desirable: bool


AnyPreference = PreferencePair | LabelledReply
P = TypeVar("P", bound=AnyPreference)


@dataclass(frozen=True, slots=True)
class PreferenceSet:
    """The preferences of some files, and what became of everything in them."""

    pairs: tuple[PreferencePair, ...] = ()
    replies: tuple[LabelledReply, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """Judgements read, and those that were left out, by reason: tied, withdrawn, identical, superseded, ..."""
    raters: tuple[str, ...] = ()
    """Pseudonyms of the people whose judgements are in it, where the files name them."""
    withdrawn: tuple[str, ...] = ()
    """Pseudonyms of the people who withdrew and whose judgements were therefore left out."""


def as_pairs(preferences: PreferenceSet) -> list[PreferencePair]:
    """All pairs: the given ones, and every wanted reply with every unwanted one to the same context."""
    wanted: dict[object, list[LabelledReply]] = {}
    for one in preferences.replies:
        wanted.setdefault(context_key(one), []).append(one)
    made = [
        PreferencePair(good.context, good.speaker, good.reply, bad.reply)
        for group in wanted.values()
        for good in group
        for bad in group
        if good.desirable and not bad.desirable and good.reply != bad.reply
    ]
    return [*preferences.pairs, *made]


def as_replies(preferences: PreferenceSet) -> list[LabelledReply]:
    """All labelled replies: the given ones, and of each pair the chosen one as wanted and the rejected one as not."""
    both = [
        LabelledReply(pair.context, pair.speaker, text, desirable)
        for pair in preferences.pairs
        for text, desirable in ((pair.chosen, True), (pair.rejected, False))
    ]
    return [*preferences.replies, *both]


def context_key(one: AnyPreference) -> tuple[object, ...]:
    """What makes two contexts the same: who replies, what was said, personas and evidence; not ids."""
    context = one.context
    personas = sorted((speaker == one.speaker, persona.sentences) for speaker, persona in context.personas.items())
    said = tuple((turn.speaker == one.speaker, turn.text.strip()) for turn in context.turns)
    return said, tuple(personas), tuple(passage.text for passage in context.evidence)


def groups(preferences: Sequence[AnyPreference]) -> list[int]:
    """The group of each preference: those of one conversation, of equal contexts, and of contexts that continue others.

    >>> from tertulia.core.dialogue import Turn
    >>> turns = tuple(Turn("ab"[i % 2], text) for i, text in enumerate(("hi", "hello", "so?")))
    >>> contexts = [Dialogue("", turns), Dialogue("", turns[:2]), Dialogue("", turns[1:]), Dialogue("", turns)]
    >>> groups([LabelledReply(context, "b", "ok", True) for context in contexts])
    [0, 0, 1, 0]
    """
    parent = list(range(len(preferences)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first: dict[object, int] = {}
    keys = [context_key(one) for one in preferences]
    for i, (one, key) in enumerate(zip(preferences, keys, strict=True)):
        for name in (key, ("id", one.context.id)) if one.context.id else (key,):
            parent[root(i)] = root(first.setdefault(name, i))
    for i, (said, *rest) in enumerate(keys):
        turns: tuple[object, ...] = said  # type: ignore[assignment]
        for length in range(MIN_SHARED_TURNS, len(turns)):
            if (begun := first.get((turns[:length], *rest))) is not None:
                parent[root(i)] = root(begun)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(i), len(numbers)) for i in range(len(preferences))]


def split(preferences: Sequence[P], held_out: float, seed: int) -> tuple[list[P], list[P]]:
    """What to train on, and about the share `held_out` to validate on; groups stay together.

    There is at least one group on each side; with a single group the second part is empty.
    """
    group_of = groups(preferences)
    sizes = Counter(group_of)
    order = sorted(sizes)
    random.Random(f"{seed} held out").shuffle(order)
    wanted, taken, chosen = held_out * len(preferences), 0, set[int]()
    for group in order[:-1]:
        if taken >= wanted:
            break
        chosen.add(group)
        taken += sizes[group]
    train = [one for one, group in zip(preferences, group_of, strict=True) if group not in chosen]
    return train, [one for one, group in zip(preferences, group_of, strict=True) if group in chosen]
