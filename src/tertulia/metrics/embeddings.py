"""How near a reply is to its reference by the vectors of their words: average, extrema and greedy matching.

As in Ghandeharioun et al. (2019), after Liu et al. (2016):

- average: the cosine of the mean vectors (Foltz et al. 1998);
- extrema: per dimension the most extreme value of the words, the largest where it exceeds the size of the smallest,
  else the smallest; the cosine of the two (Forgues et al. 2014);
- greedy: each word's best cosine with a word of the other text, meant over the words; both ways round, and the mean of
  the two (Rus and Lintean 2012).

Words are those of `tertulia.core.text.words`. One without a vector is left out, and counted; a text without any word
left has no value (nan). A vector of zeros has a cosine of 0 with everything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tertulia.core.text import words

Floats = NDArray[np.float64]
AnyFloats = NDArray[np.floating]
NAMES = ("average", "extrema", "greedy")


@dataclass(frozen=True, slots=True)
class WordVectors:
    """A row of a matrix for each word."""

    places: Mapping[str, int]
    matrix: AnyFloats  # (words, dim)

    @classmethod
    def of(cls, vectors: Mapping[str, AnyFloats]) -> Self:
        """Of vectors by word; there must be one, as nothing else tells their size."""
        return cls({word: place for place, word in enumerate(vectors)}, np.stack(list(vectors.values())))

    @classmethod
    def rows(cls, known: Iterable[str], matrix: AnyFloats) -> Self:
        """Of a matrix whose rows are of these words, in their order."""
        places = {word: place for place, word in enumerate(known)}
        if len(places) != len(matrix):
            raise ValueError(f"{len(places)} different words and {len(matrix)} rows do not fit")
        return cls(places, matrix)

    def look_up(self, text: str) -> "Looked":
        """The vectors of a text's words."""
        said = words(text)
        known = [self.places[word] for word in said if word in self.places]
        return Looked(self.matrix[known].astype(np.float64), len(said) - len(known))


class Looked(NamedTuple):
    """A text as vectors."""

    vectors: Floats  # (known words, dim)
    unknown: int
    """How many words have no vector."""


class Nearness(NamedTuple):
    """One value of each kind for each pair, and what was left out."""

    values: Floats  # (pairs, average extrema greedy); nan where a text has no known word
    words: int
    """Of all texts."""
    unknown: int
    """How many of these have no vector."""


def nearness(pairs: Sequence[tuple[str, str]], vectors: WordVectors) -> Nearness:
    """Of each pair of a reply and its reference.

    >>> toy = WordVectors.of({"tea": np.array([1.0, 0.0]), "dog": np.array([0.0, 1.0])})
    >>> nearness([("Tea!", "tea for a dog")], toy)
    Nearness(values=array([[0.70710678, 0.70710678, 0.75      ]]), words=5, unknown=2)
    """
    values = np.full((len(pairs), len(NAMES)), np.nan)
    total = unknown = 0
    for row, pair in zip(values, pairs, strict=True):
        said, reference = (vectors.look_up(text) for text in pair)
        for one in (said, reference):
            total += len(one.vectors) + one.unknown
            unknown += one.unknown
        if len(said.vectors) and len(reference.vectors):
            row[:] = [kind(said.vectors, reference.vectors) for kind in (average, extrema, greedy)]
    return Nearness(values, total, unknown)


def average(said: Floats, reference: Floats) -> float:
    """The cosine of the means of two texts' vectors, (n, dim) and (m, dim)."""
    return _cosine(said.mean(axis=0), reference.mean(axis=0))


def extrema(said: Floats, reference: Floats) -> float:
    """The cosine of their most extreme values."""
    return _cosine(_extreme(said), _extreme(reference))


def greedy(said: Floats, reference: Floats) -> float:
    """The mean of each word's best cosine with a word of the other text, the same whichever comes first."""
    cosines = _unit(said) @ _unit(reference).T  # (n, m)
    return float((cosines.max(axis=1).mean() + cosines.max(axis=0).mean()) / 2)


def _extreme(vectors: Floats) -> Floats:
    most, least = vectors.max(axis=0), vectors.min(axis=0)
    return np.asarray(np.where(most > np.abs(least), most, least), dtype=np.float64)


def _cosine(one: Floats, other: Floats) -> float:
    return float(_unit(one) @ _unit(other))


def _unit(vectors: Floats) -> Floats:
    size = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(size > 0, size, 1.0), dtype=np.float64)
