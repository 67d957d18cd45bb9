"""How sure a mean is: percentile bootstrap, over groups where values of one group are not independent."""

from collections.abc import Hashable, Sequence

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
    if len(values) == 0:
        return Estimate(float("nan"), n=0, level=level)
    _, of = np.unique(np.asarray([str(g) for g in groups]) if groups else np.arange(len(values)), return_inverse=True)
    sums, sizes = np.bincount(of, weights=values), np.bincount(of)
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    at_once = max(1, 2_000_000 // len(sums))  # so that memory stays flat however many groups there are
    for start in range(0, resamples, at_once):
        part = means[start : start + at_once]
        drawn = rng.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=len(part))
        part[:] = (drawn @ sums) / (drawn @ sizes)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(values.mean()), float(low), float(high), len(values), level)
