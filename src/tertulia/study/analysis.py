"""From labels to results: `Score`s by bot, and the figures of the papers.

What is sampled are conversations (or items: contexts that several bots reply to) and raters. So ratings are clustered
by both, and all intervals are two-way.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

from tertulia.core.estimate import Estimate
from tertulia.core.grounding import LABELS, GroundingLabel
from tertulia.core.score import Score
from tertulia.metrics import human
from tertulia.metrics.agreement import Distance, UnitRating, krippendorff_alpha, majority_votes, percent_agreement
from tertulia.metrics.metric import Metric
from tertulia.metrics.preference import BradleyTerry, HeadToHead, PairwiseVote, Winner, bradley_terry, head_to_head
from tertulia.metrics.ratings import (
    NormalisedRatings,
    RatingComparison,
    SsaFigures,
    compare_subjects,
    mean_ratings,
    normalise_by_annotator,
    ssa,
)
from tertulia.study.labels import SENSIBLE, SPECIFIC, LabelSet, Rated

WIN_LEVEL = 0.90
"""Level of the intervals of wins, losses and ties (Ghandeharioun et al. 2019)."""


def study_scores(labels: LabelSet) -> list[Score]:
    """Every rating of every bot, as scores: the subject is the bot, the setting the question (or BEGIN's label)."""
    scores: list[Score] = []
    for metric in (human.SENSIBLENESS, human.SPECIFICITY, human.SSA) if labels.ssa else ():
        for bot in labels.bots:
            rows = [(label, unit) for label, unit in labels.ssa if label.subject == bot]
            scores += _score(
                metric, bot, "", [r[0] for r in rows], [r[1] for r in rows], [r[0].conversation for r in rows]
            )
    metrics = {"scale": human.RATING, "yes-no": human.YES, "vote": human.VOTES}
    for question in labels.config.questions:
        if question.id in labels.ratings and not (labels.ssa and question.id in (SENSIBLE, SPECIFIC)):
            scores += _rated_scores(metrics[question.kind], labels, question.id, labels.ratings[question.id])
    for name, votes in labels.votes.items():
        scores += _vote_scores(labels, name, votes)
    scores += _rated_scores(human.PERSONA_DETECTION, labels, "", labels.detections)
    for begin in LABELS if labels.begin else ():
        shares = [one._replace(rating=one.rating._replace(value=float(got == begin))) for got, one in labels.begin]
        scores += _rated_scores(human.BEGIN_LABEL, labels, begin, shares)
    return scores + _rated_scores(human.COOPERATIVENESS, labels, "", labels.cooperative)


def _rated_scores(metric: Metric, labels: LabelSet, setting: str, rows: Sequence[Rated]) -> list[Score]:
    scores: list[Score] = []
    for bot in labels.bots:
        own = [row for row in rows if row.rating.subject == bot]
        conversations = [row.rating.conversation for row in own]
        scores += _score(metric, bot, setting, [r.rating.value for r in own], [r.unit for r in own], conversations)
    return scores


def _vote_scores(labels: LabelSet, question: str, votes: Sequence[PairwiseVote]) -> list[Score]:
    scores: list[Score] = []
    for bot in labels.bots:
        for other in labels.bots:
            own = [_oriented(vote, bot) for vote in votes if {vote.first, vote.second} == {bot, other} and bot != other]
            units = [f"{vote.item}/{vote.rater}" for vote in own]
            clusters = [labels.clusters[vote.item] for vote in own]
            for metric in (human.WINS, human.TIES):
                scores += _score(metric, bot, f"{question}, against {other}", own, units, clusters)
    return scores


def _oriented(vote: PairwiseVote, subject: str) -> PairwiseVote:
    """The same vote with this subject first."""
    if vote.first == subject:
        return vote
    winner: Winner = "tie" if vote.winner == "tie" else "second" if vote.winner == "first" else "first"
    return PairwiseVote(vote.second, vote.first, winner, vote.item, vote.rater)


def _score(
    metric: Metric, bot: str, setting: str, batch: Sequence[object], units: Sequence[str], clusters: Sequence[str]
) -> list[Score]:
    if not batch:
        return []
    return [metric.score(batch, subject=bot, setting=setting, units=units, clusters=clusters)]


class QuestionAgreement(NamedTuple):
    """How far raters agree on one question."""

    question: str
    percent: Estimate
    alpha: Mapping[Distance, Estimate]


class MajorityShares(NamedTuple):
    """What most raters of each item say, of a yes-or-no question."""

    shares: Mapping[str, Estimate]
    """By bot: share of items with a majority of yes."""
    items: int
    ambiguous: int
    """Items with as many yes as no, left out."""


def ssa_figures(labels: LabelSet) -> dict[str, SsaFigures]:
    """Sensibleness, specificity and SSA by bot."""
    return labels.in_order(ssa([label for label, _ in labels.ssa]))


def rating_means(labels: LabelSet) -> dict[str, dict[str, Estimate]]:
    """Mean ratings by question and bot, in the order of the study."""
    names = [question.id for question in labels.config.questions if question.id in labels.ratings]
    return {
        name: labels.in_order(mean_ratings(labels.subject_ratings(name), bounds=labels.bounds(name))) for name in names
    }


def agreement(labels: LabelSet) -> list[QuestionAgreement]:
    """Percent agreement and Krippendorff's alpha of every question that several people answered about an item."""
    results = []
    for question in labels.config.questions:
        rows = labels.agreement.get(question.id, ())
        percent = percent_agreement(rows, clusters=labels.clusters)
        if not percent.n:
            continue
        distances: tuple[Distance, ...] = (
            ("nominal", "ordinal", "interval") if question.kind == "scale" else ("nominal",)
        )
        alpha = {d: krippendorff_alpha(rows, distance=d, clusters=labels.clusters) for d in distances}
        results.append(QuestionAgreement(question.id, percent, alpha))
    return results


def majorities(labels: LabelSet) -> dict[str, MajorityShares]:
    """Majority votes of every yes-or-no question that several people answered about an item."""
    results = {}
    for question in labels.config.questions:
        rows = labels.ratings.get(question.id, ())
        if question.kind != "yes-no" or not _repeated(rows):
            continue
        verdicts = majority_votes([UnitRating(row.item, row.rating.rater, row.rating.value) for row in rows])
        subject = {row.item: row.rating for row in rows}
        # Every item has one verdict, so its "rater" is the item: only conversations or contexts are clusters.
        decided = [
            subject[item]._replace(rater=item, value=float(verdict == 1.0))
            for item, verdict in verdicts.items()
            if verdict is not None
        ]
        shares = mean_ratings(decided, bounds=(0, 1))
        results[question.id] = MajorityShares(shares, len(verdicts), len(verdicts) - len(decided))
    return results


def _repeated(rows: Sequence[Rated]) -> bool:
    return len({row.item for row in rows}) < len(rows)


def normalised(labels: LabelSet) -> dict[str, tuple[dict[str, Estimate], NormalisedRatings]]:
    """Ratings on scales relative to their annotators (z-scores), of annotators with at least ten."""
    results = {}
    for question in labels.config.questions:
        if question.kind == "scale" and question.id in labels.ratings:
            normal = normalise_by_annotator(labels.subject_ratings(question.id))
            results[question.id] = (mean_ratings(normal.ratings), normal)
    return results


def comparisons(labels: LabelSet) -> dict[str, list[RatingComparison]]:
    """Differences of all pairs of bots by question, with Holm's correction within each question."""
    names = (["ssa"] if labels.ssa else []) + [q.id for q in labels.config.questions if q.id in labels.ratings]
    results = {}
    for name in names:
        ratings = labels.subject_ratings(name)
        rated = {rating.subject for rating in ratings}
        pairs = list(combinations([bot for bot in labels.bots if bot in rated], 2))
        if pairs:
            results[name] = compare_subjects(
                ratings, pairs=pairs, bounds=(0, 1) if name == "ssa" else labels.bounds(name)
            )
    return results


def head_to_heads(labels: LabelSet) -> dict[str, dict[tuple[str, str], HeadToHead]]:
    """Wins, losses and ties of every pair of bots by question, without ambiguous items."""
    results = {}
    for name, votes in labels.votes.items():
        voted = {frozenset((vote.first, vote.second)) for vote in votes}
        results[name] = {
            pair: head_to_head(votes, *pair, drop_ambiguous=True, level=WIN_LEVEL)
            for pair in combinations(labels.bots, 2)
            if frozenset(pair) in voted
        }
    return results


def strengths(labels: LabelSet) -> dict[str, BradleyTerry]:
    """Bradley-Terry strengths by question, with ties (Davidson 1970) and cluster-robust intervals."""
    fits = {}
    for name, votes in labels.votes.items():
        # Contexts that several pairs of bots share, and turns of one conversation, are one cluster.
        clustered = [vote._replace(item=labels.clusters[vote.item]) for vote in votes]
        fits[name] = bradley_terry(clustered, interval="robust")
    return fits


def detection_accuracy(labels: LabelSet) -> dict[str, Estimate]:
    """Share of recognised personas by bot."""
    return labels.in_order(mean_ratings([one.rating for one in labels.detections], bounds=(0, 1)))


def begin_shares(labels: LabelSet) -> dict[GroundingLabel, dict[str, Estimate]]:
    """Share of responses with each of BEGIN's labels, by bot."""
    return {
        name: mean_ratings(
            [one.rating._replace(value=float(label == name)) for label, one in labels.begin], bounds=(0, 1)
        )
        for name in LABELS
    }


def cooperativeness(labels: LabelSet) -> dict[str, Estimate]:
    """Share of cooperative sentences by bot."""
    return mean_ratings([one.rating for one in labels.cooperative], bounds=(0, 1))


def ranking(labels: LabelSet, question: str, pairs: Sequence[RatingComparison], *, alpha: float = 0.05) -> str:
    """Bots from best to worst; ">" where neighbours differ significantly after Holm's correction, else "~"."""
    means = mean_ratings(labels.subject_ratings(question))
    order = sorted(means, key=lambda bot: -means[bot].value)
    adjusted = {frozenset((pair.subject, pair.baseline)): pair.adjusted_p for pair in pairs}
    text = order[0] if order else ""
    for better, worse in pairwise(order):
        text += f" {'>' if adjusted.get(frozenset((better, worse)), 1.0) < alpha else '~'} {worse}"
    return text
