"""Ratings of bots by people: means with two-way intervals, SSA, normalisation by annotator, comparisons of all bots.

A rating belongs to a subject, a conversation and a rater. Conversations are a sample, and so are raters: another set of
raters would have been stricter or lazier. The figures here are estimates for the populations of both, by the two-way
cluster-robust variance of `significance.crossed_means` (why that one: see there).

- SSA (Adiwardana et al. 2020, Meena): of every bot turn, does it make sense, and if so, is it specific? Sensibleness
  and specificity are shares of turns, SSA is their mean. What does not make sense does not count as specific.
- Normalisation by annotator (Ghandeharioun et al. 2019): ratings minus the annotator's mean, or also over the
  annotator's standard deviation, for annotators with at least 10 ratings.
- Comparisons are made on the ratings of both subjects at once. Where they share raters or conversations (contexts),
  what these have in common cancels out, so the difference is more certain than the two means are. Many comparisons
  are corrected by Holm's (1979) step-down procedure.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import scipy

from tertulia.core.estimate import Estimate
from tertulia.metrics.intervals import LEVEL, Bounds, cluster_codes, crossed_variance, draws_interval, t_interval
from tertulia.metrics.significance import crossed_means

MIN_RATINGS = 10
"""Annotators with fewer ratings are not normalised: their mean and deviation would be mostly noise."""


class SubjectRating(NamedTuple):
    """One rating in a long table."""

    subject: str
    conversation: str
    """What was rated; for ratings of turns, the conversation (or context) that the turn belongs to."""
    rater: str
    value: float


class SsaLabel(NamedTuple):
    """The labels of one bot turn by one rater."""

    subject: str
    conversation: str
    rater: str
    sensible: bool
    specific: bool


class SsaFigures(NamedTuple):
    """Shares of turns between 0 and 1; n is the number of labelled turns."""

    sensibleness: Estimate
    specificity: Estimate
    ssa: Estimate


class NormalisedRatings(NamedTuple):
    """Ratings relative to their annotators."""

    ratings: list[SubjectRating]
    excluded_raters: int
    """Annotators with too few ratings."""
    excluded_ratings: int
    """Their ratings."""
    constant_raters: int
    """Annotators who always gave the same rating: their z-scores are zero."""


class RatingComparison(NamedTuple):
    """One subject minus another."""

    subject: str
    baseline: str
    difference: Estimate
    """Not corrected for the number of comparisons; n is the number of ratings of both."""
    p_value: float
    adjusted_p: float
    """By Holm's procedure over all comparisons made together."""


def mean_ratings(
    ratings: Sequence[SubjectRating],
    *,
    bounds: tuple[float, float] | None = None,
    level: float = LEVEL,
    method: Literal["robust", "pigeonhole"] = "robust",
    seed: int = 0,
) -> dict[str, Estimate]:
    """The mean rating of each subject, for new conversations and new raters; bounds are the ends of the scale.

    >>> rows = [SubjectRating("bot", f"c{i // 2}", "ab"[i % 2], value) for i, value in enumerate([5, 6, 4, 4, 7, 6])]
    >>> print(mean_ratings(rows, bounds=(1, 7))["bot"])
    5.333 [2.389, 6.744] (n = 6)
    """
    figures = {}
    for subject, rows in _by_subject(ratings).items():
        values = np.array([[row.value] for row in rows], dtype=np.float64)
        conversations, raters = [row.conversation for row in rows], [row.rater for row in rows]
        (figures[subject],) = crossed_means(
            values, conversations, raters, bounds=bounds, level=level, method=method, seed=seed
        )
    return figures


def ssa(labels: Sequence[SsaLabel], *, level: float = LEVEL) -> dict[str, SsaFigures]:
    """Sensibleness, specificity and their average for each subject.

    >>> rows = [SsaLabel("generic", f"c{i}", "ann", sensible=i < 7, specific=False) for i in range(10)]
    >>> print(ssa(rows)["generic"].ssa)
    0.350 [0.204, 0.531] (n = 10)
    """
    subjects: dict[str, list[SsaLabel]] = {}
    for label in labels:
        subjects.setdefault(label.subject, []).append(label)
    figures = {}
    for subject, rows in subjects.items():
        columns = np.array([[row.sensible, row.sensible and row.specific] for row in rows], dtype=np.float64)
        columns = np.column_stack([columns, columns.mean(axis=1)])
        conversations, raters = [row.conversation for row in rows], [row.rater for row in rows]
        figures[subject] = SsaFigures(*crossed_means(columns, conversations, raters, bounds=(0, 1), level=level))
    return figures


def ssa_ratings(labels: Sequence[SsaLabel]) -> list[SubjectRating]:
    """Labels as ratings of 0, .5 or 1 whose mean is SSA, for `compare_subjects` and the planning of studies."""
    return [
        SubjectRating(row.subject, row.conversation, row.rater, (row.sensible + (row.sensible and row.specific)) / 2)
        for row in labels
    ]


def normalise_by_annotator(
    ratings: Sequence[SubjectRating], *, method: Literal["z", "centre"] = "z", min_ratings: int = MIN_RATINGS
) -> NormalisedRatings:
    """Ratings minus the annotator's mean and, for z-scores, over the annotator's (sample) standard deviation.

    >>> rows = [SubjectRating("bot", f"c{i}", "ann", float(i % 2)) for i in range(10)]
    >>> normal = normalise_by_annotator([*rows, SubjectRating("bot", "c0", "bob", 1.0)], method="centre")
    >>> normal.ratings[0].value, normal.excluded_raters, normal.excluded_ratings
    (-0.5, 1, 1)
    """
    rater, raters = cluster_codes([row.rater for row in ratings])
    values = np.array([row.value for row in ratings], dtype=np.float64)
    sizes = np.bincount(rater, minlength=len(raters))
    kept = sizes >= max(min_ratings, 1)
    mean = np.bincount(rater, weights=values, minlength=len(raters)) / np.maximum(sizes, 1)
    centred = values - mean[rater]
    squares = np.bincount(rater, weights=centred**2, minlength=len(raters))
    constant = squares <= 1e-12 * np.maximum(mean**2, 1) * sizes
    scale = np.where(constant | (method == "centre"), 1.0, np.sqrt(squares / np.maximum(sizes - 1, 1)))
    normal = np.where(constant[rater], 0.0, centred / scale[rater])
    rows = zip(ratings, normal.tolist(), kept[rater].tolist(), strict=True)
    return NormalisedRatings(
        [row._replace(value=value) for row, value, keep in rows if keep],
        excluded_raters=int((~kept).sum()),
        excluded_ratings=int(sizes[~kept].sum()),
        constant_raters=int((constant & kept).sum()),
    )


def compare_subjects(
    ratings: Sequence[SubjectRating],
    *,
    pairs: Sequence[tuple[str, str]] | None = None,
    bounds: Bounds | None = None,
    level: float = LEVEL,
) -> list[RatingComparison]:
    """Differences of mean ratings, of all pairs of subjects or of those named, with Holm's correction.

    `bounds` are the ends of the scale. Without them, two subjects whose ratings are all the same have no interval, and
    intervals may reach further than the scale does.
    """
    by_subject = _by_subject(ratings)
    pairs = list(itertools.combinations(by_subject, 2)) if pairs is None else pairs
    tests = [_difference(by_subject.get(a, []), by_subject.get(b, []), bounds, level) for a, b in pairs]
    adjusted = holm([p for _, p in tests])
    return [
        RatingComparison(a, b, estimate, p, adjusted_p)
        for (a, b), (estimate, p), adjusted_p in zip(pairs, tests, adjusted, strict=True)
    ]


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number by Holm's (1979) procedure; nan stays nan and is not counted as a test.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [math.nan] * len(p_values)
    tested = [i for i, p in enumerate(p_values) if not math.isnan(p)]
    highest = 0.0
    for passed, i in enumerate(sorted(tested, key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(tested) - passed) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def _by_subject(ratings: Sequence[SubjectRating]) -> dict[str, list[SubjectRating]]:
    subjects: dict[str, list[SubjectRating]] = {}
    for row in ratings:
        subjects.setdefault(row.subject, []).append(row)
    return subjects


def _difference(
    first: Sequence[SubjectRating], second: Sequence[SubjectRating], bounds: Bounds | None, level: float
) -> tuple[Estimate, float]:
    """The difference of two means with its two-way interval, and the p-value of no difference."""
    if not first or not second:
        return Estimate(math.nan, n=0, level=level), math.nan
    rows = [*first, *second]
    values = np.array([row.value for row in rows], dtype=np.float64)
    conversations, raters = [row.conversation for row in rows], [row.rater for row in rows]
    codes = cluster_codes(conversations)[0], cluster_codes(raters)[0]
    sides = values[: len(first)], values[len(first) :]
    value = float(sides[0].mean() - sides[1].mean())
    # Where neither subject's ratings vary at all, the variance is that under the hypothesis that both are alike.
    for centres in (tuple(float(side.mean()) for side in sides), (float(values.mean()),) * 2):
        weighted = [(side - m) / len(side) for side, m in zip(sides, centres, strict=True)]
        influence = np.concatenate([weighted[0], -weighted[1]])
        variance, degrees = (float(x[0]) for x in crossed_variance(influence[:, None], *codes))
        if variance != 0:
            break
    if math.isnan(variance):
        return Estimate(value, n=len(rows), level=level), math.nan
    span = (bounds[0] - bounds[1], bounds[1] - bounds[0]) if bounds else None
    if variance == 0:  # all ratings are the same
        count = min(len({row.conversation for row in side}) for side in (first, second))
        ends = draws_interval(value, np.array([value]), count, bounds=span, level=level)
        return Estimate(value, *ends, n=len(rows), level=level), 1.0
    ends = t_interval(value, variance, degrees, level=level)
    if span:  # no two means differ by more
        ends = max(ends[0], span[0]), min(ends[1], span[1])
    p_value = 2 * scipy.special.stdtr(degrees, -abs(value) / math.sqrt(variance))
    return Estimate(value, *ends, n=len(rows), level=level), float(p_value)
