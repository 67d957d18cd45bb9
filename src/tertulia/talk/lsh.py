"""Locality-sensitive hashing: which of many vectors may have the largest dot product with a query, from random bits.

A bit says on which side of a hyperplane through the vectors' mean a vector lies. The share of bits in which query and
vector differ estimates the angle between them, divided by pi; with the vector's norm that estimates their dot product.
The estimate is rough and costs a fraction of the product: to find the best ten, it selects a few thousand, which are
then compared exactly. Unlike graphs and clusters there is nothing to train or to store beside the vectors
(docs/design/0010-ranking-bots.md has the figures).
"""

import numpy as np
from numpy.typing import NDArray

from tertulia.models.rankers.base import Floats

BITS = 768
"""Hyperplanes. Half as many are a third faster, and miss 3 % of the best 200 among 2,048 instead of 0.4 %."""
BLOCK = 1 << 16
"""Vectors processed together: intermediate results stay in the CPU's cache."""
_COSINES = np.cos(np.pi * np.arange(BITS + 1) / BITS).astype(np.float32)


class LshIndex:
    """The bits and norms of vectors."""

    def __init__(self, vectors: NDArray[np.floating]) -> None:
        count, dim = vectors.shape
        starts = range(0, count, BLOCK)
        total = sum((vectors[s : s + BLOCK].sum(axis=0, dtype=np.float64) for s in starts), np.zeros(dim))
        mean = (total / max(count, 1)).astype(np.float32)
        self._planes = hyperplanes(dim)
        self._words = np.empty((BITS // 64, count), dtype=np.uint64)
        self._norms = np.empty(count, dtype=np.float32)
        for start in starts:
            part = vectors[start : start + BLOCK].astype(np.float32) - mean
            self._words[:, start : start + BLOCK] = hash_bits(part, self._planes).T
            self._norms[start : start + BLOCK] = np.linalg.norm(part, axis=1)

    def estimate(self, query: Floats) -> Floats:
        """Estimated dot products of the query (d,) with each vector, up to a constant factor and summand.

        The summand is the query's product with the mean, the factor its norm: neither changes the order.
        """
        query_words = hash_bits(query[None], self._planes)[0]
        estimates = np.empty(len(self._norms), dtype=np.float32)
        for start in range(0, len(estimates), BLOCK):
            part = slice(start, start + BLOCK)
            distance = np.zeros(len(estimates[part]), dtype=np.uint16)  # Hamming
            for words, query_word in zip(self._words, query_words, strict=True):
                distance += np.bitwise_count(words[part] ^ query_word)
            np.multiply(np.take(_COSINES, distance), self._norms[part], out=estimates[part])
        return estimates

    def best(self, query: Floats, count: int) -> NDArray[np.int64]:
        """Indices of the vectors with the largest estimates, in rising order."""
        if count >= len(self._norms):
            return np.arange(len(self._norms))
        return np.sort(np.argpartition(self.estimate(query), -count)[-count:])


def hyperplanes(dim: int) -> Floats:
    """The normals of `BITS` hyperplanes (d, BITS): columns of random rotations, which are spread evenly."""
    rng = np.random.default_rng(0)
    rotations = [np.linalg.qr(rng.standard_normal((dim, dim)))[0] for _ in range(-(-BITS // dim))]
    return np.ascontiguousarray(np.concatenate(rotations, axis=1)[:, :BITS], dtype=np.float32)


def hash_bits(vectors: Floats, normals: Floats) -> NDArray[np.uint64]:
    """The side of each hyperplane, 64 bits per word: (n, BITS / 64)."""
    return np.packbits(vectors @ normals > 0, axis=1).view(np.uint64)
