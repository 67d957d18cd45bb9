"""How far two measurements of the same things agree: Pearson's r, Spearman's rho, Kendall's tau-b, with intervals.

Units without a value in either vector are left out. Where the rest has fewer than three units, or a vector is constant,
the correlation is nan, and n says how many units there were.

**Intervals.** Percentile bootstrap over clusters: whole clusters (the replies of one conversation) are drawn, and every
resample is ranked anew. A resample is a vector of weights, so ranks are weighted mid-ranks and nothing is copied. With
fewer than `FEW` clusters a resample repeats too much and the percentile interval is too narrow. If the units are
independent, the interval is then Fisher's (1921): atanh of the correlation is roughly normal with variance 1 / (n - 3)
for Pearson, (1 + rho^2 / 2) / (n - 3) for Spearman (Bonett and Wright 2000), 0.437 / (n - 4) for Kendall (Fieller,
Hartley and Pearson 1957). With few clusters of several units there is nothing better than the bootstrap.

**p-values** test that there is no correlation. For independent units they are the usual ones: Student's t for Pearson
and Spearman, all permutations for Spearman with few units, for Kendall exact or normal, as SciPy chooses. For clustered
units these would be far too small: there p is twice the smaller share of resamples on either side of zero, at least
2 / (resamples + 1).
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from tertulia.core.dialogue import Json
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

CorrelationKind = Literal["pearson", "spearman", "kendall"]
KINDS: tuple[CorrelationKind, ...] = ("pearson", "spearman", "kendall")
FEW = 20
"""Independent units below which intervals are Fisher's."""
MIN_UNITS = 3
EXACT = 8
"""Units up to which Spearman's p-value is by all permutations: Student's t calls a perfect order of three certain."""
_ROWS_AT_ONCE = 512
"""Rows of the matrix of concordant pairs that are held in memory at once."""


@dataclass(frozen=True, slots=True)
class Correlation:
    """One correlation with its interval and its p-value."""

    kind: CorrelationKind
    estimate: Estimate
    """Its n is the number of units with both values."""
    p: float
    """Of no correlation; nan where the correlation is."""

    def as_json(self) -> dict[str, Json]:
        """For `--json` and saved runs; nan is null."""
        return {"kind": self.kind, **self.estimate.as_json(), "p": None if math.isnan(self.p) else self.p}

    @classmethod
    def from_json(cls, record: Mapping[str, Json], *, level: float = LEVEL) -> "Correlation":
        """What `as_json` wrote."""
        value, low, high, p = (
            math.nan if record[name] is None else float(record[name]) for name in ("value", "low", "high", "p")
        )
        return cls(record["kind"], Estimate(value, low, high, int(record["n"]), level), p)


def correlate(
    x: ArrayLike,
    y: ArrayLike,
    kind: CorrelationKind = "spearman",
    *,
    clusters: Sequence[Hashable] | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Correlation:
    """The correlation of two vectors; without clusters every unit is one of its own.

    >>> print(correlate([1, 2, 3, 4, 5], [1, 3, 2, 4, 5], "kendall").estimate)
    0.800 [-0.195, 0.983] (n = 5)
    >>> correlate([1, 2, 3], [7, 7, 7]).estimate.value
    nan
    """
    return correlations(x, y, kinds=(kind,), clusters=clusters, level=level, resamples=resamples, seed=seed)[kind]


def correlations(
    x: ArrayLike,
    y: ArrayLike,
    *,
    kinds: Sequence[CorrelationKind] = KINDS,
    clusters: Sequence[Hashable] | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[CorrelationKind, Correlation]:
    """Several kinds of correlation of the same vectors, from the same draws."""
    first, second = (np.asarray(vector, dtype=np.float64) for vector in (x, y))
    names = range(len(first)) if clusters is None else clusters
    if not len(first) == len(second) == len(names):
        raise ValueError(f"vectors and clusters differ in length: {len(first)}, {len(second)}, {len(names)}")
    kept = np.isfinite(first) & np.isfinite(second)
    a, b = first[kept], second[kept]
    n = len(a)
    if n < MIN_UNITS or np.ptp(a) == 0 or np.ptp(b) == 0:
        return {kind: Correlation(kind, Estimate(math.nan, n=n, level=level), math.nan) for kind in kinds}
    codes, labels = cluster_codes([name for name, keep in zip(names, kept.tolist(), strict=True) if keep])
    independent = len(labels) == n
    results = {}
    values = {kind: float(sampled_correlations(a, b, kind, np.ones((1, n)))[0]) for kind in kinds}
    fisher = independent and n < FEW
    draws = {} if fisher else _draws(a, b, kinds, codes, resamples=resamples, seed=seed)
    for kind in kinds:
        value = values[kind]
        ends = (
            fisher_interval(value, n, kind, level=level)
            if fisher
            else draws_interval(value, draws[kind], len(labels), level=level)
        )
        if math.isnan(ends[0]):  # a perfect correlation in every draw
            ends = fisher_interval(value, len(labels), kind, level=level)
        p = p_value(a, b, kind) if independent else _clustered_p(draws[kind])
        results[kind] = Correlation(kind, Estimate(value, *ends, n=n, level=level), p)
    return results


def rater_ceiling(
    ratings: Floats,
    kind: CorrelationKind = "spearman",
    *,
    clusters: Sequence[Hashable] | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """How well one rater agrees with the mean of the others: what can be expected of an automatic judge.

    `ratings` is (units, raters), nan where a rater has no rating. Each column in turn is held out and correlated with
    the mean of the others; the figure is the mean of these correlations. n counts units with two ratings at least.

    >>> round(rater_ceiling(np.array([[1, 2, 1], [3, 3, 2], [4, 5, 5], [2, 2, 3]]), resamples=0).value, 3)
    0.861
    """
    table = np.asarray(ratings, dtype=np.float64)
    table = table.reshape(len(table), -1)
    rated = (~np.isnan(table)).sum(axis=1) >= 2
    names = list(range(len(table)) if clusters is None else clusters)
    codes, labels = cluster_codes([name for name, keep in zip(names, rated.tolist(), strict=True) if keep])
    table, n = table[rated], int(rated.sum())
    pairs = [_held_out(table, column) for column in range(table.shape[1])]
    pairs = [(rows, own, others) for rows, own, others in pairs if len(own) >= MIN_UNITS]
    if not pairs:
        return Estimate(math.nan, n=n, level=level)

    def mean(weights: Floats) -> Floats:
        each = [sampled_correlations(own, others, kind, weights[:, rows]) for rows, own, others in pairs]
        defined = np.isfinite(each)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(defined, each, 0).sum(axis=0) / defined.sum(axis=0))

    value = float(mean(np.ones((1, n)))[0])
    blocks = cluster_weights(len(labels), resamples=resamples, seed=seed, width=n)
    draws = [mean(weights[:, codes]) for weights in blocks]
    ends = draws_interval(value, np.concatenate(draws or [np.empty(0)]), len(labels), level=level)
    if draws and math.isnan(ends[0]):  # a perfect correlation in every draw
        ends = fisher_interval(value, len(labels), kind, level=level)
    return Estimate(value, *ends, n=n, level=level)


def _held_out(table: Floats, column: int) -> tuple[Codes, Floats, Floats]:
    """Rows with a rating in this column and in another one; that rating, and the mean of the others."""
    others = np.delete(table, column, axis=1)
    count = (~np.isnan(others)).sum(axis=1)
    rows = np.flatnonzero(~np.isnan(table[:, column]) & (count > 0))
    return rows, table[rows, column], np.nansum(others[rows], axis=1) / count[rows]


def fisher_interval(value: float, n: int, kind: CorrelationKind, *, level: float = LEVEL) -> tuple[float, float]:
    """The interval of a correlation of n independent units by Fisher's transformation; nan where n is too small.

    A perfect order of a few units is no certainty: for the interval it counts as half a step towards the next best
    order (a continuity correction), where the formula would give [1, 1].

    >>> low, high = fisher_interval(1.0, 5, "spearman")
    >>> round(low, 2), high
    (0.13, 1.0)
    """
    degrees = n - 4 if kind == "kendall" else n - 3
    if degrees <= 0:
        return math.nan, math.nan
    numerator = {"pearson": 1.0, "spearman": 1 + value**2 / 2, "kendall": 0.437}[kind]
    half = float(scipy.special.ndtri((1 + level) / 2)) * math.sqrt(numerator / degrees)
    step = {"pearson": 1e-12, "spearman": 6 / (n * (n**2 - 1)), "kendall": 2 / (n * (n - 1))}[kind]
    centre = math.atanh(max(-1 + step, min(1 - step, value)))
    low, high = math.tanh(centre - half), math.tanh(centre + half)
    return -1.0 if value <= -1 + 1e-9 else low, 1.0 if value >= 1 - 1e-9 else high


def p_value(x: Floats, y: Floats, kind: CorrelationKind) -> float:
    """The p-value of no correlation between independent units without missing values."""
    if kind == "kendall":
        return float(scipy.stats.kendalltau(x, y).pvalue)
    if kind == "spearman" and len(x) <= EXACT:
        return _exact_p(x, y)
    n, value = len(x), float(sampled_correlations(x, y, kind, np.ones((1, len(x))))[0])
    if abs(value) >= 1 - 1e-15:
        return 0.0 if n > 2 else 1.0
    t = abs(value) * math.sqrt((n - 2) / (1 - value**2))
    return float(2 * scipy.special.stdtr(n - 2, -t))


def _exact_p(x: Floats, y: Floats) -> float:
    """The share of all orders of y with a rank correlation at least as far from zero."""
    a, b = (ranks - ranks.mean() for ranks in (scipy.stats.rankdata(x), scipy.stats.rankdata(y)))
    orders = np.array(list(permutations(range(len(b)))))
    sums = np.abs(b[orders] @ a)
    return float((sums >= abs(float(a @ b)) - 1e-9).mean())


def sampled_correlations(x: Floats, y: Floats, kind: CorrelationKind, weights: Floats) -> Floats:
    """The correlation in each row of weights (rows, units): how often each unit was drawn."""
    if kind == "kendall":
        return _kendall(x, y, weights)
    if kind == "spearman":
        return _weighted_pearson(_mid_ranks(x, weights), _mid_ranks(y, weights), weights)
    return _weighted_pearson((x - x.mean())[None], (y - y.mean())[None], weights)


def _draws(
    x: Floats, y: Floats, kinds: Sequence[CorrelationKind], codes: Codes, *, resamples: int, seed: int
) -> dict[CorrelationKind, Floats]:
    parts: dict[CorrelationKind, list[Floats]] = {kind: [np.empty(0)] for kind in kinds}
    for weights in cluster_weights(int(codes.max()) + 1, resamples=resamples, seed=seed, width=len(x)):
        for kind in kinds:
            parts[kind].append(sampled_correlations(x, y, kind, weights[:, codes]))
    return {kind: np.concatenate(rows) for kind, rows in parts.items()}


def _clustered_p(draws: Floats) -> float:
    known = draws[np.isfinite(draws)]
    if not len(known):
        return math.nan
    side = min(int((known <= 0).sum()), int((known >= 0).sum()))
    return min(1.0, 2 * (side + 1) / (len(known) + 1))


def _mid_ranks(x: Floats, weights: Floats) -> Floats:
    """Weighted mid-ranks (rows, units): the weight below, plus half of the weight of the ties."""
    _, code, count = np.unique(x, return_inverse=True, return_counts=True)
    order = np.argsort(code, kind="stable")
    starts = np.concatenate([[0], np.cumsum(count)[:-1]])
    frequency = np.add.reduceat(weights[:, order], starts, axis=1)
    middle = np.cumsum(frequency, axis=1) - frequency / 2
    middle -= weights.sum(axis=1, keepdims=True) / 2  # their mean, so that the moments lose no digits
    return np.asarray(middle[:, code])


def _weighted_pearson(x: Floats, y: Floats, weights: Floats) -> Floats:
    total = weights.sum(axis=1)
    mean_x, mean_y = ((weights * v).sum(axis=1) / total for v in (x, y))
    cross = (weights * x * y).sum(axis=1) / total - mean_x * mean_y
    variances = [(weights * v**2).sum(axis=1) / total - m**2 for v, m in ((x, mean_x), (y, mean_y))]
    scales = [np.maximum((weights * v**2).sum(axis=1) / total, 1e-300) for v in (x, y)]
    varied = (variances[0] > 1e-12 * scales[0]) & (variances[1] > 1e-12 * scales[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(varied, np.clip(cross / np.sqrt(variances[0] * variances[1]), -1, 1), np.nan)


def _kendall(x: Floats, y: Floats, weights: Floats) -> Floats:
    """tau-b: concordant minus discordant pairs over the geometric mean of the pairs untied in x and in y."""
    balance = np.zeros(len(weights))
    for start in range(0, len(x), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        signs = np.sign(x[rows, None] - x) * np.sign(y[rows, None] - y)
        balance += ((weights[:, rows] @ signs) * weights).sum(axis=1)
    untied = [weights.sum(axis=1) ** 2 - _tied(v, weights) for v in (x, y)]
    with np.errstate(invalid="ignore", divide="ignore"):
        tau = balance / np.sqrt(untied[0] * untied[1])
    return np.where((untied[0] > 0.5) & (untied[1] > 0.5), np.clip(tau, -1, 1), np.nan)


def _tied(x: Floats, weights: Floats) -> Floats:
    """Pairs of equal values, every unit with itself and its copies included."""
    _, code = np.unique(x, return_inverse=True)
    table = np.zeros((len(x), int(code.max()) + 1))
    table[np.arange(len(x)), code] = 1.0
    return np.asarray(((weights @ table) ** 2).sum(axis=1))
