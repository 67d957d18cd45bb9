"""The learned disentangler: links every line of a log to the line it replies to, or to itself if it starts something.

Two passes of gradient-boosted trees. The first scores each candidate link by itself (`pair_features`). The second
scores the most likely few again, given the clusters that the first pass predicts (`cluster_features`); the final score
averages both. A line may reply to two lines of one conversation. System lines link to themselves, and where the source
records what is replied to, that link is used as it is. The task, the annotations and the measures are those of
Kummerfeld et al. (2019, arXiv 1810.11118).

Most candidates are hopeless after a few trees of the first pass; only the others are scored by all.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tertulia.core.config import Config
from tertulia.corpus.chatlogs import cluster_features as clusters
from tertulia.corpus.chatlogs import pair_features as pairs
from tertulia.corpus.chatlogs.boosted_trees import PROBE_TREES, BoostedTrees, Doubles, hopeful_rows, softmax
from tertulia.corpus.chatlogs.cluster_features import LinkPredictions, cluster_predictions
from tertulia.corpus.chatlogs.encoded_log import EncodedLog, Floats, Ints, encode_log
from tertulia.corpus.chatlogs.log import LogLine
from tertulia.corpus.chatlogs.pair_features import CandidateBlock, LogHistory
from tertulia.corpus.chatlogs.similarity import IdfTable, SimilarityBands, similarity_bands

FIRST_FEATURES, SECOND_FEATURES = pairs.NAMES, (*pairs.NAMES, *clusters.NAMES)
"""The feature names of the two passes."""
_SECOND_BLOCK = 500
"""Utterances of the second pass that are computed at once."""
_MIN_PROB = 1e-9
SECOND_LINK = 0.4
"""A line also replies to its second-best candidate if that is at least so likely and in the same conversation. An
additional link raises the expected F of links if its probability exceeds F / 2. Of 0.35, 0.4 and 0.45 this was the best
on training logs of #ubuntu that were held out. Conversations do not change."""


class CandidateWindow(Config):
    """How far the disentangler looks for candidates."""

    window: int = Field(default=100, ge=1, le=1000)
    """How many utterances back a link may go."""
    lookahead: int = Field(default=20, ge=0)
    """How many utterances ahead the features look."""
    top_k: int = Field(default=12, ge=1)
    """Number of candidates that the second pass scores again."""


@dataclass(frozen=True, slots=True)
class PreparedLog:
    """A log prepared for scoring."""

    log: EncodedLog
    similarity: SimilarityBands

    def history(self, window: CandidateWindow) -> LogHistory:
        """The events of the log, for the features."""
        return pairs.read_history(self.log, self.similarity, lookahead=window.lookahead)


@dataclass(frozen=True, slots=True)
class ScoredCandidates:
    """The candidates of one line, by line numbers, the line itself last, with their log-probabilities."""

    line: int
    candidates: tuple[int, ...]
    scores: Doubles
    reply_to: int | None = None
    """The line replied to, if the source records it."""

    def links(self, start_bias: float) -> tuple[int, ...]:
        """The best candidate, and the second best if that is likely enough to be replied to as well."""
        if self.reply_to is not None:
            return (self.reply_to,)
        scores = self.scores.copy()
        scores[-1] += start_bias
        best = int(np.argmax(scores))
        probs = np.exp(scores - scores[best])
        likely = probs >= SECOND_LINK * probs.sum()
        likely[[best, -1]] = False  # a line that replies to another one does not start a conversation
        return (self.candidates[best], *(self.candidates[k] for k in np.flatnonzero(likely)))


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
        history = prepared.history(self.window)
        predictions = first_pass(history, self.window, self.first, indices)
        if self.second:
            return list(self._second_pass(history, predictions))
        scores = np.log(np.maximum(predictions.probs, _MIN_PROB))
        return list(_by_numbers(history.log, predictions.indices, predictions.sizes, predictions.candidates, scores))

    def _second_pass(self, history: LogHistory, predictions: LinkPredictions) -> Iterator[ScoredCandidates]:
        for block, features in second_pass_features(predictions, history, self.window):
            second = log_softmax(mean_scores(self.second, features), block.top_sizes)
            # The two passes make different mistakes: the mean of their log-probabilities beats either.
            first = np.log(np.maximum(block.probs[block.top], _MIN_PROB))
            candidates = block.candidates[block.top]
            yield from _by_numbers(history.log, block.indices, block.top_sizes, candidates, (first + second) / 2)


def best_links(
    scored: Sequence[ScoredCandidates],
    lines: Sequence[LogLine],
    numbers: Collection[int] | None = None,
    *,
    start_bias: float = 0.0,
) -> dict[int, frozenset[int]]:
    """The best candidate of each line, and a second one of the same conversation; a system line links to itself."""
    links = {line.number: frozenset({line.number}) for line in lines}
    roots = {line.number: line.number for line in lines}  # the first line of each line's conversation
    for candidates in scored:
        best, *others = candidates.links(start_bias)
        root = roots[candidates.line] = roots[best]
        links[candidates.line] = frozenset({best, *(other for other in others if roots[other] == root)})
    return links if numbers is None else {number: links[number] for number in numbers}


def _by_numbers(
    log: EncodedLog, indices: Ints, sizes: Ints, candidates: Ints, scores: Floats | Doubles
) -> Iterator[ScoredCandidates]:
    """Translate indices of utterances into line numbers."""
    numbers, all_scores = log.numbers[candidates].tolist(), scores.astype(np.float64)
    start = 0
    for index, size in zip(indices.tolist(), sizes.tolist(), strict=True):
        reply_to, stop = log.reply_to[index], start + size
        yield ScoredCandidates(
            int(log.numbers[index]),
            tuple(numbers[start:stop]),
            all_scores[start:stop],
            None if reply_to is None else int(log.numbers[reply_to]),
        )
        start = stop


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
    history: LogHistory, window: CandidateWindow, trees: Sequence[BoostedTrees], indices: Collection[int] | None
) -> LinkPredictions:
    """Score every candidate by itself and select the `top_k` most likely."""
    blocks = [
        _first_pass(block, window, trees)
        for block in pairs.candidate_blocks(history, window=window.window, indices=indices)
    ]
    if not blocks:
        return _no_predictions()
    starts = np.cumsum([0, *(len(block.probs) for block in blocks[:-1])])
    return LinkPredictions(
        indices=np.concatenate([block.indices for block in blocks]),
        sizes=np.concatenate([block.sizes for block in blocks]),
        candidates=np.concatenate([block.candidates for block in blocks]),
        probs=np.concatenate([block.probs for block in blocks]),
        top=np.concatenate([block.top + start for block, start in zip(blocks, starts, strict=True)]),
        top_sizes=np.concatenate([block.top_sizes for block in blocks]),
        top_features=np.concatenate([block.top_features for block in blocks]),
    )


def _no_predictions() -> LinkPredictions:
    none = np.zeros(0, np.int32)
    features = np.zeros((0, len(FIRST_FEATURES)), np.float32)
    return LinkPredictions(none, none, none, np.zeros(0, np.float32), none, none, features)


def _first_pass(block: CandidateBlock, window: CandidateWindow, trees: Sequence[BoostedTrees]) -> LinkPredictions:
    hopeful = hopeful_rows(trees[0].scores(block.features, first=PROBE_TREES), block.sizes)
    scores = np.full(len(block.candidates), -np.inf)
    scores[hopeful] = mean_scores(trees, block.features[hopeful])
    probs = softmax(scores, block.sizes).astype(np.float32)
    top = _top_rows(np.where(hopeful, probs, -1.0), block.sizes, window.top_k)
    top_sizes = np.add.reduceat(top.astype(np.int32), np.cumsum(block.sizes) - block.sizes)
    rows = np.flatnonzero(top).astype(np.int32)
    return LinkPredictions(
        block.indices, block.sizes, block.candidates, probs, rows, top_sizes.astype(np.int32), block.features[rows]
    )


def _top_rows(probs: Floats | Doubles, sizes: Ints, top_k: int) -> NDArray[np.bool_]:
    """(rows,): the `top_k` most likely candidates of each utterance, of equals the first, and the utterance itself.

    Rows with a negative probability were ruled out.
    """
    table = np.full((len(sizes), int(sizes.max())), -1.0)
    present = np.arange(table.shape[1]) < sizes[:, None]
    table[present] = probs
    last = (np.arange(len(sizes)), sizes - 1)
    table[last] = -1.0
    chosen = (pairs.ranks(table) < top_k) & (table >= 0)
    chosen[last] = True
    rows: NDArray[np.bool_] = chosen[present]
    return rows


def second_pass_features(
    predictions: LinkPredictions, history: LogHistory, window: CandidateWindow
) -> Iterator[tuple[LinkPredictions, Floats]]:
    """The predictions block by block, with (top candidates, SECOND_FEATURES) of each."""
    predicted = cluster_predictions(predictions, history)
    for block in _blocks(predictions, _SECOND_BLOCK):
        of_clusters = clusters.cluster_features(block, predicted, history, window=window.window)
        yield block, np.concatenate((block.top_features, of_clusters), axis=1)


def _blocks(predictions: LinkPredictions, size: int) -> Iterator[LinkPredictions]:
    """The predictions of `size` utterances at a time."""
    rows = np.concatenate(([0], np.cumsum(predictions.sizes)))
    tops = np.concatenate(([0], np.cumsum(predictions.top_sizes)))
    for start in range(0, len(predictions.indices), size):
        stop = min(start + size, len(predictions.indices))
        own, top = slice(rows[start], rows[stop]), slice(tops[start], tops[stop])
        yield LinkPredictions(
            predictions.indices[start:stop],
            predictions.sizes[start:stop],
            predictions.candidates[own],
            predictions.probs[own],
            (predictions.top[top] - rows[start]).astype(np.int32),
            predictions.top_sizes[start:stop],
            predictions.top_features[top],
        )


def mean_scores(trees: Sequence[BoostedTrees], features: Floats) -> Doubles:
    """The scores of several members, averaged."""
    mean: Doubles = np.mean([member.scores(features) for member in trees], axis=0)
    return mean


def log_softmax(scores: Doubles, sizes: Ints) -> Doubles:
    """The logarithm of the softmax within each group of consecutive scores."""
    starts = np.cumsum(sizes) - sizes
    totals = np.logaddexp.reduceat(scores, starts) if len(scores) else scores
    result: Doubles = scores - np.repeat(totals, sizes)
    return result
