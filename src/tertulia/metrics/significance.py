"""From values to figures: the only place that reduces the values of scores and gives them intervals.

Intervals are percentile bootstrap intervals (Efron 1979) over clusters: whole dialogues are drawn, since replies of one
dialogue are not independent and drawing them one by one would make the interval too narrow. A figure that is the same
in every draw, such as a share of none or all of the cases, has an interval all the same (`intervals.draws_interval`:
Wilson's, with as many cases as clusters), or none if its scale has no ends. Every figure is a sum over a sum (for a
mean, the denominators are ones), so one set of draws serves any number of columns; drawing is what costs.

Two scores are compared paired, on the units they share: what is easy for one subject is mostly easy for the other, so
the difference is more certain than the two figures are.

Shares (accuracy, precision) have Wilson's interval for an effective number of clusters, which does not collapse at 0
and 1; macro-F1 and ROC-AUC are bootstrapped too, by `label_draws`.

Human ratings depend on their conversation and on their rater: `crossed_means` and `crossed_estimate` are for them, by
the two-way variance of `intervals`. The pigeonhole bootstrap remains for comparison.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy

from tertulia.core.dialogue import Json
from tertulia.core.estimate import Estimate
from tertulia.core.score import Score
from tertulia.metrics.intervals import (
    LEVEL,
    RESAMPLES,
    Bounds,
    Codes,
    Floats,
    QuotientDraws,
    cluster_codes,
    crossed_variance,
    draws_interval,
    pigeonhole_means,
    share_interval,
    t_interval,
    wilson_interval,
)
from tertulia.metrics.label_draws import SET_REDUCTIONS, LabelDraws
from tertulia.metrics.metric import MetricInfo


@dataclass(frozen=True, slots=True)
class Comparison:
    """One subject against another on the same units."""

    subject: str
    baseline: str
    setting: str
    metric: str
    kind: Literal["difference", "ratio"]
    """Subject minus baseline, or, for perplexities, subject over baseline."""
    estimate: Estimate
    """Its n is the number of units that both have."""
    p_value: float = math.nan
    """Two-sided, by a t test on clusters; nan if there are too few of them."""
    adjusted_p: float = math.nan
    """For the number of comparisons made together, by whoever makes them; nan if nobody has."""
    paired: bool = True
    """Whether it is on shared units; if not, on all units of both."""

    @property
    def significant(self) -> bool:
        """Whether the two differ, at the level of the interval, after the correction."""
        return self.adjusted_p < 1 - self.estimate.level

    def as_json(self) -> dict[str, Json]:
        """For `--json` and reports."""
        names = ("subject", "baseline", "setting", "metric", "kind")
        p_values = {
            name: None if math.isnan(p) else p for name, p in (("p", self.p_value), ("adjusted_p", self.adjusted_p))
        }
        tested = p_values | {"paired": self.paired, "significant": self.significant}
        return {name: getattr(self, name) for name in names} | self.estimate.as_json() | tested


def estimate(
    score: Score, metric: MetricInfo, *, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """The figure of one score, reduced as its metric says.

    >>> score = Score("bot", "", "mrr", ("a", "b"), (1.0, 0.5), ("d1", "d2"))
    >>> print(estimate(score, MetricInfo("mrr", "ranks")))
    0.750 [0.500, 1.000] (n = 2)
    """
    return estimates([score], {score.metric: metric}, level=level, resamples=resamples, seed=seed)[0]


def estimates(
    scores: Sequence[Score],
    metrics: Mapping[str, MetricInfo],
    *,
    scales: Mapping[str, Bounds] | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Estimate]:
    """The figures of several scores. Those with the same clusters share their draws; each is the same as alone.

    `scales` has the ends of rating scales by setting.
    """
    infos = [metrics[score.metric] for score in scores]
    ends = [info.bounds or (scales or {}).get(score.setting) for score, info in zip(scores, infos, strict=True)]
    parts = [_Part(s.clusters, _columns(s, i), i, bounds) for s, i, bounds in zip(scores, infos, ends, strict=True)]
    return _reduce(parts, level=level, resamples=resamples, seed=seed)


def by_group(
    scores: Sequence[Score],
    metrics: Mapping[str, MetricInfo],
    groups: Mapping[str, str],
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[dict[str, Estimate]]:
    """For each score the figure of each group of units, such as replies by length of context, from the same draws.

    `groups` maps unit ids to groups, in whose order of appearance the figures come; groups without a unit are left out.
    Pooled metrics and figures of labelled sets have none: what a unit adds depends on the units of other groups.
    """
    names = list(dict.fromkeys(groups.values()))
    keys: list[tuple[int, str]] = []
    parts: list[_Part] = []
    for i, score in enumerate(scores):
        info = metrics[score.metric]
        if info.reduction in ("pooled", *SET_REDUCTIONS):
            continue
        column, group_of = _columns(score, info), np.array([groups.get(unit, "") for unit in score.units])
        for name in names:
            if (mask := group_of == name).any():
                keys.append((i, name))
                parts.append(_Part(score.clusters, column * mask[:, None], info, info.bounds))
    figures: list[dict[str, Estimate]] = [{} for _ in scores]
    for (i, name), figure in zip(keys, _reduce(parts, level=level, resamples=resamples, seed=seed), strict=True):
        figures[i][name] = figure
    return figures


def compare(
    score: Score,
    baseline: Score,
    metric: MetricInfo,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison | None:
    """A score against another one on shared units: a ratio for perplexities, else a difference. None if pooled."""
    if metric.reduction == "pooled":
        return None
    return _compare(score, baseline, metric, paired=True, level=level, resamples=resamples, seed=seed)


def compare_all_units(
    score: Score,
    baseline: Score,
    metric: MetricInfo,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison | None:
    """The same on all units of both, for scores that share none, such as those of conversations of different bots.

    Clusters that both have are still drawn together.
    """
    if metric.reduction == "pooled":
        return None
    return _compare(score, baseline, metric, paired=False, level=level, resamples=resamples, seed=seed)


def difference_p(score: Score, other: Score, metric: MetricInfo) -> float:
    """The p-value of `compare`, or of `compare_all_units` for scores without shared units, without the interval.

    >>> one = Score("a", "", "mrr", ("x", "y", "z"), (1.0, 0.5, 1.0), ("x", "y", "z"))
    >>> two = Score("b", "", "mrr", ("x", "y", "z"), (0.0, 0.0, 0.0), ("x", "y", "z"))
    >>> difference_p(one, two, MetricInfo("mrr", "ranks"))
    0.25
    """
    if metric.reduction == "pooled":
        return math.nan
    draws, n = _draws_of_two(score, other, metric, paired=True)
    if n == 0:
        draws, n = _draws_of_two(score, other, metric, paired=False)
    return draws.p_value() if n else math.nan


def _compare(
    score: Score, baseline: Score, metric: MetricInfo, *, paired: bool, level: float, resamples: int, seed: int
) -> Comparison:
    kind: Literal["difference", "ratio"] = "ratio" if metric.reduction == "perplexity" else "difference"
    draws, n = _draws_of_two(score, baseline, metric, paired=paired)
    value = _contrast(draws, metric, n, level=level, resamples=resamples, seed=seed, ratio=kind == "ratio")
    names = (score.subject, baseline.subject, score.setting, score.metric)
    return Comparison(*names, kind, value, draws.p_value() if n else math.nan, paired=paired)


def shared_units(score: Score, other: Score) -> list[str]:
    """The units that both scores have a value for, in the order of the first."""
    there = {unit for unit, value in zip(other.units, other.values, strict=True) if not math.isnan(value)}
    return [
        unit for unit, value in zip(score.units, score.values, strict=True) if unit in there and not math.isnan(value)
    ]


def paired_difference(
    score: Score,
    baseline: Score,
    metric: MetricInfo,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """How much higher the first score's figure is, on the units that both have; n is their number.

    >>> one = Score("a", "", "mrr", ("x", "y", "z"), (1.0, 0.0, 1.0), ("x", "y", "z"))
    >>> two = Score("b", "", "mrr", ("y", "z", "w"), (0.0, 0.0, 1.0), ("y", "z", "w"))
    >>> print(paired_difference(one, two, MetricInfo("mrr", "ranks")))
    0.500 [0.000, 1.000] (n = 2)
    """
    if metric.reduction == "pooled":
        raise ValueError(f"{metric.name} is computed for a set as a whole: it cannot be compared unit by unit")
    draws, n = _draws_of_two(score, baseline, metric, paired=True)
    return _contrast(draws, metric, n, level=level, resamples=resamples, seed=seed, ratio=False)


def bootstrap_mean(
    values: Floats,
    clusters: Sequence[Hashable] | None = None,
    *,
    bounds: Bounds | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """The mean of an array with its interval; without clusters every value is one of its own.

    >>> bootstrap_mean(np.array([])).n
    0
    """
    column = np.asarray(values, dtype=np.float64)[:, None]
    return bootstrap_means(column, clusters, bounds=[bounds], level=level, resamples=resamples, seed=seed)[0]


def bootstrap_means(
    columns: Floats,
    clusters: Sequence[Hashable] | None = None,
    *,
    bounds: Sequence[Bounds | None] = (),
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Estimate]:
    """The mean of each column of an array (values, columns) with its interval, all from the same draws.

    `bounds` has the ends of the scale of each column, where they are known.

    >>> [e.value for e in bootstrap_means(np.array([[1.0, 0.0], [0.0, 0.5]]))]
    [0.5, 0.25]
    """
    names = [str(c) for c in clusters] if clusters is not None else [f"{i:09}" for i in range(len(columns))]
    if len(names) != len(columns):
        raise ValueError(f"{len(names)} clusters and {len(columns)} values differ in length")
    info = MetricInfo("mean", "reply")
    scales = bounds or [None] * columns.shape[1]
    parts = [
        _Part(names, np.stack([column, np.ones(len(column))], axis=1), info, scale)
        for column, scale in zip(columns.T, scales, strict=True)
    ]
    return _reduce(parts, level=level, resamples=resamples, seed=seed)


def crossed_means(
    columns: Floats,
    conversations: Sequence[Hashable],
    raters: Sequence[Hashable],
    *,
    bounds: Bounds | None = None,
    method: Literal["robust", "pigeonhole"] = "robust",
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Estimate]:
    """The mean of each column of an array (ratings, columns); ratings depend on their conversation and their rater.

    With `bounds`, the ends of the scale, the robust interval is Wilson's (1927) for an effective number of ratings: it
    stays within the scale and does not collapse at its ends. A missing value is nan. With a single rater (or a single
    conversation) the interval is over conversations (or raters) alone.

    >>> votes = np.array([[1.0], [1.0], [0.0], [1.0]])
    >>> print(crossed_means(votes, ["c1", "c1", "c2", "c2"], ["ann", "bob", "ann", "bob"], bounds=(0, 1))[0])
    0.750 [0.010, 0.999] (n = 4)
    """
    codes = [cluster_codes(conversations)[0], cluster_codes(raters)[0]]
    figures = []
    for column in np.asarray(columns, dtype=np.float64).T:
        rows = ~np.isnan(column)
        values, both = column[rows], [cluster_codes(code[rows].tolist())[0] for code in codes]
        if method == "pigeonhole" and len(values):
            drawn = pigeonhole_means(values, *both, resamples=resamples, seed=seed)
            count = int(both[0].max()) + 1
            low, high = draws_interval(float(values.mean()), drawn, count, bounds=bounds, level=level)
            figures.append(Estimate(float(values.mean()), low, high, n=len(values), level=level))
        else:
            figures.append(_robust_mean(values, both, bounds, level))
    return figures


def crossed_estimate(
    score: Score,
    metric: MetricInfo,
    raters: Mapping[str, Hashable],
    *,
    bounds: Bounds | None = None,
    level: float = LEVEL,
) -> Estimate:
    """The figure of a score whose units are ratings, given their raters by unit; its clusters are the conversations.

    >>> score = Score("bot", "", "quality", ("a1", "a2", "b1"), (5.0, 6.0, 4.0), ("a", "a", "b"))
    >>> crossed_estimate(score, MetricInfo("quality", "rating"), {"a1": "ann", "a2": "bob", "b1": "ann"}).value
    5.0
    """
    if metric.reduction != "mean":
        raise ValueError(f"the metric {metric.name!r} is reduced by {metric.reduction}: only means have raters")
    values = np.asarray(score.values, dtype=np.float64)[:, None]
    return crossed_means(values, score.clusters, [raters[unit] for unit in score.units], bounds=bounds, level=level)[0]


def _robust_mean(values: Floats, clusterings: Sequence[Codes], bounds: Bounds | None, level: float) -> Estimate:
    n = len(values)
    if n == 0:
        return Estimate(math.nan, n=0, level=level)
    mean = float(values.mean())
    variance, degrees = (float(x[0]) for x in crossed_variance((values - mean)[:, None] / n, *clusterings))
    if math.isnan(variance):
        return Estimate(mean, n=n, level=level)
    if bounds is None:
        return Estimate(mean, *t_interval(mean, variance, degrees, level=level), n=n, level=level)
    low, span = bounds[0], bounds[1] - bounds[0]
    share = (mean - low) / span
    if 0 < share < 1 and variance > 0:
        quantile = float(scipy.special.stdtrit(degrees, (1 + level) / 2))
        ends = wilson_interval(share, share * (1 - share) * span**2 / variance, quantile=quantile)
    else:  # no variation to tell how many ratings count as independent: as many as there are conversations
        ends = wilson_interval(min(max(share, 0.0), 1.0), float(clusterings[0].max() + 1), level=level)
    return Estimate(mean, low + span * ends[0], low + span * ends[1], n=n, level=level)


class _Part(NamedTuple):
    """A figure to be: the cluster of each unit, and rows of (numerator, denominator)."""

    clusters: Sequence[str]
    rows: Floats
    metric: MetricInfo
    bounds: Bounds | None = None
    """The ends of the scale, where they are known."""


def _reduce(parts: Sequence[_Part], *, level: float, resamples: int, seed: int) -> list[Estimate]:
    """The figures of all parts; those with the same clusters share their draws."""
    together: dict[tuple[str, frozenset[str]], list[int]] = defaultdict(list)
    for i, part in enumerate(parts):
        together[_family(part.metric), frozenset(part.clusters)].append(i)
    figures = [Estimate(math.nan, n=0, level=level)] * len(parts)
    for (family, _), members in together.items():
        own = [parts[i] for i in members]
        if family == "share":
            reduced = [_share_estimate(part, level) for part in own]
        elif family == "sums":
            totals, sampled = QuotientDraws([(part.clusters, part.rows) for part in own]).sums(resamples, seed)
            reduced = [_estimate(totals[k], sampled[:, k], part, level) for k, part in enumerate(own)]
        else:
            reduced = _set_estimates(own, level=level, resamples=resamples, seed=seed)
        for i, figure in zip(members, reduced, strict=True):
            figures[i] = figure
    return figures


def _family(metric: MetricInfo) -> str:
    """How a metric gets its interval: by sums of draws, as a share, or as a figure of a labelled set."""
    if metric.reduction in ("share", "f1"):
        return "share"
    return metric.reduction if metric.reduction in SET_REDUCTIONS else "sums"


def _share_estimate(part: _Part, level: float) -> Estimate:
    n = _n(part.rows, part.metric)
    ends = share_interval(part.rows, cluster_codes(part.clusters)[0], level=level)
    low, high = (float(_figure(np.array([end, 1.0]), part.metric)) for end in ends)
    return Estimate(float(_figure(part.rows.sum(axis=0), part.metric)), low, high, n=n, level=level)


def _set_estimates(parts: Sequence[_Part], *, level: float, resamples: int, seed: int) -> list[Estimate]:
    """Of macro-F1 or of ROC-AUC."""
    draws = LabelDraws([(part.clusters, part.rows) for part in parts], parts[0].metric.reduction)
    figures = draws.intervals(level=level, resamples=resamples, seed=seed)
    return [Estimate(*f, n=_n(part.rows, part.metric), level=level) for f, part in zip(figures, parts, strict=True)]


def _draws(parts: Sequence[tuple[Sequence[str], Floats]], metric: MetricInfo) -> QuotientDraws | LabelDraws:
    return LabelDraws(parts, metric.reduction) if _family(metric) in SET_REDUCTIONS else QuotientDraws(parts)


def _columns(score: Score, metric: MetricInfo) -> Floats:
    """Rows of (numerator, denominator), one per unit; units without a value are zeros, and so do not count.

    Verdicts of labelled sets keep their values and weights as they are.
    """
    values = np.asarray(score.values, dtype=np.float64)
    if metric.reduction != "mean" and score.units and not score.weights:
        raise ValueError(f"the metric {metric.name!r} is reduced by {metric.reduction}, but its score has no weights")
    weights = np.ones(len(values)) if metric.reduction == "mean" else np.asarray(score.weights, dtype=np.float64)
    if metric.reduction in SET_REDUCTIONS:
        return np.stack([values, weights], axis=1)
    missing = np.isnan(values)
    return np.stack([np.where(missing, 0.0, values), np.where(missing, 0.0, weights)], axis=1)


def _n(column: Floats, metric: MetricInfo) -> int:
    """Units with a value; of a pooled metric, what was pooled (n-grams, for distinct-n)."""
    if metric.reduction in SET_REDUCTIONS:
        return int((~np.isnan(column[:, 0])).sum())
    return round(float(column[:, 1].sum())) if metric.reduction == "pooled" else int((column[:, 1] != 0).sum())


def _figure(sums: Floats, metric: MetricInfo) -> Floats:
    """Numerator over denominator, in the last axis; nan where the denominator is zero."""
    with np.errstate(invalid="ignore", divide="ignore"):
        quotient = np.where(sums[..., 1] != 0, sums[..., 0] / sums[..., 1], np.nan)
        if metric.reduction == "f1":  # of the share of right cases among those that are true or predicted
            quotient = 2 * quotient / (1 + quotient)
        return np.asarray(np.exp(quotient) if metric.reduction == "perplexity" else quotient, dtype=np.float64)


def _estimate(total: Floats, sampled: Floats, part: _Part, level: float) -> Estimate:
    metric, n = part.metric, _n(part.rows, part.metric)
    value = float(_figure(total, metric))
    if n == 0 or metric.reduction == "pooled":
        return Estimate(value, n=n, level=level)
    clusters = len({cluster for cluster, row in zip(part.clusters, part.rows, strict=True) if row[1]})
    ends = draws_interval(value, _figure(sampled, metric), clusters, bounds=part.bounds, level=level)
    return Estimate(value, *ends, n=n, level=level)


def _draws_of_two(
    score: Score, baseline: Score, metric: MetricInfo, *, paired: bool
) -> tuple[QuotientDraws | LabelDraws, int]:
    """Two scores as parts, on the units that both have or on all of either; and the number of units."""
    if not paired:
        columns = [_columns(one, metric) for one in (score, baseline)]
        draws = _draws([(one.clusters, column) for one, column in zip((score, baseline), columns, strict=True)], metric)
        counts = [_n(column, metric) for column in columns]
        return draws, sum(counts) if all(counts) else 0
    shared = shared_units(score, baseline)
    cluster = dict(zip(score.units, score.clusters, strict=True))
    clusters = [cluster[unit] for unit in shared]
    parts = []
    for one in (score, baseline):
        row = {unit: i for i, unit in enumerate(one.units)}
        parts.append((clusters, _columns(one, metric)[[row[unit] for unit in shared]]))
    return _draws(parts, metric), len(shared)


def _contrast(
    draws: QuotientDraws | LabelDraws,
    metric: MetricInfo,
    n: int,
    *,
    level: float,
    resamples: int,
    seed: int,
    ratio: bool,
) -> Estimate:
    if n == 0:
        return Estimate(math.nan, n=0, level=level)
    if isinstance(draws, LabelDraws):
        total, sampled = draws.figures(resamples, seed)
        figures = total[None], sampled
    else:
        totals, sums = draws.sums(resamples, seed)
        figures = _figure(totals[None], metric), _figure(sums, metric)
    (value,), values = (_compared(one, ratio=ratio) for one in figures)
    scale = None if ratio else metric.bounds
    bounds = (scale[0] - scale[1], scale[1] - scale[0]) if scale else None
    ends = draws_interval(float(value), values, draws.clusters, bounds=bounds, level=level)
    return Estimate(float(value), *ends, n=n, level=level)


def _compared(figures: Floats, *, ratio: bool) -> Floats:
    """Of (draws, 2): the first over, or minus, the second."""
    return np.asarray(figures[:, 0] / figures[:, 1] if ratio else figures[:, 0] - figures[:, 1], dtype=np.float64)
