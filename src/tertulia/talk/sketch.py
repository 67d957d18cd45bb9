"""Which of many vectors may have the largest product with a query, told from one bit for each of a few hundred planes.

A bit says on which side of a plane through the middle of the vectors one lies. The share of bits in which query and
vector differ is, up to chance, the angle between them over pi; with the vector's length that guesses their product.
The guess is rough and costs a fraction of the product: who wants the best ten lets it choose a few thousand, and
multiplies those. There is nothing to learn or to keep beside the vectors, unlike with graphs and clusters of them
(docs/design/0010-ranking-bots.md has the figures).
"""

import numpy as np
from numpy.typing import NDArray

from tertulia.models.ranker import Floats

BITS = 768
"""Planes. Half as many are a third faster, and lose 3 % of the best 200 among 2,048 instead of 0.4 %."""
BLOCK = 1 << 16
"""Vectors looked at in one go: what is made of them on the way stays in the processor's cache."""
_COSINES = np.cos(np.pi * np.arange(BITS + 1) / BITS).astype(np.float32)


class Sketch:
    """The bits of vectors."""

    def __init__(self, vectors: NDArray[np.floating]) -> None:
        count, dim = vectors.shape
        starts = range(0, count, BLOCK)
        total = sum((vectors[s : s + BLOCK].sum(axis=0, dtype=np.float64) for s in starts), np.zeros(dim))
        middle = (total / max(count, 1)).astype(np.float32)
        self._planes = planes(dim)
        self._words = np.empty((BITS // 64, count), dtype=np.uint64)
        self._lengths = np.empty(count, dtype=np.float32)
        for start in starts:
            part = vectors[start : start + BLOCK].astype(np.float32) - middle
            self._words[:, start : start + BLOCK] = bits(part, self._planes).T
            self._lengths[start : start + BLOCK] = np.linalg.norm(part, axis=1)

    def guess(self, query: Floats) -> Floats:
        """About the product of the query (d,) with each vector, up to a factor and a summand that are the same for all.

        The summand is the query's product with the middle, the factor its own length: neither changes an order.
        """
        own = bits(query[None], self._planes)[0]
        found = np.empty(len(self._lengths), dtype=np.float32)
        for start in range(0, len(found), BLOCK):
            part = slice(start, start + BLOCK)
            apart = np.zeros(len(found[part]), dtype=np.uint16)
            for theirs, word in zip(self._words, own, strict=True):
                apart += np.bitwise_count(theirs[part] ^ word)
            np.multiply(np.take(_COSINES, apart), self._lengths[part], out=found[part])
        return found

    def best(self, query: Floats, count: int) -> NDArray[np.int64]:
        """Places of those whose product is likely to be largest, in rising order."""
        if count >= len(self._lengths):
            return np.arange(len(self._lengths))
        return np.sort(np.argpartition(self.guess(query), -count)[-count:])


def planes(dim: int) -> Floats:
    """The normals of as many planes as there are bits (d, BITS): rotations side by side, which spread evenly."""
    rng = np.random.default_rng(0)
    turned = [np.linalg.qr(rng.standard_normal((dim, dim)))[0] for _ in range(-(-BITS // dim))]
    return np.ascontiguousarray(np.concatenate(turned, axis=1)[:, :BITS], dtype=np.float32)


def bits(vectors: Floats, normals: Floats) -> NDArray[np.uint64]:
    """Side of each plane, 64 to a number (n, BITS / 64)."""
    return np.packbits(vectors @ normals > 0, axis=1).view(np.uint64)
