"""Near-duplicates among texts by the Jaccard similarity of their word n-grams.

`near_duplicates` compares the texts of one set exactly, through an inverted index of word pairs. `similar_pairs`
compares two large sets with MinHash signatures (Broder 1997) and banding, then computes the exact similarity of the
candidates. The hashes are CRC-32 of the words, mixed with fixed salts: the same on every machine and in every version.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tertulia.core.text import ngrams, words

SIGNATURE = 128
"""Hashes per text: enough for a standard error of about .04 at a similarity of .7."""
BANDS = 32
"""Of four hashes each: two texts of similarity .7 share at least one band with probability .9998, of .3 with .23."""


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

    >>> list(similar_pairs(["i like my tea very hot"], ["no", "I like my tea very hot."]))
    [SimilarPair(left=0, right=1, similarity=1.0)]
    """
    sets = [[shingles(text, n) for text in side] for side in (left, right)]
    rows = [signatures(side) for side in sets]
    width = SIGNATURE // BANDS
    seen: set[tuple[int, int]] = set()
    for band in range(BANDS):
        columns = slice(band * width, (band + 1) * width)
        buckets: dict[bytes, list[int]] = defaultdict(list)
        for i, row in enumerate(rows[0][:, columns]):
            buckets[row.tobytes()].append(i)
        for j, row in enumerate(rows[1][:, columns]):
            for i in buckets.get(row.tobytes(), ()):
                if (i, j) not in seen:
                    seen.add((i, j))
                    similarity = jaccard(sets[0][i], sets[1][j])
                    if similarity >= threshold:
                        yield SimilarPair(i, j, similarity)


def shingles(text: str, n: int = 3) -> frozenset[int]:
    """A text's word n-grams as hashes; a shorter text is one n-gram.

    >>> len(shingles("to be or not")), shingles("To be, or not!") == shingles("to be or not")
    (2, True)
    """
    tokens = words(text)
    grams = ngrams(tokens, n) if len(tokens) >= n else iter([tuple(tokens)] if tokens else [])
    return frozenset(zlib.crc32(" ".join(gram).encode()) for gram in grams)


def signatures(sets: Sequence[frozenset[int]]) -> NDArray[np.uint64]:
    """One row of SIGNATURE hashes per set; the rows of empty sets match nothing, as all their values differ."""
    rng = np.random.default_rng(20240229)
    salts = rng.integers(0, 1 << 63, SIGNATURE, dtype=np.uint64)
    rows = np.empty((len(sets), SIGNATURE), dtype=np.uint64)
    for i, hashes in enumerate(sets):
        if hashes:
            x = np.fromiter(hashes, dtype=np.uint64, count=len(hashes))
            rows[i] = _mix(x[:, None] ^ salts).min(axis=0)  # (n-grams, SIGNATURE) -> (SIGNATURE,)
        else:
            rows[i] = np.arange(i * SIGNATURE, (i + 1) * SIGNATURE, dtype=np.uint64)
    return rows


def jaccard(a: frozenset[int], b: frozenset[int]) -> float:
    """Size of the intersection over that of the union; 0 for two empty sets."""
    return len(a & b) / len(a | b) if a or b else 0.0


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele et al. 2014): every bit of the input affects every bit of the output."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _word_pairs(text: str, min_words: int) -> set[tuple[str, ...]]:
    tokens = words(text)
    return set(ngrams(tokens, 2)) if len(tokens) >= min_words else set()
