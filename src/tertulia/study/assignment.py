"""Which unit a participant gets next, and in which order its sides are shown."""

import hashlib
import random
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Protocol

from tertulia.study.questions import SIDES


class UnitState(Protocol):
    """A unit that wants more ratings; the store's records of units have these fields."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def bots(self) -> Sequence[str]:
        """The bots it is about."""

    @property
    def done(self) -> int:
        """Ratings it has."""

    @property
    def live(self) -> int:
        """Ratings under way."""


def choose_unit(candidates: Sequence[UnitState], mine: Collection[str], rng: random.Random) -> str | None:
    """The id of the next unit, or None if there is none.

    `mine` are the bots of the units that the participant has had, each as often as it occurred. The unit whose bots
    the participant has seen least comes first, so that a strict rater is equally strict with all bots; then the unit
    with the fewest ratings; then the bots of which most units wait for a rating; ties are broken at random.
    """
    if not candidates:
        return None
    seen = Counter(mine)
    by_bots: dict[tuple[str, ...], list[UnitState]] = {}  # thousands of units, few combinations of bots
    for unit in candidates:
        by_bots.setdefault(tuple(unit.bots), []).append(unit)
    times_seen = {bots: sum(seen[bot] for bot in bots) for bots in by_bots}
    least_seen = min(times_seen.values())
    unseen = {bots: units for bots, units in by_bots.items() if times_seen[bots] == least_seen}
    fewest = min(unit.done + unit.live for units in unseen.values() for unit in units)
    equal = [[unit for unit in units if unit.done + unit.live == fewest] for units in unseen.values()]
    most_waiting = max(map(len, equal))
    return rng.choice([unit for units in equal if len(units) == most_waiting for unit in units]).id


def side_order(unit_id: str, participant_id: str, n: int) -> tuple[int, ...]:
    """Which of a unit's n things stands at each side: the first number is the index shown as A.

    The same participant always sees the same order; over participants, all orders are equally likely.

    >>> sorted(side_order("u1", "p1", 2)), side_order("u1", "p1", 2) == side_order("u1", "p1", 2)
    ([0, 1], True)
    """
    digest = hashlib.sha256(f"{len(unit_id)}:{unit_id}:{participant_id}".encode()).digest()
    return tuple(random.Random(int.from_bytes(digest)).sample(range(n), n))


def chosen_index(value: str, order: Sequence[int]) -> int | None:
    """Which of a unit's things an answer "A" or "B" means, given the order it was shown in; None for a tie.

    >>> chosen_index("A", (1, 0)), chosen_index("tie", (1, 0))
    (1, None)
    """
    return order[SIDES.index(value)] if value in SIDES else None
