"""Reply filters: what they are, how options name them, and how a bot chooses among filtered candidates.

A filter is a pure function of an ask and a candidate text. It returns None to keep the candidate, or the reason to drop
it. Its parameters are the fields of a config, and the config itself is the callable, so the settings saved with a run
describe the filter completely. Plugins add filters through the entry-point group `tertulia.filters`.

Every filter sees every candidate, so a reply's candidates list all reasons against them. If no candidate is good
enough (`suffices`), a bot gets more of them, as often as it may: one that writes draws again, one that chooses looks
further down its pool. One that writes also offers the beginnings of what was dropped (`tertulia.talk.shortening`). If
every candidate was dropped, the one with the lightest reasons is used; if none may be used at all, the fallback text
is.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal, NamedTuple, Protocol, Self, runtime_checkable

from tertulia.core.named import make_named
from tertulia.core.registry import Registry
from tertulia.core.reply import Ask, Candidate

NEVER = float("inf")
"""Weight of a reason that rules a candidate out even as a last resort."""
PRIOR_WEIGHT = 1.0
"""Weight of a reason that a candidate had before it was filtered, such as being cut off."""
ALL = "empty,too-long,cross-turn,in-turn,safety"
"""All built-in filters, as an option names them."""
NONE = "none"

FILTERS = Registry("filter", "tertulia.filters")
_RULES, _SAFETY = "tertulia.talk.filters.rules", "tertulia.talk.filters.safety"
FILTERS.add("empty", f"{_RULES}:Empty", "drops replies without words or symbols")
FILTERS.add("too-long", f"{_RULES}:TooLong", "drops replies that are too long for a chat")
FILTERS.add("cross-turn", f"{_RULES}:CrossTurn", "drops replies that repeat an earlier turn")
FILTERS.add("consistent", "tertulia.talk.filters.consistent:Consistent", "drops replies that contradict the persona")
FILTERS.add("in-turn", f"{_RULES}:InTurn", "drops replies that repeat themselves")
FILTERS.add("safety", f"{_SAFETY}:Safety", "drops slurs, threats and encouragement of self-harm")
FILTERS.add(
    "grounded", "tertulia.talk.filters.grounded:GroundedFilter", "drops replies that the evidence does not support"
)


class Doubt(str):
    """A reason that its filter is not sure of: it weighs a share of what the filter's other reasons do.

    >>> Doubt("perhaps wrong", 0.25).share
    0.25
    """

    __slots__ = ("share",)
    share: float

    def __new__(cls, reason: str, share: float) -> Self:
        """The reason, with its share of the filter's weight."""
        one = super().__new__(cls, reason)
        one.share = share
        return one


class Filter(Protocol):
    """Decides whether a candidate may be used as a reply."""

    weight: ClassVar[float]
    """How severe its reason is, relative to those of other filters; `NEVER` if it must always be obeyed."""

    def __call__(self, ask: Ask, text: str, /) -> str | None:
        """The reason to drop the candidate, or None to keep it."""
        ...


@runtime_checkable
class BatchFilter(Protocol):
    """A filter that is faster on many candidates at once."""

    def many(self, ask: Ask, texts: Sequence[str], /) -> list[str | None]:
        """The reason to drop each candidate, or None to keep it."""
        ...


@runtime_checkable
class Preference(Protocol):
    """A filter that also prefers some of the candidates that it keeps."""

    def bonus(self, ask: Ask, texts: Sequence[str], /) -> list[float]:
        """How much each candidate is preferred; 0 if not at all. Those with more come first, else the order stays."""
        ...


@runtime_checkable
class Aspiration(Protocol):
    """A filter that prefers some candidates so much that it is worth looking for one of them."""

    def wanted_bonus(self, ask: Ask, /) -> float:
        """What the best candidate should be preferred by; 0 if any that was kept will do."""
        ...


@runtime_checkable
class SentenceFilter(Protocol):
    """A filter that drops a candidate for one of its sentences: those before it may still be said."""

    by_sentence: ClassVar[Literal[True]]


class FilteredCandidate(NamedTuple):
    """A candidate after filtering; its reasons are in `candidate.dropped`."""

    candidate: Candidate
    weight: float
    """Sum of the weights of its reasons: 0 if it was kept, `NEVER` if it must not be used in any case."""
    bonus: float = 0.0
    """Sum of what filters prefer it by."""
    was_dropped: bool = False
    """Whether it came with a reason against it, such as being cut off."""


class Choice(NamedTuple):
    """The text that a bot replies with."""

    candidate_index: int | None
    """Index of the chosen candidate; None for the fallback text."""
    text: str
    score: float | None
    note: str | None


def make_filters(text: str) -> tuple[Filter, ...]:
    """The filters that an option names: separated by commas, parameters after colons; `none` or nothing for no filter.

    >>> make_filters("empty, too-long:max_words=30")
    (Empty(), TooLong(max_words=30))
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    if names == [NONE]:
        return ()
    return tuple(make_named(FILTERS, name) for name in names)


def apply_filters(filters: Sequence[Filter], ask: Ask, candidates: Sequence[Candidate]) -> list[FilteredCandidate]:
    """Apply all filters to all candidates. A candidate that arrives with a reason keeps it, at a low weight."""
    texts = [candidate.text for candidate in candidates]
    reasons: list[list[str]] = [[c.dropped] if c.dropped else [] for c in candidates]
    weights = [PRIOR_WEIGHT if c.dropped else 0.0 for c in candidates]
    bonuses = [0.0] * len(candidates)
    for one in filters:
        if isinstance(one, Preference):
            bonuses = [sum(pair) for pair in zip(bonuses, one.bonus(ask, texts), strict=True)]
        verdicts = one.many(ask, texts) if isinstance(one, BatchFilter) else [one(ask, text) for text in texts]
        for index, reason in enumerate(verdicts):
            if reason is not None:
                reasons[index].append(reason)
                weights[index] += one.weight * (reason.share if isinstance(reason, Doubt) else 1)
    return [
        FilteredCandidate(
            replace(one, dropped="; ".join(reasons[i]) or None), weights[i], bonuses[i], bool(one.dropped)
        )
        for i, one in enumerate(candidates)
    ]


def wanted_bonus(filters: Sequence[Filter], ask: Ask) -> float:
    """What filters want the best candidate to be preferred by; 0 if any that was kept will do."""
    return sum(one.wanted_bonus(ask) for one in filters if isinstance(one, Aspiration))


def suffices(filters: Sequence[Filter], ask: Ask, filtered: Sequence[FilteredCandidate]) -> bool:
    """Whether one of the candidates is good enough, so that there is no need to look for more.

    One that was kept is, if it is preferred as much as the filters want. If all came with a reason against them, such
    as being cut off, more of them would be like these.
    """
    wanted = wanted_bonus(filters, ask)
    if any(one.weight == 0 for one in filtered):
        return any(one.weight == 0 and one.bonus >= wanted for one in filtered)
    return all(one.was_dropped for one in filtered)


def choose(filtered: Sequence[FilteredCandidate], *, fallback: str, attempt: int = 1) -> Choice:
    """The first candidate that was kept (a later attempt takes the next one), else the least bad, else the fallback.

    Preferred candidates precede the others.
    """
    kept = sorted((i for i, one in enumerate(filtered) if one.weight == 0), key=lambda i: -filtered[i].bonus)
    if kept:
        index = kept[(attempt - 1) % len(kept)]
        one = filtered[index].candidate
        return Choice(index, one.text, one.score, one.note)
    usable = [index for index, one in enumerate(filtered) if one.weight < NEVER]
    if not usable:
        return Choice(None, fallback, None, "no candidate could be used: used the fallback text")
    index = min(usable, key=lambda i: filtered[i].weight)
    chosen = filtered[index].candidate
    note = f"every candidate was dropped: used the least bad one ({chosen.dropped})"
    return Choice(index, chosen.text, chosen.score, note)
