"""How varied a set of replies is: distinct-n (Li et al. 2016), the share of different n-grams among all n-grams.

It has no interval: resampling texts repeats them, so that a bootstrap of a count of types never contains the value.
"""

from collections.abc import Iterable

from tertulia.core.estimate import Estimate
from tertulia.core.text import ngrams, words


def distinct(texts: Iterable[str], n: int) -> Estimate:
    """Different n-grams over all n-grams; n of the estimate is the number of n-grams.

    >>> distinct(["a b a b"], 1).value
    0.5
    """
    seen: set[tuple[str, ...]] = set()
    total = 0
    for text in texts:
        for gram in ngrams(words(text), n):
            seen.add(gram)
            total += 1
    return Estimate(len(seen) / total if total else float("nan"), n=total)
