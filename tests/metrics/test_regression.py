"""Fits against SciPy and scikit-learn, and predictions that know nothing of what they predict."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import Ridge

from tertulia.metrics.line import fit_line
from tertulia.metrics.regression import (
    FIT_METHODS,
    PENALTIES,
    FitMethod,
    LinearModel,
    choose_penalty,
    fit,
    ols_coefficients,
    predict_left_out,
)

RNG = np.random.default_rng(0)
BOTS = [f"b{i % 6}" for i in range(90)]
ROWS = RNG.normal(size=(90, 3)) * np.array([1.0, 5.0, 0.1])
RATINGS = 3 + ROWS @ np.array([0.5, -0.1, 0.0]) + RNG.normal(scale=0.5, size=90)
NAMES = ("a", "b", "c")


def test_coefficients_of_one_feature_are_those_of_scipy() -> None:
    peer = stats.linregress(ROWS[:, 0], RATINGS)
    coefficients = ols_coefficients(ROWS[:, :1], RATINGS, ("a",), BOTS, level=0.9)
    assert list(coefficients) == ["intercept", "a"]
    slope = coefficients["a"].formula
    half = stats.t.ppf(0.95, 88) * peer.stderr
    assert (slope.value, slope.low, slope.high) == pytest.approx((peer.slope, peer.slope - half, peer.slope + half))


def test_robust_intervals_know_that_copies_are_no_evidence() -> None:
    single = ols_coefficients(ROWS, RATINGS, NAMES, list(range(90)))["a"].robust
    rows = np.repeat(np.arange(90), 5)
    copied = ols_coefficients(ROWS[rows], RATINGS[rows], NAMES, rows.tolist())["a"]
    assert (copied.robust.low, copied.robust.high) == pytest.approx((single.low, single.high))
    assert copied.formula.high - copied.formula.low < 0.6 * (single.high - single.low)


def test_ridge_has_the_direction_of_ridge_and_the_length_of_least_squares() -> None:
    model = fit(ROWS, RATINGS, NAMES, BOTS, method="ridge", penalties=(50.0,))
    z = (ROWS - ROWS.mean(axis=0)) / ROWS.std(axis=0, ddof=1)
    peer = Ridge(alpha=50.0 * 90 / 100).fit(z, RATINGS)
    ours, theirs = model.predict(ROWS), peer.predict(z)
    assert np.corrcoef(ours, theirs)[0, 1] == pytest.approx(1)
    assert stats.linregress(ours, RATINGS).slope == pytest.approx(1)
    free = fit(ROWS, RATINGS, NAMES, BOTS, method="ols")
    expected = np.linalg.lstsq(np.column_stack([np.ones(90), ROWS]), RATINGS, rcond=None)[0]
    assert (free.intercept, *free.coefficients) == pytest.approx(tuple(expected))


@pytest.mark.parametrize("method", FIT_METHODS)
def test_a_prediction_knows_nothing_of_the_bot_it_is_about(method: FitMethod) -> None:
    predicted, models = predict_left_out(ROWS, RATINGS, NAMES, BOTS, method=method)
    own = np.array(BOTS) == "b2"
    forged = np.where(own, RNG.permutation(RATINGS) * 7, RATINGS)
    rows = np.where(own[:, None], ROWS[::-1], ROWS)
    again, other = predict_left_out(rows, forged, NAMES, BOTS, method=method)
    assert models["b2"] == other["b2"]
    assert again[own] == pytest.approx(models["b2"].predict(rows[own]))
    assert np.abs(again[~own] - predicted[~own]).max() > 0.01  # the others were fitted on it
    with pytest.raises(ValueError, match="at least two groups"):
        predict_left_out(ROWS, RATINGS, NAMES, ["one"] * 90, method=method)


def test_ranks_do_not_care_about_the_scale_of_a_feature() -> None:
    bent = np.column_stack([np.exp(ROWS[:, 0]), ROWS[:, 1] ** 3, ROWS[:, 2]])
    straight, curved = (predict_left_out(x, RATINGS, NAMES, BOTS, method="rank")[0] for x in (ROWS, bent))
    assert curved == pytest.approx(straight)
    assert ((straight > -0.5) & (straight < 1.5)).all()


def test_the_penalty_suits_the_data() -> None:
    """Where a difference of two similar features counts, none; where all features say the same with noise, a lot."""
    shared = 10 * RNG.normal(size=90)
    difference = np.column_stack([shared + RATINGS, shared])
    copies = RATINGS[:, None] + 2 * RNG.normal(size=(90, 15))
    for groups in (BOTS, ["one"] * 90):  # of a single group, parts are left out
        clusters = [i // 2 for i in range(90)]
        assert choose_penalty(difference, RATINGS, groups, clusters=clusters) == min(PENALTIES)
        assert choose_penalty(copies, RATINGS, groups, clusters=clusters) > 10


def test_a_model_reads_back_and_missing_features_are_average() -> None:
    rows = ROWS.copy()
    rows[::4, 1] = np.nan
    for method in FIT_METHODS:
        model = fit(rows, RATINGS, NAMES, BOTS, method=method)
        assert LinearModel.from_json(model.as_json()) == model
        filled = np.where(np.isnan(rows), np.array(model.means), rows)
        assert model.predict(rows) == pytest.approx(model.predict(filled))


def test_a_bot_outside_of_the_training_data_is_noticed() -> None:
    model = fit(ROWS, RATINGS, NAMES, BOTS)
    assert model.outside(ROWS[:20]) == []
    assert model.distance(ROWS[:20]) < 1 < model.max_distance()
    assert model.outside(ROWS[:20] + np.array([0, 100, 0])) == ["b"]
    assert model.distance(ROWS[:20] + np.array([0, 100, 0])) > model.max_distance()
    # Each coordinate may be within its range while the combination is not.
    x = RNG.normal(size=200)
    near = np.column_stack([x, x + 0.01 * RNG.normal(size=200)])
    twin = fit(near, x, ("a", "b"), BOTS[:40] * 5)
    assert twin.outside(np.array([[1.0, -1.0]])) == []
    assert twin.distance(np.array([[1.0, -1.0]])) > twin.max_distance()


def test_a_line_is_that_of_scipy_and_its_intervals_cover() -> None:
    x, y = ROWS[:12, 0], RATINGS[:12]
    line, peer = fit_line(x, y), stats.linregress(x, y)
    assert (line.slope.value, line.intercept.value, line.r2.value) == pytest.approx(
        (peer.slope, peer.intercept, peer.rvalue**2)
    )
    half = stats.t.ppf(0.975, 10) * peer.stderr
    assert line.slope.high == pytest.approx(peer.slope + half)
    assert fit_line([1, 2], [1, 2]).slope.n == 2
    assert np.isnan(fit_line([1, 1, 1], [1, 2, 3]).r2.value)
    rng, truth, hits = np.random.default_rng(1), 0.9, {"slope": 0, "r2": 0, "r2_fisher": 0}
    for _ in range(200):
        a = rng.normal(size=10)
        b = np.sqrt(truth) * a + np.sqrt(1 - truth) * rng.normal(size=10)
        drawn = fit_line(a, b, resamples=300)
        for name, true in (("slope", np.sqrt(truth)), ("r2", truth), ("r2_fisher", truth)):
            estimate = getattr(drawn, name)
            hits[name] += estimate.low <= true <= estimate.high
    assert hits["slope"] >= 182
    assert hits["r2"] >= 172
    assert hits["r2_fisher"] >= 182
