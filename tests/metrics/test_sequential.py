import math

import numpy as np
import pytest

from tertulia.core.errors import UsageError
from tertulia.metrics.sequential import SequenceMethod, confidence_sequence, difference_sequence, stopping_decision

METHODS: tuple[SequenceMethod, ...] = ("betting", "empirical-bernstein", "normal-mixture")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("share", [0.5, 0.05])
def test_peeking_after_every_value_errs_at_most_as_often_as_promised(method: SequenceMethod, share: float) -> None:
    runs, wrong = 200, 0
    for run in range(runs):
        values = np.random.default_rng(run).random(250) < share
        sequence = confidence_sequence(values.astype(float), method=method, level=0.8)
        wrong += bool(((sequence.lows > share) | (sequence.highs < share)).any())
    # 20 % are allowed; 26 % would be two standard errors above.
    assert wrong / runs < 0.26
    if method == "betting":
        assert wrong > 0


@pytest.mark.parametrize("method", METHODS)
def test_intervals_never_widen_and_become_narrow(method: SequenceMethod) -> None:
    values = np.random.default_rng(1).beta(2, 5, 3000)
    sequence = confidence_sequence(values, method=method)
    assert (np.diff(sequence.lows) >= 0).all()
    assert (np.diff(sequence.highs) <= 0).all()
    assert sequence.lows[-1] < 2 / 7 < sequence.highs[-1]
    assert sequence.highs[-1] - sequence.lows[-1] < 0.1
    assert sequence.at(3000).value == pytest.approx(values.mean())


def test_methods_that_know_the_variance_beat_the_one_that_does_not() -> None:
    values = np.clip(np.random.default_rng(2).normal(0.5, 0.05, 1500), 0, 1)
    widths = [
        sequence.highs[-1] - sequence.lows[-1] for sequence in (confidence_sequence(values, method=m) for m in METHODS)
    ]
    assert widths[0] < widths[1] < widths[2] / 2


def test_the_betting_interval_agrees_with_a_plain_computation() -> None:
    """Capital of both bets, candidate by candidate and value by value, as the paper writes them."""
    values = [1.0, 0.0, 0.3, 1.0, 1.0, 0.8, 0.9, 1.0, 1.0, 0.7, 1.0, 1.0]
    alpha, kept = 0.05, []
    for m in np.arange(1, 2000) / 2000:
        alive, up, down, total, squares = True, 1.0, 1.0, 0.5, 0.25
        for t, x in enumerate(values, start=1):
            variance = squares / t
            bet = math.sqrt(2 * math.log(2 / alpha) / (variance * t * math.log(t + 1)))
            up *= 1 + min(bet, 0.5 / m) * (x - m)
            down *= 1 - min(bet, 0.5 / (1 - m)) * (x - m)
            alive &= max(up, down) / 2 < 1 / alpha
            total += x
            squares += (x - total / (t + 1)) ** 2
        if alive:
            kept.append(m)
    estimate = confidence_sequence(values).at(len(values))
    assert estimate.low == pytest.approx(min(kept), abs=0.0021)
    assert estimate.high == pytest.approx(max(kept), abs=0.0021)


def test_stopping_names_its_reason() -> None:
    rng = np.random.default_rng(0)
    better = rng.choice([-1.0, 0.0, 1.0], p=[0.2, 0.2, 0.6], size=400)
    decision = stopping_decision(confidence_sequence(better, bounds=(-1, 1)), half_width=0.05)
    assert (decision.stop, decision.reason) == (True, "excluded")
    assert decision.estimate.low > 0
    assert decision.estimate.n == decision.n < 200
    equal = confidence_sequence([0.0] * 400, bounds=(-1, 1))
    narrow = stopping_decision(equal, half_width=0.1)
    assert (narrow.stop, narrow.reason) == (True, "half-width")
    assert narrow.estimate.high - narrow.estimate.low <= 0.2
    assert stopping_decision(equal, half_width=0.1, min_n=narrow.n + 5).n == narrow.n + 5
    going_on = stopping_decision(equal)
    assert (going_on.stop, going_on.n, going_on.reason) == (False, 400, "")
    none = stopping_decision(confidence_sequence([]))
    assert (none.stop, none.n, math.isnan(none.estimate.value)) == (False, 0, True)


def test_differences_of_shares_are_covered_at_all_times() -> None:
    wrong = 0
    for run in range(150):
        rng = np.random.default_rng(run)
        first, second = rng.random(160) < 0.7, rng.random(150) < 0.5
        sequence = difference_sequence(first.astype(float), second.astype(float), level=0.8)
        assert len(sequence.means) == 150
        wrong += bool(((sequence.lows > 0.2) | (sequence.highs < 0.2)).any())
    assert 0 < wrong / 150 < 0.27
    assert stopping_decision(difference_sequence([1.0] * 80, [0.0] * 80)).n < 15


def test_values_beyond_the_bounds_are_an_error() -> None:
    for values in ([0.5, 1.5], [-1.0], [math.nan]):
        with pytest.raises(UsageError, match="outside the bounds"):
            confidence_sequence(values)


def test_contradictory_data_keep_the_last_interval() -> None:
    """Means that drift break the assumption; the interval must not turn inside out."""
    sequence = confidence_sequence([0.0] * 200 + [1.0] * 2000)
    assert (sequence.lows <= sequence.highs).all()
