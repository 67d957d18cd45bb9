"""Whether a text has too few or too many subwords, mostly without counting them.

In plain ASCII a text has at least as many subwords as words, since no subword reaches over a blank, and at most one for
each character and one more for each word. Where these bounds do not settle it, subwords are counted word by word, and
the counts of words are remembered. All other texts are simply encoded. A given model whose subwords do reach over
blanks is recognised, and then every text is encoded.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import sentencepiece

from tertulia.corpus.mining.columns import Flags, Ints, StringArray, Texts, bytes_table, runs_in_rows, texts_of
from tertulia.corpus.mining.hashing import Hashes, hash_runs, is_among, place_among

_BLANK = bytes_table(b"\t\n\r ").astype(np.bool_)
_MARK = "\u2581"
"""SentencePiece's sign for a blank."""
_REMEMBERED = 400_000
"""Most words whose counts are kept: 5 MB."""
_PROBES = ("a few  plain words, and then some more", "Don't! 10,000 times (or so)...\n\nno", " x\ty ")


class Lengths:
    """Judges lengths with one SentencePiece model."""

    def __init__(self, model: bytes) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._known: Hashes = np.zeros(0, np.uint64)
        self._counts = np.zeros(0, np.int32)
        self.by_words = self._is_word_by_word()

    def out_of_bounds(self, array: StringArray, plain: Flags, *, low: int, high: int) -> Flags:
        """Which texts have fewer than `low` or more than `high` subwords; `plain` says which are ASCII."""
        if not self.by_words:
            return _outside(self._encoded(array), low, high)
        texts = texts_of(array)
        starts, ends, rows = runs_in_rows(~_BLANK[texts.data], texts.offsets)
        least = np.bincount(rows, minlength=len(array))
        most = np.bincount(rows, weights=ends - starts, minlength=len(array)).astype(np.int64) + least
        bad = (most < low) | (least > high)
        sure = plain & (bad | ((least >= low) & (most <= high)))
        bad &= plain
        odd = np.flatnonzero(~plain)
        if len(odd):
            bad[odd] = _outside(self._encoded(array.take(pa.array(odd))), low, high)
        open_rows = plain & ~sure
        if open_rows.any():
            mine = open_rows[rows]
            counts = self._word_counts(texts, starts[mine], ends[mine])
            total = np.bincount(rows[mine], weights=counts, minlength=len(array)).astype(np.int64)
            bad[open_rows] = _outside(total[open_rows], low, high)
        return bad

    def _encoded(self, array: StringArray) -> Ints:
        return np.array([len(pieces) for pieces in self._processor.encode(array.to_pylist())], np.int64)

    def _word_counts(self, texts: Texts, starts: Ints, ends: Ints) -> Ints:
        """Subwords of each word, remembered or newly encoded."""
        hashes, first, back = np.unique(hash_runs(texts.data, starts, ends), return_index=True, return_inverse=True)
        counts = np.zeros(len(hashes), np.int32)
        seen = is_among(hashes, self._known)
        counts[seen] = self._counts[place_among(hashes[seen], self._known)]
        new = np.flatnonzero(~seen)
        if len(new):
            spans = zip(starts[first[new]].tolist(), ends[first[new]].tolist(), strict=True)
            data = texts.data.tobytes()
            pieces = self._processor.encode([data[a:b].decode() for a, b in spans])
            counts[new] = [len(p) for p in pieces]
            self._remember(hashes[new], counts[new])
        return counts[back].astype(np.int64)

    def _remember(self, hashes: Hashes, counts: np.ndarray[tuple[int], np.dtype[np.int32]]) -> None:
        if len(self._known) + len(hashes) > _REMEMBERED:
            return
        places = np.searchsorted(self._known, hashes)
        self._known = np.insert(self._known, places, hashes)
        self._counts = np.insert(self._counts, places, counts)

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
