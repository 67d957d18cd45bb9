"""Near-duplicates among texts: nearly the same words in nearly the same order, found through shared pairs of words."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from tertulia.core.text import ngrams, words


class NearDuplicate(NamedTuple):
    """A text that is much like an earlier one."""

    place: int
    earlier: int
    similarity: float
    """Jaccard similarity of their sets of neighbouring word pairs."""


def near_duplicates(texts: Iterable[str], *, threshold: float = 0.7, min_words: int = 4) -> list[NearDuplicate]:
    """Each text with the most similar earlier one, where that is similar enough. Short texts do not count.

    >>> near_duplicates(["i like my tea very hot", "no", "i like my tea very hot indeed"])[0].earlier
    0
    """
    shingles = [_pairs(text, min_words) for text in texts]
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    found: list[NearDuplicate] = []
    for place, own in enumerate(shingles):
        shared = Counter(earlier for pair in own for earlier in holders[pair])
        scored = [(n / (len(own) + len(shingles[e]) - n), e) for e, n in shared.items()]
        if scored and max(scored)[0] >= threshold:
            similarity, earlier = max(scored)
            found.append(NearDuplicate(place, earlier, similarity))
        for pair in own:
            holders[pair].append(place)
    return found


def _pairs(text: str, min_words: int) -> set[tuple[str, ...]]:
    said = words(text)
    return set(ngrams(said, 2)) if len(said) >= min_words else set()
