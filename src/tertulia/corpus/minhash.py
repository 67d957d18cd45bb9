"""Near-duplicates in large sets: MinHash signatures (Broder 1997), banding, then the exact similarity of suspects.

Hashes are CRC-32 of the words, mixed with fixed salts: the same on every machine and in every version.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tertulia.core.text import ngrams, words

SIGNATURE = 128
"""Hashes per text: enough for a standard error of about .04 at a similarity of .7."""
BANDS = 32
"""Of four hashes each: two texts of similarity .7 meet in at least one band with probability .9998, of .3 with .23."""


class Alike(NamedTuple):
    """A text of one set that is much like a text of another."""

    left: int
    right: int
    similarity: float
    """Exact Jaccard similarity of their word runs."""


def shingles(text: str, n: int = 3) -> frozenset[int]:
    """A text's runs of n words as numbers; a shorter text is one run.

    >>> len(shingles("to be or not")), shingles("To be, or not!") == shingles("to be or not")
    (2, True)
    """
    said = words(text)
    runs = ngrams(said, n) if len(said) >= n else iter([tuple(said)] if said else [])
    return frozenset(zlib.crc32(" ".join(run).encode()) for run in runs)


def signatures(sets: Sequence[frozenset[int]]) -> NDArray[np.uint64]:
    """One row of SIGNATURE hashes per set; empty sets have rows that match nothing (all different)."""
    rng = np.random.default_rng(20240229)
    salts = rng.integers(0, 1 << 63, SIGNATURE, dtype=np.uint64)
    rows = np.empty((len(sets), SIGNATURE), dtype=np.uint64)
    for i, found in enumerate(sets):
        if found:
            x = np.fromiter(found, dtype=np.uint64, count=len(found))
            rows[i] = _mixed(x[:, None] ^ salts).min(axis=0)  # (runs, SIGNATURE) -> (SIGNATURE,)
        else:
            rows[i] = np.arange(i * SIGNATURE, (i + 1) * SIGNATURE, dtype=np.uint64)
    return rows


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele et al. 2014): every bit of the input reaches every bit of the output."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def alike(left: Sequence[str], right: Sequence[str], *, threshold: float = 0.7, n: int = 3) -> Iterator[Alike]:
    """Pairs of texts, one of each set, whose similarity is at least the threshold (with the probability of BANDS).

    >>> list(alike(["i like my tea very hot"], ["no", "I like my tea very hot."]))
    [Alike(left=0, right=1, similarity=1.0)]
    """
    sides = [[shingles(text, n) for text in side] for side in (left, right)]
    marks = [signatures(side) for side in sides]
    width = SIGNATURE // BANDS
    seen: set[tuple[int, int]] = set()
    for band in range(BANDS):
        cut = slice(band * width, (band + 1) * width)
        homes: dict[bytes, list[int]] = defaultdict(list)
        for i, row in enumerate(marks[0][:, cut]):
            homes[row.tobytes()].append(i)
        for j, row in enumerate(marks[1][:, cut]):
            for i in homes.get(row.tobytes(), ()):
                if (i, j) not in seen:
                    seen.add((i, j))
                    similarity = jaccard(sides[0][i], sides[1][j])
                    if similarity >= threshold:
                        yield Alike(i, j, similarity)


def jaccard(a: frozenset[int], b: frozenset[int]) -> float:
    """Shared over all; 0 for two empty sets."""
    return len(a & b) / len(a | b) if a or b else 0.0
