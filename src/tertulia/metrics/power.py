"""How large a study must be: half-widths, power and cost from the components of variance.

A rating is a mean plus an effect of its conversation, an effect of its rater, and a residual, all independent, with the
variances s_c, s_r and s_e. With n conversations per subject, k ratings of each, and r raters to whom conversations are
assigned at random, the mean rating of a subject has the variance

    s_c / n  +  s_r / r  +  s_r (1 - 1/r) / (n k)  +  s_e / (n k)

Raters, not conversations, often set the limit: with five raters no number of conversations makes s_r / 5 smaller. In
the difference of two subjects that the same raters rate, s_r / r cancels; where both subjects reply to the same
contexts, so does s_c / n. Degrees of freedom follow `intervals.crossed_variance`, so that the plan is what the analysis
will report.

Components come from a pilot by the method of moments for unbalanced crossed data (Gao and Owen 2017), or are assumed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from tertulia.core.errors import UsageError
from tertulia.metrics.intervals import LEVEL, Codes, Floats, cluster_codes
from tertulia.metrics.ratings import SubjectRating

_MOST_CONVERSATIONS = 10_000_000


@dataclass(frozen=True, slots=True)
class VarianceComponents:
    """Variances, not standard deviations, of ratings around the mean of their subject."""

    conversation: float
    rater: float
    residual: float
    """If every conversation has one rating, the variance between conversations is part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyDesign:
    """How many ratings of what by whom."""

    conversations: int
    """Per subject."""
    raters: int
    ratings_per_conversation: int = 1
    """By different raters."""
    shared_raters: bool = True
    """Whether the same raters rate all subjects."""
    shared_contexts: bool = False
    """Whether all subjects reply to the same contexts, as in static evaluation."""

    def __post_init__(self) -> None:
        if min(self.conversations, self.raters, self.ratings_per_conversation) < 1:
            raise UsageError("A study needs at least one conversation, one rater and one rating per conversation.")
        if self.ratings_per_conversation > self.raters:
            raise UsageError(
                f"{self.ratings_per_conversation} ratings of a conversation need as many raters, not {self.raters}.",
                hint="Raters rate a conversation once: plan for more raters, or for fewer ratings of each.",
            )


class StudyCost(NamedTuple):
    """What a study takes."""

    minutes: float
    amount: float
    """Minutes times wage."""


class StudyPlan(NamedTuple):
    """A design with what it can show."""

    design: StudyDesign
    half_width: float
    power: float
    """Of finding the effect that was planned for; nan if there was none."""


def components_from_pilot(ratings: Sequence[SubjectRating]) -> VarianceComponents:
    """Components of variance around the subjects' means.

    Several ratings of a conversation by the same rater, such as one per turn, count as one: their mean. Estimates
    below zero are set to zero. A pilot needs several raters with several ratings each.
    """
    values, conversation, rater = _cells(ratings)
    n = len(values)
    counts = [np.bincount(codes) for codes in (conversation, rater)]
    if n < 3 or len(counts[0]) < 2 or len(counts[1]) < 2 or len(counts[1]) == n:
        raise UsageError(
            "The pilot is too small to tell raters from conversations.",
            hint="It needs at least two raters with two ratings each, on different conversations.",
        )
    # Sums of squares within conversations, within raters and overall, and what each component adds to them.
    sums = [_within(values, conversation), _within(values, rater), n * _within(values, np.zeros(n, dtype=np.int64))]
    by_conversation, by_rater = (n * n - float((count**2).sum()) for count in counts)
    equations = np.array(
        [
            [0.0, n - len(counts[0]), n - len(counts[0])],
            [n - len(counts[1]), 0.0, n - len(counts[1])],
            [by_conversation, by_rater, n * n - n],
        ]
    )
    if len(counts[0]) == n:  # one rating per conversation: its effect is part of the residual
        rater_and_residual = np.linalg.solve(equations[1:, 1:], sums[1:])
        return VarianceComponents(0.0, *(max(float(x), 0.0) for x in rater_and_residual))
    return VarianceComponents(*(max(float(x), 0.0) for x in np.linalg.solve(equations, sums)))


def planned_half_width(
    components: VarianceComponents, design: StudyDesign, *, compare: bool = False, level: float = LEVEL
) -> float:
    """Half the width of the interval of a subject's mean or, with `compare`, of the difference of two subjects.

    >>> likert = VarianceComponents(conversation=0.8, rater=0.5, residual=1.2)
    >>> round(planned_half_width(likert, StudyDesign(conversations=100, raters=20)), 2)
    0.46
    """
    variance, degrees = _variance(components, design, compare)
    return float(scipy.special.stdtrit(degrees, (1 + level) / 2)) * math.sqrt(variance)


def planned_power(components: VarianceComponents, design: StudyDesign, effect: float, *, level: float = LEVEL) -> float:
    """The probability that a difference of this size between two subjects is found significant.

    >>> likert = VarianceComponents(conversation=0.8, rater=0.5, residual=1.2)
    >>> round(planned_power(likert, StudyDesign(conversations=100, raters=20), 0.5), 2)
    0.59
    """
    variance, degrees = _variance(components, design, True)
    if variance == 0:
        return float(effect != 0)
    quantile, shift = float(scipy.special.stdtrit(degrees, (1 + level) / 2)), abs(effect) / math.sqrt(variance)
    # The noncentral t distribution, where its tail on the wrong side is negligible or counts too.
    return float(1 - scipy.special.nctdtr(degrees, shift, quantile) + scipy.special.nctdtr(degrees, shift, -quantile))


def plan_study(
    components: VarianceComponents,
    *,
    raters: int,
    ratings_per_conversation: int = 1,
    half_width: float | None = None,
    effect: float | None = None,
    power: float = 0.8,
    compare: bool = False,
    shared_raters: bool = True,
    shared_contexts: bool = False,
    level: float = LEVEL,
) -> StudyPlan:
    """The fewest conversations per subject for a wished half-width, or for the power to find an effect.

    >>> likert = VarianceComponents(conversation=0.8, rater=0.5, residual=1.2)
    >>> plan_study(likert, raters=20, effect=0.5).design.conversations
    164
    """
    if (half_width is None) == (effect is None):
        raise UsageError("Plan either for a half-width or for an effect.")
    if (half_width if half_width is not None else abs(effect or 0.0)) <= 0:
        raise UsageError("The half-width must be positive, and the effect must not be zero.")

    def design(conversations: int) -> StudyDesign:
        return StudyDesign(
            conversations=conversations,
            raters=raters,
            ratings_per_conversation=ratings_per_conversation,
            shared_raters=shared_raters,
            shared_contexts=shared_contexts,
        )

    def suffices(conversations: int) -> bool:
        if half_width is not None:
            return planned_half_width(components, design(conversations), compare=compare, level=level) <= half_width
        return planned_power(components, design(conversations), effect or 0.0, level=level) >= power

    best = design(_fewest(suffices, raters))
    reached = planned_half_width(components, best, compare=compare or effect is not None, level=level)
    achieved = math.nan if effect is None else planned_power(components, best, effect, level=level)
    return StudyPlan(best, reached, achieved)


def study_cost(
    design: StudyDesign,
    *,
    minutes_per_rating: float,
    hourly_wage: float,
    minutes_per_conversation: float = 0.0,
    subjects: int = 1,
) -> StudyCost:
    """Minutes of all raters, conversations included, and what they cost.

    >>> study_cost(StudyDesign(conversations=100, raters=20), minutes_per_rating=3, hourly_wage=15, subjects=2)
    StudyCost(minutes=600.0, amount=150.0)
    """
    per_conversation = minutes_per_conversation + design.ratings_per_conversation * minutes_per_rating
    minutes = float(subjects * design.conversations * per_conversation)
    return StudyCost(minutes, minutes / 60 * hourly_wage)


def _variance(components: VarianceComponents, design: StudyDesign, compare: bool) -> tuple[float, float]:
    """The variance of a mean or of a difference, and its degrees of freedom (Satterthwaite 1946)."""
    n, subjects = design.conversations, 2 if compare else 1
    raters = min(design.raters, n * design.ratings_per_conversation)
    conversation = 0.0 if compare and design.shared_contexts else subjects * components.conversation / n
    ratings = n * design.ratings_per_conversation
    uneven = (
        subjects * components.rater * (1 - 1 / raters) / ratings
    )  # by chance, a subject meets strict raters more often
    rater = uneven + (0.0 if compare and design.shared_raters else subjects * components.rater / raters)
    residual = subjects * components.residual / ratings
    total = conversation + rater + residual
    conversations = n if design.shared_contexts else subjects * n
    degrees = [max(count - 1, 1) for count in (conversations, raters if design.shared_raters else subjects * raters)]
    spread = (conversation + residual) ** 2 / degrees[0] + (rater + residual) ** 2 / degrees[1]
    return total, min(max(total**2 / spread if spread else min(degrees), min(degrees)), max(degrees))


def _fewest(suffices: Callable[[int], bool], raters: int) -> int:
    """The smallest number of conversations that suffices; more conversations never make it worse."""
    high = 1
    while not suffices(high):
        high *= 2
        if high > _MOST_CONVERSATIONS:
            raise UsageError(
                f"No number of conversations is enough with {raters} raters: the variance between raters remains.",
                hint="Plan for more raters, a wider interval or a larger effect.",
            )
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _cells(ratings: Sequence[SubjectRating]) -> tuple[Floats, Codes, Codes]:
    """One value per conversation and rater, minus the subject's mean, with the codes of both."""
    subject, subjects = cluster_codes([row.subject for row in ratings])
    values = np.array([row.value for row in ratings], dtype=np.float64)
    means = np.bincount(subject, weights=values, minlength=len(subjects)) / np.maximum(np.bincount(subject), 1)
    keys = [((row.subject, row.conversation), row.rater) for row in ratings]
    cell, cells = cluster_codes(keys)[0], list(dict.fromkeys(keys))
    averaged = np.bincount(cell, weights=values - means[subject], minlength=len(cells)) / np.maximum(
        np.bincount(cell), 1
    )
    return averaged, cluster_codes([key[0] for key in cells])[0], cluster_codes([key[1] for key in cells])[0]


def _within(values: Floats, codes: Codes) -> float:
    """Sum of squared deviations from the means of groups."""
    means = np.bincount(codes, weights=values) / np.maximum(np.bincount(codes), 1)
    return float(((values - means[codes]) ** 2).sum())
