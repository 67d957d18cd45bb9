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

NumPy spends more time on being called than on ten words, so many texts are computed together: sums as one sparse matrix
product, extremes word by word over texts sorted by length (`extreme_keys`), and greedy matching for all pairs of
similar lengths at once, where a shorter text is filled up with copies of its last word, which change no maximum.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from tertulia.core.text import words, words_of_each
from tertulia.metrics.metric import Metric, ReplyExample

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
AnyFloats = NDArray[np.floating]
Keys = NDArray[np.unsignedinteger]
Similarity = Literal["average", "extrema", "greedy"]
VectorSource = Callable[[Collection[str]], Mapping[str, AnyFloats]]
"""From wanted words to the vectors of those that have one."""
MAX_WORDS = 2000
"""How many words of a text are looked up; no reply of a conversation is nearly as long."""
BLOCK = 1 << 18
"""Numbers that are computed at once: more do not fit the CPU's cache."""
_WIDTHS = np.array([2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, MAX_WORDS])
"""In greedy matching, lengths are rounded up to one of these."""
NAMES = ("embedding average", "embedding extrema", "embedding greedy")


class WordVectors:
    """A matrix with a row for each word; with a source, it grows by the words of the texts it is asked about."""

    def __init__(self, index: dict[str, int], matrix: AnyFloats, source: VectorSource | None = None) -> None:
        self.index, self.matrix = index, matrix  # (words, dim)
        self._source = source
        self._missing: set[str] = set()
        self._units: AnyFloats | None = None
        self._keys: Keys | None = None
        self._last: tuple[list[str], TextRows] | None = None
        self._last_pairs: tuple[list[ReplyExample], TextPairs] | None = None

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
        if self._source is not None:
            self._look_up(self._source, {word for text in texts for word in words(text)})

    def _look_up(self, source: VectorSource, wanted: set[str]) -> None:
        new = wanted - self.index.keys() - self._missing
        if not new:
            return
        vectors = source(new)
        self._missing |= new - vectors.keys()
        if vectors:
            self.index |= {word: row for row, word in enumerate(vectors, len(self.index))}
            rows = np.stack(list(vectors.values()))
            self.matrix = np.concatenate([self.matrix, rows]) if len(self.matrix) else rows

    @property
    def units(self) -> AnyFloats:
        """The matrix with rows of unit length, in its own precision: cosines are no more precise than the vectors."""
        if self._units is None or len(self._units) != len(self.matrix):
            precise = unit_rows(np.asarray(self.matrix, dtype=np.float64))
            self._units = precise.astype(self.matrix.dtype, copy=False)
        return self._units

    @property
    def keys(self) -> Keys:
        """The matrix as `extreme_keys`."""
        if self._keys is None or len(self._keys) != len(self.matrix):
            self._keys = extreme_keys(self.matrix)
        return self._keys

    def encode(self, texts: Sequence[str]) -> "TextRows":
        """The rows of the first `MAX_WORDS` words of each text that have one."""
        listed = list(texts)
        if self._last is not None and self._last[0] == listed:  # several metrics of one batch
            return self._last[1]
        by_text = words_of_each(listed)
        counts = [len(own) for own in by_text]
        all_words = list(chain.from_iterable(by_text))
        if self._source is not None:
            self._look_up(self._source, set(all_words))
        owner = np.repeat(np.arange(len(listed)), counts)
        rows = np.fromiter(map(self.index.get, all_words, repeat(-1)), np.int64, len(all_words))
        encoded = TextRows.of(rows[rows >= 0], owner[rows >= 0], len(listed))
        self._last = listed, encoded
        return encoded

    def pairs(self, batch: Sequence[ReplyExample]) -> "TextPairs":
        """Replies and references as pairs."""
        listed = list(batch)
        if self._last_pairs is None or self._last_pairs[0] != listed:  # several metrics of one batch
            self._last_pairs = listed, TextPairs.of((one.reply, one.reference) for one in listed)
        return self._last_pairs[1]

    def missing_share(self, texts: Iterable[str]) -> float:
        """The share of words without a vector; nan if there are no words.

        >>> WordVectors.of({"tea": np.ones(2)}).missing_share(["tea for two"]).__round__(3)
        0.667
        """
        listed = list(texts)
        self.prepare(listed)
        has_vector = [word in self.index for text in listed for word in words(text)]
        return 1 - sum(has_vector) / len(has_vector) if has_vector else float("nan")


class TextRows(NamedTuple):
    """Texts as rows of a matrix of word vectors, one text after another."""

    rows: Ints
    starts: Ints
    lengths: Ints

    @classmethod
    def of(cls, rows: Ints, owner: Ints, count: int) -> "TextRows":
        """From the rows of all words and the texts they belong to; of long texts, the first `MAX_WORDS` words."""
        lengths = np.bincount(owner, minlength=count)
        starts = np.cumsum(lengths) - lengths
        if len(rows) and lengths.max() > MAX_WORDS:
            short = np.arange(len(rows)) - starts[owner] < MAX_WORDS
            return cls.of(rows[short], owner[short], count)
        return cls(rows, starts, lengths)

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
        """From the pairs themselves; a text that occurs several times is there once.

        >>> TextPairs.of([("a", "b"), ("b", "c")]).second.tolist()
        [1, 2]
        """
        listed = list(chain.from_iterable(pairs))
        index = {text: i for i, text in enumerate(dict.fromkeys(listed))}
        indices = np.fromiter(map(index.__getitem__, listed), np.int64, len(listed))
        return cls(list(index), indices[::2], indices[1::2])


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
        values[valid] = _greedy(word_vectors.units, texts, first, second)
    else:
        if similarity == "average":
            vectors = _sums(word_vectors.matrix, texts)
        else:
            vectors = _extremes(word_vectors.keys, texts, word_vectors.matrix.dtype)
        sizes = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        products = np.einsum("ij,ij->i", vectors[first], vectors[second])
        sizes[sizes == 0] = 1.0
        values[valid] = products / (sizes[first] * sizes[second])
    return values


def similarities(batch: Sequence[ReplyExample], *, word_vectors: WordVectors, similarity: Similarity) -> Floats:
    """The similarity of each reply and its reference."""
    return pair_similarities(word_vectors.pairs(batch), word_vectors, similarity)


def _sums(matrix: AnyFloats, texts: TextRows) -> Floats:
    """The sums of each text's vectors, which have the direction of their means: (texts, dim)."""
    ends = np.append(texts.starts, len(texts.rows))
    shape = (len(texts.lengths), len(matrix))
    counts = scipy.sparse.csr_array((np.ones(len(texts.rows)), texts.rows, ends), shape=shape)
    return np.asarray(counts @ np.asarray(matrix, dtype=np.float64), dtype=np.float64)


def _extremes(keys: Keys, texts: TextRows, dtype: np.dtype[Any]) -> Floats:
    """The most extreme values of each text's vectors, from their `extreme_keys`: (texts, dim)."""
    extremes = np.zeros((len(texts.lengths), keys.shape[1]))
    order = np.argsort(-texts.lengths, kind="stable")[: np.count_nonzero(texts.lengths)]  # longest first
    for part in _blocks(len(order), 4 * keys.shape[1]):
        own = order[part]
        starts, lengths = texts.starts[own], texts.lengths[own]
        most = keys.take(texts.rows[starts], axis=0)
        longer = np.searchsorted(-lengths, -np.arange(1, lengths[0]), side="left")
        for step, count in enumerate(longer.tolist(), 1):  # the texts that have so many words come first
            np.maximum(most[:count], keys.take(texts.rows[starts[:count] + step], axis=0), out=most[:count])
        extremes[own] = values_of_keys(most, dtype)
    return extremes


def extreme_keys(values: AnyFloats) -> Keys:
    """Integers in the order of the sizes of values; of two of the same size, the negative one is larger.

    The bits of a float without its sign are in the order of its size, so the sign moves from the highest bit to the
    lowest. Then one maximum finds what takes a maximum, a minimum and a comparison of the two else.

    >>> values_of_keys(extreme_keys(np.array([[1.0, -2.0], [-1.0, 0.5]])).max(axis=0), np.dtype(float)).tolist()
    [-1.0, -2.0]
    """
    bits = np.ascontiguousarray(values).view(f"u{values.itemsize}")
    one = bits.dtype.type(1)
    return np.asarray((bits << one) | (bits >> bits.dtype.type(8 * values.itemsize - 1)))


def values_of_keys(keys: Keys, dtype: np.dtype[Any]) -> AnyFloats:
    """The values of `extreme_keys`."""
    one = keys.dtype.type(1)
    bits = (keys >> one) | (keys << keys.dtype.type(8 * keys.itemsize - 1))
    return np.asarray(bits.view(dtype))


def _greedy(units: AnyFloats, texts: TextRows, first: Ints, second: Ints) -> Floats:
    values = np.zeros(len(first))
    widths = _WIDTHS[np.searchsorted(_WIDTHS, texts.lengths)]
    keys = widths[first] * (MAX_WORDS + 1) + widths[second]
    order = np.argsort(keys, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        n, m = divmod(int(keys[members[0]]), MAX_WORDS + 1)
        for part in _blocks(len(members), n * m + (n + m) * units.shape[1]):
            left, right = first[members[part]], second[members[part]]
            one, other = units.take(texts.table(left, n), axis=0), units.take(texts.table(right, m), axis=0)
            cosines = (one @ other.transpose(0, 2, 1)).reshape(len(left), n * m)
            by_words = np.ascontiguousarray(cosines.T).reshape(n, m, len(left))  # pairs last: maxima are faster
            forth = _mean_of_words(by_words.max(axis=1), texts.lengths[left])
            back = _mean_of_words(by_words.max(axis=0), texts.lengths[right])
            values[members[part]] = (forth + back) / 2
    return values


def _mean_of_words(best: AnyFloats, lengths: Ints) -> Floats:
    """The mean over the first so many entries of each column, (words, pairs); the others are copies of the last."""
    copies = len(best) - lengths
    return np.asarray((best.sum(axis=0, dtype=np.float64) - copies * best[-1]) / lengths, dtype=np.float64)


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
