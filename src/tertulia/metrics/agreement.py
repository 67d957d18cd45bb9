"""How far raters agree: percent agreement, majority votes, Krippendorff's alpha.

Ratings come as a long list of (unit, rater, value); a unit is whatever was rated, such as a bot turn. Not every rater
rates every unit: missing ratings are simply not in the list. Units with a single rating say nothing about agreement and
are left out, as Krippendorff does.

Alpha is 1 - observed / expected disagreement (Krippendorff, "Computing Krippendorff's Alpha-Reliability", 2011). With
values x in units u of m_u ratings, n pairable values in all:

    observed = 1/n sum_u 1/(m_u - 1) sum_{i != j in u} d(x_i, x_j)       expected = 1/(n (n-1)) sum_{i != j} d(x_i, x_j)

The distance d is 1 for different values (nominal), the squared difference (interval), or the squared difference of mid
ranks among all pairable values (ordinal: Krippendorff's sum of the frequencies between two values, half of the ends).
So ordinal is interval on ranks, and every sum of squared differences comes from first and second moments: nothing here
loops over pairs. Intervals are percentile bootstrap intervals over units, or over clusters of units, such as the
conversations that the turns belong to.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from tertulia.core.estimate import Estimate
from tertulia.metrics.intervals import (
    LEVEL,
    RESAMPLES,
    Codes,
    Floats,
    cluster_codes,
    cluster_weights,
    draws_interval,
)

Distance = Literal["nominal", "ordinal", "interval"]


class UnitRating(NamedTuple):
    """One rating in a long table."""

    unit: str
    """What was rated."""
    rater: str
    value: Hashable
    """A number for ordinal and interval distances; anything for nominal ones."""


class _Pairable(NamedTuple):
    """The ratings of units with at least two of them, as arrays."""

    unit: Codes
    """By rating; 0 to units - 1."""
    value: Codes
    """By rating; index into the values."""
    values: list[Hashable]
    size: Floats
    """By unit: its number of ratings."""
    units: list[Hashable]


def percent_agreement(
    ratings: Sequence[UnitRating],
    *,
    clusters: Mapping[str, str] | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The share of pairs of ratings of the same unit that agree, over all pairs; n is the number of pairable units.

    `clusters` maps units to what is drawn by the bootstrap; without it, units are drawn. With `resamples=0` there is no
    interval.

    >>> rows = [UnitRating("t1", "ann", 1), UnitRating("t1", "bob", 1), UnitRating("t2", "ann", 1)]
    >>> print(percent_agreement([*rows, UnitRating("t2", "bob", 0)], resamples=0))
    0.500 (n = 2)
    """
    data = _pairable(ratings)
    pairs = data.size * (data.size - 1)
    agreeing = pairs - _differing_pairs(data)
    sums = _cluster_sums(np.stack([agreeing, pairs], axis=1), data, clusters)

    def share(weights: Floats) -> Floats:
        numerator, denominator = (weights @ sums).T
        with np.errstate(invalid="ignore"):
            return np.asarray(numerator / denominator)

    if not len(data.units):
        return Estimate(math.nan, n=0, level=level)
    value = float(share(np.ones((1, len(sums))))[0])
    draws = [share(weights) for weights in cluster_weights(len(sums), resamples=resamples, seed=seed)]
    ends = draws_interval(value, np.concatenate(draws or [np.empty(0)]), len(sums), bounds=(0, 1), level=level)
    return Estimate(value, *ends, n=len(data.units), level=level)


def majority_votes(ratings: Sequence[UnitRating]) -> dict[str, Hashable | None]:
    """The most frequent value of each unit; None, for ambiguous, where several values are most frequent.

    >>> votes = [("t1", "ann", 1), ("t1", "bob", 1), ("t1", "cat", 0), ("t2", "ann", 1), ("t2", "bob", 0)]
    >>> majority_votes([UnitRating(*vote) for vote in votes])
    {'t1': 1, 't2': None}
    """
    unit, units = cluster_codes([rating.unit for rating in ratings])
    value, values = cluster_codes([rating.value for rating in ratings])
    cells, counts = np.unique(unit * max(len(values), 1) + value, return_counts=True)
    cell_unit, cell_value = np.divmod(cells, max(len(values), 1))
    most = np.zeros(len(units), dtype=np.int64)
    np.maximum.at(most, cell_unit, counts)
    winners: dict[str, Hashable | None] = {}
    at_top = counts == most[cell_unit]
    tied = np.bincount(cell_unit[at_top], minlength=len(units)) > 1
    for u, v in zip(cell_unit[at_top].tolist(), cell_value[at_top].tolist(), strict=True):
        winners[str(units[u])] = None if tied[u] else values[v]
    return winners


def krippendorff_alpha(
    ratings: Sequence[UnitRating],
    *,
    distance: Distance = "nominal",
    clusters: Mapping[str, str] | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Krippendorff's alpha with its bootstrap interval; n is the number of pairable units.

    Alpha is 1 for perfect agreement and 0 for what chance would give. It is nan where all pairable values are equal:
    without variation there is nothing to agree on. Options are those of `percent_agreement`. The worked example of
    Krippendorff (2011): 4 coders, 12 units, missing values.

    >>> coders = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")
    >>> cells = [(str(u), str(c), x) for c, row in enumerate(coders) for u, x in enumerate(row) if x != "."]
    >>> rows = [UnitRating(unit, coder, int(x)) for unit, coder, x in cells]
    >>> [round(krippendorff_alpha(rows, distance=d, resamples=0).value, 3) for d in ("nominal", "ordinal", "interval")]
    [0.743, 0.815, 0.849]
    """
    data = _pairable(ratings)
    if not len(data.units):
        return Estimate(math.nan, n=0, level=level)
    cluster_of, count = _clusters(data, clusters)
    alpha = _ordinal_alpha if distance == "ordinal" else _moment_alpha
    value = float(alpha(data, distance, cluster_of, np.ones((1, count)))[0])
    blocks = cluster_weights(count, resamples=resamples, seed=seed, width=len(data.value))
    draws = [alpha(data, distance, cluster_of, weights) for weights in blocks]
    # Agreement that was perfect so far may yet be that of chance in as many units as Wilson's interval allows.
    bounds = (0.0, 1.0) if value > 1 - 1e-12 else None
    ends = draws_interval(value, np.concatenate(draws or [np.empty(0)]), count, bounds=bounds, level=level)
    return Estimate(value, *ends, n=len(data.units), level=level)


def _pairable(ratings: Sequence[UnitRating]) -> _Pairable:
    if len({(rating.unit, rating.rater) for rating in ratings}) != len(ratings):
        raise ValueError("a rater rated the same unit twice: keep one rating of each rater and unit")
    unit, units = cluster_codes([rating.unit for rating in ratings])
    size = np.bincount(unit, minlength=len(units))
    kept = size[unit] >= 2
    renumbered = np.cumsum(size >= 2) - 1
    value, values = cluster_codes([rating.value for rating, keep in zip(ratings, kept.tolist(), strict=True) if keep])
    names = [name for name, keep in zip(units, (size >= 2).tolist(), strict=True) if keep]
    return _Pairable(renumbered[unit[kept]], value, values, size[size >= 2].astype(np.float64), names)


def _clusters(data: _Pairable, clusters: Mapping[str, str] | None) -> tuple[Codes, int]:
    """The cluster of each unit, and how many clusters there are."""
    if clusters is None:
        return np.arange(len(data.units)), len(data.units)
    codes, names = cluster_codes([clusters[str(unit)] for unit in data.units])
    return codes, len(names)


def _cluster_sums(by_unit: Floats, data: _Pairable, clusters: Mapping[str, str] | None) -> Floats:
    codes, count = _clusters(data, clusters)
    sums = np.zeros((count, by_unit.shape[1]))
    np.add.at(sums, codes, by_unit)
    return sums


def _differing_pairs(data: _Pairable) -> Floats:
    """By unit: ordered pairs of different values, m^2 minus the squared counts of its values."""
    cells, counts = np.unique(data.unit * max(len(data.values), 1) + data.value, return_counts=True)
    equal = np.bincount(cells // max(len(data.values), 1), weights=counts.astype(np.float64) ** 2)
    return np.asarray(data.size**2 - equal if len(data.size) else data.size)


def _numbers(data: _Pairable) -> Floats:
    try:
        return np.array([float(value) for value in data.values], dtype=np.float64)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ValueError("ordinal and interval distances need numbers as values") from error


def _moment_alpha(data: _Pairable, distance: Distance, cluster_of: Codes, weights: Floats) -> Floats:
    """Nominal and interval alpha of each row of weights (rows, clusters): distances do not depend on the weights."""
    count = weights.shape[1]
    if distance == "nominal":
        differing, columns = _differing_pairs(data), max(len(data.values), 1)
        table = np.zeros((count, columns))
        np.add.at(table, (cluster_of[data.unit], data.value), 1.0)
        frequency = weights @ table
        n = frequency.sum(axis=1)
        expected = n**2 - (frequency**2).sum(axis=1)
    else:
        numbers = _numbers(data)
        x = (numbers - numbers.mean())[data.value]
        first, second = (np.bincount(data.unit, weights=x**power, minlength=len(data.size)) for power in (1, 2))
        differing = 2 * (data.size * second - first**2)
        table = np.zeros((count, 3))
        np.add.at(table, cluster_of, np.stack([data.size, first, second], axis=1))
        n, total, squares = (weights @ table).T
        expected = 2 * (n * squares - total**2)
    observed = weights @ np.bincount(cluster_of, weights=differing / (data.size - 1), minlength=count)
    return _alpha(observed, expected, n)


def _ordinal_alpha(data: _Pairable, distance: Distance, cluster_of: Codes, weights: Floats) -> Floats:
    """Ordinal alpha of each row of weights: mid ranks are those of the resample, so every row is computed anew."""
    order = np.argsort(_numbers(data), kind="stable")
    rank_of = np.empty(len(order), dtype=np.int64)
    rank_of[order] = np.arange(len(order))
    rank, unit_cluster = rank_of[data.value], cluster_of[data.unit]
    alphas = np.empty(len(weights))
    for row, weight in enumerate(weights):
        frequency = np.bincount(rank, weights=weight[unit_cluster], minlength=len(order))
        midrank = np.cumsum(frequency) - frequency / 2
        n = frequency.sum()
        midrank -= n / 2  # their mean, so that the moments below lose no digits
        x = midrank[rank]
        first, second = (np.bincount(data.unit, weights=x**power, minlength=len(data.size)) for power in (1, 2))
        observed = weight[cluster_of] @ (2 * (data.size * second - first**2) / (data.size - 1))
        expected = 2 * (n * (frequency @ midrank**2) - (frequency @ midrank) ** 2)
        alphas[row] = _alpha(np.array([observed]), np.array([expected]), np.array([n]))[0]
    return alphas


def _alpha(observed: Floats, expected: Floats, n: Floats) -> Floats:
    """1 - (n - 1) observed / expected; nan where all values are equal."""
    varied = expected > 1e-12 * n**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(varied, 1 - (n - 1) * observed / expected, np.nan)
