"""How well conversations were pulled apart, against hand-made links (Kummerfeld et al. 2019, arXiv 1810.11118).

Links: precision, recall and F over single links. Conversations: those found exactly, of more than one line. VI:
variation of information, scaled so that 100 is perfect. One-to-one: share of lines in the best pairing of found and
true conversations.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from tertulia.corpus.rooms.gold import Links, conversations

Parts = Collection[frozenset[int]]
"""Conversations of one log: sets of line numbers that do not overlap."""


class Score(NamedTuple):
    """Precision, recall and their harmonic mean, in per cent; nan where there is nothing to divide by."""

    precision: float
    recall: float
    f: float

    @classmethod
    def of(cls, right: int, found: int, true: int) -> "Score":
        """From counts.

        >>> Score.of(1, 2, 4)
        Score(precision=50.0, recall=25.0, f=33.333333333333336)
        """
        precision, recall = (100 * right / n if n else math.nan for n in (found, true))
        return cls(precision, recall, 200 * right / (found + true) if found + true else math.nan)


@dataclass(frozen=True, slots=True)
class Agreement:
    """All figures over a set of logs."""

    links: Score | None
    """None where only conversations were found, as the rules do."""
    exact: Score
    vi: float
    one_to_one: float
    lines: int
    """Annotated lines that were compared."""

    def as_json(self) -> dict[str, float]:
        """Flat, for tables and records."""
        scores = {"link": self.links, "exact": self.exact}
        flat = {f"{name}_{k}": v for name, s in scores.items() if s for k, v in s._asdict().items()}
        return flat | {"vi": self.vi, "one_to_one": self.one_to_one, "lines": self.lines}


def agreement(found: Sequence[Links], true: Sequence[Links]) -> Agreement:
    """Compare found links with true ones, log by log; only the lines that have true links count."""
    if len(found) != len(true):
        raise ValueError("as many logs must be found as there are true ones")
    kept = [{line: f.get(line, frozenset({line})) for line in t} for f, t in zip(found, true, strict=True)]
    right = sum(len(f[line] & earlier) for f, t in zip(kept, true, strict=True) for line, earlier in t.items())
    links = Score.of(right, *(sum(len(earlier) for t in side for earlier in t.values()) for side in (kept, true)))
    parts = part_agreement([conversations(f) for f in kept], [conversations(t) for t in true])
    return Agreement(links, parts.exact, parts.vi, parts.one_to_one, parts.lines)


def part_agreement(found: Sequence[Parts], true: Sequence[Parts]) -> Agreement:
    """Compare found conversations with true ones, log by log; both hold the same lines."""
    pairs = list(zip(found, true, strict=True))
    lines = sum(len(part) for _, t in pairs for part in t)
    return Agreement(
        links=None,
        exact=exact_score(pairs),
        vi=_vi(pairs, lines),
        one_to_one=100 * sum(_paired(f, t) for f, t in pairs) / lines if lines else math.nan,
        lines=lines,
    )


def exact_score(pairs: Sequence[tuple[Parts, Parts]]) -> Score:
    """Conversations of more than one line that were found line for line."""
    several = [[{part for part in side if len(part) > 1} for side in pair] for pair in pairs]
    right = sum(len(f & t) for f, t in several)
    return Score.of(right, sum(len(f) for f, _ in several), sum(len(t) for _, t in several))


def complete(parts: Collection[Set[int]], lines: Collection[int]) -> set[frozenset[int]]:
    """Conversations as a partition of the lines: others dropped, a line in several stays in the first, lone ones added.

    >>> sorted(map(sorted, complete([{1, 2, 9}, {2, 3}], [1, 2, 3, 4])))
    [[1, 2], [3], [4]]
    """
    left = set(lines)
    kept: set[frozenset[int]] = set()
    for part in parts:
        if own := frozenset(part & left):
            kept.add(own)
            left -= own
    return kept | {frozenset({line}) for line in left}


def _overlaps(found: Parts, true: Parts) -> Mapping[tuple[int, int], int]:
    owner = {line: k for k, part in enumerate(true) for line in part}
    return Counter((j, owner[line]) for j, part in enumerate(found) for line in part if line in owner)


def _paired(found: Parts, true: Parts) -> int:
    table = np.zeros((len(found), len(true)))
    for (j, k), n in _overlaps(found, true).items():
        table[j, k] = n
    return int(table[linear_sum_assignment(-table)].sum())


def _vi(pairs: Sequence[tuple[Parts, Parts]], lines: int) -> float:
    """100 - VI / log2(lines) in per cent, over all logs taken together."""
    if lines < 2:
        return math.nan
    lost = 0.0
    for found, true in pairs:
        sizes = [len(part) for part in found], [len(part) for part in true]
        for (j, k), n in _overlaps(found, true).items():
            lost -= n / lines * (math.log2(n / sizes[0][j]) + math.log2(n / sizes[1][k]))
    return 100 - 100 * lost / math.log2(lines)
