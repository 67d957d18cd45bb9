"""Ranking the true reply among others: hits@k (Persona-Chat), recall@k (Ubuntu), mean reciprocal rank.

Measures give one value per exchange; reducing them to a figure with an interval is `metrics.significance`'s work.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def ranks_of_truth(scores: Sequence[Sequence[float]], truth: Sequence[int], *, seed: int = 0) -> NDArray[np.int64]:
    """The 1-based rank of the true candidate of each exchange. Ties are broken at random, by the seed.

    A scorer that says nan is treated as worst: it must not win by confusing the comparison.

    >>> ranks_of_truth([[0.1, 0.9, 0.5]], [2]).tolist()
    [2]
    """
    rng = np.random.default_rng(seed)
    ranks = np.empty(len(truth), dtype=np.int64)
    for i, (row, true) in enumerate(zip(scores, truth, strict=True)):
        values = np.nan_to_num(np.asarray(row, dtype=np.float64), nan=-np.inf)
        ahead = int((values > values[true]).sum())
        tied = int((values == values[true]).sum()) - 1
        ranks[i] = 1 + ahead + int(rng.integers(0, tied + 1))
    return ranks


def hits_at(ranks: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """1 where the true reply is among the first k, else 0.

    >>> hits_at(np.array([1, 3, 2]), 2).tolist()
    [1.0, 0.0, 1.0]
    """
    return (ranks <= k).astype(np.float64)


def hits_at_1(ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Persona-Chat's hits@1."""
    return hits_at(ranks, 1)


def hits_at_2(ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Ubuntu's recall@2."""
    return hits_at(ranks, 2)


def hits_at_5(ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Ubuntu's recall@5."""
    return hits_at(ranks, 5)


def reciprocal_rank(ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """1 / rank.

    >>> reciprocal_rank(np.array([1, 4])).tolist()
    [1.0, 0.25]
    """
    return 1.0 / ranks.astype(np.float64)
