"""Features of the second pass: what the conversations predicted so far say about the most likely candidates.

The first pass scores candidate links one by one. Its predicted links form clusters (conversations), and they tell more:
whether I take part in one, how long it has been silent, how much of my probability lies in it, and where my next line
will go. As in `pair_features`, `my` refers to the utterance that is being linked, `their` to the candidate, and a block
of utterances is computed at once.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tertulia.corpus.chatlogs.encoded_log import NOBODY, Floats, Ints
from tertulia.corpus.chatlogs.events import Events, Longs, next_of_same
from tertulia.corpus.chatlogs.pair_features import FAR, LogHistory, ranks

NAMES = (
    "prob log_prob prob_rank cluster_prob cluster_prob_is_max self_prob cluster_lines cluster_people "
    "my_lines_in_cluster addressee_lines_in_cluster cluster_silent_lines cluster_silent_minutes cluster_lines_since "
    "cluster_has_my_last is_their_last_in_cluster replies my_replies their_start_prob their_link_prob cluster_cosine "
    "my_next_is_in_cluster next_to_me_is_in_cluster replies_to_me they_reply_to_me own_replies cluster_is_latest"
).split()
_COLUMN = {name: k for k, name in enumerate(NAMES)}


@dataclass(frozen=True, slots=True)
class LinkPredictions:
    """The first pass's probabilities for some utterances; the rows of an utterance are consecutive."""

    indices: Ints
    """(utterances,) indices in the encoded log."""
    sizes: Ints
    """(utterances,): how many candidates each has."""
    candidates: Ints
    """(rows,) indices, of each utterance itself last."""
    probs: Floats
    """(rows,)"""
    top: Ints
    """(top rows,): which rows the second pass scores again; each utterance itself always, and last."""
    top_sizes: Ints
    """(utterances,): how many of its rows that are."""
    top_features: Floats
    """(top rows, first-pass features)"""

    @property
    def links(self) -> Ints:
        """(utterances,): the most likely candidate of each."""
        ends = np.cumsum(self.sizes)
        highest = np.repeat(np.maximum.reduceat(self.probs, ends - self.sizes), self.sizes)
        rows = np.flatnonzero(self.probs == highest)
        return self.candidates[rows[np.searchsorted(rows, ends - self.sizes)]]  # the first of equals

    @property
    def self_probs(self) -> Floats:
        """(utterances,): the probability that each starts a conversation."""
        return self.probs[np.cumsum(self.sizes) - 1]


@dataclass(frozen=True, slots=True)
class PredictedClusters:
    """The first pass over a log; arrays have one entry per utterance."""

    links: Longs
    """The most likely candidate; an utterance without a prediction links to itself."""
    roots: Longs
    """The first utterance of its cluster, which identifies the cluster."""
    start_probs: Floats
    """The probability that it starts a conversation."""
    link_probs: Floats
    """The probability of the most likely candidate."""
    replies: Events
    """The utterances that were linked to each one."""
    replies_by: Events
    """The same by utterance and replier (`reply_key`)."""
    members: Events
    """Utterances by cluster."""
    next_in_cluster: Longs
    """The next utterance of the same speaker in the same cluster; the log's length if there is none."""


def cluster_predictions(predictions: LinkPredictions, history: LogHistory) -> PredictedClusters:
    """Follow the predicted links to their roots; an utterance without a prediction is alone in its cluster."""
    n, log = len(history.log), history.log
    links, start_probs, link_probs = np.arange(n), np.zeros(n, np.float32), np.zeros(n, np.float32)
    if len(predictions.indices):
        links[predictions.indices] = predictions.links
        start_probs[predictions.indices] = predictions.self_probs
        starts = np.cumsum(predictions.sizes) - predictions.sizes
        link_probs[predictions.indices] = np.maximum.reduceat(predictions.probs, starts)
    roots = list(range(n))
    for i, link in enumerate(links.tolist()):
        roots[i] = roots[link]  # links only go back, so the root of the earlier utterance is final
    replying = np.flatnonzero(links != np.arange(n))
    speaker = log.speaker.astype(np.int64)
    clusters = np.array(roots, np.int64)
    return PredictedClusters(
        links,
        clusters,
        start_probs,
        link_probs,
        replies=Events(links[replying], replying, length=n),
        replies_by=Events(links[replying] * history.users + speaker[replying], replying, length=n),
        members=Events(clusters, np.arange(n), length=n),
        next_in_cluster=next_of_same(clusters * history.users + speaker),
    )


def cluster_features(
    predictions: LinkPredictions, predicted: PredictedClusters, history: LogHistory, *, window: int
) -> Floats:
    """(top rows, NAMES): the additional features of the second pass."""
    i = np.repeat(predictions.indices, predictions.top_sizes).astype(np.int64)
    j = predictions.candidates[predictions.top].astype(np.int64)
    utterance = np.repeat(np.arange(len(predictions.indices)), predictions.top_sizes)
    is_self = i == j
    columns = np.zeros((len(NAMES), len(i)), np.float32)

    def put(name: str, values: NDArray[Any] | float) -> None:
        columns[_COLUMN[name]] = values

    probs = predictions.probs[predictions.top]
    put("prob", probs)
    put("log_prob", np.log(np.maximum(probs.astype(np.float64), 1e-6)))
    put("prob_rank", _ranks_within(probs, predictions.top_sizes))
    put("self_prob", predictions.self_probs[utterance])
    put("replies_to_me", _count_soon(predicted.replies, i, i, history.lookahead))
    shares = _cluster_probs(predictions, predicted)
    put("cluster_prob", np.where(is_self, shares.highest[utterance], shares.by_row[predictions.top]))
    put("cluster_prob_is_max", shares.by_row[predictions.top] >= shares.highest[utterance])
    _fill_clusters(put, predictions, predicted, history, window, utterance, j)
    _fill_candidates(put, predicted, history, i, j)
    _fill_future(put, predictions, predicted, history, utterance, i, j)
    for name in set(NAMES) - {"prob", "log_prob", "prob_rank", "self_prob", "replies_to_me", "cluster_prob"}:
        columns[_COLUMN[name], is_self] = 0
    columns[_COLUMN["cluster_silent_lines"], is_self] = FAR
    return np.ascontiguousarray(columns.T)


def _ranks_within(values: Floats, sizes: Ints) -> Longs:
    """The rank of each value among those of its utterance."""
    table = np.full((len(sizes), int(sizes.max(initial=0))), -np.inf, np.float32)
    present = np.arange(table.shape[1]) < sizes[:, None]
    table[present] = values
    return ranks(table)[present]


@dataclass(frozen=True, slots=True)
class _ClusterProbs:
    """How likely the utterances belong to the clusters of their candidates."""

    by_row: NDArray[np.float64]
    """(rows,): the probability of the candidate's cluster."""
    highest: NDArray[np.float64]
    """(utterances,)"""


def _cluster_probs(predictions: LinkPredictions, predicted: PredictedClusters) -> _ClusterProbs:
    """Of all candidates, not only the top ones; the utterance itself is in no cluster."""
    count = len(predictions.indices)
    utterance = np.repeat(np.arange(count), predictions.sizes)
    is_self = predictions.candidates == predictions.indices[utterance]
    keys = utterance * len(predicted.roots) + predicted.roots[predictions.candidates]
    _, group = np.unique(keys, return_inverse=True)
    probs = np.bincount(group, np.where(is_self, 0.0, predictions.probs.astype(np.float64)))
    by_row = probs[group].astype(np.float64)
    highest = np.zeros(count)
    np.maximum.at(highest, utterance, np.where(is_self, 0.0, by_row))
    return _ClusterProbs(by_row, highest)


def _fill_clusters(
    put: Any,
    predictions: LinkPredictions,
    predicted: PredictedClusters,
    history: LogHistory,
    window: int,
    utterance: Longs,
    j: Longs,
) -> None:
    """Features of each candidate's cluster as it is when the utterance arrives, within the window."""
    log, n = history.log, len(history.log)
    block = predictions.indices.astype(np.int64)
    back = block[:, None] - 1 - np.arange(window)
    rows, columns = np.nonzero(back >= 0)
    k = back[rows, columns]
    keys = rows * n + predicted.roots[k]
    order = np.argsort(keys, kind="stable")  # within a cluster from the latest back
    keys, k, at = keys[order], k[order], rows[order]
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))) if len(keys) else np.zeros(0, np.int64)
    if not len(starts):
        return
    group = np.searchsorted(keys[starts], utterance * n + predicted.roots[j])
    group = np.minimum(group, len(starts) - 1)  # of the utterance itself: anything, it is overwritten
    i, speaker = block[at], log.speaker[k]
    own, latest = block[utterance], k[starts][group]

    def total(values: NDArray[Any]) -> Longs:
        sums: Longs = np.add.reduceat(values.astype(np.int64), starts)[group]
        return sums

    put("cluster_lines", np.diff(np.append(starts, len(keys)))[group])
    put("cluster_people", total(predicted.next_in_cluster[k] >= i))
    put("my_lines_in_cluster", total(speaker == log.speaker[i]))
    put("addressee_lines_in_cluster", total(speaker == log.addressee[i]))
    put("cluster_cosine", np.maximum.reduceat(history.similarity.cosine[i, i - 1 - k], starts)[group])
    put("cluster_silent_lines", own - latest)
    put("cluster_silent_minutes", np.minimum(log.minutes[own] - log.minutes[latest], FAR))
    put("cluster_is_latest", latest == own - 1)
    my_last = history.previous_own[own]
    put("cluster_has_my_last", (my_last != NOBODY) & (predicted.roots[my_last] == predicted.roots[j]))


def _fill_candidates(put: Any, predicted: PredictedClusters, history: LogHistory, i: Longs, j: Longs) -> None:
    """Features of candidates within their clusters."""
    speaker, roots = history.log.speaker, predicted.roots[j]
    put("cluster_lines_since", predicted.members.count_before(roots, i) - predicted.members.count_before(roots, j + 1))
    put("is_their_last_in_cluster", predicted.next_in_cluster[j] >= i)
    put("replies", predicted.replies.count_before(j, i))
    put("my_replies", predicted.replies_by.count_before(j * history.users + speaker[i], i))
    put("own_replies", predicted.replies_by.count_before(j * history.users + speaker[j], i))
    put("their_start_prob", predicted.start_probs[j])
    put("their_link_prob", predicted.link_probs[j])


def _fill_future(
    put: Any,
    predictions: LinkPredictions,
    predicted: PredictedClusters,
    history: LogHistory,
    utterance: Longs,
    i: Longs,
    j: Longs,
) -> None:
    """What the next utterances reply to, as predicted. Those that reply to i or later say nothing about i's link."""
    log, n, roots = history.log, len(history.log), predicted.roots
    if not history.lookahead:
        return
    block = predictions.indices.astype(np.int64)[:, None]
    k = block + 1 + np.arange(history.lookahead)
    exists = k < n
    k = np.minimum(k, n - 1)
    links, me = predicted.links[k], log.speaker[block]
    before = exists & (links < block)
    mine = before & (log.speaker[k] == me)
    my_next = np.where(mine.any(axis=1), roots[links][np.arange(len(k)), mine.argmax(axis=1)], NOBODY)
    to_me = np.where(before & history.mentions.holds(np.broadcast_to(me, k.shape), k), roots[links], NOBODY)
    put("my_next_is_in_cluster", my_next[utterance] == roots[j])
    put("next_to_me_is_in_cluster", (to_me[utterance] == roots[j][:, None]).any(axis=1))
    put("they_reply_to_me", _count_soon(predicted.replies_by, i * history.users + log.speaker[j], i, history.lookahead))


def _count_soon(events: Events, keys: Longs, i: Longs, lookahead: int) -> Longs:
    """How many events of a key are among the utterances that the features look ahead to."""
    return events.count_before(keys, i + lookahead + 1) - events.count_before(keys, i + 1)
