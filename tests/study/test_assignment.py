import random
from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations

import pytest

from tertulia.study.assignment import choose_unit, chosen_index, side_order


@dataclass(frozen=True)
class Candidate:
    """A unit as the store sees it."""

    id: str
    bots: tuple[str, ...]
    wanted: int = 5
    done: int = 0
    live: int = 0


BOTS = ("a", "b", "c", "d")


def run_study(
    units: list[Candidate], people: int, each: int, seed: int
) -> tuple[dict[str, Candidate], list[list[str]]]:
    """Participants who come and go in random order, some with a lease that runs beside others'."""
    rng = random.Random(seed)
    state = {unit.id: unit for unit in units}
    had: list[list[str]] = [[] for _ in range(people)]
    visits = [person for person in range(people) for _ in range(each)]
    rng.shuffle(visits)
    for person in visits:
        open_units = [u for u in state.values() if u.done + u.live < u.wanted and u.id not in had[person]]
        mine = [bot for unit in had[person] for bot in state[unit].bots]
        chosen = choose_unit(open_units, mine, rng)
        if chosen is not None:
            had[person].append(chosen)
            state[chosen] = replace(state[chosen], done=state[chosen].done + 1)
    return state, had


@pytest.mark.parametrize("seed", range(3))
def test_two_hundred_participants_are_balanced(seed: int) -> None:
    units = [Candidate(f"{bot}{i}", (bot,)) for bot in BOTS for i in range(50)]
    state, had = run_study(units, people=200, each=5, seed=seed)
    assert {unit.done for unit in state.values()} == {5}
    assert all(len({*units_of_one}) == len(units_of_one) == 5 for units_of_one in had)
    spread = [max(counts) - min(counts) for counts in (bots_of(units_of_one, state) for units_of_one in had)]
    # Only the last few find that some bots have all their ratings.
    assert sum(difference <= 1 for difference in spread) >= 190


def bots_of(units: list[str], state: dict[str, Candidate]) -> list[int]:
    counts = Counter(bot for unit in units for bot in state[unit].bots)
    return [counts[bot] for bot in BOTS]


@pytest.mark.parametrize("seed", range(3))
def test_bots_are_balanced_within_one_for_everybody_while_units_are_open(seed: int) -> None:
    units = [Candidate(f"{bot}{i}", (bot,)) for bot in BOTS for i in range(80)]
    state, had = run_study(units, people=200, each=6, seed=seed)
    assert all(max(counts) - min(counts) <= 1 for counts in (bots_of(one, state) for one in had))
    ratings = Counter(bot for unit in state.values() for bot in unit.bots for _ in range(unit.done))
    assert sum(ratings.values()) == 1200
    assert max(ratings.values()) - min(ratings.values()) <= 12
    assert max(unit.done for unit in state.values()) - min(unit.done for unit in state.values()) <= 1


def test_pairs_of_bots_are_balanced_too() -> None:
    pairs = list(combinations(BOTS, 2))
    state, had = run_study([Candidate(f"{a}{b}{i}", (a, b)) for a, b in pairs for i in range(60)], 100, 6, 0)
    for one in had:
        assert max(bots_of(one, state)) - min(bots_of(one, state)) <= 1


def test_the_least_rated_unit_comes_first_and_leases_count() -> None:
    units = [Candidate("x", ("a",), done=1), Candidate("y", ("a",), live=2), Candidate("z", ("a",), done=1, live=1)]
    assert {choose_unit(units, (), random.Random(i)) for i in range(20)} == {"x"}
    assert choose_unit([], (), random.Random(0)) is None


def test_ties_are_broken_at_random() -> None:
    units = [Candidate(name, ("a",)) for name in "xyz"]
    assert {choose_unit(units, (), random.Random(i)) for i in range(40)} == {"x", "y", "z"}


def test_a_bot_that_the_participant_has_not_seen_comes_first() -> None:
    units = [Candidate("x", ("a",)), Candidate("y", ("b",), done=3)]
    assert choose_unit(units, ["a"], random.Random(0)) == "y"


def test_the_bot_with_most_units_left_comes_first() -> None:
    units = [Candidate("x", ("a",)), Candidate("y", ("b",)), Candidate("z", ("b",)), Candidate("w", ("a",), done=1)]
    assert {choose_unit(units, (), random.Random(i)) for i in range(20)} == {"y", "z"}


def test_sides_are_swapped_for_half_of_the_participants() -> None:
    orders = Counter(side_order("unit", f"person {i}", 2) for i in range(2000))
    assert set(orders) == {(0, 1), (1, 0)}
    assert abs(orders[0, 1] - 1000) < 150
    assert len({side_order(f"u{i}", "p", 2) for i in range(20)}) == 2
    assert side_order("u", "p", 1) == (0,)
    assert sorted(side_order("u", "p", 4)) == [0, 1, 2, 3]
    assert [side_order("u1", f"1p{i}", 4) for i in range(5)] != [side_order("u11", f"p{i}", 4) for i in range(5)]


def test_an_answer_about_a_side_means_what_was_shown_there() -> None:
    assert [chosen_index(value, (1, 0)) for value in ("A", "B", "tie", "both_bad")] == [1, 0, None, None]
    assert [chosen_index(value, (0, 1)) for value in ("A", "B")] == [0, 1]
