"""Whether a text has too few or too many subwords, mostly without encoding it.

No subword crosses a space, so a text has the sum of its words' subwords, and the counts of words are cached. In plain
ASCII most texts need not even that: a word has at least one subword, and at most one for each of its characters plus
one for the space before it. If these bounds already decide the rule, nothing is looked up; words that are not cached
are encoded only where the bounds of their row stay undecided. (Beyond ASCII, normalisation may remove or split
characters, so the bounds do not hold.) A given model whose subwords do cross spaces is detected, and then every text is
encoded.
"""

import hashlib
import mmap
from functools import lru_cache

import numpy as np
import sentencepiece

from tertulia.artefacts.folders import Folder
from tertulia.corpus.mining.columns import (
    Flags,
    Ints,
    StringArray,
    Texts,
    are_blanks,
    blocks,
    count_in_rows,
    runs_in_rows,
    sum_in_rows,
    texts_of,
    to_arrow,
)
from tertulia.corpus.mining.hashing import Hashes, hash_words, low_bits

_BLANK = "\u2581"
"""SentencePiece's symbol for a space."""
_CACHE_SIZE = 1 << 20
"""Words whose counts are cached, each in the slot given by the lowest bits of its hash; a new word evicts the old one
of its slot. An entry is the hash with the count in its 16 lowest bits, which the slot tells: one look for both."""
_CACHE: Hashes = np.frombuffer(mmap.mmap(-1, 8 * _CACHE_SIZE), np.uint64)
"""Shared by processes that are forked from one another, so that each word is encoded only once for all of them. They
need no lock: an entry is written and read at once, and is right whoever wrote it."""
_MAX_COUNT = 0xFFFF
"""Counts are capped here; `high` must not exceed it."""
_LOWER_HALF = (1 << 32) - 1
_PROBES = ("a few  plain words, and then some more", "Don't! 10,000 times (or so)...\n\nno", " x\ty ")


class LengthFilter:
    """Finds texts whose subword count, by one SentencePiece model, is out of bounds."""

    def __init__(self, model: bytes) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._salt = np.frombuffer(hashlib.sha256(model).digest(), np.uint64, count=1)  # keeps models apart
        self.word_by_word = self._is_word_by_word()

    def out_of_bounds(self, array: StringArray, plain: Flags, *, low: int, high: int) -> Flags:
        """Which texts have fewer than `low` or more than `high` subwords; `plain` says which are ASCII."""
        parts = [self._check_block(array[part], plain[part], low, high) for part in blocks(len(array))]
        return np.concatenate(parts)

    def _check_block(self, array: StringArray, plain: Flags, low: int, high: int) -> Flags:
        if not self.word_by_word:
            return _outside(self._encode_texts(array), low, high)
        texts = texts_of(array)
        # One for every character that is not blank and one for every word: at most one more than all characters.
        outside, undecided = _decide(_count_words(texts), texts.sizes + 1, plain, low, high)
        rows = np.flatnonzero(undecided)
        if len(rows):
            outside[rows] = self._check_words(texts_of(array.take(to_arrow(rows))), plain[rows], low, high)
        return outside

    def _check_words(self, texts: Texts, plain: Flags, low: int, high: int) -> Flags:
        """The same for rows whose words have to be looked up: the bounds get tighter with the counts in the cache, then
        with those of new words that occur repeatedly, and only where that is not enough with those of all words."""
        starts, ends, rows, row_offsets = runs_in_rows(~are_blanks(texts.data), texts.offsets)
        hashes = hash_words(texts.data, starts, ends) ^ self._salt
        counts, counted = _cached(hashes)
        unknown = (ends - starts << 32) | 1
        for occurrences in (2, 1, 0):
            # Two sums at once: the lower half of a number is what a word has at least, the upper what it may have more.
            both = sum_in_rows(np.where(counted, counts, unknown), row_offsets)
            least = both & _LOWER_HALF
            most = least + (both >> 32)
            outside, undecided = _decide(least, most, plain, low, high)
            new = np.flatnonzero(~counted & undecided[rows])
            if not len(new):  # an undecided row has all its words counted, so that both bounds are its count
                break
            distinct, first, inverse, times = np.unique(
                hashes[new], return_index=True, return_inverse=True, return_counts=True
            )
            chosen = times >= occurrences
            spans = new[first[chosen]]
            learned = np.zeros(len(distinct), np.int64)
            learned[chosen] = self._encode_words(texts, starts[spans], ends[spans], distinct[chosen])
            counts[new], counted[new] = learned[inverse], chosen[inverse]
        return np.where(undecided, _outside(least, low, high), outside)

    def _encode_texts(self, array: StringArray) -> Ints:
        return np.array([len(pieces) for pieces in self._processor.encode(array.to_pylist(), num_threads=1)], np.int64)

    def _encode_words(self, texts: Texts, starts: Ints, ends: Ints, hashes: Hashes) -> Ints:
        """Subwords of each word; the counts go into the cache."""
        data = texts.data.tobytes()
        words = [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        lengths = map(len, self._processor.encode(words, num_threads=1))
        counts = np.minimum(np.fromiter(lengths, np.int64, len(words)), _MAX_COUNT)
        entries = (hashes & ~np.uint64(_MAX_COUNT)) | counts.astype(np.uint64)
        _CACHE[low_bits(hashes, _CACHE_SIZE - 1)] = entries
        return counts

    def _is_word_by_word(self) -> bool:
        """Whether no subword crosses a space, so that a text has the sum of its words' subwords."""
        processor = self._processor
        pieces = (processor.id_to_piece(i) for i in range(processor.vocab_size()))
        if any(_BLANK in piece[1:] for piece in pieces):
            return False
        sums = (sum(len(processor.encode(word)) for word in probe.split()) for probe in _PROBES)
        return [len(processor.encode(probe)) for probe in _PROBES] == list(sums)


@lru_cache(maxsize=1)
def load_length_filter(folder: Folder, name: str, _digest: str) -> LengthFilter:
    """The filter for a model file with this digest: loaded once per process, so that its cache survives from task to
    task."""
    return LengthFilter(folder.read(name))


def _cached(hashes: Hashes) -> tuple[Ints, Flags]:
    """Subwords of each word, and which words are in the cache."""
    entries = _CACHE.take(low_bits(hashes, _CACHE_SIZE - 1))
    return low_bits(entries, _MAX_COUNT), (entries ^ hashes) <= np.uint64(_MAX_COUNT)


def _decide(least: Ints, most: Ints, plain: Flags, low: int, high: int) -> tuple[Flags, Flags]:
    """Rows that are certainly out of bounds, and rows that the bounds on their counts leave undecided."""
    outside = (most < low) | (least > high)
    return outside, ~plain | (~outside & ((least < low) | (most > high)))


def _count_words(texts: Texts) -> Ints:
    """How many runs of other characters than blanks each row has."""
    begins = ~are_blanks(texts.data)
    first = texts.offsets[:-1][texts.sizes > 0]
    at_start = begins[first]
    begins[1:] &= ~begins[:-1]
    begins[first] = at_start
    return count_in_rows(begins, texts.offsets)


def _outside(counts: Ints, low: int, high: int) -> Flags:
    return np.asarray((counts < low) | (counts > high))
