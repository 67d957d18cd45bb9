"""How similar a reply is to its reference by their word vectors: average, extrema and greedy matching.

As in Ghandeharioun et al. (2019), after Liu et al. (2016):

- average: the cosine of the mean vectors (Foltz et al. 1998);
- extrema: per dimension the most extreme value of the words, the largest where it exceeds the size of the smallest,
  else the smallest; the cosine of the two (Forgues et al. 2014);
- greedy: each word's best cosine with a word of the other text, averaged over the words; in both directions, and the
  mean of the two (Rus and Lintean 2012).

Words are those of `tertulia.core.text.words`. Words without a vector are left out; a text of which no word is left has
no value (nan). A vector of zeros has a cosine of 0 with everything. Only the first `MAX_WORDS` words of a text with a
vector count: greedy matching compares each with each.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tertulia.core.text import words
from tertulia.metrics.metric import Metric, ReplyExample

Floats = NDArray[np.float64]
AnyFloats = NDArray[np.floating]
Similarity = Callable[[Floats, Floats], float]
MAX_WORDS = 2000
"""How many words of a text are looked up; no reply of a conversation is nearly as long."""
NAMES = ("embedding average", "embedding extrema", "embedding greedy")


@dataclass(frozen=True, slots=True)
class WordVectors:
    """A matrix with a row for each word."""

    index: Mapping[str, int]
    matrix: AnyFloats  # (words, dim)

    @classmethod
    def of(cls, vectors: Mapping[str, AnyFloats]) -> Self:
        """From vectors by word; there must be at least one, as nothing else gives their size."""
        return cls({word: row for row, word in enumerate(vectors)}, np.stack(list(vectors.values())))

    @classmethod
    def rows(cls, vocabulary: Iterable[str], matrix: AnyFloats) -> Self:
        """From a matrix whose rows belong to these words, in their order."""
        index = {word: row for row, word in enumerate(vocabulary)}
        if len(index) != len(matrix):
            raise ValueError(f"{len(index)} different words do not match {len(matrix)} rows")
        return cls(index, matrix)

    def look_up(self, text: str) -> Floats:
        """The vectors of the first `MAX_WORDS` words of a text that have one, (words, dim)."""
        rows = list(islice((self.index[word] for word in words(text) if word in self.index), MAX_WORDS))
        return np.asarray(self.matrix[rows], dtype=np.float64)

    def missing_share(self, texts: Iterable[str]) -> float:
        """The share of words without a vector; nan if there are no words.

        >>> WordVectors.of({"tea": np.ones(2)}).missing_share(["tea for two"]).__round__(3)
        0.667
        """
        has_vector = [word in self.index for text in texts for word in words(text)]
        return 1 - sum(has_vector) / len(has_vector) if has_vector else float("nan")


def average(reply: Floats, reference: Floats) -> float:
    """The cosine of the means of two texts' vectors, (n, dim) and (m, dim)."""
    return _cosine(reply.mean(axis=0), reference.mean(axis=0))


def extrema(reply: Floats, reference: Floats) -> float:
    """The cosine of their most extreme values."""
    return _cosine(_extreme(reply), _extreme(reference))


def greedy(reply: Floats, reference: Floats) -> float:
    """The mean of each word's best cosine with a word of the other text; symmetric."""
    cosines = _unit(reply) @ _unit(reference).T  # (n, m)
    return float((cosines.max(axis=1).mean() + cosines.max(axis=0).mean()) / 2)


def similarities(batch: Sequence[ReplyExample], *, word_vectors: WordVectors, similarity: Similarity) -> list[float]:
    """The similarity of each reply and its reference; nan where either has no word with a vector.

    >>> toy = WordVectors.of({"tea": np.array([1.0, 0.0]), "dog": np.array([0.0, 1.0])})
    >>> similarities([ReplyExample("Tea!", "tea for a dog")], word_vectors=toy, similarity=greedy)
    [0.75]
    """
    values = []
    for one in batch:
        reply, reference = word_vectors.look_up(one.reply), word_vectors.look_up(one.reference)
        values.append(similarity(reply, reference) if len(reply) and len(reference) else float("nan"))
    return values


def _extreme(vectors: Floats) -> Floats:
    most, least = vectors.max(axis=0), vectors.min(axis=0)
    return np.asarray(np.where(most > np.abs(least), most, least), dtype=np.float64)


def _cosine(one: Floats, other: Floats) -> float:
    return float(_unit(one) @ _unit(other))


def _unit(vectors: Floats) -> Floats:
    size = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(size > 0, size, 1.0), dtype=np.float64)


def _metric(name: str, similarity: Similarity, summary: str, citation: str) -> Metric:
    compute = partial(similarities, similarity=similarity)
    return Metric(name, "reply", "mean", summary, citation, compute=compute, needs=("word_vectors",))


AVERAGE = _metric(NAMES[0], average, "cosine of the mean word vectors", "Foltz et al. 1998")
EXTREMA = _metric(NAMES[1], extrema, "cosine of the extreme values of the word vectors", "Forgues et al. 2014")
GREEDY = _metric(NAMES[2], greedy, "mean best cosine between words", "Rus and Lintean 2012")
