"""Features of the second pass: what the conversations predicted so far say about the most likely candidates.

The first pass scores candidate links one by one. Its predicted links form clusters (conversations), and they tell more:
whether I take part in one, how long it has been silent, how much of my probability lies in it, and where my next line
will go. As in `pair_features`, `my` refers to the utterance that is being linked, `their` to the candidate.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tertulia.corpus.chatlogs.encoded_log import NOBODY, EncodedLog, Floats, Ints
from tertulia.corpus.chatlogs.pair_features import FAR, ranks
from tertulia.corpus.chatlogs.similarity import SimilarityBands

NAMES = (
    "prob log_prob prob_rank cluster_prob cluster_prob_is_max self_prob cluster_lines cluster_people "
    "my_lines_in_cluster addressee_lines_in_cluster cluster_silent_lines cluster_silent_minutes cluster_lines_since "
    "cluster_has_my_last is_their_last_in_cluster replies my_replies their_start_prob their_link_prob cluster_cosine "
    "my_next_is_in_cluster next_to_me_is_in_cluster replies_to_me they_reply_to_me own_replies cluster_is_latest"
).split()


@dataclass(frozen=True, slots=True)
class LinkPrediction:
    """The first pass's probabilities for one utterance."""

    index: int
    candidates: Ints
    """(candidates,) indices, the utterance itself last."""
    probs: Floats
    """(candidates,)"""
    top: Ints
    """Which candidates (positions in `candidates`) the second pass scores again; the utterance itself always."""
    top_features: Floats
    """(top, first-pass features)"""

    @property
    def link(self) -> int:
        """The most likely candidate."""
        return int(self.candidates[int(np.argmax(self.probs))])


@dataclass(frozen=True, slots=True)
class PredictedClusters:
    """The first pass over a log; arrays have one entry per utterance."""

    links: Ints
    """The most likely candidate."""
    roots: Ints
    """The first utterance of its cluster, which identifies the cluster."""
    start_probs: Floats
    """The probability that it starts a conversation."""
    link_probs: Floats
    """The probability of the most likely candidate."""
    replies: Mapping[int, Sequence[int]]
    """The utterances that were linked to each one."""
    previous_own: Ints
    """The previous utterance of the same speaker, or NOBODY."""


def cluster_predictions(predictions: Sequence[LinkPrediction], log: EncodedLog) -> PredictedClusters:
    """Follow the predicted links to their roots; an utterance without a prediction is alone in its cluster."""
    n = len(log)
    links, roots = np.arange(n, dtype=np.int32), np.arange(n, dtype=np.int32)
    start_probs, link_probs = np.zeros(n, np.float32), np.zeros(n, np.float32)
    replies: dict[int, list[int]] = {}
    for prediction in predictions:
        i, link = prediction.index, prediction.link
        links[i], start_probs[i], link_probs[i] = link, prediction.probs[-1], prediction.probs.max()
        # Links only go back, so the root of the earlier utterance is final.
        roots[i] = i if link == i else roots[link]
        if link != i:
            replies.setdefault(link, []).append(i)
    last_line: dict[int, int] = {}
    previous_own = np.full(n, NOBODY, np.int32)
    for i, speaker in enumerate(log.speaker.tolist()):
        previous_own[i] = last_line.get(speaker, NOBODY)
        last_line[speaker] = i
    return PredictedClusters(links, roots, start_probs, link_probs, replies, previous_own)


def cluster_features(
    prediction: LinkPrediction,
    predicted: PredictedClusters,
    log: EncodedLog,
    similarity: SimilarityBands,
    *,
    window: int,
    lookahead: int,
) -> Floats:
    """(top candidates, NAMES): the additional features of the second pass."""
    i, self_prob = prediction.index, float(prediction.probs[-1])
    probs = prediction.probs[prediction.top]
    # Of all candidates, not only the top ones: the probability that the utterance belongs to each cluster.
    cluster_probs: dict[int, float] = {}
    roots = predicted.roots[prediction.candidates[:-1]].tolist()
    for root, prob in zip(roots, prediction.probs[:-1].tolist(), strict=True):
        cluster_probs[root] = cluster_probs.get(root, 0.0) + prob
    max_prob = max(cluster_probs.values(), default=0.0)
    clusters = _recent_clusters(i, predicted, window)
    future = _look_ahead(i, predicted, log, lookahead)
    by_cluster = {root: _of_cluster(i, clusters[root], predicted, log, similarity) for root in cluster_probs}
    rows = []
    candidates = prediction.candidates[prediction.top].tolist()
    for j, prob, rank in zip(candidates, probs.tolist(), ranks(probs).tolist(), strict=True):
        row: dict[str, float] = {
            "prob": prob,
            "log_prob": math.log(max(prob, 1e-6)),
            "prob_rank": rank,
            "self_prob": self_prob,
            "replies_to_me": len(future.replies),
        }
        if j == i:
            row |= {"cluster_prob": max_prob, "cluster_silent_lines": FAR}
        else:
            root = int(predicted.roots[j])
            row |= {"cluster_prob": cluster_probs[root], "cluster_prob_is_max": cluster_probs[root] >= max_prob}
            row |= by_cluster[root] | _of_candidate(i, j, clusters[root], predicted, log)
            row |= _of_future(j, root, future, log)
        rows.append([row.get(name, 0.0) for name in NAMES])
    return np.array(rows, np.float32)


def _recent_clusters(i: int, predicted: PredictedClusters, window: int) -> dict[int, list[int]]:
    """The clusters within the window by root, their utterances from the latest back."""
    clusters: dict[int, list[int]] = {}
    first = max(0, i - window)
    for j, root in zip(range(i - 1, first - 1, -1), predicted.roots[first:i][::-1].tolist(), strict=True):
        clusters.setdefault(root, []).append(j)
    return clusters


def _of_cluster(
    i: int, cluster: list[int], predicted: PredictedClusters, log: EncodedLog, similarity: SimilarityBands
) -> dict[str, float]:
    """Features of a cluster as it is when utterance i arrives."""
    speakers, latest = log.speaker[cluster].tolist(), cluster[0]
    my_last = predicted.previous_own[i]
    return {
        "cluster_lines": len(cluster),
        "cluster_people": len(set(speakers)),
        "my_lines_in_cluster": speakers.count(int(log.speaker[i])),
        "addressee_lines_in_cluster": speakers.count(int(log.addressee[i])),
        "cluster_silent_lines": i - latest,
        "cluster_silent_minutes": min(float(log.minutes[i] - log.minutes[latest]), FAR),
        "cluster_has_my_last": my_last != NOBODY and predicted.roots[my_last] == predicted.roots[latest],
        "cluster_is_latest": latest == i - 1,
        "cluster_cosine": float(similarity.cosine[i, [i - k - 1 for k in cluster]].max()),
    }


def _of_candidate(
    i: int, j: int, cluster: list[int], predicted: PredictedClusters, log: EncodedLog
) -> dict[str, float]:
    """Features of candidate j within its cluster."""
    me, they = int(log.speaker[i]), int(log.speaker[j])
    repliers = [int(log.speaker[k]) for k in predicted.replies.get(j, ()) if k < i]
    return {
        "cluster_lines_since": cluster.index(j),
        "is_their_last_in_cluster": next(k for k in cluster if log.speaker[k] == they) == j,
        "replies": len(repliers),
        "my_replies": repliers.count(me),
        "own_replies": repliers.count(they),
        "their_start_prob": float(predicted.start_probs[j]),
        "their_link_prob": float(predicted.link_probs[j]),
    }


@dataclass(frozen=True, slots=True)
class _Future:
    """What the next utterances reply to, as predicted. Those that reply to i or later say nothing about i's link."""

    my_next: int
    """Cluster of my next utterance, or NOBODY."""
    next_to_me: frozenset[int]
    """Clusters of the next utterances that mention me."""
    replies: Sequence[int]
    """Utterances predicted to reply to this one."""


def _look_ahead(i: int, predicted: PredictedClusters, log: EncodedLog, lookahead: int) -> _Future:
    me = int(log.speaker[i])
    my_next, next_to_me = NOBODY, set()
    for k in range(i + 1, min(len(log), i + 1 + lookahead)):
        link = int(predicted.links[k])
        if link >= i:
            continue
        if log.speaker[k] == me and my_next == NOBODY:
            my_next = int(predicted.roots[link])
        if me in log.mentioned[k]:
            next_to_me.add(int(predicted.roots[link]))
    replies = [k for k in predicted.replies.get(i, ()) if k <= i + lookahead]
    return _Future(my_next, frozenset(next_to_me), replies)


def _of_future(j: int, root: int, future: _Future, log: EncodedLog) -> dict[str, float]:
    return {
        "my_next_is_in_cluster": future.my_next == root,
        "next_to_me_is_in_cluster": root in future.next_to_me,
        "they_reply_to_me": sum(int(log.speaker[k]) == int(log.speaker[j]) for k in future.replies),
    }
