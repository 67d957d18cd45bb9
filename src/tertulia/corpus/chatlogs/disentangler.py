"""The learned disentangler: links every line of a log to the line it replies to, or to itself if it starts something.

Two passes of gradient-boosted trees. The first scores each candidate link by itself (`pair_features`). The second
scores the most likely few again, given the clusters that the first pass predicts (`cluster_features`); the final score
averages both. System lines link to themselves, and where the source records what is replied to, that link is used as
it is. The task, the annotations and the measures are those of Kummerfeld et al. (2019, arXiv 1810.11118).
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from pydantic import Field

from tertulia.core.config import Config
from tertulia.corpus.chatlogs import cluster_features as clusters
from tertulia.corpus.chatlogs import pair_features as pairs
from tertulia.corpus.chatlogs.boosted_trees import BoostedTrees, Doubles, softmax
from tertulia.corpus.chatlogs.cluster_features import LinkPrediction, PredictedClusters, cluster_predictions
from tertulia.corpus.chatlogs.encoded_log import EncodedLog, Floats, Ints, encode_log
from tertulia.corpus.chatlogs.log import LogLine
from tertulia.corpus.chatlogs.similarity import IdfTable, SimilarityBands, similarity_bands

FIRST_FEATURES, SECOND_FEATURES = pairs.NAMES, (*pairs.NAMES, *clusters.NAMES)
"""The feature names of the two passes."""
_BATCH_FIRST, _BATCH_SECOND = 200, 500
"""Utterances scored in one call of LightGBM: large enough to be fast, small enough to fit in memory."""
_MIN_PROB = 1e-9


class CandidateWindow(Config):
    """How far the disentangler looks for candidates."""

    window: int = Field(100, ge=1, le=1000)
    """How many utterances back a link may go."""
    lookahead: int = Field(20, ge=0)
    """How many utterances ahead the features look."""
    top_k: int = Field(12, ge=1)
    """Number of candidates that the second pass scores again."""


@dataclass(frozen=True, slots=True)
class PreparedLog:
    """A log prepared for scoring."""

    log: EncodedLog
    similarity: SimilarityBands


@dataclass(frozen=True, slots=True)
class ScoredCandidates:
    """The candidates of one line, by line numbers, the line itself last, with their log-probabilities."""

    line: int
    candidates: tuple[int, ...]
    scores: Doubles
    reply_to: int | None = None
    """The line replied to, if the source records it."""

    def link(self, start_bias: float) -> int:
        """The best candidate."""
        if self.reply_to is not None:
            return self.reply_to
        scores = self.scores.copy()
        scores[-1] += start_bias
        return self.candidates[int(np.argmax(scores))]


@dataclass(frozen=True, slots=True)
class Disentangler:
    """A trained model; `checkpoint` saves and loads it."""

    window: CandidateWindow
    idf: IdfTable
    first: tuple[BoostedTrees, ...]
    """Members of the first pass; their scores are averaged."""
    second: tuple[BoostedTrees, ...] = ()
    """Members of the second pass; empty for none."""
    start_bias: float = 0.0
    """Added to the score of the line itself: above zero starts more conversations."""

    def links(self, lines: Sequence[LogLine], numbers: Collection[int] | None = None) -> dict[int, frozenset[int]]:
        """What each line replies to, by line numbers; `numbers` limits the result to those lines."""
        return best_links(self.score(lines, numbers), lines, numbers, start_bias=self.start_bias)

    def score(self, lines: Sequence[LogLine], numbers: Collection[int] | None = None) -> list[ScoredCandidates]:
        """The candidates of every utterance with their scores."""
        prepared = prepare(lines, self.idf, self.window)
        indices = None if numbers is None else indices_to_score(prepared.log, numbers, self.window)
        predictions = list(first_pass(prepared, self.window, self.first, indices))
        if self.second:
            return list(self._second_pass(prepared, predictions))
        return [_by_numbers(prepared.log, p, p.candidates, np.log(np.maximum(p.probs, _MIN_PROB))) for p in predictions]

    def _second_pass(self, prepared: PreparedLog, predictions: Sequence[LinkPrediction]) -> Iterator[ScoredCandidates]:
        predicted = cluster_predictions(predictions, prepared.log)
        remaining = iter(predictions)
        while batch := list(islice(remaining, _BATCH_SECOND)):
            tables = [second_pass_features(p, predicted, prepared, self.window) for p in batch]
            scores = mean_scores(self.second, np.concatenate(tables))
            for prediction, own_scores in zip(batch, _split(scores, tables), strict=True):
                # The two passes make different mistakes: the mean of their log-probabilities beats either.
                first = np.log(np.maximum(prediction.probs[prediction.top], _MIN_PROB))
                second = own_scores - np.logaddexp.reduce(own_scores)
                candidates = prediction.candidates[prediction.top]
                yield _by_numbers(prepared.log, prediction, candidates, (first + second) / 2)


def best_links(
    scored: Sequence[ScoredCandidates],
    lines: Sequence[LogLine],
    numbers: Collection[int] | None = None,
    *,
    start_bias: float = 0.0,
) -> dict[int, frozenset[int]]:
    """The best candidate of each line; a system line links to itself."""
    links = {line.number: frozenset({line.number}) for line in lines}
    links |= {candidates.line: frozenset({candidates.link(start_bias)}) for candidates in scored}
    return links if numbers is None else {number: links[number] for number in numbers}


def _by_numbers(
    log: EncodedLog, prediction: LinkPrediction, candidates: Ints, scores: Floats | Doubles
) -> ScoredCandidates:
    """Translate indices of utterances into line numbers."""
    reply_to = log.reply_to[prediction.index]
    return ScoredCandidates(
        int(log.numbers[prediction.index]),
        tuple(log.numbers[candidates].tolist()),
        scores.astype(np.float64),
        None if reply_to is None else int(log.numbers[reply_to]),
    )


def prepare(lines: Sequence[LogLine], idf: IdfTable, window: CandidateWindow) -> PreparedLog:
    """Encode a log and compute its similarities."""
    log = encode_log(lines)
    return PreparedLog(log, similarity_bands(log.words, idf, window=window.window))


def indices_to_score(log: EncodedLog, numbers: Collection[int], window: CandidateWindow) -> range:
    """The utterances to score so that the given lines have the clusters before and after them as context."""
    inside = np.flatnonzero(np.isin(log.numbers, list(numbers)))
    if not len(inside):
        return range(0)
    first, last = int(inside[0]), int(inside[-1])
    return range(max(0, first - window.window), min(len(log), last + 1 + window.lookahead))


def first_pass(
    prepared: PreparedLog, window: CandidateWindow, trees: Sequence[BoostedTrees], indices: Collection[int] | None
) -> Iterator[LinkPrediction]:
    """Score every candidate by itself and select the `top_k` most likely."""
    remaining = pairs.candidate_links(
        prepared.log, prepared.similarity, window=window.window, lookahead=window.lookahead, indices=indices
    )
    while batch := list(islice(remaining, _BATCH_FIRST)):
        tables = [links.features for links in batch]
        scores = mean_scores(trees, np.concatenate(tables))
        for links, own_scores in zip(batch, _split(scores, tables), strict=True):
            probs = softmax(own_scores, np.array([len(own_scores)])).astype(np.float32)
            best = np.argsort(-probs[:-1], kind="stable")[: window.top_k]
            top = np.append(np.sort(best), len(probs) - 1).astype(np.int32)
            yield LinkPrediction(links.index, links.candidates, probs, top, links.features[top])


def second_pass_features(
    prediction: LinkPrediction, predicted: PredictedClusters, prepared: PreparedLog, window: CandidateWindow
) -> Floats:
    """(top candidates, SECOND_FEATURES)"""
    of_clusters = clusters.cluster_features(
        prediction,
        predicted,
        prepared.log,
        prepared.similarity,
        window=window.window,
        lookahead=window.lookahead,
    )
    return np.concatenate((prediction.top_features, of_clusters), axis=1)


def mean_scores(trees: Sequence[BoostedTrees], features: Floats) -> Doubles:
    """The scores of several members, averaged."""
    mean: Doubles = np.mean([member.scores(features) for member in trees], axis=0)
    return mean


def _split(scores: Doubles, tables: Sequence[Floats]) -> list[Doubles]:
    """Scores of concatenated tables, split into one array per table."""
    return np.split(scores, np.cumsum([len(table) for table in tables])[:-1])
