"""How sure a mean is: percentile bootstrap, over groups where values of one group are not independent."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tertulia.core.estimate import Estimate


def bootstrap_mean(
    values: NDArray[np.float64],
    groups: Sequence[Hashable] | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """The mean with a percentile bootstrap interval (Efron 1979).

    With `groups` (say, the dialogue each reply comes from) whole groups are drawn: replies of one dialogue are alike,
    and drawing them one by one would make the interval too narrow.

    >>> bootstrap_mean(np.array([])).n
    0
    """
    values = np.asarray(values, dtype=np.float64)
    return bootstrap_means(values[:, None], groups, level=level, resamples=resamples, seed=seed)[0]


def bootstrap_means(
    columns: NDArray[np.float64],
    groups: Sequence[Hashable] | None = None,
    *,
    counted: NDArray[np.bool_] | None = None,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> list[Estimate]:
    """The mean of each column with its interval, all from the same draws: drawing is what costs.

    `counted` says which values belong to their column; by default all do.

    >>> [e.value for e in bootstrap_means(np.array([[1.0, 0.0], [0.0, 0.5]]))]
    [0.5, 0.25]
    """
    rows, width = columns.shape
    counted = np.ones((rows, width), dtype=bool) if counted is None else counted
    if groups and len(groups) != rows:
        raise ValueError(f"{len(groups)} groups and {rows} values are not of one length")
    if rows == 0:
        return [Estimate(float("nan"), n=0, level=level)] * width
    _, of = np.unique(np.asarray([str(g) for g in groups]) if groups else np.arange(rows), return_inverse=True)
    kept = np.where(counted, columns, 0.0)
    means = _resampled(_by_group(of, kept), _by_group(of, counted), resamples, np.random.default_rng(seed))
    total = counted.sum(axis=0)
    found = []
    for i in range(width):
        drawn = means[~np.isnan(means[:, i]), i]
        low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2]) if len(drawn) else (np.nan, np.nan)
        value = float(kept[:, i].sum() / total[i]) if total[i] else float("nan")
        found.append(Estimate(value, float(low), float(high), int(total[i]), level))
    return found


def _by_group(of: NDArray[np.intp], columns: NDArray[Any]) -> NDArray[np.float64]:
    """Sums (groups, columns)."""
    sums = np.zeros((int(of.max()) + 1, columns.shape[1]))
    np.add.at(sums, of, columns)
    return sums


def _resampled(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], resamples: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Means of all columns (resamples, columns) when groups are drawn with replacement; nan where none was drawn."""
    means = np.empty((resamples, sums.shape[1]))
    at_once = max(1, 2_000_000 // len(sums))  # so that memory stays flat however many groups there are
    for start in range(0, resamples, at_once):
        part = means[start : start + at_once]
        drawn = rng.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=len(part)).astype(np.float64)
        with np.errstate(invalid="ignore"):
            part[:] = (drawn @ sums) / (drawn @ sizes)
    return means


def bootstrap_difference(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    groups: Sequence[Hashable] | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """How much higher the first mean is than the second, of the same things measured twice, with its interval.

    Paired: what is easy for one is mostly easy for the other, so the difference is surer than the two means are.

    >>> bootstrap_difference(np.array([1.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0])).value.__round__(3)
    0.333
    """
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    return bootstrap_differences(first[:, None], second[:, None], groups, level=level, resamples=resamples, seed=seed)[
        0
    ]


def bootstrap_differences(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    groups: Sequence[Hashable] | None = None,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> list[Estimate]:
    """The same for each column, all from the same draws."""
    if first.shape != second.shape:
        raise ValueError(f"{len(first)} and {len(second)} values are no pairs")
    return bootstrap_means(first - second, groups, level=level, resamples=resamples, seed=seed)
