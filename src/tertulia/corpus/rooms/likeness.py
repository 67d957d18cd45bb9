"""How alike a line and the lines before it are: shared words weighted by how rare they are, and word vectors."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from tertulia.corpus.rooms.view import Floats


@dataclass(frozen=True, slots=True)
class Lexicon:
    """What is known of words: how rare each is, and where there are vectors, what it is like."""

    idf: Mapping[str, float]
    unknown: float
    """Rarity of a word that was never seen."""
    vectors: Mapping[str, Floats] = field(default_factory=dict)

    def rarity(self, word: str) -> float:
        """The idf of a word."""
        return self.idf.get(word, self.unknown)


@dataclass(frozen=True, slots=True)
class Likeness:
    """For each line (row) and each of the `window` lines before it (column 0 is the one just before)."""

    cosine: Floats
    shared: Floats
    """Sum of the idf of shared words."""
    meaning: Floats
    """Cosine of the idf-weighted means of word vectors; all zero without vectors."""
    weight: Floats
    """Per line: sum of the idf of its words."""


def count_idf(texts: Iterable[Sequence[str]], *, min_count: int = 2) -> tuple[dict[str, float], float]:
    """log(N / df) for each word that stands in `min_count` lines, and the idf of a word that stood in one."""
    df: Counter[str] = Counter()
    n = 0
    for n, text in enumerate(texts, 1):  # noqa: B007 - the last count is the answer
        df.update(set(text))
    idf = {word: round(math.log(n / count), 4) for word, count in sorted(df.items()) if count >= min_count}
    return idf, round(math.log(max(n, 2)), 4)


def likeness(texts: Sequence[Sequence[str]], lexicon: Lexicon, *, window: int) -> Likeness:
    """Compare each line with those before it."""
    weighted = _idf_matrix(texts, lexicon)
    roots = weighted.sqrt()
    norms = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    unit = sparse.diags_array(1 / np.maximum(norms, 1e-9)) @ weighted
    meanings = _meanings(texts, lexicon)
    return Likeness(
        cosine=_sparse_band(unit.tocsr(), window),
        shared=_sparse_band(roots.tocsr(), window),
        meaning=_band(lambda rows, before: meanings[rows] @ meanings[before].T, len(texts), window),
        weight=np.asarray(weighted.sum(axis=1), np.float32).ravel(),
    )


def _idf_matrix(texts: Sequence[Sequence[str]], lexicon: Lexicon) -> sparse.csr_array:
    column: dict[str, int] = {}
    indices, data, starts = [], [], [0]
    for text in texts:
        for word in dict.fromkeys(text):  # not a set: its order, and so the last digit, changes from run to run
            indices.append(column.setdefault(word, len(column)))
            data.append(lexicon.rarity(word))
        starts.append(len(indices))
    shape = (len(texts), max(len(column), 1))
    return sparse.csr_array((np.array(data, np.float32), np.array(indices, np.int32), np.array(starts)), shape=shape)


def _meanings(texts: Sequence[Sequence[str]], lexicon: Lexicon) -> Floats:
    size = len(next(iter(lexicon.vectors.values()), np.zeros(1)))
    means = np.zeros((len(texts), size), np.float32)
    for row, text in enumerate(texts):
        for word in dict.fromkeys(text):
            if (vector := lexicon.vectors.get(word)) is not None:
                means[row] += lexicon.rarity(word) * vector
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
    return means


def _sparse_band(matrix: sparse.csr_array, window: int) -> Floats:
    return _band(lambda rows, before: (matrix[rows] @ matrix[before].T).toarray(), matrix.shape[0], window)


def _band(product: Callable[[slice, slice], Floats], n: int, window: int, block: int = 256) -> Floats:
    """The products of each line with the `window` lines before it, block by block, so that long logs fit in memory."""
    band = np.zeros((n, window), np.float32)
    for start in range(0, n, block):
        stop, low = min(start + block, n), max(0, start - window)
        dense = np.asarray(product(slice(start, stop), slice(low, stop)), np.float32)
        for i in range(start, stop):
            reach = min(window, i)
            band[i, :reach] = dense[i - start, i - reach - low : i - low][::-1]
    return band
