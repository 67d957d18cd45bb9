"""How similar two texts are by their word vectors: average, extrema and greedy matching, for many pairs at once.

As in Ghandeharioun et al. (2019), after Liu et al. (2016):

- average: the cosine of the mean vectors (Foltz et al. 1998);
- extrema: per dimension the most extreme value of the words, the largest where it exceeds the size of the smallest,
  else the smallest; the cosine of the two (Forgues et al. 2014);
- greedy: each word's best cosine with a word of the other text, averaged over the words; in both directions, and the
  mean of the two (Rus and Lintean 2012).

Words are those of `tertulia.core.text.words`. Words without a vector are left out; a text of which no word is left has
no value (nan). A vector of zeros has a cosine of 0 with everything. Only the first `MAX_WORDS` words of a text with a
vector count: greedy matching compares each with each.

NumPy spends more time on being called than on ten words, so texts of the same length are computed together: one block
(texts, words, dim) instead of many small matrices. Greedy matching also groups pairs of similar lengths, and fills a
shorter text up with copies of its last word, which change no maximum.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tertulia.core.text import words
from tertulia.metrics.metric import Metric, ReplyExample

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
AnyFloats = NDArray[np.floating]
Similarity = Literal["average", "extrema", "greedy"]
VectorSource = Callable[[Collection[str]], Mapping[str, AnyFloats]]
"""From wanted words to the vectors of those that have one."""
MAX_WORDS = 2000
"""How many words of a text are looked up; no reply of a conversation is nearly as long."""
MAX_TEXTS = 1_000_000
"""How many texts' rows are remembered."""
BLOCK = 1 << 18
"""Numbers that are computed at once: more do not fit the CPU's cache."""
LENGTH_STEP = 4
"""In greedy matching, lengths are rounded up to a multiple of this."""
NAMES = ("embedding average", "embedding extrema", "embedding greedy")


class WordVectors:
    """A matrix with a row for each word; with a source, it grows by the words of the texts it is asked about."""

    def __init__(self, index: dict[str, int], matrix: AnyFloats, source: VectorSource | None = None) -> None:
        self.index, self.matrix = index, matrix  # (words, dim)
        self._source = source
        self._missing: set[str] = set()
        self._rows: dict[str, list[int]] = {}

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

    @classmethod
    def lazy(cls, source: VectorSource) -> Self:
        """Vectors that are looked up when texts ask for them, each word once.

        >>> tea = WordVectors.lazy(lambda wanted: {word: np.ones(2) for word in wanted if word == "tea"})
        >>> tea.encode(["Tea for two"]).lengths.tolist(), tea.matrix.shape
        ([1], (1, 2))
        """
        return cls({}, np.zeros((0, 0)), source)

    def prepare(self, texts: Iterable[str]) -> None:
        """Look up the words of these texts in one go."""
        if self._source is None:
            return
        wanted = {word for text in texts if text not in self._rows for word in words(text)}
        wanted -= self.index.keys() | self._missing
        if not wanted:
            return
        vectors = self._source(wanted)
        self._missing |= wanted - vectors.keys()
        if vectors:
            self.index |= {word: row for row, word in enumerate(vectors, len(self.index))}
            new = np.stack(list(vectors.values()))
            self.matrix = np.concatenate([self.matrix, new]) if len(self.matrix) else new

    def encode(self, texts: Sequence[str]) -> "EncodedTexts":
        """The rows of the first `MAX_WORDS` words of each text that have one."""
        self.prepare(texts)
        rows = [self._text_rows(text) for text in texts]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        flat = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))
        return EncodedTexts(flat, np.cumsum(lengths) - lengths, lengths)

    def _text_rows(self, text: str) -> list[int]:
        rows = self._rows.get(text)
        if rows is None:
            rows = [row for word in words(text) if (row := self.index.get(word)) is not None][:MAX_WORDS]
            if len(self._rows) < MAX_TEXTS:
                self._rows[text] = rows
        return rows

    def missing_share(self, texts: Iterable[str]) -> float:
        """The share of words without a vector; nan if there are no words.

        >>> WordVectors.of({"tea": np.ones(2)}).missing_share(["tea for two"]).__round__(3)
        0.667
        """
        listed = list(texts)
        self.prepare(listed)
        has_vector = [word in self.index for text in listed for word in words(text)]
        return 1 - sum(has_vector) / len(has_vector) if has_vector else float("nan")


class EncodedTexts(NamedTuple):
    """Texts as rows of a matrix of word vectors, one text after another."""

    rows: Ints
    starts: Ints
    lengths: Ints

    def table(self, texts: Ints, width: int) -> Ints:
        """The rows of some texts, filled up with copies of the last word: (texts, width)."""
        steps = np.minimum(np.arange(width), self.lengths[texts][:, None] - 1)
        return self.rows[self.starts[texts][:, None] + steps]


class TextPairs(NamedTuple):
    """Pairs of texts by their indices."""

    texts: Sequence[str]
    first: Ints
    second: Ints

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> "TextPairs":
        """From the pairs themselves.

        >>> TextPairs.of([("a", "b"), ("b", "b")]).second.tolist()
        [1, 1]
        """
        index: dict[str, int] = {}
        numbers = [[index.setdefault(text, len(index)) for text in pair] for pair in pairs]
        columns = np.array(numbers, dtype=np.int64).reshape(-1, 2)
        return cls(list(index), columns[:, 0], columns[:, 1])


def pair_similarities(pairs: TextPairs, word_vectors: WordVectors, similarity: Similarity) -> Floats:
    """The similarity of each pair; nan where a text has no word with a vector.

    >>> toy = WordVectors.of({"tea": np.array([1.0, 0.0]), "dog": np.array([0.0, 1.0])})
    >>> pair_similarities(TextPairs.of([("Tea!", "tea for a dog")]), toy, "greedy").tolist()
    [0.75]
    """
    texts = word_vectors.encode(pairs.texts)
    values = np.full(len(pairs.first), np.nan)
    valid = np.flatnonzero((texts.lengths[pairs.first] > 0) & (texts.lengths[pairs.second] > 0))
    if not len(valid):
        return values
    first, second = pairs.first[valid], pairs.second[valid]
    if similarity == "greedy":
        values[valid] = _greedy(word_vectors.matrix, texts, first, second)
    else:
        vectors = _text_vectors(word_vectors.matrix, texts, _sums if similarity == "average" else _extremes)
        values[valid] = np.einsum("ij,ij->i", vectors[first], vectors[second])
    return values


def similarities(batch: Sequence[ReplyExample], *, word_vectors: WordVectors, similarity: Similarity) -> Floats:
    """The similarity of each reply and its reference."""
    pairs = TextPairs.of((one.reply, one.reference) for one in batch)
    return pair_similarities(pairs, word_vectors, similarity)


def _text_vectors(matrix: AnyFloats, texts: EncodedTexts, combine: Callable[[Floats], Floats]) -> Floats:
    """One vector of unit length for each text, from the vectors of its words."""
    vectors = np.zeros((len(texts.lengths), matrix.shape[1]))
    for length, members in _groups(texts.lengths):
        if not length:
            continue
        for part in _blocks(len(members), length * matrix.shape[1]):
            own = members[part]
            vectors[own] = combine(np.asarray(matrix[texts.table(own, length)], dtype=np.float64))
    return unit_rows(vectors)


def _groups(keys: Ints) -> Iterator[tuple[int, Ints]]:
    """Each different key with the indices of its members."""
    order = np.argsort(keys, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        yield int(keys[members[0]]), members


def _sums(block: Floats) -> Floats:
    """Sums of the words' vectors, (texts, words, dim): they have the direction of the means."""
    return np.asarray(block.sum(axis=1), dtype=np.float64)


def _extremes(block: Floats) -> Floats:
    most, least = block.max(axis=1), block.min(axis=1)
    return np.asarray(np.where(most > np.abs(least), most, least), dtype=np.float64)


def _greedy(matrix: AnyFloats, texts: EncodedTexts, first: Ints, second: Ints) -> Floats:
    used, rows = np.unique(texts.rows, return_inverse=True)
    units = unit_rows(np.asarray(matrix[used], dtype=np.float64))
    texts = texts._replace(rows=rows)
    values = np.zeros(len(first))
    widths = -(-texts.lengths // LENGTH_STEP) * LENGTH_STEP
    base = MAX_WORDS + LENGTH_STEP
    for key, members in _groups(widths[first] * base + widths[second]):
        n, m = divmod(key, base)
        for part in _blocks(len(members), n * m + (n + m) * matrix.shape[1]):
            left, right = first[members[part]], second[members[part]]
            cosines = units[texts.table(left, n)] @ units[texts.table(right, m)].transpose(0, 2, 1)  # (pairs, n, m)
            forth = _masked_mean(cosines.max(axis=2), texts.lengths[left])
            back = _masked_mean(cosines.max(axis=1), texts.lengths[right])
            values[members[part]] = (forth + back) / 2
    return values


def _masked_mean(best: Floats, lengths: Ints) -> Floats:
    """The mean over the first so many entries of each row."""
    inside = np.arange(best.shape[1]) < lengths[:, None]
    return np.asarray((best * inside).sum(axis=1) / lengths, dtype=np.float64)


def _blocks(count: int, size: int) -> Iterator[slice]:
    """Slices of so many items of this size that they make a block."""
    step = max(1, BLOCK // max(1, size))
    return (slice(start, start + step) for start in range(0, count, step))


def unit_rows(vectors: Floats) -> Floats:
    """Rows of unit length; zeros stay zeros."""
    size = np.sqrt(np.einsum("...i,...i->...", vectors, vectors))[..., None]
    return np.asarray(vectors / np.where(size > 0, size, 1.0), dtype=np.float64)


def _metric(name: str, similarity: Similarity, summary: str, citation: str) -> Metric:
    compute = partial(similarities, similarity=similarity)
    return Metric(name, "reply", "mean", summary, citation, compute=compute, needs=("word_vectors",))


AVERAGE = _metric(NAMES[0], "average", "cosine of the mean word vectors", "Foltz et al. 1998")
EXTREMA = _metric(NAMES[1], "extrema", "cosine of the extreme values of the word vectors", "Forgues et al. 2014")
GREEDY = _metric(NAMES[2], "greedy", "mean best cosine between words", "Rus and Lintean 2012")
