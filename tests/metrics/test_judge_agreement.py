"""Kappa and correlations against scikit-learn and SciPy, with intervals over clusters."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from tertulia.metrics.judge_agreement import cohen_kappa, correlation


def test_kappa_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 3, 200)
    second = np.where(rng.random(200) < 0.6, first, rng.integers(0, 3, 200))
    ours = cohen_kappa(first.tolist(), second.tolist())
    assert ours.value == pytest.approx(cohen_kappa_score(first, second))
    assert ours.low < ours.value < ours.high
    assert ours.n == 200


def test_correlations_are_scipys() -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(1, 8, 150).astype(float)
    y = x + rng.normal(scale=2, size=150)
    assert correlation(x.tolist(), y.tolist()).value == pytest.approx(stats.spearmanr(x, y).statistic)
    assert correlation(x.tolist(), y.tolist(), ranks=False).value == pytest.approx(stats.pearsonr(x, y).statistic)


def test_units_of_one_cluster_do_not_count_as_many() -> None:
    rng = np.random.default_rng(2)
    x, y = np.repeat(rng.normal(size=(2, 20)), 10, axis=1)
    apart, together = correlation(x, y), correlation(x, y, np.repeat(np.arange(20), 10).tolist())
    assert together.high - together.low > 2 * (apart.high - apart.low)


def test_without_variation_there_is_nothing_to_agree_on() -> None:
    assert math.isnan(cohen_kappa([1, 1], [1, 1]).value)
    assert math.isnan(correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]).value)
    assert (cohen_kappa([], []).n, correlation([], []).n) == (0, 0)
