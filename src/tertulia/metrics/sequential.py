"""Look at a study as often as you like: confidence sequences, and a rule when to stop.

An ordinary interval covers the truth with 95 % probability at one sample size fixed in advance. Whoever looks after
every conversation and stops when the interval excludes zero is wrong far more often than 5 % of the time. A confidence
sequence covers the truth at all sample sizes at once with 95 % probability, so any stopping rule is allowed.

Values must be bounded, and the mean of the next value, given all earlier ones, must be the mean that is estimated. So
give one value per conversation (the mean of its ratings, say), in the order in which they came, from raters assigned
at random; the figure then is about the raters of the study, not about all raters there might be. Three methods:

- `betting` (default): the hedged capital process of Waudby-Smith and Ramdas (2024, section 4.4). Whoever bets against
  the true mean does not get rich: means against which the capital exceeded 1 / alpha are ruled out. It adapts to the
  variance and is the tightest of the three.
- `empirical-bernstein`: the predictable plug-in of the same paper (theorem 2), in closed form.
- `normal-mixture`: Howard, Ramdas, McAuliffe and Sekhon (2021), after Robbins (1970). It knows the range of the values
  only, not their variance; a bounded value is sub-Gaussian with half the range.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from tertulia.core.errors import UsageError
from tertulia.core.estimate import Estimate
from tertulia.metrics.intervals import LEVEL, Floats

SequenceMethod = Literal["betting", "empirical-bernstein", "normal-mixture"]
_GRID = 1000
"""Candidate means of the betting method; its ends are rounded outwards to them."""
_MAX_BET = 0.5
"""Share of the capital that a bet may lose at most."""


class ConfidenceSequence(NamedTuple):
    """Means and interval ends after 1, 2, ... values."""

    means: Floats
    lows: Floats
    highs: Floats
    level: float

    def at(self, n: int) -> Estimate:
        """The estimate after n values; nan for no values.

        >>> print(confidence_sequence([1, 0, 1, 1]).at(0))
        n/a (n = 0)
        """
        if n == 0:
            return Estimate(math.nan, n=0, level=self.level)
        value, low, high = (float(x[n - 1]) for x in (self.means, self.lows, self.highs))
        return Estimate(value, low, high, n=n, level=self.level)


class StoppingDecision(NamedTuple):
    """Whether a study may stop."""

    stop: bool
    n: int
    """After how many values the rule first said stop; all values so far if it did not."""
    reason: Literal["", "half-width", "excluded"]
    estimate: Estimate
    """After n values; valid although the data chose n."""


def confidence_sequence(
    values: Sequence[float] | Floats,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    method: SequenceMethod = "betting",
    level: float = LEVEL,
    expected_n: int = 200,
) -> ConfidenceSequence:
    """Intervals for the mean of bounded values that hold at all sample sizes at once.

    `expected_n` is where the normal mixture is tightest; the others adapt. Intervals never widen: each is within those
    before it.

    >>> sequence = confidence_sequence([0, 1] * 100)
    >>> print(sequence.at(20), sequence.at(200))
    0.500 [0.196, 0.779] (n = 20) 0.500 [0.375, 0.616] (n = 200)
    """
    low, span = bounds[0], bounds[1] - bounds[0]
    x = (np.asarray(values, dtype=np.float64) - low) / span
    if ((x < -1e-12) | (x > 1 + 1e-12) | np.isnan(x)).any():
        raise UsageError(
            f"A value lies outside the bounds {bounds[0]:g} to {bounds[1]:g}.",
            hint="Pass the ends of the scale as bounds.",
        )
    x, alpha = np.clip(x, 0, 1), 1 - level
    means = np.cumsum(x) / np.arange(1, len(x) + 1)
    if method == "betting":
        ends = _betting(x, alpha)
    elif method == "empirical-bernstein":
        ends = _empirical_bernstein(x, alpha)
    else:
        ends = _normal_mixture(means, alpha, expected_n)
    lows, highs = _never_widening(*ends)
    return ConfidenceSequence(low + span * means, low + span * lows, low + span * highs, level)


def difference_sequence(
    first: Sequence[float] | Floats,
    second: Sequence[float] | Floats,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    method: SequenceMethod = "betting",
    level: float = LEVEL,
    expected_n: int = 200,
) -> ConfidenceSequence:
    """The same for a difference of means or of shares: the t-th value of one minus the t-th of the other.

    The two may be paired (the same context) or independent; values of the longer one wait for their partners. For votes
    on pairs, use `confidence_sequence` of 1, 0 and -1 with bounds of (-1, 1) instead.
    """
    n, span = min(len(first), len(second)), bounds[1] - bounds[0]
    differences = np.asarray(first, dtype=np.float64)[:n] - np.asarray(second, dtype=np.float64)[:n]
    return confidence_sequence(differences, bounds=(-span, span), method=method, level=level, expected_n=expected_n)


def stopping_decision(
    sequence: ConfidenceSequence, *, half_width: float | None = None, exclude: float | None = 0.0, min_n: int = 1
) -> StoppingDecision:
    """Stop as soon as the interval is narrow enough, or excludes a value (zero, for differences); None for never.

    >>> stopping_decision(confidence_sequence([1] * 50, bounds=(-1, 1))).n
    10
    """
    n = np.arange(1, len(sequence.means) + 1)
    narrow = np.zeros(len(n), dtype=bool) if half_width is None else sequence.highs - sequence.lows <= 2 * half_width
    excluded = (
        np.zeros(len(n), dtype=bool) if exclude is None else (sequence.lows > exclude) | (sequence.highs < exclude)
    )
    stops = np.flatnonzero((narrow | excluded) & (n >= min_n))
    if not len(stops):
        return StoppingDecision(False, len(n), "", sequence.at(len(n)))
    first = int(stops[0])
    reason: Literal["half-width", "excluded"] = "excluded" if excluded[first] else "half-width"
    return StoppingDecision(True, first + 1, reason, sequence.at(first + 1))


def _plug_in_bets(x: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Bets before each value, from the values before it, and the predicted means before each value."""
    n = np.arange(1, len(x) + 1)
    mean = (0.5 + np.cumsum(x)) / (n + 1)
    variance = (0.25 + np.cumsum((x - mean) ** 2)) / (n + 1)
    predicted, spread = np.concatenate([[0.5], mean[:-1]]), np.concatenate([[0.25], variance[:-1]])
    return np.sqrt(2 * math.log(2 / alpha) / (spread * n * np.log1p(n))), predicted


def _betting(x: Floats, alpha: float) -> tuple[Floats, Floats]:
    """The candidate means that neither a bet on more nor a bet on less has ruled out, rounded outwards."""
    grid = np.linspace(0, 1, _GRID + 1)
    bets, _ = _plug_in_bets(x, alpha)
    threshold = math.log(2 / alpha)  # half of the capital on each side
    lows, highs = np.zeros(len(x)), np.ones(len(x))
    up, down = np.zeros(len(grid)), np.zeros(len(grid))
    with np.errstate(divide="ignore"):
        most_up, most_down = _MAX_BET / grid, _MAX_BET / (1 - grid)
    for t, (value, bet) in enumerate(zip(x.tolist(), bets.tolist(), strict=True)):
        up += np.log1p(np.minimum(bet, most_up) * (value - grid))
        down += np.log1p(-np.minimum(bet, most_down) * (value - grid))
        # Means below every mean that survives the bet on more are too low: round the end down to the last of them.
        low, high = int((up < threshold).argmax()), int((down < threshold)[::-1].argmax())
        lows[t], highs[t] = grid[max(low - 1, 0)], grid[_GRID - max(high - 1, 0)]
    return lows, highs


def _empirical_bernstein(x: Floats, alpha: float) -> tuple[Floats, Floats]:
    bets, predicted = _plug_in_bets(x, alpha)
    bets = np.minimum(bets, _MAX_BET)
    total = np.cumsum(bets)
    centre = np.cumsum(bets * x) / total
    cost = np.cumsum((x - predicted) ** 2 * (-np.log1p(-bets) - bets))
    half = (math.log(2 / alpha) + cost) / total
    return np.maximum(centre - half, 0), np.minimum(centre + half, 1)


def _normal_mixture(means: Floats, alpha: float, expected_n: int) -> tuple[Floats, Floats]:
    """With intrinsic time v = n / 4; rho makes the boundary tightest at the expected n."""
    n = np.arange(1, len(means) + 1)
    v, log_alpha = n / 4, math.log(1 / alpha)
    rho = expected_n / 4 / (2 * log_alpha + math.log(1 + 2 * log_alpha))
    half = np.sqrt((v + rho) * (np.log((v + rho) / rho) + 2 * log_alpha)) / n
    return np.maximum(means - half, 0), np.minimum(means + half, 1)


def _never_widening(lows: Floats, highs: Floats) -> tuple[Floats, Floats]:
    """Each interval cut with all before it. Should the cut be empty (the assumptions fail), the last one stays."""
    lows, highs = np.maximum.accumulate(lows), np.minimum.accumulate(highs)
    empty = np.flatnonzero(lows > highs)
    if len(empty):
        last = max(int(empty[0]) - 1, 0)
        lows[empty[0] :], highs[empty[0] :] = lows[last], highs[last]
    return lows, highs
