"""The features of the disentangler, line by line and in plain Python: slow, and the reference for the fast ones."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tertulia.corpus.chatlogs.cluster_features import NAMES as CLUSTER_NAMES
from tertulia.corpus.chatlogs.encoded_log import CUES, NOBODY, EncodedLog, Floats, Ints
from tertulia.corpus.chatlogs.pair_features import (
    FAR,
    MAX_COUNT,
    NAMES,
    NEAR,
    OWN_FEATURES,
    PAIR_FEATURES,
    RATE_LINES,
    RECENT,
    SIMILAR,
)
from tertulia.corpus.chatlogs.similarity import SimilarityBands

_COLUMN = {name: k for k, name in enumerate(NAMES)}


@dataclass(frozen=True, slots=True)
class CandidateLinks:
    """The candidates of one utterance and their features."""

    index: int
    """Index of the utterance in the encoded log."""
    candidates: Ints
    """(candidates,) indices, from the nearest back, the utterance itself last."""
    features: Floats
    """(candidates, NAMES)"""


@dataclass(slots=True)
class _History:
    """The log, and what had happened in it before the current utterance; the mutable fields grow line by line."""

    log: EncodedLog
    similarity: SimilarityBands
    lookahead: int
    mentions_of: Mapping[int, Ints]
    """The utterances that mention each user, sorted; includes the future."""
    ordinal: Ints
    """For each utterance so far, how many its speaker had made before it."""
    addressed_before: Ints
    """For each utterance so far, how often its speaker had been addressed before it."""
    line_count: list[int]
    """Utterances of each user so far."""
    addressed_count: list[int]
    """How often each user was addressed so far."""
    last_line: dict[int, int] = field(default_factory=dict)
    """The last utterance of each speaker."""
    addressed_at: dict[int, dict[int, int]] = field(default_factory=dict)
    """For each speaker, whom they addressed, and where last."""

    @classmethod
    def before_first_line(cls, log: EncodedLog, similarity: SimilarityBands, lookahead: int) -> "_History":
        users = 1 + int(max(log.speaker.max(initial=0), log.addressee.max(initial=0)))
        ordinal, addressed_before = np.zeros(len(log), np.int32), np.zeros(len(log), np.int32)
        return cls(log, similarity, lookahead, _mentions_of(log), ordinal, addressed_before, [0] * users, [0] * users)

    def start(self, i: int) -> None:
        """Utterance i is the current one now."""
        me = int(self.log.speaker[i])
        self.ordinal[i], self.addressed_before[i] = self.line_count[me], self.addressed_count[me]

    def finish(self, i: int) -> None:
        """Utterance i is part of the past now."""
        me, addressee = int(self.log.speaker[i]), int(self.log.addressee[i])
        self.line_count[me] += 1
        self.last_line[me] = i
        if addressee != NOBODY:
            self.addressed_count[addressee] += 1
            self.addressed_at.setdefault(me, {})[addressee] = i


def candidate_links(
    log: EncodedLog,
    similarity: SimilarityBands,
    *,
    window: int,
    lookahead: int,
    indices: Collection[int] | None = None,
) -> Iterator[CandidateLinks]:
    """The candidates of every utterance of a log (or only of the given indices), in order.

    The history is built up from the start of the log in either case, so the features of an utterance do not depend on
    which others were asked for.
    """
    history = _History.before_first_line(log, similarity, lookahead)
    for i in range(len(log)):
        history.start(i)
        if indices is None or i in indices:
            before = np.arange(i - 1, max(0, i - window) - 1, -1, dtype=np.int32)
            features = np.zeros((len(before) + 1, len(NAMES)), np.float32)  # the last row is the utterance itself
            _fill_own(features, i, before, history)
            if len(before):
                _fill_pairs(_NamedColumns(features[:-1]), i, before, history)
                features[:-1, -len(CUES) :] = log.cues[before]
            features[-1, _COLUMN["is_self"]] = 1
            plausible = _plausible(features)
            yield CandidateLinks(i, np.append(before, np.int32(i))[plausible], features[plausible])
        history.finish(i)


def _plausible(features: Floats) -> NDArray[np.bool_]:
    """The candidates worth scoring: near ones, recent ones of a related speaker, and similar ones.

    The utterance itself always passes, because its distance is zero. On #ubuntu this leaves a quarter of the candidates
    and loses one true link in 2,400.
    """

    def column(name: str) -> Floats:
        return features[:, _COLUMN[name]]

    related = column("same_speaker") + column("i_mention_them") + column("they_mention_me") + column("talked_before")
    near = column("lines_apart") <= NEAR
    recent = column("their_lines_since") < RECENT
    return near | ((related > 0) & recent) | (column("cosine") > SIMILAR)


def _mentions_of(log: EncodedLog) -> dict[int, Ints]:
    mentions: dict[int, list[int]] = {}
    for i, users in enumerate(log.mentioned):
        for user in users:
            mentions.setdefault(user, []).append(i)
    return {user: np.array(indices, np.int32) for user, indices in mentions.items()}


def _fill_own(features: Floats, i: int, before: Ints, history: _History) -> None:
    """Features of the utterance itself, the same for all candidates; trees combine them with those of the pair."""
    log, similarity = history.log, history.similarity
    me, addressee = int(log.speaker[i]), int(log.addressee[i])
    my_last, addressee_last = history.last_line.get(me), history.last_line.get(addressee)
    now, recent = log.minutes[i], before[:RATE_LINES]
    ahead = range(i + 1, min(len(log), i + 1 + history.lookahead))
    my_next_lines = [j for j in ahead if log.speaker[j] == me]
    mentions_of_me = history.mentions_of.get(me, np.zeros(0, np.int32))
    mentions_of_me = mentions_of_me[: np.searchsorted(mentions_of_me, i)]
    own = {
        "my_last_line_ago": i - my_last if my_last is not None else FAR,
        "my_last_minutes_ago": min(now - log.minutes[my_last], FAR) if my_last is not None else FAR,
        "my_first_line": my_last is None,
        "my_lines_since_join": i - log.joined[i] if log.joined[i] != NOBODY else FAR,
        "i_address_somebody": addressee != NOBODY,
        "my_mentions": len(log.mentioned[i]),
        "my_words": len(log.words[i]),
        "i_am_bot": log.is_bot[i],
        "max_cosine": similarity.cosine[i].max(initial=0),
        "max_shared_idf": similarity.shared_idf[i].max(initial=0),
        "max_embedding": similarity.embedding[i].max(initial=0),
        "recent_minutes": min(now - log.minutes[recent[-1]], FAR) if len(recent) else FAR,
        "recent_people": len(set(log.speaker[recent].tolist())),
        "my_line_count": min(history.line_count[me], MAX_COUNT),
        "last_mention_of_me_ago": i - mentions_of_me[-1] if len(mentions_of_me) else FAR,
        "addressee_last_line_ago": i - addressee_last if addressee_last is not None else FAR,
        "i_address_somebody_in": next((j - i for j in my_next_lines if log.addressee[j] != NOBODY), FAR),
        "i_am_addressed_in": next((j - i for j in ahead if log.addressee[j] == me), FAR),
        "i_speak_in": my_next_lines[0] - i if my_next_lines else FAR,
        "addressee_line_count": min(history.line_count[addressee], MAX_COUNT) if addressee != NOBODY else -1,
        "minutes_of_silence": min(now - log.minutes[i - 1], FAR) if i else FAR,
    }
    start = len(PAIR_FEATURES)
    stop = start + len(OWN_FEATURES)
    features[:, start:stop] = [own[name] for name in OWN_FEATURES]
    features[:, stop : stop + len(CUES)] = log.cues[i]


def _fill_pairs(columns: "_NamedColumns", i: int, before: Ints, history: _History) -> None:
    """Features of the utterance and each candidate. `before` runs from the nearest back: cumulative sums count between.

    A cumulative sum minus its own term counts, for each candidate, what lies strictly between it and the utterance.
    """
    log = history.log
    me = int(log.speaker[i])
    speaker, addressee = log.speaker[before], log.addressee[before]
    speakers = speaker.tolist()
    my_last = history.last_line.get(me, NOBODY)
    lines_since = np.array([history.line_count[user] for user in speakers]) - 1 - history.ordinal[before]
    is_their_last = (lines_since == 0).astype(np.float32)
    columns["lines_apart"] = i - before
    columns["minutes_apart"] = np.minimum(log.minutes[i] - log.minutes[before], FAR)
    columns["same_minute"] = log.minutes[i] == log.minutes[before]
    columns["same_speaker"] = speaker == me
    columns["their_lines_since"] = np.minimum(lines_since, MAX_COUNT)
    columns["after_my_last"] = np.clip(before - my_last, -MAX_COUNT, MAX_COUNT) if my_last != NOBODY else 99
    columns["is_my_last"] = before == my_last
    columns["my_lines_between"] = np.cumsum(speaker == me) - (speaker == me)
    columns["people_between"] = np.cumsum(is_their_last) - is_their_last
    addressed = np.array([history.addressed_count[user] for user in speakers])
    columns["they_were_addressed_since"] = addressed - history.addressed_before[before]
    columns["addressed_between"] = np.cumsum(addressee != NOBODY) - (addressee != NOBODY)
    columns["their_first_line"] = history.ordinal[before] == 0
    columns["their_lines_since_join"] = np.where(log.joined[before] != NOBODY, before - log.joined[before], FAR)
    columns["they_are_bot"] = log.is_bot[before]
    columns["their_words"] = np.array([len(log.words[j]) for j in before.tolist()])
    _fill_addresses(columns, i, before, history)
    _fill_similarity(columns, i, len(before), history.similarity)
    _fill_lookahead(columns, i, speakers, log, history.lookahead)


def _fill_addresses(columns: "_NamedColumns", i: int, before: Ints, history: _History) -> None:
    """Who addresses or mentions whom, in the two utterances and before them."""
    log = history.log
    me, my_addressee, mentioned = int(log.speaker[i]), int(log.addressee[i]), log.mentioned[i]
    speaker, addressee = log.speaker[before], log.addressee[before]
    speakers = speaker.tolist()
    mentions_me = _is_in(before, history.mentions_of.get(me))
    i_addressed = history.addressed_at.get(me, {})
    my_latest = max(i_addressed.values(), default=NOBODY)
    they_addressed_me = np.array([history.addressed_at.get(user, {}).get(me, NOBODY) for user in speakers])
    columns["i_address_them"] = speaker == my_addressee
    columns["i_mention_them"] = np.array([user in mentioned for user in speakers])
    columns["they_address_me"] = addressee == me
    columns["they_mention_me"] = mentions_me
    columns["same_addressee"] = (addressee == my_addressee) & (my_addressee != NOBODY)
    mentions_of_addressee = history.mentions_of.get(my_addressee) if my_addressee != NOBODY else None
    columns["mentions_my_addressee"] = _is_in(before, mentions_of_addressee)
    columns["they_address_other"] = (addressee != NOBODY) & (addressee != me) & (speaker != me)
    columns["last_addressed_by_me"] = np.array(
        [i_addressed.get(user, NOBODY) == my_latest != NOBODY for user in speakers]
    )
    # The first hit from the nearest back: where the cumulative sum is one and the term itself counts.
    columns["last_to_address_me"] = (np.cumsum(addressee == me) == 1) & (addressee == me)
    columns["is_last_mention_of_me"] = (np.cumsum(mentions_me) == 1) & mentions_me
    columns["i_last_addressed_them_ago"] = np.array(
        [i - i_addressed[user] if user in i_addressed else FAR for user in speakers]
    )
    columns["they_last_addressed_me_ago"] = np.where(they_addressed_me != NOBODY, i - they_addressed_me, FAR)
    i_ever_addressed = np.array([user in i_addressed for user in speakers]).astype(np.float32)
    columns["talked_before"] = i_ever_addressed + (they_addressed_me != NOBODY)


def _fill_similarity(columns: "_NamedColumns", i: int, n: int, similarity: SimilarityBands) -> None:
    """How similar the two utterances are, in absolute terms and relative to the other candidates."""
    cosine, shared_idf = similarity.cosine[i, :n], similarity.shared_idf[i, :n]
    embedding = similarity.embedding[i, :n]
    columns["cosine"], columns["shared_idf"], columns["embedding"] = cosine, shared_idf, embedding
    columns["cosine_rank"] = ranks(cosine)
    columns["shared_idf_is_max"] = shared_idf >= max(shared_idf.max(), 1e-6)
    columns["embedding_is_max"] = embedding >= max(embedding.max(), 1e-6)


def _fill_lookahead(columns: "_NamedColumns", i: int, speakers: list[int], log: EncodedLog, lookahead: int) -> None:
    """In how many lines the candidates' speakers speak, and who addresses whom, after the utterance."""
    me = int(log.speaker[i])
    they_address_me: dict[int, int] = {}
    i_address_them: dict[int, int] = {}
    they_speak: dict[int, int] = {}
    others_address_them: dict[int, int] = {}
    # From the farthest to the nearest, so that the nearest wins.
    for j in range(min(len(log) - 1, i + lookahead), i, -1):
        speaker, addressee = int(log.speaker[j]), int(log.addressee[j])
        they_speak[speaker] = j - i
        if addressee == me:
            they_address_me[speaker] = j - i
        if speaker == me:
            i_address_them[addressee] = j - i
        elif addressee != NOBODY:
            others_address_them[addressee] = j - i
    columns["they_address_me_in"] = np.array([they_address_me.get(user, FAR) for user in speakers])
    columns["i_address_them_in"] = np.array([i_address_them.get(user, FAR) for user in speakers])
    columns["they_speak_in"] = np.array([they_speak.get(user, FAR) for user in speakers])
    columns["others_address_them_in"] = np.array([others_address_them.get(user, FAR) for user in speakers])


def ranks(values: Floats) -> NDArray[np.int64]:
    """The rank of each value, 0 for the largest; ties keep their order.

    >>> ranks(np.array([0.5, 2.0, 0.5], np.float32)).tolist()
    [1, 0, 2]
    """
    return np.argsort(np.argsort(-values, kind="stable"), kind="stable")


def _is_in(indices: Ints, subset: Ints | None) -> NDArray[np.bool_]:
    if subset is None:
        return np.zeros(len(indices), np.bool_)
    return np.isin(indices, subset, assume_unique=True)


class _NamedColumns:
    """Assigns to the columns of a feature matrix by name."""

    def __init__(self, features: Floats) -> None:
        self._features = features

    def __setitem__(self, name: str, values: NDArray[Any] | float) -> None:
        self._features[:, _COLUMN[name]] = values


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
    """(top candidates, CLUSTER_NAMES): the additional features of the second pass."""
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
        rows.append([row.get(name, 0.0) for name in CLUSTER_NAMES])
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
