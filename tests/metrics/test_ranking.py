import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tertulia.core.errors import UnknownName
from tertulia.metrics.metric import RankBatch
from tertulia.metrics.ranking import hits_among, hits_at, ranks_of_truth, reciprocal_rank
from tertulia.metrics.registry import metric_named

rows = st.integers(2, 8).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(-5, 5) | st.sampled_from([0.0, 1.0]), min_size=n, max_size=n), st.integers(0, n - 1)
    )
)


def rank_by_sorting(scores: list[float], true: int) -> range:
    """Independently: all ranks the true one can have when the others are sorted before and after it."""
    others = [s for i, s in enumerate(scores) if i != true]
    best = 1 + sum(1 for s in sorted(others, reverse=True) if s > scores[true])
    worst = len(scores) - sum(1 for s in sorted(others) if s < scores[true])
    return range(best, worst + 1)


@settings(max_examples=120, deadline=None)
@given(st.lists(rows, max_size=5), st.integers(0, 2**32))
def test_ranks_agree_with_sorting(cases: list[tuple[list[float], int]], seed: int) -> None:
    ranks = ranks_of_truth([scores for scores, _ in cases], [true for _, true in cases], seed=seed).tolist()
    for rank, (scores, true) in zip(ranks, cases, strict=True):
        assert rank in rank_by_sorting(scores, true)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8, unique=True), st.randoms(use_true_random=False))
def test_the_position_of_the_truth_does_not_matter(scores: list[float], rng: object) -> None:
    order = list(range(len(scores)))
    rng.shuffle(order)  # type: ignore[attr-defined]
    shuffled = [scores[i] for i in order]
    for true in range(len(scores)):
        assert ranks_of_truth([scores], [true]) == ranks_of_truth([shuffled], [order.index(true)])


def test_ties_are_broken_at_random() -> None:
    ranks = [int(ranks_of_truth([[1.0, 3.0, 1.0, 1.0, 0.0]], [2], seed=seed)[0]) for seed in range(1500)]
    counts = [ranks.count(k) for k in range(1, 6)]
    assert counts[0] == counts[4] == 0
    assert stats.chisquare(counts[1:4]).pvalue > 0.001


@pytest.mark.parametrize("true", [0, 4, 9])
def test_ties_do_not_favour_a_position(true: int) -> None:
    """A scorer that gives everything the same score hits one in ten, whatever the position of the truth."""
    ranks = ranks_of_truth([[0.0] * 10] * 3000, [true] * 3000, seed=3)
    assert abs(hits_at(ranks, 1).mean() - 0.1) < 4 * math.sqrt(0.1 * 0.9 / 3000)
    assert stats.chisquare(np.bincount(ranks, minlength=11)[1:]).pvalue > 0.001


def test_the_same_seed_breaks_ties_the_same_way() -> None:
    scores, truth = [[0.0] * 20] * 50, [7] * 50
    assert ranks_of_truth(scores, truth, seed=1).tolist() == ranks_of_truth(scores, truth, seed=1).tolist()
    assert ranks_of_truth(scores, truth, seed=1).tolist() != ranks_of_truth(scores, truth, seed=2).tolist()


def test_nan_ranks_last() -> None:
    assert ranks_of_truth([[math.nan, -100.0, 0.0]], [0]).tolist() == [3]
    assert ranks_of_truth([[math.nan, -100.0, math.nan]], [1]).tolist() == [1]
    assert ranks_of_truth([[math.nan, -math.inf, 0.0]], [0]).tolist() == [3]
    among_nans = {int(ranks_of_truth([[math.nan] * 3], [0], seed=s)[0]) for s in range(50)}
    assert among_nans == {1, 2, 3}


def test_infinite_scores_are_ordered() -> None:
    assert ranks_of_truth([[math.inf, 0.0, -math.inf]] * 3, [0, 1, 2]).tolist() == [1, 2, 3]


def test_no_exchanges_no_ranks() -> None:
    assert ranks_of_truth([], []).tolist() == []


def test_one_truth_for_each_row() -> None:
    with pytest.raises(ValueError, match="zip"):
        ranks_of_truth([[1.0, 2.0]], [0, 1])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1))
def test_hits_and_reciprocal_ranks(values: list[int]) -> None:
    ranks = np.array(values)
    assert hits_at(ranks, 1).tolist() == [float(r == 1) for r in values]
    assert hits_at(ranks, 2).tolist() == [float(r in (1, 2)) for r in values]
    assert hits_at(ranks, 5).tolist() == [float(r < 6) for r in values]
    assert reciprocal_rank(ranks).tolist() == [1 / r for r in values]


@pytest.mark.parametrize(("k", "of"), [(1, 2), (1, 10), (2, 10), (5, 10), (3, 3), (12, 10)])
def test_hits_among_fewer_against_scipy(k: int, of: int) -> None:
    source = np.random.default_rng(0)
    sizes = source.integers(10, 30, 200)
    ranks = np.array([source.integers(1, size + 1) for size in sizes])
    expected = stats.hypergeom.cdf(k - 1, sizes - 1, ranks - 1, of - 1)
    assert hits_among(ranks, sizes, k, of) == pytest.approx(expected)


def test_hits_among_all_candidates_is_hits() -> None:
    ranks = np.arange(1, 11)
    assert hits_among(ranks, np.full(10, 10), 3, 10).tolist() == hits_at(ranks, 3).tolist()
    assert hits_among(np.empty(0, dtype=int), np.empty(0, dtype=int), 1, 2).tolist() == []


def test_hits_among_fewer_equals_drawing_fewer() -> None:
    source = np.random.default_rng(1)
    scores = source.normal(size=(4000, 20)) + np.eye(20)[0] * 1.5
    few = np.concatenate([scores[:, :1], scores[:, 1:5]], axis=1)
    drawn = hits_at(ranks_of_truth(few.tolist(), [0] * 4000), 2)
    subset = hits_among(ranks_of_truth(scores.tolist(), [0] * 4000), np.full(4000, 20), 2, 5)
    assert subset.mean() == pytest.approx(drawn.mean(), abs=4 * drawn.std() / math.sqrt(4000))
    assert subset.std() < drawn.std()


def values(name: str, ranks: np.ndarray, sizes: np.ndarray) -> list[float]:
    return metric_named(name).measure(RankBatch(ranks, sizes))[0].tolist()


def test_metrics_are_looked_up_by_name() -> None:
    ranks, sizes = np.array([1, 2, 3, 10]), np.full(4, 10)
    names = ("hits@3", "recall@2", "hits@1", "mrr", "error rate")
    assert {name: values(name, ranks, sizes) for name in names} == {
        "hits@3": [1, 1, 1, 0],
        "recall@2": [1, 1, 0, 0],
        "hits@1": [1, 0, 0, 0],
        "mrr": [1, 1 / 2, pytest.approx(1 / 3), 1 / 10],
        "error rate": [0, 1, 1, 1],
    }
    assert values("1in2", ranks, sizes) == pytest.approx([1, 8 / 9, 7 / 9, 0])
    assert values("1in2", ranks, sizes) == values("hits@1in2", ranks, sizes) == values("recall@1in2", ranks, sizes)
    assert (metric_named("1in2").min_candidates, metric_named("hits@3").min_candidates) == (2, 0)


@pytest.mark.parametrize("name", ["hits@0", "hit@1", "1in1", "hits", "recall@2in", "hits@-1", "2in10", "hits@K", ""])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UnknownName, match="no metric called"):
        metric_named(name)
