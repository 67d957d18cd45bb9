"""How well a classifier's labels agree with the true ones: confusion matrix, accuracy, precision, recall, F1, ROC-AUC.

The functions in the first part are pure: labels or counts in, figures out. What has no data is nan, such as the
precision of a label that is never predicted, or ROC-AUC where one class is missing. As in scikit-learn, macro-F1 is the
mean over the labels that occur, among the true or the predicted ones.

The second part has the same figures as rows of the registry, so that every response keeps its value in a judged run.
Their unit is a verdict: one response by one classifier. Macro-F1 and ROC-AUC are no sums over sums; their values and
weights hold what is needed to compute them from any set of verdicts (`label_draws`).
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from tertulia.metrics.metric import Floats, Metric

Counts = NDArray[np.int64]
_RIJSBERGEN, _BEGIN = "van Rijsbergen 1979", "Dziri et al. 2021"


class ClassFigures(NamedTuple):
    """How well one label is recognised."""

    precision: float
    """Share of the predictions of this label that are right."""
    recall: float
    """Share of its cases that are found."""
    f1: float
    """Harmonic mean of both."""
    cases: int
    """How many there are."""


def confusion_matrix(true: Sequence[Hashable], predicted: Sequence[Hashable], labels: Sequence[Hashable]) -> Counts:
    """How often each true label (row) is predicted as each label (column).

    >>> confusion_matrix(["a", "b", "b"], ["a", "a", "b"], ["a", "b"]).tolist()
    [[1, 0], [1, 1]]
    """
    index = {label: i for i, label in enumerate(labels)}
    matrix = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(matrix, ([index[label] for label in true], [index[label] for label in predicted]), 1)
    return matrix


def accuracy(matrix: Counts | Floats) -> float:
    """The share of cases whose label is predicted; nan without cases.

    >>> round(accuracy(np.array([[1, 0], [1, 1]])), 3)
    0.667
    """
    return float(_quotient(matrix.trace(), matrix.sum()))


def class_figures(matrix: Counts | Floats) -> list[ClassFigures]:
    """Precision, recall and F1 of each label.

    >>> [tuple(round(x, 3) for x in figures) for figures in class_figures(np.array([[1, 0], [1, 1]]))]
    [(0.5, 1.0, 0.667, 1), (1.0, 0.5, 0.667, 2)]
    """
    right, rows, columns = matrix.diagonal(), matrix.sum(axis=1), matrix.sum(axis=0)
    figures = zip(_quotient(right, columns), _quotient(right, rows), _f1(matrix), rows, strict=True)
    return [ClassFigures(float(p), float(r), float(f), int(cases)) for p, r, f, cases in figures]


def macro_f1(matrices: Counts | Floats, occurring: NDArray[np.bool_] | None = None) -> Floats:
    """The mean F1 of the labels that occur, of one confusion matrix or of each of many (in the last two axes).

    In resamples a rare label may be missing. Given the labels that occur in the whole set, its F1 is 0 there: otherwise
    the mean would jump with what it is a mean of.

    >>> float(macro_f1(np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0]])).round(3))
    0.667
    """
    f1 = _f1(matrices)
    occurs = ~np.isnan(f1)
    if occurring is not None:
        return _quotient(np.where(occurs & occurring, f1, 0.0).sum(axis=-1), np.asarray(occurring.sum()))
    return _quotient(np.where(occurs, f1, 0.0).sum(axis=-1), occurs.sum(axis=-1))


def roc_auc(positive: Sequence[bool], scores: Sequence[float]) -> float:
    """How probably a positive case has a higher score than a negative one, ties as half (Hanley and McNeil 1982).

    >>> roc_auc([True, True, False, False], [0.9, 0.4, 0.4, 0.1])
    0.875
    """
    is_positive = np.asarray(positive, dtype=bool)
    count, others = int(is_positive.sum()), int((~is_positive).sum())
    if not count or not others:
        return float("nan")
    ranks = scipy.stats.rankdata(np.asarray(scores, dtype=np.float64))
    return float((ranks[is_positive].sum() - count * (count + 1) / 2) / (count * others))


def weighted_auc(positive: Floats, scores: Floats, weights: Floats) -> Floats:
    """ROC-AUC under each row of weights (rows, cases): how often a case counts, as in a resample.

    >>> weighted_auc(np.array([1.0, 0.0, 0.0]), np.array([0.5, 0.1, 0.9]), np.array([[1.0, 1, 1], [1, 3, 1]])).tolist()
    [0.5, 0.75]
    """
    if not len(scores):
        return np.full(len(weights), np.nan)
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(scores[order]) > 0])  # of runs of equal scores
    ordered = weights[:, order]
    above = np.add.reduceat(ordered * positive[order], starts, axis=1)
    negative = np.add.reduceat(ordered * (1 - positive[order]), starts, axis=1)
    below = np.cumsum(negative, axis=1) - negative / 2
    return _quotient((above * below).sum(axis=1), above.sum(axis=1) * negative.sum(axis=1))


def _f1(matrices: Counts | Floats) -> Floats:
    """By label: 2 right / (true + predicted), nan for one that does not occur."""
    counts = np.asarray(matrices, dtype=np.float64)
    right = np.diagonal(counts, axis1=-2, axis2=-1)
    return _quotient(2 * right, counts.sum(axis=-1) + counts.sum(axis=-2))


def _quotient(numerator: Counts | Floats, denominator: Counts | Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(denominator != 0, numerator / np.asarray(denominator, dtype=np.float64), np.nan)


class LabelVerdict(NamedTuple):
    """The true and the predicted label of a response, as numbers from 0."""

    true: int
    predicted: int


class ClassVerdict(NamedTuple):
    """Whether a response has a label, and whether the classifier says so."""

    true: bool
    predicted: bool


class ScoredVerdict(NamedTuple):
    """Whether a response belongs to the positive class, and how strongly the classifier speaks for it."""

    positive: bool
    score: float


def _right(batch: Sequence[LabelVerdict]) -> tuple[list[float], list[float]]:
    return [float(one.true == one.predicted) for one in batch], [1.0] * len(batch)


def _precision(batch: Sequence[ClassVerdict]) -> tuple[list[float], list[float]]:
    return [float(one.true and one.predicted) for one in batch], [float(one.predicted) for one in batch]


def _recall(batch: Sequence[ClassVerdict]) -> tuple[list[float], list[float]]:
    return [float(one.true and one.predicted) for one in batch], [float(one.true) for one in batch]


def _jaccard(batch: Sequence[ClassVerdict]) -> tuple[list[float], list[float]]:
    """What F1 is a function of: right cases among those that are true or predicted.

    >>> _jaccard([ClassVerdict(True, True), ClassVerdict(True, False), ClassVerdict(False, False)])
    ([1.0, 0.0, 0.0], [1.0, 1.0, 0.0])
    """
    return [float(one.true and one.predicted) for one in batch], [float(one.true or one.predicted) for one in batch]


def _labels(batch: Sequence[LabelVerdict]) -> tuple[list[float], list[float]]:
    return [float(one.predicted) for one in batch], [float(one.true) for one in batch]


def _scores(batch: Sequence[ScoredVerdict]) -> tuple[list[float], list[float]]:
    return [one.score for one in batch], [float(one.positive) for one in batch]


ACCURACY = Metric(
    "label accuracy", "verdict", "share", "share of responses whose label is predicted", _BEGIN, compute=_right
)
PRECISION = Metric(
    "label precision",
    "verdict",
    "share",
    "share of the predictions of a label that are right, by label",
    _RIJSBERGEN,
    compute=_precision,
)
RECALL = Metric(
    "label recall",
    "verdict",
    "share",
    "share of the responses of a label that are found, by label",
    _RIJSBERGEN,
    compute=_recall,
)
F1 = Metric(
    "label F1", "verdict", "f1", "harmonic mean of precision and recall, by label", _RIJSBERGEN, compute=_jaccard
)
MACRO_F1 = Metric(
    "macro-F1",
    "verdict",
    "macro-f1",
    "mean F1 of the labels; the value of a response is its predicted label, its weight the true one, from 0",
    _BEGIN,
    compute=_labels,
)
ROC_AUC = Metric(
    "ROC-AUC",
    "verdict",
    "auc",
    "how probably a supported response has a higher score than another; the weight of a supported one is 1",
    "Hanley and McNeil 1982",
    compute=_scores,
)
