"""BLEU (Papineni et al. 2002): how many n-grams of a reply occur in the reference, with a penalty for short replies.

The metric is BLEU of single replies, averaged. Tokens are words and punctuation marks in lower case
(`tertulia.core.text.tokens`). A precision of zero is smoothed: the k-th one becomes 1 / (2^k n-grams) (the NIST way,
method 3 of Chen and Cherry 2014), and lengths of n-grams that the reply is too short for are left out. Replies that
share no token with the reference have a BLEU of 0. These are the choices that sacrebleu makes for single sentences; its
tokens are others. A reply without a reference has no value.

BLEU of a corpus pools counts of all replies before it takes logarithms. That is no sum over a sum, so it has no
reduction and no row in the registry; `corpus_bleu` computes it, without an interval.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from tertulia.core.estimate import Estimate
from tertulia.core.text import ngrams, tokens
from tertulia.metrics.metric import Metric, MetricFamily, ReplyExample

MAX_ORDER = 9
"""Longer n-grams than that hardly ever match."""


class BleuCounts(NamedTuple):
    """What BLEU is computed from; counts of several replies can be added."""

    matches: tuple[int, ...]
    """N-grams of the reply that the reference has, each at most as often as there, by length."""
    totals: tuple[int, ...]
    """All n-grams of the reply, by length."""
    reply_length: int
    reference_length: int


def bleu_counts(reply: str, reference: str, order: int) -> BleuCounts:
    """The counts of a reply, for n-grams of up to `order` tokens."""
    predicted, expected = tokens(reply), tokens(reference)
    matches: list[int] = []
    totals: list[int] = []
    for n in range(1, order + 1):
        own = Counter(ngrams(predicted, n))
        matches.append((own & Counter(ngrams(expected, n))).total() if matches[-1:] != [0] else 0)
        totals.append(own.total())
    return BleuCounts(tuple(matches), tuple(totals), len(predicted), len(expected))


def bleu(reply: str, reference: str, order: int = 4) -> float:
    """BLEU of one reply; nan without a reference.

    >>> round(bleu("the cat sat on the mat", "the cat is on the mat", order=2), 4)
    0.7071
    """
    counts = bleu_counts(reply, reference, order)
    return _bleu(counts) if counts.reference_length else math.nan


def corpus_bleu(batch: Iterable[ReplyExample], order: int = 4) -> Estimate:
    """BLEU of all replies that have a reference, from their added counts; n is the number of those replies.

    >>> str(corpus_bleu([ReplyExample("tea for two", "tea for two"), ReplyExample("tea", "")], order=2))
    '1.000 (n = 1)'
    """
    counted = [bleu_counts(one.reply, one.reference, order) for one in batch]
    counted = [one for one in counted if one.reference_length]
    if not counted:
        return Estimate(math.nan, n=0)
    total = BleuCounts(
        tuple(map(sum, zip(*(one.matches for one in counted), strict=True))),
        tuple(map(sum, zip(*(one.totals for one in counted), strict=True))),
        sum(one.reply_length for one in counted),
        sum(one.reference_length for one in counted),
    )
    return Estimate(_bleu(total), n=len(counted))


def _bleu(counts: BleuCounts) -> float:
    if not counts.matches[0]:
        return 0.0
    logs, smoothing = [], 1.0
    for matches, total in zip(counts.matches, counts.totals, strict=True):
        if not total:
            break
        if not matches:
            smoothing *= 2
        logs.append(math.log(matches / total if matches else 1 / (smoothing * total)))
    penalty = min(0.0, 1 - counts.reference_length / counts.reply_length)
    return math.exp(penalty + sum(logs) / len(logs))


def bleu_of_replies(batch: Sequence[ReplyExample], *, order: int) -> list[float]:
    """BLEU of each reply with its reference."""
    return [bleu(one.reply, one.reference, order) for one in batch]


def _metric(name: str, order: int) -> Metric | None:
    if order > MAX_ORDER:
        return None
    return Metric(
        name,
        "reply",
        "mean",
        f"BLEU of single replies with n-grams of up to {order} tokens, smoothed",
        "Papineni et al. 2002; Chen and Cherry 2014",
        bounded=True,
        compute=partial(bleu_of_replies, order=order),
    )


BLEU = MetricFamily("bleu-N", _metric, "BLEU of single replies, smoothed, with n-grams of up to N tokens")
