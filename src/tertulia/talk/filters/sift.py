"""Candidates through filters, and the choice among what is left.

Every filter looks at every candidate, so that a reply's candidates tell all that was found about them. Where none is
left, the least bad one is used, or a given text where all of them must not be said in any case; a note tells.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tertulia.core.reply import Ask, Candidate
from tertulia.talk.filters.base import NEVER, BatchFilter, Filter

CUT_WEIGHT = 1.0
"""The weight of what was dropped before any filter saw it."""


class Sifted(NamedTuple):
    """A candidate with all that speaks against it."""

    candidate: Candidate
    weight: float
    """0 for nothing, `NEVER` for what must not be said in any case."""


class Choice(NamedTuple):
    """What is said."""

    place: int | None
    """Which of the candidates; None for the fallback."""
    text: str
    score: float | None
    note: str | None


def sift(filters: Sequence[Filter], ask: Ask, candidates: Sequence[Candidate]) -> list[Sifted]:
    """Each candidate with the reasons of all filters, and their weight; reasons it came with count as light ones."""
    texts = [candidate.text for candidate in candidates]
    reasons: list[list[str]] = [[c.dropped] if c.dropped else [] for c in candidates]
    weights = [CUT_WEIGHT if c.dropped else 0.0 for c in candidates]
    for one in filters:
        found = one.many(ask, texts) if isinstance(one, BatchFilter) else [one(ask, text) for text in texts]
        for place, reason in enumerate(found):
            if reason is not None:
                reasons[place].append(reason)
                weights[place] += one.weight
    return [
        Sifted(replace(candidate, dropped="; ".join(why) or None), weight)
        for candidate, why, weight in zip(candidates, reasons, weights, strict=True)
    ]


def apply(filters: Sequence[Filter], ask: Ask, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates, in order, those that should not be said with the reasons in `dropped`."""
    return [sifted.candidate for sifted in sift(filters, ask, candidates)]


def choose(sifted: Sequence[Sifted], *, fallback: str, attempt: int = 1) -> Choice:
    """The first that nothing speaks against (at a later attempt, the next ones), the least bad one, or the fallback."""
    fit = [place for place, one in enumerate(sifted) if one.weight == 0]
    if fit:
        place = fit[(attempt - 1) % len(fit)]
        return Choice(place, sifted[place].candidate.text, sifted[place].candidate.score, None)
    sayable = [place for place, one in enumerate(sifted) if one.weight < NEVER]
    if not sayable:
        return Choice(None, fallback, None, "no candidate could be said: used the fallback text")
    place = min(sayable, key=lambda i: sifted[i].weight)
    chosen = sifted[place].candidate
    return Choice(
        place, chosen.text, chosen.score, f"every candidate was dropped: used the least bad one ({chosen.dropped})"
    )
