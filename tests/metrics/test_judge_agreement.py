"""Kappa against scikit-learn, with intervals over clusters."""

import math

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from tertulia.metrics.judge_agreement import cohen_kappa


def test_kappa_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 3, 200)
    second = np.where(rng.random(200) < 0.6, first, rng.integers(0, 3, 200))
    ours = cohen_kappa(first.tolist(), second.tolist())
    assert ours.value == pytest.approx(cohen_kappa_score(first, second))
    assert ours.low < ours.value < ours.high
    assert ours.n == 200


def test_units_of_one_cluster_do_not_count_as_many() -> None:
    rng = np.random.default_rng(2)
    x, y = (np.repeat(rng.integers(0, 2, 20), 10).tolist() for _ in range(2))
    apart, together = cohen_kappa(x, y), cohen_kappa(x, y, np.repeat(np.arange(20), 10).tolist())
    assert together.high - together.low > 2 * (apart.high - apart.low)


def test_without_variation_there_is_nothing_to_agree_on() -> None:
    assert math.isnan(cohen_kappa([1, 1], [1, 1]).value)
    assert cohen_kappa([], []).n == 0
