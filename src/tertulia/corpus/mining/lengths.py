"""Whether a text has too few or too many subwords, mostly without counting them.

No subword reaches over a blank, so a text has the sum of its words' subwords, and the counts of words are remembered.
In plain ASCII not even that is needed for most texts: a word has at least one subword, and at most one for each of its
characters and one more, so that a word never seen before seldom matters. (Elsewhere normalisation may take characters
away or split them.) A given model whose subwords do reach over blanks is recognised, and then every text is encoded.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencepiece

from tertulia.corpus.mining.columns import Flags, Ints, StringArray, Texts, are_blanks, blocks, runs_in_rows, texts_of
from tertulia.corpus.mining.hashing import Hashes, hash_words

_MARK = "\u2581"
"""SentencePiece's sign for a blank."""
_REMEMBERED = 1 << 20
"""Words whose counts are kept, each in the place that its hash gives; a newcomer takes the place of an older one."""
_MANY = 0xFFFF
"""No count is larger than this; `high` must not be either."""
_PROBES = ("a few  plain words, and then some more", "Don't! 10,000 times (or so)...\n\nno", " x\ty ")


class Lengths:
    """Judges lengths with one SentencePiece model."""

    def __init__(self, model: bytes) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._known: Hashes = np.zeros(_REMEMBERED, np.uint64)
        self._counts = np.zeros(_REMEMBERED, np.uint16)
        self.by_words = self._is_word_by_word()

    def out_of_bounds(self, array: StringArray, plain: Flags, *, low: int, high: int) -> Flags:
        """Which texts have fewer than `low` or more than `high` subwords; `plain` says which are ASCII."""
        parts = [self._outside(array[part], plain[part], low, high) for part in blocks(len(array))]
        return np.concatenate(parts)

    def _outside(self, array: StringArray, plain: Flags, low: int, high: int) -> Flags:
        if not self.by_words:
            return _outside(self._encoded(array), low, high)
        texts = texts_of(array)
        starts, ends, rows = runs_in_rows(~are_blanks(texts.data), texts.offsets)
        least = np.bincount(rows, minlength=len(array))
        most = np.bincount(rows, weights=ends - starts, minlength=len(array)).astype(np.int64) + least
        bad = (most < low) | (least > high)
        open_rows = ~plain | (~bad & ((least < low) | (most > high)))
        if open_rows.any():
            mine = open_rows[rows]
            bad[open_rows] = self._counted(texts, starts[mine], ends[mine], rows[mine], plain, low, high)[open_rows]
        return bad

    def _counted(self, texts: Texts, starts: Ints, ends: Ints, rows: Ints, plain: Flags, low: int, high: int) -> Flags:
        """The same for rows whose words have to be looked up. Words that nothing is remembered of are encoded only
        where the others leave it open whether their row is within bounds.
        """

        def total(values: npt.NDArray[Any]) -> Ints:
            return np.bincount(rows, weights=values, minlength=len(plain)).astype(np.int64)

        hashes = hash_words(texts.data, starts, ends)
        places = (hashes & np.uint64(_REMEMBERED - 1)).astype(np.int64)
        counts, known = self._counts[places], self._known[places] == hashes
        least, most = total(np.where(known, counts, 1)), total(np.where(known, counts, ends - starts + 1))
        bad = (most < low) | (least > high)
        open_rows = ~plain | (~bad & ((least < low) | (most > high)))
        new = np.flatnonzero(~known & open_rows[rows])
        if len(new):
            counts[new] = self._encode_words(texts, starts[new], ends[new], hashes[new])
            return np.where(open_rows, _outside(total(counts), low, high), bad)
        return np.where(open_rows, _outside(least, low, high), bad)

    def _encoded(self, array: StringArray) -> Ints:
        return np.array([len(pieces) for pieces in self._processor.encode(array.to_pylist(), num_threads=1)], np.int64)

    def _encode_words(self, texts: Texts, starts: Ints, ends: Ints, hashes: Hashes) -> npt.NDArray[np.uint16]:
        """Subwords of each word, which from now on are remembered."""
        different, first, back = np.unique(hashes, return_index=True, return_inverse=True)
        data = texts.data.tobytes()
        spans = zip(starts[first].tolist(), ends[first].tolist(), strict=True)
        pieces = self._processor.encode([data[a:b].decode() for a, b in spans], num_threads=1)
        counted = np.array([min(len(p), _MANY) for p in pieces], np.uint16)
        places = (different & np.uint64(_REMEMBERED - 1)).astype(np.int64)
        self._known[places], self._counts[places] = different, counted
        return counted[back]

    def _is_word_by_word(self) -> bool:
        """Whether subwords begin with a word and end with it, so that a text has the sum of its words' subwords."""
        processor = self._processor
        pieces = (processor.id_to_piece(i) for i in range(processor.vocab_size()))
        if any(_MARK in piece[1:] for piece in pieces):
            return False
        sums = (sum(len(processor.encode(word)) for word in probe.split()) for probe in _PROBES)
        return [len(processor.encode(probe)) for probe in _PROBES] == list(sums)


@lru_cache(maxsize=1)
def load_lengths(path: str) -> Lengths:
    """The judge for a model file: read once by each process, so that what it remembers is kept from task to task."""
    return Lengths(Path(path).read_bytes())


def _outside(counts: Ints, low: int, high: int) -> Flags:
    return np.asarray((counts < low) | (counts > high))
