"""How far an automatic judge agrees with people: Cohen's kappa, with an interval over clusters.

Krippendorff's alpha, which takes any number of raters, is in `agreement`, and correlations are in `correlation`. The
interval is a percentile bootstrap interval over clusters, such as the conversations that the judged turns belong to.
"""

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from tertulia.core.estimate import Estimate
from tertulia.metrics.intervals import (
    LEVEL,
    RESAMPLES,
    Floats,
    cluster_codes,
    cluster_weights,
    draws_interval,
)


def cohen_kappa(
    first: Sequence[Hashable],
    second: Sequence[Hashable],
    clusters: Sequence[Hashable] | None = None,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Cohen's (1960) kappa of two raters of the same units: agreement beyond chance, chance by each one's own shares.

    nan where chance agreement is certain, since both always say the same word.

    >>> print(cohen_kappa([1, 1, 0, 0, 1, 0], [1, 1, 0, 1, 1, 0], resamples=0))
    0.667 (n = 6)
    """
    if not len(first):
        return Estimate(math.nan, n=0, level=level)
    both, words = cluster_codes([*first, *second])
    table = np.zeros((len(first), 1 + 2 * len(words)))
    rows = np.arange(len(first))
    table[:, 0] = both[: len(first)] == both[len(first) :]
    table[rows, 1 + both[: len(first)]] = 1
    table[rows, 1 + len(words) + both[len(first) :]] = 1

    def kappa(sums: Floats) -> Floats:
        one, other = sums[:, 1 : 1 + len(words)], sums[:, 1 + len(words) :]
        n = one.sum(axis=1)
        expected = (one * other).sum(axis=1) / n**2
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(expected < 1 - 1e-12, (sums[:, 0] / n - expected) / (1 - expected), np.nan)

    return _bootstrapped(table, clusters, kappa, level=level, resamples=resamples, seed=seed)


def _bootstrapped(
    table: Floats,
    clusters: Sequence[Hashable] | None,
    figure: Callable[[Floats], Floats],
    *,
    level: float,
    resamples: int,
    seed: int,
) -> Estimate:
    """A figure of column sums, and its interval over clusters."""
    codes, names = cluster_codes(range(len(table)) if clusters is None else clusters)
    sums = np.zeros((len(names), table.shape[1]))
    np.add.at(sums, codes, table)
    value = float(figure(table.sum(axis=0)[None])[0])
    draws = [figure(w @ sums) for w in cluster_weights(len(names), resamples=resamples, seed=seed)]
    # Agreement that was perfect so far may yet be that of chance in as many units as Wilson's interval allows.
    bounds = (0.0, 1.0) if value > 1 - 1e-12 else None
    ends = draws_interval(value, np.concatenate(draws or [np.empty(0)]), len(names), bounds=bounds, level=level)
    return Estimate(value, *ends, n=len(table), level=level)
