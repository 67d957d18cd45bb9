"""Whether a text has too few or too many subwords, mostly without encoding it.

No subword crosses a space, so a text has the sum of its words' subwords, and the counts of words are cached. In plain
ASCII most texts need not even that: a word has at least one subword, and at most one for each of its characters plus
one for the space before it. If these bounds already decide the rule, nothing is looked up; words that are not cached
are encoded only where the bounds of their row stay undecided. (Beyond ASCII, normalisation may remove or split
characters, so the bounds do not hold.) A given model whose subwords do cross spaces is detected, and then every text is
encoded.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencepiece

from tertulia.artefacts.folders import Folder
from tertulia.corpus.mining.columns import Flags, Ints, StringArray, Texts, are_blanks, blocks, runs_in_rows, texts_of
from tertulia.corpus.mining.hashing import Hashes, hash_words

_BLANK = "\u2581"
"""SentencePiece's symbol for a space."""
_CACHE_SIZE = 1 << 20
"""Words whose counts are cached, each in the slot given by its hash; a new word evicts the old one of its slot."""
_MAX_COUNT = 0xFFFF
"""Counts are capped here; `high` must not exceed it."""
_PROBES = ("a few  plain words, and then some more", "Don't! 10,000 times (or so)...\n\nno", " x\ty ")


class LengthFilter:
    """Finds texts whose subword count, by one SentencePiece model, is out of bounds."""

    def __init__(self, model: bytes) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._cached_hashes: Hashes = np.zeros(_CACHE_SIZE, np.uint64)
        self._cached_counts = np.zeros(_CACHE_SIZE, np.uint16)
        self.word_by_word = self._is_word_by_word()

    def out_of_bounds(self, array: StringArray, plain: Flags, *, low: int, high: int) -> Flags:
        """Which texts have fewer than `low` or more than `high` subwords; `plain` says which are ASCII."""
        parts = [self._check_block(array[part], plain[part], low, high) for part in blocks(len(array))]
        return np.concatenate(parts)

    def _check_block(self, array: StringArray, plain: Flags, low: int, high: int) -> Flags:
        if not self.word_by_word:
            return _outside(self._encode_texts(array), low, high)
        texts = texts_of(array)
        starts, ends, rows = runs_in_rows(~are_blanks(texts.data), texts.offsets)
        least = np.bincount(rows, minlength=len(array))
        most = np.bincount(rows, weights=ends - starts, minlength=len(array)).astype(np.int64) + least
        outside, undecided = _decide(least, most, plain, low, high)
        if undecided.any():
            chosen = undecided[rows]
            checked = self._check_words(texts, starts[chosen], ends[chosen], rows[chosen], plain, low, high)
            outside[undecided] = checked[undecided]
        return outside

    def _check_words(
        self, texts: Texts, starts: Ints, ends: Ints, rows: Ints, plain: Flags, low: int, high: int
    ) -> Flags:
        """The same for rows whose words have to be looked up, with bounds tightened by the cached counts."""

        def sum_by_row(values: npt.NDArray[Any]) -> Ints:
            return np.bincount(rows, weights=values, minlength=len(plain)).astype(np.int64)

        hashes = hash_words(texts.data, starts, ends)
        slots = (hashes & np.uint64(_CACHE_SIZE - 1)).astype(np.int64)
        counts, cached = self._cached_counts[slots], self._cached_hashes[slots] == hashes
        least, most = sum_by_row(np.where(cached, counts, 1)), sum_by_row(np.where(cached, counts, ends - starts + 1))
        outside, undecided = _decide(least, most, plain, low, high)
        new = np.flatnonzero(~cached & undecided[rows])
        if len(new):
            counts[new] = self._encode_words(texts, starts[new], ends[new], hashes[new])
            return np.where(undecided, _outside(sum_by_row(counts), low, high), outside)
        return np.where(undecided, _outside(least, low, high), outside)  # all words cached: least is the exact count

    def _encode_texts(self, array: StringArray) -> Ints:
        return np.array([len(pieces) for pieces in self._processor.encode(array.to_pylist(), num_threads=1)], np.int64)

    def _encode_words(self, texts: Texts, starts: Ints, ends: Ints, hashes: Hashes) -> npt.NDArray[np.uint16]:
        """Subwords of each word; the counts go into the cache."""
        distinct, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        data = texts.data.tobytes()
        spans = zip(starts[first].tolist(), ends[first].tolist(), strict=True)
        pieces = self._processor.encode([data[a:b] for a, b in spans], num_threads=1)
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        counts = np.minimum(lengths, _MAX_COUNT).astype(np.uint16)
        slots = (distinct & np.uint64(_CACHE_SIZE - 1)).astype(np.int64)
        self._cached_hashes[slots], self._cached_counts[slots] = distinct, counts
        return counts[inverse]

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


def _decide(least: Ints, most: Ints, plain: Flags, low: int, high: int) -> tuple[Flags, Flags]:
    """Rows that are certainly out of bounds, and rows that the bounds on their counts leave undecided."""
    outside = (most < low) | (least > high)
    return outside, ~plain | (~outside & ((least < low) | (most > high)))


def _outside(counts: Ints, low: int, high: int) -> Flags:
    return np.asarray((counts < low) | (counts > high))
