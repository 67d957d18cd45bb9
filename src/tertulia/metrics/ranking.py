"""Ranking the true reply among distractors: hits@k (Persona-Chat), recall@k (Ubuntu), mean reciprocal rank."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tertulia.metrics.metric import Metric, MetricFamily, RankBatch

Ranks = NDArray[np.int64]
Values = NDArray[np.float64]


def ranks_of_truth(scores: Sequence[Sequence[float]], truth: Sequence[int], *, seed: int = 0) -> Ranks:
    """The 1-based rank of the true candidate of each exchange. Ties are broken at random, by the seed.

    A score of nan counts as the worst: it must not win by confusing the comparison.

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


def reciprocal_rank(ranks: Ranks) -> Values:
    """1 / rank.

    >>> reciprocal_rank(np.array([1, 4])).tolist()
    [1.0, 0.25]
    """
    return 1.0 / ranks.astype(np.float64)


def hits_among(ranks: Ranks, sizes: Ranks, k: int, of: int) -> Values:
    """The probability that the true reply is among the first k if only `of` candidates are kept at random.

    That is hits@k among `of` candidates, averaged over all subsets of the distractors that were ranked: the same figure
    as with fewer distractors drawn in the first place, and less noisy (a hypergeometric distribution).

    >>> hits_among(np.array([1, 4, 10]), np.array([10, 10, 10]), 1, 2).round(3).tolist()
    [1.0, 0.667, 0.0]
    """
    pairs, index = np.unique(np.stack([ranks, sizes]), axis=1, return_inverse=True)
    probabilities = [_hit_probability(int(rank), int(size), k, of) for rank, size in pairs.T]
    return np.array(probabilities, dtype=np.float64)[index.ravel()]


def _hit_probability(rank: int, size: int, k: int, of: int) -> float:
    """At most k - 1 of the `rank` - 1 better candidates are among the `of` - 1 distractors that are kept."""
    ways = sum(math.comb(rank - 1, ahead) * math.comb(size - rank, of - 1 - ahead) for ahead in range(min(k, of)))
    return ways / math.comb(size - 1, of - 1)


def _compute_hits(batch: RankBatch, *, k: int) -> Values:
    return hits_at(batch.ranks, k)


def _compute_hits_among(batch: RankBatch, *, k: int, of: int) -> Values:
    return hits_among(batch.ranks, batch.sizes, k, of)


def _compute_mrr(batch: RankBatch) -> Values:
    return reciprocal_rank(batch.ranks)


def _compute_errors(batch: RankBatch) -> Values:
    return 1 - hits_at(batch.ranks, 1)


_PERSONACHAT, _UBUNTU = "Zhang et al. 2018", "Lowe et al. 2015"


def _hits(name: str, k: int, *, citation: str) -> Metric:
    summary = f"share of true replies ranked among the first {k}"
    return Metric(name, "ranks", "mean", summary, citation, bounded=True, compute=partial(_compute_hits, k=k))


def _hits_among(name: str, k: int, of: int, *, citation: str) -> Metric | None:
    if of < 2:
        return None
    summary = f"share of true replies ranked among the first {k} of {of}, averaged over all subsets"
    compute = partial(_compute_hits_among, k=k, of=of)
    return Metric(name, "ranks", "mean", summary, citation, bounded=True, compute=compute, min_candidates=of)


def _one_in(name: str, of: int) -> Metric | None:
    return _hits_among(name, 1, of, citation=_UBUNTU)


HITS = MetricFamily("hits@K", partial(_hits, citation=_PERSONACHAT), "true reply among the first K")
RECALL = MetricFamily("recall@K", partial(_hits, citation=_UBUNTU), "true reply among the first K")
HITS_AMONG = MetricFamily("hits@KinM", partial(_hits_among, citation=_PERSONACHAT), "among the first K of M candidates")
RECALL_AMONG = MetricFamily("recall@KinM", partial(_hits_among, citation=_UBUNTU), "among the first K of M candidates")
ONE_IN = MetricFamily("1inM", _one_in, "first of M candidates")
MRR = Metric(
    "mrr",
    "ranks",
    "mean",
    "mean reciprocal rank of the true reply",
    "Voorhees 1999",
    bounded=True,
    compute=_compute_mrr,
)
ERROR_RATE = Metric(
    "error rate",
    "ranks",
    "mean",
    "share of cases where the true candidate is not ranked first",
    _PERSONACHAT,
    False,
    bounded=True,
    compute=_compute_errors,
)
