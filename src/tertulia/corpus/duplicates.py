"""Near-duplicates among texts by the Jaccard similarity of their word n-grams.

`near_duplicates` compares the texts of one set exactly, through an inverted index of word pairs. `similar_pairs`
compares two sets with MinHash signatures and banding (`corpus.shingles`), then computes the exact similarity of the
candidates. `remove_duplicates` does the latter for a corpus of any size (`corpus.near`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tertulia.core.text import ngrams, words
from tertulia.corpus.shingles import band_keys, jaccard_sorted, shingle_sets, signatures


class NearDuplicate(NamedTuple):
    """A text that is similar to an earlier one."""

    position: int
    earlier: int
    similarity: float
    """Jaccard similarity of their sets of word pairs."""


class SimilarPair(NamedTuple):
    """A text of one set and a similar text of another."""

    left: int
    right: int
    similarity: float
    """Exact Jaccard similarity of their word n-grams."""


def near_duplicates(texts: Iterable[str], *, threshold: float = 0.7, min_words: int = 4) -> list[NearDuplicate]:
    """Each text with the most similar earlier one, if that is similar enough. Texts of few words are ignored.

    >>> near_duplicates(["i like my tea very hot", "no", "i like my tea very hot indeed"])[0].earlier
    0
    """
    pairs_of = [_word_pairs(text, min_words) for text in texts]
    texts_with: dict[tuple[str, ...], list[int]] = defaultdict(list)  # inverted index: word pair -> earlier texts
    duplicates: list[NearDuplicate] = []
    for position, own in enumerate(pairs_of):
        shared = Counter(earlier for pair in own for earlier in texts_with[pair])
        similarities = [(n / (len(own) + len(pairs_of[e]) - n), e) for e, n in shared.items()]
        if similarities and max(similarities)[0] >= threshold:
            similarity, earlier = max(similarities)
            duplicates.append(NearDuplicate(position, earlier, similarity))
        for pair in own:
            texts_with[pair].append(position)
    return duplicates


def similar_pairs(
    left: Sequence[str], right: Sequence[str], *, threshold: float = 0.7, n: int = 3
) -> Iterator[SimilarPair]:
    """Pairs of texts, one of each set, of at least this similarity; BANDS says how probably each is found.

    For texts in memory; `corpus.near` does the same for a corpus on disk.

    >>> list(similar_pairs(["i like my tea very hot"], ["no", "I like my tea very hot."]))
    [SimilarPair(left=0, right=1, similarity=1.0)]
    """
    sets = [shingle_sets(side, n) for side in (left, right)]
    keys = [band_keys(signatures(side)) for side in sets]
    with_key: dict[int, list[int]] = defaultdict(list)
    for i, row in enumerate(keys[0].tolist()):
        for key in row:
            with_key[key].append(i)
    with_key.pop(0, None)  # texts without words
    for j, row in enumerate(keys[1].tolist()):
        for i in sorted({i for key in row for i in with_key.get(key, ())}):
            similarity = jaccard_sorted(sets[0].of(i), sets[1].of(j))
            if similarity >= threshold:
                yield SimilarPair(i, j, similarity)


def _word_pairs(text: str, min_words: int) -> set[tuple[str, ...]]:
    tokens = words(text)
    return set(ngrams(tokens, 2)) if len(tokens) >= min_words else set()
