"""Similarity of each utterance to those before it: shared words weighted by idf, and averaged word vectors."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy

from tertulia.corpus.chatlogs.encoded_log import Floats


@dataclass(frozen=True, slots=True)
class IdfTable:
    """Inverse document frequencies of words, where a document is one utterance, and optionally their vectors."""

    idf: Mapping[str, float]
    unseen: float
    """The idf of a word that is not in the table."""
    vectors: Mapping[str, Floats] = field(default_factory=dict)

    def weight(self, word: str) -> float:
        """The idf of a word."""
        return self.idf.get(word, self.unseen)


@dataclass(frozen=True, slots=True)
class SimilarityBands:
    """Similarities of every utterance to the `window` utterances before it.

    Only a band of the full (utterances, utterances) matrix is ever needed. It is stored as (utterances, window): row i,
    column k compares utterance i with utterance i - 1 - k; entries before the start of the log are zero.
    """

    cosine: Floats
    """Cosine of idf vectors (each distinct word counts once)."""
    shared_idf: Floats
    """Sum of the idf of shared words."""
    embedding: Floats
    """Cosine of the idf-weighted means of word vectors; all zero without vectors."""


def count_idf(texts: Iterable[Sequence[str]], *, min_count: int = 2) -> tuple[dict[str, float], float]:
    """log(N / df) for each word in at least `min_count` utterances, and the idf of a word seen once."""
    df: Counter[str] = Counter()
    n = 0
    for n, text in enumerate(texts, 1):  # noqa: B007 - the last value is N
        df.update(set(text))
    idf = {word: round(math.log(n / count), 4) for word, count in sorted(df.items()) if count >= min_count}
    return idf, round(math.log(max(n, 2)), 4)


def similarity_bands(texts: Sequence[Sequence[str]], table: IdfTable, *, window: int) -> SimilarityBands:
    """Compare each utterance with the `window` utterances before it."""
    weighted = _idf_matrix(texts, table)
    # The dot product of two rows of square roots is the sum of the idf of shared words.
    roots = weighted.sqrt()
    norms = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    unit = scipy.sparse.diags_array(1 / np.maximum(norms, 1e-9)) @ weighted
    embeddings = _embed(texts, table)
    return SimilarityBands(
        cosine=_sparse_band(unit.tocsr(), window),
        shared_idf=_sparse_band(roots.tocsr(), window),
        embedding=_band(lambda rows, before: embeddings[rows] @ embeddings[before].T, len(texts), window),
    )


def _idf_matrix(texts: Sequence[Sequence[str]], table: IdfTable) -> "scipy.sparse.csr_array":
    """(utterances, distinct words): the idf of each word that the utterance contains."""
    column: dict[str, int] = {}
    indices, data, starts = [], [], [0]
    for text in texts:
        for word in dict.fromkeys(text):  # not a set: its order, and so the rounding of sums, varies between runs
            indices.append(column.setdefault(word, len(column)))
            data.append(table.weight(word))
        starts.append(len(indices))
    shape = (len(texts), max(len(column), 1))
    return scipy.sparse.csr_array(
        (np.array(data, np.float32), np.array(indices, np.int32), np.array(starts)), shape=shape
    )


def _embed(texts: Sequence[Sequence[str]], table: IdfTable) -> Floats:
    """(utterances, vector size): idf-weighted sums of word vectors, normalised to length one."""
    size = len(next(iter(table.vectors.values()), np.zeros(1)))
    embeddings = np.zeros((len(texts), size), np.float32)
    for row, text in enumerate(texts):
        for word in dict.fromkeys(text):
            if (vector := table.vectors.get(word)) is not None:
                embeddings[row] += table.weight(word) * vector
    embeddings /= np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-9)
    return embeddings


def _sparse_band(matrix: "scipy.sparse.csr_array", window: int) -> Floats:
    return _band(lambda rows, before: (matrix[rows] @ matrix[before].T).toarray(), matrix.shape[0], window)


def _band(product: Callable[[slice, slice], Floats], n: int, window: int, block: int = 256) -> Floats:
    """The band of an (n, n) product, (n, window), computed in blocks of rows so that long logs fit in memory.

    The rows start:stop need the columns from start - window up to stop; row i's part of that block is the columns
    i - width to i - 1, reversed so that column 0 of the band is the utterance just before.
    """
    band = np.zeros((n, window), np.float32)
    for start in range(0, n, block):
        stop, low = min(start + block, n), max(0, start - window)
        dense = np.asarray(product(slice(start, stop), slice(low, stop)), np.float32)
        for i in range(start, stop):
            width = min(window, i)
            band[i, :width] = dense[i - start, i - width - low : i - low][::-1]
    return band
