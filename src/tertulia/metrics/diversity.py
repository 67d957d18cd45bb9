"""How varied a set of replies is: distinct-n (Li et al. 2016), the share of different n-grams among all n-grams.

It has no interval: resampling texts repeats them, so that a bootstrap of a count of types never contains the value. As
a metric, the value of a reply is the number of its n-grams that no earlier reply has, its weight the number of all its
n-grams: the sum of the values over the sum of the weights is distinct-n of the set.

Entropy (Ent-n in Zhang et al. 2018b) also sees how evenly n-grams are used: a set in which half of the n-grams are "i
don't know" has a lower one. The value of a reply is the information of its n-grams, -log p summed, with their
frequencies in the set as probabilities; its weight is their number. It has no interval for the same reason.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import partial

from tertulia.core.estimate import Estimate
from tertulia.core.text import ngrams, squash, words
from tertulia.metrics.metric import Metric, MetricFamily, ReplyExample


def distinct(texts: Iterable[str], n: int) -> Estimate:
    """Different n-grams over all n-grams; n of the estimate is the number of n-grams.

    >>> distinct(["a b a b"], 1).value
    0.5
    """
    new, total = _new_and_all(ngrams(words(text), n) for text in texts)
    return Estimate(sum(new) / sum(total) if sum(total) else float("nan"), n=sum(total))


def new_ngrams(batch: Sequence[ReplyExample], *, n: int) -> tuple[list[int], list[int]]:
    """For each reply: n-grams that no earlier reply has, and all n-grams.

    >>> new_ngrams([ReplyExample("a b a b"), ReplyExample("a c")], n=1)
    ([2, 1], [4, 2])
    """
    return _new_and_all(ngrams(words(one.reply), n) for one in batch)


def ngram_information(batch: Sequence[ReplyExample], *, n: int) -> tuple[list[float], list[int]]:
    """For each reply: the information of its n-grams in nats, by their frequencies in all replies, and their number.

    >>> information, counts = ngram_information([ReplyExample("a b"), ReplyExample("a c")], n=1)
    >>> round(sum(information) / sum(counts) / math.log(2), 3)  # a: one half, b and c: a quarter each
    1.5
    """
    grams = [Counter(ngrams(words(one.reply), n)) for one in batch]
    frequencies: Counter[tuple[str, ...]] = Counter()
    for own in grams:
        frequencies.update(own)
    total = frequencies.total()
    information = [math.fsum(k * math.log(total / frequencies[gram]) for gram, k in own.items()) for own in grams]
    return information, [own.total() for own in grams]


def new_replies(batch: Sequence[ReplyExample]) -> tuple[list[int], list[int]]:
    """For each reply: 1 if no earlier reply has the same text, else 0; case and spaces aside."""
    return _new_and_all([(squash(one.reply).lower(),)] for one in batch)


def _new_and_all(texts: Iterable[Iterable[Hashable]]) -> tuple[list[int], list[int]]:
    seen: set[Hashable] = set()
    new, total = [], []
    for grams in texts:
        listed, before = list(grams), len(seen)
        seen.update(listed)
        new.append(len(seen) - before)
        total.append(len(listed))
    return new, total


def _distinct(name: str, n: int) -> Metric:
    return Metric(
        name,
        "reply",
        "pooled",
        f"share of different {n}-grams among all {n}-grams",
        "Li et al. 2016",
        compute=partial(new_ngrams, n=n),
    )


DISTINCT = MetricFamily("distinct-N", _distinct, "share of different n-grams among all n-grams of the replies")


def _entropy(name: str, n: int) -> Metric:
    return Metric(
        name,
        "reply",
        "pooled",
        f"entropy of the {n}-grams of all replies, in nats",
        "Zhang et al. 2018b",
        compute=partial(ngram_information, n=n),
    )


ENTROPY = MetricFamily("entropy-N", _entropy, "entropy of the n-grams of all replies, in nats")
DISTINCT_REPLIES = Metric(
    "distinct replies",
    "reply",
    "pooled",
    "share of different replies among all replies",
    "Li et al. 2016",
    compute=new_replies,
)
