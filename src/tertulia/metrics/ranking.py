"""Ranking the true reply among others: hits@k (Persona-Chat), recall@k (Ubuntu), mean reciprocal rank.

Measures give one value per exchange; reducing them to a figure with an interval is `metrics.significance`'s work. They
go by name: `hits@K` and `recall@K` for any K, either `inM` (among M of the candidates), `1inM` for short, and whatever
stands in the table of metrics.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tertulia.metrics.table import METRICS

Ranks = NDArray[np.int64]
Values = NDArray[np.float64]
_NAME = re.compile(r"(?:hits|recall)@(?P<k>[1-9]\d*)(?:in(?P<of>[2-9]|[1-9]\d+))?|1in(?P<one_of>[2-9]|[1-9]\d+)")


def ranks_of_truth(scores: Sequence[Sequence[float]], truth: Sequence[int], *, seed: int = 0) -> Ranks:
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


def hits_at(ranks: Ranks, k: int) -> Values:
    """1 where the true reply is among the first k, else 0.

    >>> hits_at(np.array([1, 3, 2]), 2).tolist()
    [1.0, 0.0, 1.0]
    """
    return (ranks <= k).astype(np.float64)


def hits_at_1(ranks: Ranks) -> Values:
    """Persona-Chat's hits@1."""
    return hits_at(ranks, 1)


def hits_at_2(ranks: Ranks) -> Values:
    """Ubuntu's recall@2."""
    return hits_at(ranks, 2)


def hits_at_5(ranks: Ranks) -> Values:
    """Ubuntu's recall@5."""
    return hits_at(ranks, 5)


def reciprocal_rank(ranks: Ranks) -> Values:
    """1 / rank.

    >>> reciprocal_rank(np.array([1, 4])).tolist()
    [1.0, 0.25]
    """
    return 1.0 / ranks.astype(np.float64)


def hits_among(ranks: Ranks, sizes: Ranks, k: int, of: int) -> Values:
    """The chance that the true reply is among the first k when all but `of` candidates are taken away at random.

    That is hits@k among `of`, meant over every way to choose its distractors from those that were ranked: the same
    figure as with fewer distractors drawn in the first place, and surer (a hypergeometric distribution).

    >>> hits_among(np.array([1, 4, 10]), np.array([10, 10, 10]), 1, 2).round(3).tolist()
    [1.0, 0.667, 0.0]
    """
    pairs, place = np.unique(np.stack([ranks, sizes]), axis=1, return_inverse=True)
    chances = [_hit_chance(int(rank), int(size), k, of) for rank, size in pairs.T]
    return np.array(chances, dtype=np.float64)[place.ravel()]


def _hit_chance(rank: int, size: int, k: int, of: int) -> float:
    """At most k - 1 of the `rank` - 1 better ones are among the `of` - 1 distractors that stay."""
    ways = sum(math.comb(rank - 1, ahead) * math.comb(size - rank, of - 1 - ahead) for ahead in range(min(k, of)))
    return ways / math.comb(size - 1, of - 1)


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure by its name."""

    name: str
    k: int = 0
    """For hits@k: k; 0 for a measure of the table."""
    of: int = 0
    """Candidates it needs to be told among; 0 for all there are."""

    def values(self, ranks: Ranks, sizes: Ranks) -> Values:
        """One value per exchange, of ranks among so many candidates each."""
        if not self.k:
            return np.asarray(METRICS.get(self.name)(ranks), dtype=np.float64)
        return hits_among(ranks, sizes, self.k, self.of) if self.of else hits_at(ranks, self.k)


def measure_named(name: str) -> Measure:
    """The measure of that name; one that nobody knows raises.

    >>> measure_named("recall@2in10")
    Measure(name='recall@2in10', k=2, of=10)
    >>> measure_named("1in2").values(np.array([1, 3]), np.array([3, 3])).tolist()
    [1.0, 0.0]
    """
    found = _NAME.fullmatch(name)
    if name in METRICS or found is None:
        METRICS.get(name)
        return Measure(name)
    return Measure(name, int(found["k"] or 1), int(found["of"] or found["one_of"] or 0))
