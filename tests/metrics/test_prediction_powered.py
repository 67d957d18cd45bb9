"""Prediction-powered means: by the published formulas, with clusters, at the ends of the scale, and refusals."""

import math

import numpy as np
import pytest
from scipy import stats

from tertulia.metrics.prediction_powered import (
    HumanLabel,
    JudgeLabel,
    prediction_powered_mean,
    selection_difference,
)


def study(
    y: np.ndarray, f: np.ndarray, *, clusters: np.ndarray | None = None
) -> tuple[list[HumanLabel], list[JudgeLabel]]:
    """People's labels of the first units; the judge's of all of them."""
    cluster = np.arange(len(f)) if clusters is None else clusters
    people = [HumanLabel(f"u{i}", int(cluster[i]), i, float(value)) for i, value in enumerate(y)]
    return people, [JudgeLabel(f"u{i}", int(cluster[i]), float(value)) for i, value in enumerate(f)]


def votes(
    rng: np.random.Generator, labelled: int, total: int, *, right: float = 0.9
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    truth = (rng.random(total) < 0.6).astype(float)
    return truth[:labelled], np.where(rng.random(total) < right, truth, 1 - truth), truth


@pytest.mark.parametrize("power", [0.0, 0.4, 1.0])
def test_estimate_and_interval_follow_the_formulas_of_the_papers(power: float) -> None:
    y, f, _ = votes(np.random.default_rng(1), 300, 3000)
    result = prediction_powered_mean(*study(y, f), power=power)
    n, own, others = len(y), f[:300], f[300:]
    value = power * others.mean() + (y - power * own).mean()
    variance = power**2 * others.var(ddof=1) / len(others) + (y - power * own).var(ddof=1) / n
    assert result.estimate.value == pytest.approx(value)
    half = stats.norm.ppf(0.975) * math.sqrt(variance)  # Wilson's interval is Wald's, with so many labels
    assert (result.estimate.low, result.estimate.high) == pytest.approx((value - half, value + half), abs=0.002)
    assert result.people.value == pytest.approx(y.mean())
    assert result.labels_saved == pytest.approx(n * (y.var(ddof=1) / n / variance - 1), rel=0.01, abs=0.5)


def test_the_tuned_power_is_the_one_of_the_paper() -> None:
    y, f, _ = votes(np.random.default_rng(2), 400, 2000, right=0.8)
    own, others = f[:400], f[400:]
    covariance = np.cov(y, own)
    wanted = covariance[0, 1] / (covariance[1, 1] + others.var(ddof=1) * len(own) / len(others))
    assert prediction_powered_mean(*study(y, f)).power == pytest.approx(wanted, abs=0.01)


def test_intervals_cover_the_truth_and_a_good_judge_makes_them_narrower() -> None:
    rng = np.random.default_rng(3)
    covered, widths = {0.9: 0, 0.5: 0}, {0.9: 0.0, 0.5: 0.0}
    for right in covered:
        for _ in range(150):
            y, f, _ = votes(rng, 60, 600, right=right)
            result = prediction_powered_mean(*study(y, f))
            covered[right] += result.estimate.low <= 0.6 <= result.estimate.high
            widths[right] += (result.estimate.high - result.estimate.low) / (result.people.high - result.people.low)
    assert all(count >= 150 * 0.95 - 4 * math.sqrt(150 * 0.95 * 0.05) for count in covered.values())
    assert widths[0.9] / 150 < 0.8
    assert widths[0.5] / 150 < 1.03  # a useless judge costs next to nothing


def test_conversations_whose_turns_are_alike_widen_the_interval() -> None:
    rng = np.random.default_rng(4)
    of_conversation = (rng.random(40) < 0.5).astype(float)
    y = np.repeat(of_conversation[:20], 10)
    f = np.where(rng.random(400) < 0.7, np.repeat(of_conversation, 10), rng.random(400) < 0.5).astype(float)
    together = prediction_powered_mean(*study(y, f, clusters=np.repeat(np.arange(40), 10)))
    apart = prediction_powered_mean(*study(y, f))
    width = together.estimate.high - together.estimate.low
    assert width > 2 * (apart.estimate.high - apart.estimate.low)
    assert together.people.high - together.people.low > width * 0.9


def test_several_ratings_of_a_unit_count_as_one_unit() -> None:
    y, f, _ = votes(np.random.default_rng(5), 40, 200)
    people, judge = study(y, f)
    twice = [*people, *(label._replace(rater=f"second {label.rater}") for label in people[:20])]
    assert prediction_powered_mean(twice, judge, power=0.5).estimate.value == pytest.approx(
        prediction_powered_mean(people, judge, power=0.5).estimate.value
    )


def test_a_judge_that_was_never_wrong_is_not_known_to_be_always_right() -> None:
    truth = np.tile([1.0, 0.0, 1.0], 400)
    result = prediction_powered_mean(*study(truth[:15], truth))
    assert result.estimate.value == pytest.approx(2 / 3, abs=0.02)
    assert result.estimate.high - result.estimate.low > 0.2
    same = prediction_powered_mean(*study(np.ones(15), np.ones(300)))
    assert (same.estimate.value, same.estimate.high) == (1.0, 1.0)
    assert same.estimate.low < 0.85
    assert math.isnan(same.labels_saved)


def test_an_estimate_outside_the_scale_moves_to_its_end_and_says_so() -> None:
    people, judge = study(np.ones(10), np.array([0.0] * 5 + [1.0] * 5 + [1.0] * 190))
    result = prediction_powered_mean(people, judge, power=1.0)
    assert result.clipped
    assert result.estimate.value == result.estimate.high == 1.0
    assert 0 < result.estimate.low < 1


def test_the_mean_of_the_pseudo_values_is_the_estimate() -> None:
    y, f, _ = votes(np.random.default_rng(6), 50, 500)
    result = prediction_powered_mean(*study(y, f))
    assert len(result.values) == 500
    assert np.mean(list(result.values.values())) == pytest.approx(result.estimate.value)


def test_answers_that_cannot_be_read_do_no_harm() -> None:
    y, f, _ = votes(np.random.default_rng(7), 50, 500)
    f[::5] = math.nan
    result = prediction_powered_mean(*study(y, f))
    assert result.estimate.n == 500
    assert result.judge.n == 400
    assert 0.4 < result.estimate.low < result.estimate.value < result.estimate.high < 0.8


def test_no_labels_give_nothing_and_unknown_units_are_refused() -> None:
    people, judge = study(np.ones(3), np.ones(9))
    nothing = prediction_powered_mean([], judge)
    assert (nothing.estimate.n, nothing.people.n, nothing.judge.n) == (0, 0, 9)
    assert math.isnan(nothing.estimate.value)
    with pytest.raises(ValueError, match="1 units have people's labels and none of the judge's, such as 'u2'"):
        prediction_powered_mean(people, judge[:2])
    with pytest.raises(ValueError, match="labelled a unit twice"):
        prediction_powered_mean(people, [*judge, judge[0]])


def test_a_chosen_part_is_noticed_and_a_random_one_is_not() -> None:
    _, f, _ = votes(np.random.default_rng(8), 1, 600)
    chosen = [i for i in range(600) if f[i] == 1][:80]
    people, judge = study(np.ones(80), f)
    assert selection_difference(people, judge).p_value > 0.01
    picked = [HumanLabel(f"u{i}", i, i, 1.0) for i in chosen]
    assert selection_difference(picked, judge).p_value < 1e-6
