"""Macro-F1 and ROC-AUC of scores in resamples: figures of a set of verdicts that are no sums over sums.

`significance` reduces scores with it. Values and weights of a score are what `classification` puts there: for macro-F1
the predicted and the true label, for ROC-AUC the score and whether the response is positive. Clusters (passages) are
drawn whole; p-values are of a t test with the standard error of the jackknife over clusters (Tukey 1958).
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import scipy

from tertulia.metrics.classification import macro_f1, weighted_auc
from tertulia.metrics.intervals import (
    DRAWS_AT_ONCE,
    Codes,
    Floats,
    cluster_weights,
    percentile_interval,
    share_interval,
    wilson_interval,
)
from tertulia.metrics.metric import Reduction

SET_REDUCTIONS: Final[tuple[Reduction, ...]] = ("macro-f1", "auc")
"""Reductions to figures of a whole set."""


class LabelDraws:
    """The figures of several parts when clusters are drawn with replacement, the same ones for all parts."""

    def __init__(self, parts: Sequence[tuple[Sequence[str], Floats]], reduction: Reduction) -> None:
        """Each part: the cluster of each verdict, and rows of (value, weight); those without a value are left out."""
        self._reduction = reduction
        known = [~np.isnan(rows[:, 0]) for _, rows in parts]
        self._rows = [rows[mask] for (_, rows), mask in zip(parts, known, strict=True)]
        names = [np.asarray(c, dtype=np.str_)[mask] for (c, _), mask in zip(parts, known, strict=True)]
        every = np.unique(np.concatenate(names))
        self._count = len(every)
        self._codes: list[Codes] = [np.searchsorted(every, own) for own in names]
        self._tables = [
            _tables(rows, codes, self._count) if reduction == "macro-f1" else None
            for rows, codes in zip(self._rows, self._codes, strict=True)
        ]

    @property
    def clusters(self) -> int:
        """Of the part that has the fewest."""
        return min(len(np.unique(codes)) for codes in self._codes)

    def intervals(self, *, level: float, resamples: int, seed: int) -> list[tuple[float, float, float]]:
        """The figure of each part with the ends of its percentile interval, which does not collapse at 0 and 1."""
        values, sampled = self.figures(resamples, seed)
        figures = []
        for part, value in enumerate(values.tolist()):
            low, high = percentile_interval(sampled[:, part], level)
            if self._reduction == "macro-f1" and not math.isnan(value):
                ends = self._by_label(part, value, level)
                low, high = min(low, ends[0]), max(high, ends[1])
            elif value in (0.0, 1.0):
                low, high = self._edge(part, value, level)
            elif low == high:  # a score that is the same for all responses: .5 by definition, whatever the responses
                low, high = math.nan, math.nan
            figures.append((value, low, high))
        return figures

    def figures(self, resamples: int, seed: int) -> tuple[Floats, Floats]:
        """The figure of each part, and its figures in resamples (resamples, parts)."""
        if not self._count:
            return np.full(len(self._rows), np.nan), np.full((resamples, len(self._rows)), np.nan)
        width = max(len(rows) for rows in self._rows)
        blocks = cluster_weights(self._count, resamples=resamples, seed=seed, width=width)
        sampled = [self._under(weights) for weights in blocks]
        return self._under(np.ones((1, self._count)))[0], np.concatenate(sampled)

    def p_value(self) -> float:
        """Of no difference between two parts; no lower than that of an exact test with as many clusters."""
        if self._count < 2:
            return math.nan
        first, second = self._under(np.ones((1, self._count)))[0]
        left_out = np.concatenate([self._under(weights) for weights in _leave_one_out(self._count, len(self._rows[0]))])
        differences = left_out[:, 0] - left_out[:, 1]
        if np.isnan(differences).any() or math.isnan(first - second):
            return math.nan
        if abs(first - second) <= 1e-12:
            return 1.0
        spread = float(((differences - differences.mean()) ** 2).sum())
        error = math.sqrt((self._count - 1) / self._count * spread)
        p = 2 * float(scipy.special.stdtr(self._count - 1, -abs(first - second) / error)) if error else 0.0
        return max(p, 2.0 ** (1 - self._count))

    def _edge(self, part: int, value: float, level: float) -> tuple[float, float]:
        """ROC-AUC of 0 or 1 does not vary in resamples: Wilson's interval, of as many cases as the rarer class has."""
        codes, rows = self._codes[part], self._rows[part]
        counts = [len(np.unique(codes[rows[:, 1] == side])) for side in (0, 1)]
        return wilson_interval(value, max(1, min(counts)), level=level)

    def _by_label(self, part: int, value: float, level: float) -> tuple[float, float]:
        """Macro-F1's interval from those of its labels, as if these were independent (Zou and Donner 2008).

        Of a label with a handful of cases, resamples know too little, and the bootstrap alone covers far too seldom.
        The wider of both ends is nearer to 95 %, but with three cases of a label still below it
        (`benchmarks/label_intervals.py`). A label that is never predicted counts as one that the classifier does not
        have: its F1 is 0 for certain.
        """
        codes, (predicted, true) = self._codes[part], self._rows[part].T
        below, above, labels = 0.0, 0.0, np.unique(self._rows[part])
        for label in np.unique(predicted):
            both, either = ((true == label) & (predicted == label)), ((true == label) | (predicted == label))
            counts = np.stack([both, either], axis=1).astype(np.float64)
            share = both.sum() / either.sum()
            ends = (share, *share_interval(counts, codes, level=level))
            f1, low, high = (2 * end / (1 + end) for end in ends)
            below, above = below + (f1 - low) ** 2, above + (high - f1) ** 2
        count = max(len(labels), 1)
        return max(0.0, value - math.sqrt(below) / count), min(1.0, value + math.sqrt(above) / count)

    def _under(self, weights: Floats) -> Floats:
        """The figure of each part under each row of weights of clusters: (rows, parts)."""
        columns = []
        for rows, codes, table in zip(self._rows, self._codes, self._tables, strict=True):
            if table is None:
                columns.append(weighted_auc(rows[:, 1], rows[:, 0], weights[:, codes]))
            else:
                size = math.isqrt(table.shape[1])
                whole = table.sum(axis=0).reshape(size, size)
                occurring = whole.sum(axis=0) + whole.sum(axis=1) > 0
                columns.append(macro_f1((weights @ table).reshape(len(weights), size, size), occurring))
        return np.stack(columns, axis=1)


def _tables(rows: Floats, codes: Codes, count: int) -> Floats:
    """The confusion matrix of each cluster, flat; rows are (predicted, true)."""
    size = int(rows.max()) + 1 if len(rows) else 1
    tables = np.zeros((count, size * size))
    predicted, true = rows.astype(np.int64).T
    np.add.at(tables, (codes, true * size + predicted), 1.0)
    return tables


def _leave_one_out(count: int, width: int) -> Iterator[Floats]:
    """Weights that leave out each cluster in turn, in blocks."""
    at_once = max(1, DRAWS_AT_ONCE // max(count, width))
    for start in range(0, count, at_once):
        weights = np.ones((min(at_once, count - start), count))
        weights[np.arange(len(weights)), start + np.arange(len(weights))] = 0
        yield weights
