"""Which of two replies or conversations is better: wins, losses and ties, and Bradley-Terry strengths from them.

`head_to_head` compares two subjects, as in Ghandeharioun et al. (2019): wins, losses and ties with 90 % intervals; an
item is *ambiguous* when both sides got the same number of votes, at least one each. `bradley_terry` puts any number of
subjects on one scale. Ties follow Davidson (1970): with strengths theta (logarithms) and a tie parameter nu,

    P(i wins) : P(j wins) : P(tie)  =  exp(theta_i) : exp(theta_j) : nu exp((theta_i + theta_j) / 2)

This is a softmax of linear functions of (theta, log nu), so the log-likelihood is concave, and Newton's method finds
its maximum. A weak normal prior, N(0, 3^2) on each theta and on log nu, keeps the strengths of unbeaten subjects finite
and makes their mean zero; a difference of 3 is odds of 20 to 1, so with tens of votes per pair the prior changes the
second decimal. Without any tie in the data, nu is 0: the plain model of Bradley and Terry (1952).

Intervals: `information` takes every vote as independent, and is too narrow where they are not. `robust` (default) is
the sandwich of the information matrix and the scores of votes summed by item and by rater, two-way as in
`intervals.crossed_variance`. `bootstrap` draws raters or items and fits each resample, all resamples at once. The
latter two never give less than `information`: votes on an unbeaten subject do not vary, and so show no uncertainty.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy

from tertulia.core.errors import DataError
from tertulia.core.estimate import Estimate
from tertulia.metrics.intervals import (
    LEVEL,
    RESAMPLES,
    Codes,
    CrossedVariance,
    Floats,
    cluster_codes,
    cluster_covariance,
    cluster_weights,
    crossed_variance,
    percentile_interval,
)
from tertulia.metrics.significance import bootstrap_means, crossed_means

PRIOR_SD = 3.0
Winner = Literal["first", "second", "tie"]
ClusterBy = Literal["item", "rater"]
_OUTCOMES: tuple[Winner, ...] = ("first", "second", "tie")
_NEWTON_STEPS, _TOLERANCE, _MAX_STEP = 60, 1e-9, 1.5


class PairwiseVote(NamedTuple):
    """One rater's verdict on two subjects."""

    first: str
    second: str
    winner: Winner
    item: str
    """What was compared: a context with two replies, or a pair of conversations."""
    rater: str


class HeadToHead(NamedTuple):
    """One subject against another."""

    win: Estimate
    loss: Estimate
    tie: Estimate
    margin: Estimate
    """Share of wins minus share of losses."""
    items: int
    """Items compared, ambiguous ones included."""
    ambiguous: int
    """Items with equal votes for both sides, at least one each; left out of the shares on request."""


class OutcomeProbabilities(NamedTuple):
    """What a fitted model expects of one more vote."""

    win: float
    loss: float
    tie: float


class RankInterval(NamedTuple):
    """The rank of a subject, 1 for the strongest, with the ranks that the data do not rule out."""

    rank: int
    best: int
    worst: int


@dataclass(frozen=True, slots=True)
class BradleyTerry:
    """Fitted strengths, strongest first."""

    strengths: dict[str, Estimate]
    """On the log scale, mean zero; n is the number of votes on the subject."""
    ranks: dict[str, RankInterval]
    tie_parameter: float
    """Davidson's nu; 0 if there was no tie."""
    votes: int
    standard_errors: dict[tuple[str, str], float]
    """Of the differences of two strengths."""
    pair_votes: dict[tuple[str, str], int]
    """Votes between two subjects."""

    def outcome(self, subject: str, other: str) -> OutcomeProbabilities:
        """How probable a win of the subject over the other, a loss and a tie are."""
        odds = math.exp(self.strengths[subject].value), math.exp(self.strengths[other].value)
        tie = self.tie_parameter * math.sqrt(odds[0] * odds[1])
        total = odds[0] + odds[1] + tie
        return OutcomeProbabilities(odds[0] / total, odds[1] / total, tie / total)

    def beats(self, subject: str, other: str) -> Estimate:
        """P(subject beats other), given that it is not a tie; n is the number of votes between them."""
        first, second = self.strengths[subject], self.strengths[other]
        difference, n = first.value - second.value, self.pair_votes[subject, other]
        half = float(scipy.special.ndtri((1 + first.level) / 2)) * self.standard_errors[subject, other]
        value, low, high = (float(scipy.special.expit(difference + shift)) for shift in (0, -half, half))
        return Estimate(value, low, high, n=n, level=first.level)


def head_to_head(
    votes: Iterable[PairwiseVote],
    subject: str,
    baseline: str,
    *,
    unit: Literal["vote", "item"] = "vote",
    drop_ambiguous: bool = False,
    interval: Literal["wilson", "bootstrap"] = "wilson",
    cluster: ClusterBy = "item",
    level: float = 0.90,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> HeadToHead:
    """Wins, losses and ties of a subject against a baseline, whichever was shown first.

    With `unit="item"` every item has one verdict: the side with more votes, or a tie if ties outnumber both sides or
    the sides are equal. `interval="wilson"` is clustered by item and rater, `"bootstrap"` draws the clusters named; a
    share of 0 or 1, which resampling would give no width, then gets Wilson's interval for the number of clusters.

    >>> votes = [PairwiseVote("a", "b", "first", f"c{i}", "ann") for i in range(8)]
    >>> print(head_to_head([*votes, PairwiseVote("b", "a", "tie", "c8", "ann")], "a", "b").win)
    0.889 [0.563, 0.980] (n = 9)
    """
    rows = [_oriented(vote, subject) for vote in votes if {vote.first, vote.second} == {subject, baseline}]
    by_item: dict[str, Counter[Winner]] = {}
    for row in rows:
        by_item.setdefault(row.item, Counter())[row.winner] += 1
    ambiguous = {item for item, count in by_item.items() if count["first"] == count["second"] > 0}
    if unit == "item":
        rows = [PairwiseVote(subject, baseline, _verdict(count), item, item) for item, count in by_item.items()]
    rows = [row for row in rows if not (drop_ambiguous and row.item in ambiguous)]
    win, loss, tie, margin = _shares(rows, interval, cluster, level, resamples, seed)
    return HeadToHead(win, loss, tie, margin, items=len(by_item), ambiguous=len(ambiguous))


def bradley_terry(
    votes: Sequence[PairwiseVote],
    *,
    interval: Literal["robust", "bootstrap", "information"] = "robust",
    cluster: ClusterBy = "rater",
    prior_sd: float = PRIOR_SD,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> BradleyTerry:
    """Strengths of all subjects with intervals and ranks.

    `cluster` is what `interval="bootstrap"` draws. A rank interval counts the subjects that are significantly stronger
    or weaker, each at a level of 1 - (1 - level) / (number of other subjects), so that the subject's true rank lies
    within with the probability `level` (Mogstad, Romano, Shaikh and Wilhelm 2024). Subjects that no chain of votes
    connects cannot be compared: that is an error.

    >>> votes = [PairwiseVote("a", "b", w, f"c{i}", f"r{i}") for i, w in enumerate(["first"] * 30 + ["second"] * 10)]
    >>> fit = bradley_terry(votes, interval="information")
    >>> print(fit.strengths["a"], "beats", fit.beats("a", "b"))
    0.545 [0.189, 0.901] (n = 40) beats 0.748 [0.594, 0.858] (n = 40)
    """
    data = _tabulate(votes)
    if not data.subjects:
        return BradleyTerry({}, {}, 0.0, 0, {}, {})
    parameters = _fit(data.totals[None], data.features, prior_sd)[0]
    inverse, covariance = _information(data, parameters, prior_sd)
    variance, degrees, count = np.diag(covariance), np.full(len(parameters), np.inf), len(data.subjects)
    differences = _difference_variances(covariance[:count, :count])
    if interval == "robust":
        sandwich, by_cluster = _sandwich(data, votes, parameters, inverse)
        variance, differences = np.fmax(variance, sandwich.variance), np.maximum(differences, by_cluster)
        degrees = np.where(np.isnan(sandwich.degrees), np.inf, sandwich.degrees)
    half = scipy.special.stdtrit(degrees, (1 + level) / 2) * np.sqrt(variance)
    lows, highs = parameters - half, parameters + half
    if interval == "bootstrap":
        draws = _resample(data, votes, cluster, prior_sd, resamples, seed)
        ends = np.array([percentile_interval(column, level) for column in draws.T])
        lows, highs = np.minimum(lows, ends[:, 0]), np.maximum(highs, ends[:, 1])
        differences = np.maximum(differences, _difference_variances(np.atleast_2d(np.cov(draws[:, :count].T))))
    return _result(data, np.stack([parameters, lows, highs], axis=1), differences, level)


class _VoteTable(NamedTuple):
    """Votes counted by pair of subjects and outcome."""

    subjects: list[str]
    features: Floats
    """(pairs, outcomes, parameters): the derivative of each outcome's utility by theta and log nu."""
    totals: Floats
    """(pairs, outcomes)."""
    pair: Codes
    """By vote."""
    outcome: Codes
    """By vote."""


def _oriented(vote: PairwiseVote, subject: str) -> PairwiseVote:
    """The same vote with this subject first."""
    if vote.first == subject:
        return vote
    winner: Winner = "tie" if vote.winner == "tie" else "second" if vote.winner == "first" else "first"
    return PairwiseVote(vote.second, vote.first, winner, vote.item, vote.rater)


def _verdict(count: Counter[Winner]) -> Winner:
    if count["first"] == count["second"] or count["tie"] > max(count["first"], count["second"]):
        return "tie"
    return "first" if count["first"] > count["second"] else "second"


def _shares(
    rows: Sequence[PairwiseVote], interval: str, cluster: ClusterBy, level: float, resamples: int, seed: int
) -> list[Estimate]:
    """Shares of wins, losses and ties, and the margin of wins over losses."""
    shares = np.array([[row.winner == outcome for outcome in _OUTCOMES] for row in rows], dtype=np.float64).reshape(
        -1, 3
    )
    margin = (shares[:, 0] - shares[:, 1])[:, None]
    items, raters = [row.item for row in rows], [row.rater for row in rows]
    if interval == "wilson":
        figures = crossed_means(shares, items, raters, bounds=(0, 1), level=level)
        return figures + crossed_means(margin, items, raters, bounds=(-1, 1), level=level)
    clusters = items if cluster == "item" else raters
    columns, scales = np.hstack([shares, margin]), [(0.0, 1.0)] * 3 + [(-1.0, 1.0)]
    return bootstrap_means(columns, clusters, bounds=scales, level=level, resamples=resamples, seed=seed)


def _tabulate(votes: Sequence[PairwiseVote]) -> _VoteTable:
    subjects = sorted({name for vote in votes for name in (vote.first, vote.second)})
    _check_connected(subjects, votes)
    index = {name: i for i, name in enumerate(subjects)}
    oriented = [_oriented(vote, min(vote.first, vote.second)) for vote in votes]
    keys = [(index[vote.first], index[vote.second]) for vote in oriented]
    pair, pairs = cluster_codes(keys)[0], list(dict.fromkeys(keys))
    outcome = np.array([_OUTCOMES.index(vote.winner) for vote in oriented], dtype=np.int64)
    outcomes = 3 if (outcome == 2).any() else 2
    totals = np.zeros((len(pairs), outcomes))
    np.add.at(totals, (pair, outcome), 1.0)
    features = np.zeros((len(pairs), outcomes, len(subjects) + outcomes - 2))
    for p, (i, j) in enumerate(pairs):
        features[p, 0, i] = features[p, 1, j] = 1.0
        if outcomes == 3:
            features[p, 2, [i, j]], features[p, 2, -1] = 0.5, 1.0
    return _VoteTable(subjects, features, totals, pair, outcome)


def _check_connected(subjects: Sequence[str], votes: Iterable[PairwiseVote]) -> None:
    group = {name: name for name in subjects}

    def root(name: str) -> str:
        while group[name] != name:
            group[name] = group[group[name]]
            name = group[name]
        return name

    for vote in votes:
        if vote.first == vote.second:
            raise DataError(f"A vote on the item {vote.item!r} compares {vote.first!r} with itself.")
        group[root(vote.first)] = root(vote.second)
    parts: dict[str, list[str]] = {}
    for name in subjects:
        parts.setdefault(root(name), []).append(name)
    if len(parts) > 1:
        listed = " | ".join(", ".join(part) for part in parts.values())
        raise DataError(
            f"The votes do not connect all subjects, so their strengths cannot be compared. Not connected: {listed}",
            hint="Collect votes between these groups, or fit each group on its own.",
        )


def _fit(counts: Floats, features: Floats, prior_sd: float) -> Floats:
    """Newton's method for many tables of counts (tables, pairs, outcomes) at once; parameters (tables, parameters)."""
    precision = 1 / prior_sd**2
    parameters = np.zeros((len(counts), features.shape[2]))
    value = _log_posterior(parameters, counts, features, precision)
    for _ in range(_NEWTON_STEPS):
        gradient, information = _derivatives(parameters, counts, features, precision)
        step = np.linalg.solve(information, gradient[..., None])[..., 0]
        size = np.abs(step).max(axis=1, keepdims=True)
        if size.max() < _TOLERANCE:
            break
        step *= np.minimum(1, _MAX_STEP / np.maximum(size, _TOLERANCE))
        for _ in range(20):  # halve the steps that overshoot
            candidate = _log_posterior(parameters + step, counts, features, precision)
            worse = candidate < value - 1e-9 * np.abs(value)
            if not worse.any():
                break
            step[worse] /= 2
        parameters, value = parameters + step, candidate
    return parameters


def _log_posterior(parameters: Floats, counts: Floats, features: Floats, precision: float) -> Floats:
    utilities = np.einsum("pok,tk->tpo", features, parameters)
    log_probabilities = utilities - scipy.special.logsumexp(utilities, axis=2, keepdims=True)
    return np.asarray((counts * log_probabilities).sum(axis=(1, 2)) - precision / 2 * (parameters**2).sum(axis=1))


def _derivatives(parameters: Floats, counts: Floats, features: Floats, precision: float) -> tuple[Floats, Floats]:
    """Gradient (tables, parameters) and information (tables, parameters, parameters) of the log posterior."""
    pairs, outcomes, width = features.shape
    probabilities = scipy.special.softmax(np.einsum("pok,tk->tpo", features, parameters), axis=2)
    n = counts.sum(axis=2)
    gradient = (counts - n[..., None] * probabilities).reshape(len(counts), -1) @ features.reshape(-1, width)
    means = np.einsum("tpo,pok->tpk", probabilities, features)
    flat = features.reshape(pairs * outcomes, width)
    weighted = (n[..., None] * probabilities).reshape(len(counts), -1, 1) * flat
    information = np.swapaxes(weighted, 1, 2) @ flat - np.swapaxes(means * n[..., None], 1, 2) @ means
    return gradient - precision * parameters, information + precision * np.eye(width)


def _resample(
    data: _VoteTable, votes: Sequence[PairwiseVote], cluster: ClusterBy, prior_sd: float, resamples: int, seed: int
) -> Floats:
    """Parameters of each resample (resamples, parameters)."""
    labels: list[Hashable] = [vote.item if cluster == "item" else vote.rater for vote in votes]
    codes, names = cluster_codes(labels)
    table = np.zeros((len(names), *data.totals.shape))
    np.add.at(table, (codes, data.pair, data.outcome), 1.0)
    blocks = cluster_weights(len(names), resamples=resamples, seed=seed, width=data.features.size * 2)
    flat = table.reshape(len(names), -1)
    return np.concatenate(
        [_fit((weights @ flat).reshape(-1, *data.totals.shape), data.features, prior_sd) for weights in blocks]
    )


def _information(data: _VoteTable, parameters: Floats, prior_sd: float) -> tuple[Floats, Floats]:
    """The inverse of the information matrix, and the covariance of the parameters if votes are independent."""
    _, information = _derivatives(parameters[None], data.totals[None], data.features, 1 / prior_sd**2)
    inverse, count = np.linalg.inv(information[0]), len(data.subjects)
    # The mean strength is zero by convention: its variance, that of the prior, is taken out.
    centre = np.eye(len(parameters))
    centre[:count, :count] -= 1 / count
    return inverse, centre @ inverse @ centre


def _sandwich(
    data: _VoteTable, votes: Sequence[PairwiseVote], parameters: Floats, inverse: Floats
) -> tuple[CrossedVariance, Floats]:
    """Two-way variances of the parameters, and of the differences of strengths (subjects, subjects)."""
    probabilities, count = scipy.special.softmax(data.features @ parameters, axis=1), len(data.subjects)
    means = np.einsum("po,pok->pk", probabilities, data.features)
    influence = (data.features[data.pair, data.outcome] - means[data.pair]) @ inverse
    items, raters = cluster_codes([vote.item for vote in votes])[0], cluster_codes([vote.rater for vote in votes])[0]
    cells = cluster_codes([(vote.item, vote.rater) for vote in votes])[0]
    by_item, by_rater, by_both = (
        _difference_variances(cluster_covariance(influence[:, :count], codes)) for codes in (items, raters, cells)
    )
    # As in `crossed_variance`, the largest of the two-way and the one-way estimates counts.
    differences = np.maximum.reduce([by_item + by_rater - by_both, by_item, by_rater])
    return crossed_variance(influence, items, raters), differences


def _difference_variances(covariance: Floats) -> Floats:
    variances = np.diag(covariance)
    return np.asarray(variances[:, None] + variances - 2 * covariance)


def _rank_intervals(theta: Floats, difference_variances: Floats, level: float) -> list[RankInterval]:
    count = len(theta)
    ranks = np.argsort(np.argsort(-theta, kind="stable"), kind="stable") + 1
    z = float(scipy.special.ndtri(1 - (1 - level) / (2 * max(count - 1, 1))))
    margin = z * np.sqrt(np.maximum(difference_variances, 0))
    difference = theta[:, None] - theta
    better, worse = (difference < -margin).sum(axis=1), (difference > margin).sum(axis=1)
    return [RankInterval(int(ranks[i]), int(better[i]) + 1, count - int(worse[i])) for i in range(count)]


def _result(data: _VoteTable, figures: Floats, differences: Floats, level: float) -> BradleyTerry:
    """Names for everything; figures are (parameters, 3): value, low, high."""
    names, count = data.subjects, len(data.subjects)
    ranks = _rank_intervals(figures[:count, 0], differences, level)
    order = sorted(range(count), key=lambda i: ranks[i].rank)
    between = np.zeros((count, count))
    for totals, features in zip(data.totals.sum(axis=1), data.features, strict=True):
        i, j = int(features[0, :count].argmax()), int(features[1, :count].argmax())
        between[i, j] = between[j, i] = totals
    strengths = {
        names[i]: Estimate(value, low, high, n=int(between[i].sum()), level=level)
        for i, (value, low, high) in ((i, figures[i].tolist()) for i in order)
    }
    pairs = [(i, j) for i in order for j in order if i != j]
    return BradleyTerry(
        strengths,
        {names[i]: ranks[i] for i in order},
        math.exp(figures[-1, 0]) if len(figures) > count else 0.0,
        int(data.totals.sum()),
        {(names[i], names[j]): math.sqrt(max(differences[i, j], 0)) for i, j in pairs},
        {(names[i], names[j]): int(between[i, j]) for i, j in pairs},
    )
