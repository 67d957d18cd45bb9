import math
import tracemalloc

import numpy as np
import pytest
from scipy import stats

from tertulia.metrics.significance import bootstrap_difference, bootstrap_differences, bootstrap_mean, bootstrap_means


def width(estimate) -> float:  # type: ignore[no-untyped-def]
    return float(estimate.high - estimate.low)


def test_nothing_measured_is_nan() -> None:
    nothing = bootstrap_mean(np.array([]))
    assert nothing.n == 0
    assert math.isnan(nothing.value)
    assert math.isnan(nothing.low)


def test_it_agrees_with_scipy() -> None:
    values = np.random.default_rng(0).normal(3, 2, 120)
    ours = bootstrap_mean(values, resamples=5000)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=5000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert ours.value == pytest.approx(values.mean())
    assert ours.n == 120
    assert ours.low == pytest.approx(theirs.low, abs=0.03)
    assert ours.high == pytest.approx(theirs.high, abs=0.03)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    source = np.random.default_rng(11)
    for level, least, most in ((0.95, 0.90, 0.985), (0.8, 0.73, 0.87)):
        covered = []
        for trial in range(250):
            found = bootstrap_mean((source.random(80) < 0.3).astype(float), level=level, resamples=400, seed=trial)
            covered.append(found.low <= 0.3 <= found.high)
        assert least < np.mean(covered) < most


def test_the_interval_over_groups_covers_where_the_plain_one_does_not() -> None:
    """30 dialogues of 10 replies that share much of their luck."""
    source = np.random.default_rng(5)
    groups = np.repeat(np.arange(30), 10).tolist()
    plain, clustered = [], []
    for trial in range(150):
        values = np.repeat(source.normal(size=30), 10) + 0.3 * source.normal(size=300)
        for found, by in ((plain, None), (clustered, groups)):
            e = bootstrap_mean(values, by, resamples=300, seed=trial)
            found.append(e.low <= 0 <= e.high)
    assert np.mean(clustered) > 0.88
    assert np.mean(plain) < 0.75


def test_clustered_data_give_wider_intervals() -> None:
    source = np.random.default_rng(3)
    values = np.repeat(source.normal(size=20), 15)
    groups = [f"dialogue {i // 15}" for i in range(300)]
    assert width(bootstrap_mean(values, groups)) > 2.5 * width(bootstrap_mean(values))
    alone = [str(i) for i in range(300)]
    assert width(bootstrap_mean(values, alone)) == pytest.approx(width(bootstrap_mean(values)), rel=0.1)


def test_groups_of_different_sizes_keep_the_plain_mean() -> None:
    values = np.array([1.0, 0, 0, 0, 0, 0])
    found = bootstrap_mean(values, ["a", "b", "b", "b", "b", "b"])
    assert found.value == pytest.approx(1 / 6)
    assert found.low <= found.value <= found.high


def test_one_group_alone_cannot_vary() -> None:
    found = bootstrap_mean(np.array([0.0, 1.0]), ["a", "a"])
    assert (found.low, found.value, found.high, found.n) == (0.5, 0.5, 0.5, 2)


def test_the_same_seed_gives_the_same_interval() -> None:
    values = np.random.default_rng(0).random(50)
    assert bootstrap_mean(values, seed=4) == bootstrap_mean(values, seed=4)
    assert bootstrap_mean(values, seed=4) != bootstrap_mean(values, seed=5)


def test_a_wider_level_is_wider() -> None:
    values = np.random.default_rng(0).random(50)
    half, most = bootstrap_mean(values, level=0.5), bootstrap_mean(values, level=0.99)
    assert most.low < half.low < half.value < half.high < most.high
    assert most.level == 0.99


def test_one_group_for_each_value() -> None:
    with pytest.raises(ValueError, match="length"):
        bootstrap_mean(np.array([1.0, 2.0]), ["a"])


def test_large_samples_need_little_memory() -> None:
    tracemalloc.start()
    found = bootstrap_mean(np.random.default_rng(0).random(200_000), resamples=60)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.low < 0.5 < found.high
    assert peak < 100e6


def test_columns_together_are_as_they_are_alone() -> None:
    source = np.random.default_rng(2)
    columns, groups = source.random((90, 3)), [f"d{i // 6}" for i in range(90)]
    together = bootstrap_means(columns, groups, seed=8)
    for i, found in enumerate(together):
        alone = bootstrap_mean(columns[:, i], groups, seed=8)
        assert (found.value, found.low, found.high) == pytest.approx((alone.value, alone.low, alone.high))
        assert found.n == alone.n == 90


def test_a_column_counts_what_belongs_to_it() -> None:
    columns = np.array([[1.0, 9.0], [0.0, 1.0], [1.0, 0.0], [0.0, 9.0]])
    counted = np.array([[True, False], [True, True], [True, True], [True, False]])
    first, second = bootstrap_means(columns, ["a", "a", "b", "c"], counted=counted)
    assert (first.value, first.n) == (0.5, 4)
    assert (second.value, second.low, second.high, second.n) == (0.5, 0.0, 1.0, 2)
    empty = bootstrap_means(columns, ["a", "a", "b", "c"], counted=np.zeros((4, 2), dtype=bool))[0]
    assert empty.n == 0
    assert math.isnan(empty.value)
    assert math.isnan(empty.low)


def test_a_value_that_is_nan_makes_the_mean_nan() -> None:
    assert math.isnan(bootstrap_mean(np.array([1.0, math.nan])).value)


def test_a_difference_of_pairs_is_surer_than_its_parts() -> None:
    source = np.random.default_rng(4)
    ease = source.normal(size=200)
    one, other = ease + 0.3 + 0.1 * source.normal(size=200), ease + 0.1 * source.normal(size=200)
    found = bootstrap_difference(one, other)
    assert found.value == pytest.approx(one.mean() - other.mean())
    assert found.low < 0.3 < found.high
    assert width(found) < width(bootstrap_mean(one)) / 3
    theirs = stats.bootstrap((one - other,), np.mean, method="percentile", rng=source).confidence_interval
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.005)


def test_the_difference_of_the_same_is_nothing() -> None:
    values = np.random.default_rng(0).random(40)
    found = bootstrap_difference(values, values, [i // 4 for i in range(40)])
    assert (found.value, found.low, found.high, found.n) == (0, 0, 0, 40)


def test_differences_need_pairs() -> None:
    with pytest.raises(ValueError, match="3 and 2 values are no pairs"):
        bootstrap_differences(np.zeros((3, 1)), np.zeros((2, 1)))
