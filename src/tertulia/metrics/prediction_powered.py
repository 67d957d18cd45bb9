"""Few people, many labels: prediction-powered estimates of a mean, from people's labels of a random part of the units
and an automatic judge's labels of all of them.

The judge's mean is precise and biased; people's mean is unbiased and imprecise. Prediction-powered inference
(Angelopoulos et al. 2023, PPI) takes the judge's mean and corrects it by the judge's mean error where people labelled:

    estimate = power * mean of f over unlabelled units + mean of (y - power * f) over labelled units

It is unbiased whatever the judge is worth, if the labelled units are a random part. The power between 0 (people alone)
and 1 (plain PPI) is tuned to the smallest variance (Angelopoulos, Duchi and Zrnic 2023, PPI++), so that a useless judge
costs next to nothing. What this module adds for labels of dialogues:

- Clusters. Turns of one conversation are not independent, nor are ratings by one rater. Variances are sums over
  clusters (conversations, two-way with raters: `intervals.crossed_variance`), and so is the variance that the power
  minimises.
- Cross-fitting. The power for a unit is tuned on conversations of other folds, since one tuned on the same few labels
  would make the interval too narrow. Quantiles are Student's, with Satterthwaite's degrees of freedom.
- Bounds. An estimate of a share can leave [0, 1] by chance; it is then moved to the end of the scale and says so
  (`clipped`). Intervals are Wilson's with the effective number of labels, which stay within the scale.
- No collapse. A judge that is never wrong on the labelled part is not known to be always right: the variance of its
  error is at least that of one labelled unit with the largest possible error.
"""

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import scipy

from tertulia.core.estimate import Estimate
from tertulia.metrics.intervals import (
    LEVEL,
    Codes,
    Floats,
    cluster_codes,
    crossed_variance,
    t_interval,
    wilson_interval,
)
from tertulia.metrics.metric import Metric

FOLDS = 10
"""Groups of labelled conversations; the power for one is tuned on the others."""
MIN_CLUSTERS = 4
"""With fewer labelled conversations, nothing can be tuned: people alone."""


class HumanLabel(NamedTuple):
    """What one person said about one unit."""

    unit: str
    cluster: Hashable
    """The conversation of the unit."""
    rater: Hashable
    value: float


class JudgeLabel(NamedTuple):
    """What the automatic judge said about one unit; nan if it gave no answer that counts."""

    unit: str
    cluster: Hashable
    value: float


class PredictionPowered(NamedTuple):
    """The estimate, beside that of people alone and that of the judge alone."""

    estimate: Estimate
    """Its n is the number of units with a label of either."""
    people: Estimate
    """The plain estimate; n is the number of units that people labelled."""
    judge: Estimate
    """The judge's mean over all units, as biased as the judge is."""
    power: float
    """How much of the judge is used, the mean over folds: 0 is people alone."""
    labels: int
    """People's labels."""
    labels_saved: float
    """How many more labels people alone would need for an interval as narrow; below 0 if it became wider, nan if
    people's labels do not vary."""
    clipped: bool
    """Whether the estimate was outside the scale and was moved to its end."""
    values: dict[str, float]
    """Pseudo-values by unit: the estimate plus what the unit adds to it, times the number of units. Their mean is the
    estimate, and their variance by clusters is its variance."""


class SelectionDifference(NamedTuple):
    """How much higher the judge rates the units that people labelled than the others."""

    difference: Estimate
    p_value: float


def prediction_powered_mean(
    people: Sequence[HumanLabel],
    judge: Sequence[JudgeLabel],
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    level: float = LEVEL,
    power: float | None = None,
    seed: int = 0,
) -> PredictionPowered:
    """The mean over units of what people say, estimated from their labels of some and the judge's of all units.

    Every unit that people labelled must have a label of the judge. Several ratings of a unit count as their mean. The
    power is tuned unless it is given: 1 is PPI as first published, 0 people alone. A judge's nan counts as its mean:
    any function of a unit is a valid prediction.

    >>> judged = [JudgeLabel(f"u{i}", f"c{i}", float(i % 3 > 0)) for i in range(300)]
    >>> labels = [HumanLabel(f"u{i}", f"c{i}", "ann", float(i % 3 > 0 and i % 10 > 0)) for i in range(60)]
    >>> result = prediction_powered_mean(labels, judged)
    >>> print(result.people, "|", result.estimate)
    0.600 [0.470, 0.717] (n = 60) | 0.598 [0.516, 0.675] (n = 300)
    >>> round(result.power, 2), round(result.labels_saved)
    (0.72, 89)
    """
    data = _arrays(people, judge)
    if data is None:
        nothing = Estimate(math.nan, n=0, level=level)
        return PredictionPowered(nothing, nothing, _judge_alone(judge, bounds, level), 0.0, 0, math.nan, False, {})
    powers = np.full(len(data.y), 0.0 if power is None else power)
    if power is None and data.units_unlabelled and data.labelled_clusters >= MIN_CLUSTERS:
        powers = _cross_fitted(data, seed)
    alone, together = (_rectified(data, own, bounds) for own in (np.zeros(len(data.y)), powers))
    value, clipped = _clip(together.value, bounds)
    known = min(alone.variance, together.variance) > 1e-20 * (bounds[1] - bounds[0]) ** 2  # rounding is no variation
    saved = len(data.y) * (alone.variance / together.variance - 1) if known else math.nan
    return PredictionPowered(
        _interval(value, together, data.labelled_clusters, bounds, level, n=data.units),
        _interval(alone.value, alone, data.labelled_clusters, bounds, level, n=data.units_labelled),
        _judge_alone(judge, bounds, level),
        float(powers.mean()),
        len(data.y),
        saved,
        clipped,
        _pseudo_values(data, together),
    )


def selection_difference(
    people: Sequence[HumanLabel], judge: Sequence[JudgeLabel], *, level: float = LEVEL
) -> SelectionDifference:
    """Whether the judge sees a difference between units with and without people's labels.

    If the labelled units are a random part there is none but by chance; a small p-value says that they were chosen.
    """
    labelled = {label.unit for label in people}
    rows = [label for label in judge if not math.isnan(label.value)]
    chosen = np.array([row.unit in labelled for row in rows], dtype=bool)
    if not chosen.any() or chosen.all():
        return SelectionDifference(Estimate(math.nan, n=0, level=level), math.nan)
    f, codes = np.array([row.value for row in rows]), cluster_codes([row.cluster for row in rows])[0]
    value = float(f[chosen].mean() - f[~chosen].mean())
    influence = np.where(chosen, (f - f[chosen].mean()) / chosen.sum(), (f[~chosen].mean() - f) / (~chosen).sum())
    variance, degrees = (float(x[0]) for x in crossed_variance(influence[:, None], codes))
    if math.isnan(variance) or variance == 0:
        return SelectionDifference(Estimate(value, n=len(rows), level=level), math.nan if value else 1.0)
    estimate = Estimate(value, *t_interval(value, variance, degrees, level=level), n=len(rows), level=level)
    return SelectionDifference(estimate, float(2 * scipy.special.stdtr(degrees, -abs(value) / math.sqrt(variance))))


class _Data(NamedTuple):
    """Ratings by people (with the judge's label of the unit), and the judge's labels of the other units."""

    y: Floats
    """By rating."""
    f: Floats
    """By rating: the judge's label of its unit."""
    weight: Floats
    """By rating: its share in the mean over labelled units."""
    cluster: Codes
    rater: Codes
    other_f: Floats
    """By unlabelled unit."""
    other_cluster: Codes
    names: list[Hashable]
    """Labelled units in the order of their first rating, then the others."""
    unit: Codes
    """By rating: index of its unit."""

    @property
    def units_labelled(self) -> int:
        return len(self.names) - len(self.other_f)

    @property
    def units_unlabelled(self) -> int:
        return len(self.other_f)

    @property
    def units(self) -> int:
        return len(self.names)

    @property
    def labelled_clusters(self) -> int:
        return len(np.unique(self.cluster))


class _Rectified(NamedTuple):
    value: float
    variance: float
    degrees: float
    influence: Floats
    """By rating."""
    other_influence: Floats
    """By unlabelled unit."""


def _arrays(people: Sequence[HumanLabel], judge: Sequence[JudgeLabel]) -> _Data | None:
    people = [label for label in people if not math.isnan(label.value)]
    predictions = {label.unit: label for label in judge}
    if len(predictions) != len(judge):
        raise ValueError("the judge labelled a unit twice: keep one label of each unit")
    if unknown := {label.unit for label in people} - set(predictions):
        raise ValueError(f"{len(unknown)} units have people's labels and none of the judge's, such as {min(unknown)!r}")
    if not people:
        return None
    known = [label.value for label in judge if not math.isnan(label.value)]
    middle = math.fsum(known) / len(known) if known else 0.0
    value = {unit: middle if math.isnan(label.value) else label.value for unit, label in predictions.items()}
    units, names = cluster_codes([label.unit for label in people])
    times = np.bincount(units)
    labelled = set(names)
    others = [label for label in judge if label.unit not in labelled]
    clusters, _ = cluster_codes([*(predictions[label.unit].cluster for label in people), *(o.cluster for o in others)])
    return _Data(
        np.array([label.value for label in people], dtype=np.float64),
        np.array([value[label.unit] for label in people], dtype=np.float64),
        1.0 / (times[units] * len(names)),
        clusters[: len(people)],
        cluster_codes([label.rater for label in people])[0],
        np.array([value[other.unit] for other in others], dtype=np.float64),
        clusters[len(people) :],
        [*names, *(other.unit for other in others)],
        units,
    )


def _rectified(data: _Data, powers: Floats, bounds: tuple[float, float]) -> _Rectified:
    """The estimate with these powers by rating, and its cluster-robust variance."""
    base = float(data.other_f.mean()) if data.units_unlabelled else 0.0
    rectified = data.y - powers * (data.f - base)
    value = float(data.weight @ rectified)
    influence = data.weight * (rectified - value)
    variance, degrees = (float(x[0]) for x in crossed_variance(influence[:, None], data.cluster, data.rater))
    mean_power = float(data.weight @ powers)
    others = mean_power * (data.other_f - base) / max(data.units_unlabelled, 1)
    if math.isnan(variance):  # a single conversation and a single rater
        return _Rectified(value, math.nan, 1.0, influence, others)
    if mean_power > 0:
        variance = max(variance, (mean_power * (bounds[1] - bounds[0]) / data.units_labelled) ** 2)
    if not data.units_unlabelled or mean_power == 0:
        return _Rectified(value, variance, degrees, influence, others)
    own, own_degrees = _one_way(others, data.other_cluster)
    shared = 2 * float(_sums(influence, data.cluster, data) @ _sums(others, data.other_cluster, data))
    total = max(variance, own, variance + own + shared)
    degrees = (variance + own) ** 2 / (variance**2 / degrees + own**2 / own_degrees) if variance + own else degrees
    return _Rectified(value, total, degrees, influence, others)


def _pseudo_values(data: _Data, figure: _Rectified) -> dict[str, float]:
    influence = np.bincount(data.unit, weights=figure.influence, minlength=data.units)
    influence[data.units_labelled :] = figure.other_influence
    values = figure.value + data.units * influence
    return {str(name): float(value) for name, value in zip(data.names, values, strict=True)}


def _one_way(influence: Floats, codes: Codes) -> tuple[float, float]:
    variance, degrees = crossed_variance(influence[:, None], np.unique(codes, return_inverse=True)[1])
    return (0.0, 1.0) if math.isnan(variance[0]) else (float(variance[0]), float(degrees[0]))


def _sums(influence: Floats, codes: Codes, data: _Data) -> Floats:
    count = int(max(data.cluster.max(), data.other_cluster.max(initial=0))) + 1
    return np.asarray(np.bincount(codes, weights=influence, minlength=count), dtype=np.float64)


def _cross_fitted(data: _Data, seed: int) -> Floats:
    """The power for each rating, tuned on the conversations of the other folds."""
    clusters = np.unique(data.cluster)
    folds = min(FOLDS, len(clusters))
    fold_of = np.zeros(int(clusters.max()) + 1, dtype=np.int64)
    fold_of[np.random.default_rng(seed).permutation(clusters)] = np.arange(len(clusters)) % folds
    fold = fold_of[data.cluster]
    powers = np.zeros(len(data.y))
    for k in range(folds):
        powers[fold == k] = _tuned(data, fold != k)
    return powers


def _tuned(data: _Data, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
    """The power between 0 and 1 with the smallest variance: covariance of sums over clusters of y and f, over the
    variance of f in the labelled part and in the rest."""
    weight = data.weight[kept] / data.weight[kept].sum()
    # The variance of the labelled part falls with its size; that of the whole is wanted, not that of the other folds.
    size = float(data.weight[kept].sum())
    centred = [weight * (x[kept] - weight @ x[kept]) for x in (data.y, data.f)]
    y, f = (_sums(influence, data.cluster[kept], data) for influence in centred)
    others = (data.other_f - data.other_f.mean()) / data.units_unlabelled
    rest = _sums(others, data.other_cluster, data)
    variance = size * float(f @ f) + float(rest @ rest)
    return min(1.0, max(0.0, size * float(y @ f) / variance)) if variance > 0 else 0.0


def _clip(value: float, bounds: tuple[float, float]) -> tuple[float, bool]:
    inside = min(max(value, bounds[0]), bounds[1])
    return inside, abs(inside - value) > 1e-12


def _interval(
    value: float, figure: _Rectified, clusters: int, bounds: tuple[float, float], level: float, *, n: int
) -> Estimate:
    """Wilson's interval on the scale, with as many cases as would have this variance."""
    value = next((end for end in bounds if abs(value - end) < 1e-12), value)  # rounding is no variation
    if math.isnan(figure.variance):
        return Estimate(value, n=n, level=level)
    low, span = bounds[0], bounds[1] - bounds[0]
    share = (value - low) / span
    if 0 < share < 1 and figure.variance > 0:
        cases = share * (1 - share) * span**2 / figure.variance
        quantile = float(scipy.special.stdtrit(figure.degrees, (1 + level) / 2))
        ends = wilson_interval(share, cases, quantile=quantile)
    else:  # no variation that tells how many labels count as independent: as many as there are conversations
        ends = wilson_interval(min(max(share, 0.0), 1.0), float(clusters), level=level)
    return Estimate(value, low + span * ends[0], low + span * ends[1], n=n, level=level)


def _judge_alone(judge: Sequence[JudgeLabel], bounds: tuple[float, float], level: float) -> Estimate:
    rows = [label for label in judge if not math.isnan(label.value)]
    if not rows:
        return Estimate(math.nan, n=0, level=level)
    f, codes = np.array([row.value for row in rows]), cluster_codes([row.cluster for row in rows])[0]
    variance, degrees = _one_way((f - f.mean()) / len(f), codes)
    figure = _Rectified(float(f.mean()), variance, degrees, f[:0], f[:0])
    return _interval(figure.value, figure, int(codes.max()) + 1, bounds, level, n=len(rows))


def _numbers(batch: Sequence[float]) -> list[float]:
    """Pseudo-values: the estimate plus what each unit adds to it, so that their mean is the estimate."""
    return [float(value) for value in batch]


_CITATION = "Angelopoulos et al. 2023"


def _row(name: str, summary: str) -> Metric:
    return Metric(f"{name} (prediction-powered)", "rating", "mean", summary, _CITATION, compute=_numbers)


SENSIBLENESS = _row("sensibleness", "share of sensible turns by people, with the help of an automatic judge")
SPECIFICITY = _row("specificity", "share of specific turns by people, with the help of an automatic judge")
SSA = _row("SSA", "mean of sensibleness and specificity by people, with the help of an automatic judge")
RATING = _row("rating", "mean of people's ratings, with the help of an automatic judge")
YES = _row("share of yes", "share of yes by people, with the help of an automatic judge")
WINS = _row("wins", "share of people's votes for the subject, ties as half, with the help of an automatic judge")
