"""Shortened candidates: a reply that filters drop for one of its sentences may still be said up to that sentence.

A model that writes long replies invents something in each of their sentences, and further samples are like the first.
What comes before the first wrong sentence is often a good reply: "I am a nurse. I also own a farm." can end after
"nurse". So of a candidate that was dropped, the longest prefix of whole sentences that all filters keep is a candidate
of its own. A candidate that was kept, but is preferred less than filters want, is shortened only to what they want.

Only reasons about single sentences make a prefix worth a try, so one of the filters must give such (`SentenceFilter`).
What comes before something that must never be said is not offered: it may lead up to it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tertulia.core.reply import Ask, Candidate
from tertulia.core.text import sentence_spans
from tertulia.talk.filters.base import (
    NEVER,
    Filter,
    FilteredCandidate,
    SentenceFilter,
    apply_filters,
    wanted_bonus,
)

MAX_SENTENCES = 10
"""Sentences of the longest prefix that is tried: every prefix is filtered, and a reply may have hundreds of them."""


class Shortened(NamedTuple):
    """A prefix of a candidate, which filters keep."""

    filtered: FilteredCandidate
    note: str
    """After which sentence it was cut, and why."""


def can_shorten(filters: Sequence[Filter]) -> bool:
    """Whether one of the filters gives reasons about single sentences."""
    return any(isinstance(one, SentenceFilter) for one in filters)


def prefixes(text: str) -> list[str]:
    """All but the whole text, the longest first, each ending with a sentence.

    >>> prefixes("Hi! I nurse.  I am in sales.")
    ['Hi! I nurse.', 'Hi!']
    """
    return [text[:end] for _, end in reversed(sentence_spans(text)[:-1][:MAX_SENTENCES])]


def shorten(filters: Sequence[Filter], ask: Ask, whole: FilteredCandidate) -> Shortened | None:
    """The longest prefix that filters keep, or None; of a kept candidate, one that they prefer as much as they want.

    Prefixes are filtered one by one: a filter that checks only the best of many candidates shall check each of them.
    """
    wanted = wanted_bonus(filters, ask)
    if whole.weight == NEVER or (whole.weight == 0 and whole.bonus >= wanted):
        return None
    total = len(sentence_spans(whole.candidate.text))
    reason, at_once = whole.candidate.dropped, total
    for text in prefixes(whole.candidate.text):
        (filtered,) = apply_filters(filters, ask, [Candidate(text)])
        count = len(sentence_spans(text))
        if filtered.weight == 0 and (whole.weight > 0 or filtered.bonus >= wanted):
            with_next = "with the next one" if at_once == count + 1 else "with the others"
            why = f"{with_next}: {reason}" if reason else "filters prefer it to the whole"
            return Shortened(filtered, f"cut after sentence {count} of {total}; {why}")
        reason, at_once = filtered.candidate.dropped, count
    return None
