"""Correlations against SciPy, and resamples by weights against resamples by copies."""

import math
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from tertulia.metrics.correlation import (
    KINDS,
    Correlation,
    CorrelationKind,
    correlate,
    correlations,
    rater_ceiling,
    sampled_correlations,
)

PEERS = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}


def vectors(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Correlated, with many ties."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return np.round(x, 1), np.round(x + 1.5 * rng.normal(size=n))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [12, 70])
def test_values_and_p_values_are_those_of_scipy(kind: CorrelationKind, n: int) -> None:
    x, y = vectors(n)
    ours, theirs = correlate(x, y, kind), PEERS[kind](x, y)
    assert ours.estimate.value == pytest.approx(theirs.statistic, abs=1e-12)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert ours.estimate.n == n


@pytest.mark.parametrize("kind", KINDS)
def test_a_resample_by_weights_is_a_resample_by_copies(kind: CorrelationKind) -> None:
    x, y = vectors(40)
    weights = np.random.default_rng(1).multinomial(40, np.full(40, 1 / 40), size=25)
    copies = [np.repeat(np.arange(40), row) for row in weights]
    expected = [PEERS[kind](x[rows], y[rows]).statistic for rows in copies]
    assert sampled_correlations(x, y, kind, weights.astype(float)) == pytest.approx(np.array(expected), abs=1e-12)


def test_units_without_a_value_are_left_out() -> None:
    x, y = vectors(50)
    x[::7], y[3] = math.nan, math.inf
    known = np.isfinite(x) & np.isfinite(y)
    with_gaps, without = correlations(x, y), correlations(x[known], y[known])
    assert with_gaps == without
    assert with_gaps["kendall"].estimate.n == known.sum() < 50


@pytest.mark.parametrize(
    ("x", "y"), [([], []), ([1, 2], [2, 1]), ([1, 1, 1, 1], [1, 2, 3, 4]), ([1, 2, math.nan], [1, 2, 3])]
)
def test_where_nothing_can_be_said_the_value_is_nan_and_n_is_known(x: list[float], y: list[float]) -> None:
    for correlation in correlations(x, y).values():
        assert math.isnan(correlation.estimate.value)
        assert math.isnan(correlation.p)
        assert correlation.estimate.n == np.isfinite(x).sum()


def test_few_units_have_an_exact_p_value() -> None:
    x, y = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 1, 3, 5, 4])
    value = stats.spearmanr(x, y).statistic
    every = [stats.spearmanr(x, order).statistic for order in permutations(y.tolist())]
    assert correlate(x, y, "spearman").p == pytest.approx(np.mean(np.abs(every) >= abs(value) - 1e-12))
    assert correlate([1, 2, 3], [1, 2, 3], "spearman").p == pytest.approx(1 / 3)


def test_whole_clusters_are_drawn() -> None:
    """Ten copies of each unit are no new evidence: the interval is that of the units, and so is p, roughly."""
    x, y = vectors(30)
    rows = np.repeat(np.arange(30), 10)
    single = correlate(x, y, "pearson")
    naive = correlate(x[rows], y[rows], "pearson")
    clustered = correlate(x[rows], y[rows], "pearson", clusters=rows.tolist())
    width = {name: c.estimate.high - c.estimate.low for name, c in (("one", single), ("n", naive), ("c", clustered))}
    assert width["c"] == pytest.approx(width["one"], rel=1e-9)
    assert width["n"] < 0.5 * width["one"]
    assert naive.p < clustered.p


def test_intervals_cover_as_often_as_they_say() -> None:
    rng, truth, hits = np.random.default_rng(3), 0.6, {8: 0, 30: 0}
    for n in hits:
        for _ in range(200):
            x = rng.normal(size=n)
            y = truth * x + math.sqrt(1 - truth**2) * rng.normal(size=n)
            estimate = correlate(x, y, "pearson", resamples=300).estimate
            hits[n] += estimate.low <= truth <= estimate.high
    assert hits[8] >= 182
    assert hits[30] >= 178


def test_the_ceiling_is_one_rater_against_the_mean_of_the_others() -> None:
    rng = np.random.default_rng(5)
    quality = rng.normal(size=60)
    table = np.round(quality[:, None] + rng.normal(size=(60, 4)))
    expected = np.mean(
        [stats.spearmanr(table[:, k], np.delete(table, k, axis=1).mean(axis=1)).statistic for k in range(4)]
    )
    ceiling = rater_ceiling(table, clusters=[i // 2 for i in range(60)])
    assert ceiling.value == pytest.approx(expected)
    assert ceiling.low < ceiling.value < ceiling.high
    table[0, 1:] = math.nan  # a single rating has nobody to agree with
    assert rater_ceiling(table, resamples=0).n == 59
    assert math.isnan(rater_ceiling(table[:, :1]).value)


def test_a_correlation_reads_back() -> None:
    x, y = vectors(25)
    for correlation in (*correlations(x, y).values(), correlate([1], [1])):
        assert repr(Correlation.from_json(correlation.as_json())) == repr(correlation)
