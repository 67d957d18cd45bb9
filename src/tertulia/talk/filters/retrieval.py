"""Filters for bots that choose among given replies: they look at more candidates than they list."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tertulia.core.reply import Ask, Candidate
from tertulia.talk.filters.base import Choice, Filter, FilteredCandidate, apply_filters, choose, suffices

CONSIDERED = 50
"""Candidates that filters see at least: of the best ten, all may be of the same wrong kind."""
MAX_CONSIDERED = 200
"""Candidates that filters see at most, if none of the first ones is good enough."""
FALLBACK = "Sorry, I do not know what to say to that."
"""Said if every candidate is dropped for a reason that rules it out."""


class FilteredChoice(NamedTuple):
    """What to say, and what is known of how it was chosen."""

    choice: Choice
    listed: tuple[Candidate, ...]
    """The best candidates, and in any case the chosen one."""
    redraws: int
    """How often it was looked for further down the pool."""


def choose_filtered(
    filters: Sequence[Filter], ask: Ask, rounds: Iterable[Sequence[Candidate]], *, listed: int
) -> FilteredChoice:
    """Choose among the candidates of the first round; of the next ones too, as long as none is good enough."""
    filtered: list[FilteredCandidate] = []
    redraws = -1
    for candidates in rounds:
        if not candidates and filtered:
            break
        filtered += apply_filters(filters, ask, candidates)
        redraws += 1
        if suffices(filters, ask, filtered):
            break
    choice = choose(filtered, fallback=FALLBACK, attempt=ask.attempt)
    shown = [one.candidate for one in filtered[:listed]]
    index = choice.candidate_index
    if index is not None and index >= listed:
        shown.append(filtered[index].candidate)
    return FilteredChoice(choice, tuple(shown), max(0, redraws))
