"""What people say about bots, as rows of the registry: the metrics that a study's labels are turned into.

Their unit is a rating: one answer by one rater. The batch is a sequence of numbers (yes is 1, no is 0), of `SsaLabel`s
for Meena's two questions, or of `PairwiseVote`s with the subject first. Figures are means; because ratings depend on
their conversation and on their rater, their intervals are two-way (`significance.crossed_estimate`).
"""

from collections.abc import Sequence

from tertulia.metrics.metric import Metric
from tertulia.metrics.preference import PairwiseVote
from tertulia.metrics.ratings import SsaLabel, ssa_ratings

_MEENA = "Adiwardana et al. 2020"


def _numbers(batch: Sequence[float]) -> list[float]:
    return [float(value) for value in batch]


def _sensible(batch: Sequence[SsaLabel]) -> list[float]:
    return [float(label.sensible) for label in batch]


def _specific(batch: Sequence[SsaLabel]) -> list[float]:
    """What does not make sense does not count as specific."""
    return [float(label.sensible and label.specific) for label in batch]


def _ssa(batch: Sequence[SsaLabel]) -> list[float]:
    return [rating.value for rating in ssa_ratings(batch)]


def _wins(batch: Sequence[PairwiseVote]) -> list[float]:
    return [float(vote.winner == "first") for vote in batch]


def _ties(batch: Sequence[PairwiseVote]) -> list[float]:
    return [float(vote.winner == "tie") for vote in batch]


SENSIBLENESS = Metric(
    "sensibleness",
    "rating",
    "mean",
    "share of bot turns that make sense to people",
    _MEENA,
    bounded=True,
    compute=_sensible,
)
SPECIFICITY = Metric(
    "specificity",
    "rating",
    "mean",
    "share of bot turns that make sense and are specific",
    _MEENA,
    bounded=True,
    compute=_specific,
)
SSA = Metric("SSA", "rating", "mean", "mean of sensibleness and specificity", _MEENA, bounded=True, compute=_ssa)
RATING = Metric(
    "rating", "rating", "mean", "mean of people's ratings on a scale, by question", "Likert 1932", compute=_numbers
)
YES = Metric(
    "share of yes",
    "rating",
    "mean",
    "share of people's answers that are yes, by question",
    bounded=True,
    compute=_numbers,
)
VOTES = Metric(
    "vote balance",
    "rating",
    "mean",
    "mean of up votes (1) and down votes (-1) on bot turns",
    "Ghandeharioun et al. 2019",
    compute=_numbers,
)
WINS = Metric(
    "wins",
    "rating",
    "mean",
    "share of votes for the subject against another one",
    "Li et al. 2019",
    bounded=True,
    compute=_wins,
)
TIES = Metric(
    "ties",
    "rating",
    "mean",
    "share of votes for neither of two subjects",
    "Ghandeharioun et al. 2019",
    higher_is_better=None,
    bounded=True,
    compute=_ties,
)
PERSONA_DETECTION = Metric(
    "persona detection",
    "rating",
    "mean",
    "share of chats after which people tell the bot's persona from another one",
    "Zhang et al. 2018",
    bounded=True,
    compute=_numbers,
)
BEGIN_LABEL = Metric(
    "BEGIN label",
    "rating",
    "mean",
    "share of responses that people's answers give one of BEGIN's five labels, by label",
    "Dziri et al. 2021",
    higher_is_better=None,
    bounded=True,
    compute=_numbers,
)
COOPERATIVENESS = Metric(
    "cooperativeness",
    "rating",
    "mean",
    "share of sentences that help the conversation along, as people see it",
    "Dziri et al. 2021",
    bounded=True,
    compute=_numbers,
)
