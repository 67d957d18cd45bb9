"""Filters for bots that choose among given replies: they look at more candidates than they list."""

from collections.abc import Sequence

from tertulia.core.reply import Ask, Candidate
from tertulia.talk.filters.base import Choice, Filter, apply_filters, choose

CONSIDERED = 50
"""Candidates that filters see at least: of the best ten, all may be of the same wrong kind."""
FALLBACK = "Sorry, I do not know what to say to that."
"""Said if every candidate is dropped for a reason that rules it out."""


def choose_filtered(
    filters: Sequence[Filter], ask: Ask, candidates: Sequence[Candidate], *, listed: int
) -> tuple[Choice, tuple[Candidate, ...]]:
    """What to say, and the candidates to list with it: the best ones, and in any case the chosen one."""
    filtered = apply_filters(filters, ask, candidates)
    choice = choose(filtered, fallback=FALLBACK, attempt=ask.attempt)
    shown = [one.candidate for one in filtered[:listed]]
    index = choice.candidate_index
    if index is not None and index >= listed:
        shown.append(filtered[index].candidate)
    return choice, tuple(shown)
