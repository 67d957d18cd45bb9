import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tertulia.core.errors import UnknownName
from tertulia.metrics.ranking import (
    hits_among,
    hits_at,
    hits_at_1,
    hits_at_2,
    hits_at_5,
    measure_named,
    ranks_of_truth,
    reciprocal_rank,
)
from tertulia.metrics.table import METRICS

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
    found = ranks_of_truth([scores for scores, _ in cases], [true for _, true in cases], seed=seed).tolist()
    for rank, (scores, true) in zip(found, cases, strict=True):
        assert rank in rank_by_sorting(scores, true)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8, unique=True), st.randoms(use_true_random=False))
def test_the_place_of_the_truth_does_not_matter(scores: list[float], rng: object) -> None:
    places = list(range(len(scores)))
    rng.shuffle(places)  # type: ignore[attr-defined]
    shuffled = [scores[i] for i in places]
    for true in range(len(scores)):
        assert ranks_of_truth([scores], [true]) == ranks_of_truth([shuffled], [places.index(true)])


def test_ties_fall_evenly() -> None:
    ranks = [int(ranks_of_truth([[1.0, 3.0, 1.0, 1.0, 0.0]], [2], seed=seed)[0]) for seed in range(1500)]
    counts = [ranks.count(k) for k in range(1, 6)]
    assert counts[0] == counts[4] == 0
    assert stats.chisquare(counts[1:4]).pvalue > 0.001


@pytest.mark.parametrize("true", [0, 4, 9])
def test_ties_do_not_favour_a_place(true: int) -> None:
    """A scorer that gives everything the same score finds one in ten, wherever the truth stands."""
    ranks = ranks_of_truth([[0.0] * 10] * 3000, [true] * 3000, seed=3)
    assert abs(hits_at_1(ranks).mean() - 0.1) < 4 * math.sqrt(0.1 * 0.9 / 3000)
    assert stats.chisquare(np.bincount(ranks, minlength=11)[1:]).pvalue > 0.001


def test_the_same_seed_breaks_ties_the_same_way() -> None:
    scores, truth = [[0.0] * 20] * 50, [7] * 50
    assert ranks_of_truth(scores, truth, seed=1).tolist() == ranks_of_truth(scores, truth, seed=1).tolist()
    assert ranks_of_truth(scores, truth, seed=1).tolist() != ranks_of_truth(scores, truth, seed=2).tolist()


def test_nan_never_wins() -> None:
    assert ranks_of_truth([[math.nan, -100.0, 0.0]], [0]).tolist() == [3]
    assert ranks_of_truth([[math.nan, -100.0, math.nan]], [1]).tolist() == [1]
    assert ranks_of_truth([[math.nan, -math.inf, 0.0]], [0]).tolist() == [3]
    among_nans = {int(ranks_of_truth([[math.nan] * 3], [0], seed=s)[0]) for s in range(50)}
    assert among_nans == {1, 2, 3}


def test_infinite_scores_have_their_place() -> None:
    assert ranks_of_truth([[math.inf, 0.0, -math.inf]] * 3, [0, 1, 2]).tolist() == [1, 2, 3]


def test_no_exchanges_no_ranks() -> None:
    assert ranks_of_truth([], []).tolist() == []


def test_one_truth_for_each_row() -> None:
    with pytest.raises(ValueError, match="zip"):
        ranks_of_truth([[1.0, 2.0]], [0, 1])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1))
def test_hits_and_reciprocal_ranks(found: list[int]) -> None:
    ranks = np.array(found)
    assert hits_at_1(ranks).tolist() == [float(r == 1) for r in found]
    assert hits_at_2(ranks).tolist() == [float(r in (1, 2)) for r in found]
    assert hits_at_5(ranks).tolist() == hits_at(ranks, 5).tolist() == [float(r < 6) for r in found]
    assert reciprocal_rank(ranks).tolist() == [1 / r for r in found]


def test_the_table_names_the_right_functions() -> None:
    ranks = np.array([1, 2, 5, 6])
    means = {name: float(METRICS.get(name)(ranks).mean()) for name in ("hits@1", "hits@2", "hits@5", "mrr")}
    assert means == {
        "hits@1": 0.25,
        "hits@2": 0.5,
        "hits@5": 0.75,
        "mrr": pytest.approx((1 + 1 / 2 + 1 / 5 + 1 / 6) / 4),
    }


@pytest.mark.parametrize(("k", "of"), [(1, 2), (1, 10), (2, 10), (5, 10), (3, 3), (12, 10)])
def test_hits_among_fewer_against_scipy(k: int, of: int) -> None:
    source = np.random.default_rng(0)
    sizes = source.integers(10, 30, 200)
    ranks = np.array([source.integers(1, size + 1) for size in sizes])
    expected = stats.hypergeom.cdf(k - 1, sizes - 1, ranks - 1, of - 1)
    assert hits_among(ranks, sizes, k, of) == pytest.approx(expected)


def test_hits_among_as_many_as_there_are_is_hits() -> None:
    ranks = np.arange(1, 11)
    assert hits_among(ranks, np.full(10, 10), 3, 10).tolist() == hits_at(ranks, 3).tolist()
    assert hits_among(np.empty(0, dtype=int), np.empty(0, dtype=int), 1, 2).tolist() == []


def test_hits_among_fewer_is_what_drawing_fewer_would_give() -> None:
    source = np.random.default_rng(1)
    scores = source.normal(size=(4000, 20)) + np.eye(20)[0] * 1.5
    few = np.concatenate([scores[:, :1], scores[:, 1:5]], axis=1)
    drawn = hits_at(ranks_of_truth(few.tolist(), [0] * 4000), 2)
    told = hits_among(ranks_of_truth(scores.tolist(), [0] * 4000), np.full(4000, 20), 2, 5)
    assert told.mean() == pytest.approx(drawn.mean(), abs=4 * drawn.std() / math.sqrt(4000))
    assert told.std() < drawn.std()


def test_measures_go_by_name() -> None:
    ranks, sizes = np.array([1, 2, 3, 10]), np.full(4, 10)
    values = {
        name: measure_named(name).values(ranks, sizes).tolist() for name in ("hits@3", "recall@2", "hits@1", "mrr")
    }
    assert values == {
        "hits@3": [1, 1, 1, 0],
        "recall@2": [1, 1, 0, 0],
        "hits@1": [1, 0, 0, 0],
        "mrr": [1, 1 / 2, pytest.approx(1 / 3), 1 / 10],
    }
    assert measure_named("1in2").values(ranks, sizes) == pytest.approx([1, 8 / 9, 7 / 9, 0])
    assert (
        measure_named("1in2").values(ranks, sizes).tolist() == measure_named("hits@1in2").values(ranks, sizes).tolist()
    )


@pytest.mark.parametrize("name", ["hits@0", "hit@1", "1in1", "hits", "recall@2in", "hits@-1", "2in10", ""])
def test_names_that_are_no_measure(name: str) -> None:
    with pytest.raises(UnknownName, match="no metric called"):
        measure_named(name)
