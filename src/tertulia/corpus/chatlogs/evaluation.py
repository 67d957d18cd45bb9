"""Measures of disentanglement against gold links, as Kummerfeld et al. (2019, arXiv 1810.11118) define them.

Links: precision, recall and F over single links. Exact match: precision, recall and F over clusters (conversations) of
more than one line that are identical. VI: variation of information, scaled so that 100 is perfect. One-to-one overlap:
share of lines in the best one-to-one matching of predicted and gold clusters.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from tertulia.corpus.chatlogs.gold import Links, clusters_of

Clusters = Collection[frozenset[int]]
"""Conversations of one log: disjoint sets of line numbers."""


class PrecisionRecall(NamedTuple):
    """Precision, recall and F (their harmonic mean), in per cent; nan where there is nothing to divide by."""

    precision: float
    recall: float
    f: float

    @classmethod
    def of(cls, correct: int, predicted: int, gold: int) -> "PrecisionRecall":
        """From counts.

        >>> PrecisionRecall.of(1, 2, 4)
        PrecisionRecall(precision=50.0, recall=25.0, f=33.333333333333336)
        """
        precision, recall = (100 * correct / n if n else math.nan for n in (predicted, gold))
        return cls(precision, recall, 200 * correct / (predicted + gold) if predicted + gold else math.nan)


@dataclass(frozen=True, slots=True)
class Disentanglement:
    """All measures over a set of logs."""

    links: PrecisionRecall | None
    """None where only clusters are predicted, as the rules do."""
    exact: PrecisionRecall
    vi: float
    one_to_one: float
    lines: int
    """Number of annotated lines."""

    def as_json(self) -> dict[str, float]:
        """Flat, for tables and records."""
        scores = {"link": self.links, "exact": self.exact}
        flat = {f"{name}_{k}": v for name, s in scores.items() if s for k, v in s._asdict().items()}
        return flat | {"vi": self.vi, "one_to_one": self.one_to_one, "lines": self.lines}


def evaluate_links(predicted: Sequence[Links], gold: Sequence[Links]) -> Disentanglement:
    """Compare predicted links with gold ones, log by log, over the lines that have gold links.

    A line without a prediction counts as the start of a conversation.
    """
    if len(predicted) != len(gold):
        raise ValueError(f"predictions for {len(predicted)} logs, but gold links for {len(gold)}")
    kept = [{line: p.get(line, frozenset({line})) for line in g} for p, g in zip(predicted, gold, strict=True)]
    correct = sum(len(p[line] & earlier) for p, g in zip(kept, gold, strict=True) for line, earlier in g.items())
    totals = (sum(len(earlier) for log in side for earlier in log.values()) for side in (kept, gold))
    of_clusters = evaluate_clusters([clusters_of(p) for p in kept], [clusters_of(g) for g in gold])
    return Disentanglement(
        links=PrecisionRecall.of(correct, *totals),
        exact=of_clusters.exact,
        vi=of_clusters.vi,
        one_to_one=of_clusters.one_to_one,
        lines=of_clusters.lines,
    )


def evaluate_clusters(predicted: Sequence[Clusters], gold: Sequence[Clusters]) -> Disentanglement:
    """Compare predicted clusters with gold ones, log by log; both must be partitions of the same lines."""
    pairs = list(zip(predicted, gold, strict=True))
    lines = sum(len(cluster) for _, g in pairs for cluster in g)
    return Disentanglement(
        links=None,
        exact=exact_match(pairs),
        vi=_scaled_vi(pairs, lines),
        one_to_one=100 * sum(_matched_lines(p, g) for p, g in pairs) / lines if lines else math.nan,
        lines=lines,
    )


def exact_match(pairs: Sequence[tuple[Clusters, Clusters]]) -> PrecisionRecall:
    """Clusters of more than one line that were predicted exactly."""
    several = [[{cluster for cluster in side if len(cluster) > 1} for side in pair] for pair in pairs]
    correct = sum(len(p & g) for p, g in several)
    return PrecisionRecall.of(correct, sum(len(p) for p, _ in several), sum(len(g) for _, g in several))


def as_partition(clusters: Collection[Set[int]], lines: Collection[int]) -> set[frozenset[int]]:
    """Make clusters a partition of the lines.

    Other lines are dropped, a line in several clusters stays in the first, a line in none becomes its own.

    >>> sorted(map(sorted, as_partition([{1, 2, 9}, {2, 3}], [1, 2, 3, 4])))
    [[1, 2], [3], [4]]
    """
    remaining = set(lines)
    partition: set[frozenset[int]] = set()
    for cluster in clusters:
        if own := frozenset(cluster & remaining):
            partition.add(own)
            remaining -= own
    return partition | {frozenset({line}) for line in remaining}


def _overlaps(predicted: Clusters, gold: Clusters) -> Mapping[tuple[int, int], int]:
    """How many lines the predicted cluster j and the gold cluster k share, by (j, k)."""
    gold_of = {line: k for k, cluster in enumerate(gold) for line in cluster}
    return Counter((j, gold_of[line]) for j, cluster in enumerate(predicted) for line in cluster if line in gold_of)


def _matched_lines(predicted: Clusters, gold: Clusters) -> int:
    """Lines in common in the best one-to-one matching of clusters."""
    shared = np.zeros((len(predicted), len(gold)))
    for (j, k), n in _overlaps(predicted, gold).items():
        shared[j, k] = n
    return int(shared[scipy.optimize.linear_sum_assignment(-shared)].sum())


def _scaled_vi(pairs: Sequence[tuple[Clusters, Clusters]], lines: int) -> float:
    """100 (1 - VI / log2(lines)), over all logs taken together; log2(lines) is the largest possible VI."""
    if lines < 2:
        return math.nan
    vi = 0.0
    for predicted, gold in pairs:
        sizes = [len(cluster) for cluster in predicted], [len(cluster) for cluster in gold]
        for (j, k), n in _overlaps(predicted, gold).items():
            vi -= n / lines * (math.log2(n / sizes[0][j]) + math.log2(n / sizes[1][k]))
    return 100 - 100 * vi / math.log2(lines)
