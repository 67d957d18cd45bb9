"""What an automatic judge says about bots, as rows of the registry: the same questions as `metrics/human.py`, with the
judge as the only rater, and how far the judge can be trusted.

Batches are numbers between 0 and 1 for questions of yes or no (a probability where the judge reports one), numbers of
the scale for ratings; nan is an answer that could not be read. For SSA a batch is a sequence of pairs: the answers to
"sensible?" and "specific?", where what does not make sense is not specific. For votes it is a sequence of
`JudgeVerdict`s: every pair is shown in both orders, and a bot that wins only in one of them has a tie.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from tertulia.metrics.metric import Metric, Reduction

_MEENA = "Adiwardana et al. 2020"
_JUDGE = "Zheng et al. 2023"


class JudgeSsa(NamedTuple):
    """How probable it is that a turn makes sense and, if it does, that it is specific; nan where unknown."""

    sensible: float
    specific: float


class JudgeVerdict(NamedTuple):
    """The answers about a pair of the subject and another bot: 1 for the subject, 0 for the other, 0.5 for a tie."""

    first: float
    """When the subject is shown first; nan if the answer could not be read."""
    second: float
    """When it is shown second."""

    @property
    def value(self) -> float:
        """The verdict of both orders together: if they disagree, half the probability each; nan if one is missing."""
        return (self.first + self.second) / 2


def _numbers(batch: Sequence[float]) -> list[float]:
    return [float(value) for value in batch]


def _sensible(batch: Sequence[JudgeSsa]) -> list[float]:
    return [label.sensible for label in batch]


def _specific(batch: Sequence[JudgeSsa]) -> list[float]:
    """What does not make sense is not specific, whatever was answered.

    >>> _specific([JudgeSsa(0.0, math.nan), JudgeSsa(1.0, 1.0), JudgeSsa(0.5, 0.5)])
    [0.0, 1.0, 0.25]
    """
    return [0.0 if label.sensible == 0 else label.sensible * label.specific for label in batch]


def _ssa(batch: Sequence[JudgeSsa]) -> list[float]:
    return [(label.sensible + specific) / 2 for label, specific in zip(batch, _specific(batch), strict=True)]


def _wins(batch: Sequence[JudgeVerdict]) -> list[float]:
    """Wins in both orders, ties as half.

    >>> _wins([JudgeVerdict(1.0, 1.0), JudgeVerdict(1.0, 0.0), JudgeVerdict(0.5, math.nan)])
    [1.0, 0.5, nan]
    """
    return [verdict.value for verdict in batch]


def _first_position(batch: Sequence[JudgeVerdict]) -> list[float]:
    """The share of votes for whichever is shown first; 0.5 without a bias.

    >>> _first_position([JudgeVerdict(1.0, 0.0), JudgeVerdict(1.0, 1.0)])
    [1.0, 0.5]
    """
    return [(verdict.first + 1 - verdict.second) / 2 for verdict in batch]


def _order_agreement(batch: Sequence[JudgeVerdict]) -> list[float]:
    """Whether both orders give the same verdict."""
    return [
        math.nan if math.isnan(verdict.value) else float(_side(verdict.first) == _side(verdict.second))
        for verdict in batch
    ]


def _side(value: float) -> int:
    return (value > 0.5) - (value < 0.5)


def _unparsed(batch: Sequence[float]) -> list[float]:
    return [float(math.isnan(value)) for value in batch]


def _row(name: str, summary: str, compute: object, citation: str = _JUDGE, *, better: bool | None = True) -> Metric:
    reduction: Reduction = "mean"
    return Metric(
        f"{name} (judge)",
        "rating",
        reduction,
        summary,
        citation,
        better,
        bounded=compute is not _numbers or "share" in summary,
        compute=compute,  # type: ignore[arg-type]
    )


SENSIBLENESS = _row("sensibleness", "share of bot turns that make sense to an automatic judge", _sensible, _MEENA)
SPECIFICITY = _row("specificity", "share of bot turns that are sensible and specific to a judge", _specific, _MEENA)
SSA = _row("SSA", "mean of sensibleness and specificity by an automatic judge", _ssa, _MEENA)
RATING = _row("rating", "mean rating by an automatic judge, by question", _numbers)
YES = _row("share of yes", "share of yes by an automatic judge, by question", _numbers)
WINS = _row("wins", "share of pairs that the subject wins in both orders, ties as half", _wins)
FIRST_POSITION = _row(
    "first position", "share of a judge's votes for what is shown first", _first_position, better=None
)
ORDER_AGREEMENT = _row("order agreement", "share of pairs with the same verdict in both orders", _order_agreement)
UNPARSED = _row("unparsed", "share of a judge's answers that cannot be read", _unparsed, better=False)
ACCURACY = _row("accuracy", "share of units where a judge says what most people say", _numbers)
BIAS = _row("bias", "how much higher a judge rates than people do", _numbers, better=None)
VERDICTS = frozenset(metric.name for metric in (SENSIBLENESS, SPECIFICITY, SSA, RATING, YES, WINS))
"""What a judge says about units, unlike what is said about the judge."""
