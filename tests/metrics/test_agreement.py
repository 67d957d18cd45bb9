import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from tertulia.metrics.agreement import Distance, UnitRating, krippendorff_alpha, majority_votes, percent_agreement


def naive_alpha(ratings: list[UnitRating], distance: Distance) -> float:
    """The definition, by a loop over all pairs of pairable values."""
    by_unit: dict[str, list[float]] = {}
    for rating in ratings:
        by_unit.setdefault(rating.unit, []).append(rating.value)  # type: ignore[arg-type]
    units = [values for values in by_unit.values() if len(values) > 1]
    pooled = [value for values in units for value in values]

    @cache
    def ordinal(a: float, b: float) -> float:
        low, high = min(a, b), max(a, b)
        between = sum(low <= value <= high for value in pooled)
        return (between - (pooled.count(a) + pooled.count(b)) / 2) ** 2

    functions: dict[Distance, Callable[[float, float], float]] = {
        "nominal": lambda a, b: float(a != b),
        "interval": lambda a, b: (a - b) ** 2,
        "ordinal": ordinal,
    }
    d, n = functions[distance], len(pooled)
    observed = sum(
        d(a, b) / (len(values) - 1)
        for values in units
        for i, a in enumerate(values)
        for j, b in enumerate(values)
        if i != j
    )
    expected = sum(d(a, b) for i, a in enumerate(pooled) for j, b in enumerate(pooled) if i != j)
    return math.nan if expected == 0 else 1 - (n - 1) * observed / expected


def random_table(rng: np.random.Generator) -> list[UnitRating]:
    """A small table with missing ratings; raters lean to a value of the unit."""
    units, raters, values = rng.integers(1, 9), rng.integers(2, 6), rng.integers(2, 6)
    truth, agree = rng.integers(0, values, units), rng.random()
    return [
        UnitRating(f"u{u}", f"r{r}", int(truth[u] if rng.random() < agree else rng.integers(0, values)) * 2 - 3)
        for u in range(units)
        for r in range(raters)
        if rng.random() < 0.8
    ]


@pytest.mark.parametrize("distance", ["nominal", "ordinal", "interval"])
def test_alpha_agrees_with_the_definition_on_random_tables(distance: Distance) -> None:
    rng = np.random.default_rng(5)
    defined = 0
    for _ in range(1000):
        table = random_table(rng)
        expected, alpha = naive_alpha(table, distance), krippendorff_alpha(table, distance=distance, resamples=0)
        assert alpha.value == pytest.approx(expected, abs=1e-9, nan_ok=True)
        defined += not math.isnan(expected)
    assert defined > 700


def test_alpha_without_variation_is_undefined() -> None:
    same = [UnitRating(u, r, 1) for u in "ab" for r in "xy"]
    assert math.isnan(krippendorff_alpha(same).value)
    assert krippendorff_alpha(same).n == 2
    assert percent_agreement(same).value == 1.0


def test_no_pairable_unit_gives_nan() -> None:
    for ratings in ([], [UnitRating("a", "x", 1), UnitRating("b", "y", 2)]):
        for figure in (krippendorff_alpha(ratings), percent_agreement(ratings)):
            assert math.isnan(figure.value)
            assert figure.n == 0


def test_the_interval_of_alpha_covers_its_value_in_the_population() -> None:
    def table(rng: np.random.Generator, units: int) -> list[UnitRating]:
        truth = rng.integers(0, 2, units)
        flips = rng.random((units, 4)) < 0.2
        return [UnitRating(str(u), str(r), int(truth[u] ^ flips[u, r])) for u in range(units) for r in range(4)]

    truth = 1 - 2 * 0.2 * 0.8 / 0.5  # two raters differ with probability 0.32, chance says 0.5
    covered = []
    for trial in range(200):
        figure = krippendorff_alpha(table(np.random.default_rng(trial), 80), resamples=300, seed=trial)
        covered.append(figure.low <= truth <= figure.high)
    assert 0.89 < np.mean(covered) < 0.985


def test_clusters_widen_the_interval() -> None:
    """All units of a conversation are rated alike: only the conversations are independent."""
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, 2, (10, 2))
    rows = [UnitRating(f"{c}.{t}", str(r), int(pairs[c, r])) for c in range(10) for t in range(20) for r in range(2)]
    clusters = {row.unit: row.unit.partition(".")[0] for row in rows}
    for function in (krippendorff_alpha, percent_agreement):
        by_unit, by_cluster = function(rows), function(rows, clusters=clusters)
        assert by_cluster.value == by_unit.value
        assert by_cluster.high - by_cluster.low > 3 * (by_unit.high - by_unit.low)


@pytest.mark.parametrize("distance", ["ordinal", "interval"])
def test_distances_of_numbers_need_numbers(distance: Distance) -> None:
    with pytest.raises(ValueError, match="need numbers"):
        krippendorff_alpha([UnitRating("a", "x", "good"), UnitRating("a", "y", "bad")], distance=distance)


def test_a_rater_rates_a_unit_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        percent_agreement([UnitRating("a", "x", 1), UnitRating("a", "x", 2)])


def test_percent_agreement_pools_all_pairs() -> None:
    rows = [UnitRating("a", r, v) for r, v in zip("wxyz", (1, 1, 1, 0), strict=True)]
    rows += [UnitRating("b", r, v) for r, v in zip("wx", (1, 1), strict=True)]
    assert percent_agreement(rows).value == pytest.approx((3 + 1) / (6 + 1))


def test_majority_votes_are_none_when_tied() -> None:
    rows = [UnitRating("a", r, v) for r, v in zip("wxyz", (2, 2, 5, 7), strict=True)]
    rows += [UnitRating("b", r, v) for r, v in zip("wxyz", (2, 2, 5, 5), strict=True)]
    assert majority_votes(rows) == {"a": 2, "b": None}
    assert majority_votes([]) == {}
