"""The words of all rows at once, as hashes: for runs shared with the parent and for phrases of a lexicon.

A word is what `tertulia.core.text.words` calls one. In plain ASCII that is a run of letters and digits, with single
apostrophes and hyphens between two of them; rows with anything else go through `words` itself and come back as plain
runs, in which every byte beyond ASCII is part of a word.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tertulia.core.text import words
from tertulia.corpus.mining.columns import Flags, Ints, Runs, StringArray, Texts, bytes_table, runs_in_rows, texts_of
from tertulia.corpus.mining.hashing import Hashes, hash_runs, is_among, mixed, together

_LETTER, _JOINT = 1, 2
_KINDS = bytes_table(range(48, 58), range(65, 91), range(97, 123), range(128, 256)) + 2 * bytes_table(b"'-")
_LOWER = np.arange(256, dtype=np.uint8)
_LOWER[65:91] += 32


class WordHashes(NamedTuple):
    """The words of a column, row after row."""

    hashes: Hashes
    rows: Ints
    """The row of each word; never falls."""


def word_hashes(array: StringArray, plain: Flags) -> WordHashes:
    """Hashes of the words of each text; `plain` says which rows are ASCII."""
    odd = np.flatnonzero(~plain)
    if len(odd):
        spelled = [" ".join(words(text)) for text in array.take(pa.array(odd)).to_pylist()]
        array = pc.replace_with_mask(array, pa.array(~plain), pa.array(spelled, array.type))
    texts = texts_of(array)
    starts, ends, rows = word_runs(texts)
    return WordHashes(hash_runs(_LOWER[texts.data], starts, ends), rows)


def word_runs(texts: Texts) -> Runs:
    """The words of rows that are ASCII, or were spelled out."""
    kinds = _KINDS[texts.data]
    inside = kinds == _LETTER
    joints = np.flatnonzero(kinds == _JOINT)
    joints = joints[(joints > 0) & (joints < len(inside) - 1)]
    row_end = np.zeros(len(inside) + 1, np.bool_)
    row_end[texts.offsets] = True
    within = ~row_end[joints] & ~row_end[joints + 1]
    inside[joints[inside[joints - 1] & inside[joints + 1] & within]] = True
    return runs_in_rows(inside, texts.offsets)


def runs_of(found: WordHashes, n: int) -> WordHashes:
    """Hashes of all runs of n neighbouring words of one row."""
    count = max(0, len(found.hashes) - n + 1)
    hashes = together(*(found.hashes[i : i + count] for i in range(n)))
    whole = found.rows[:count] == found.rows[n - 1 : n - 1 + count]
    return WordHashes(hashes[whole], found.rows[:count][whole])


def shared_with_parent(found: WordHashes, parent: Ints, asked: Flags, *, n: int) -> tuple[Ints, Ints]:
    """For each row, how many of its runs of n words stand in its parent's text, and how many it has.

    Only rows asked for are compared; `parent` is a row, or the number of rows where there is none.
    """
    size = len(parent)
    runs = runs_of(found, n)
    asked = asked & (parent < size)
    is_parent = np.zeros(size + 1, np.bool_)
    is_parent[parent[asked]] = True
    salt = mixed(np.arange(1, size + 2, dtype=np.uint64))  # so that one sorted array holds the runs of every parent
    theirs = np.sort((runs.hashes ^ salt[runs.rows])[is_parent[runs.rows]])
    own = asked[runs.rows]
    rows = runs.rows[own]
    same = is_among(runs.hashes[own] ^ salt[parent[rows]], theirs)
    return np.bincount(rows[same], minlength=size), np.bincount(rows, minlength=size)


class Lexicon:
    """Words and phrases that make a text unsafe. A phrase is found where its words stand in a row, whatever their case."""

    def __init__(self, phrases: tuple[str, ...]) -> None:
        self.phrases = tuple(p for phrase in phrases if (p := " ".join(words(phrase))))
        by_length: dict[int, set[str]] = {}
        for phrase in self.phrases:
            by_length.setdefault(phrase.count(" ") + 1, set()).add(phrase)
        self._by_length = by_length
        self._hashes = {n: _phrase_hashes(sorted(same), n) for n, same in by_length.items()}

    def __contains__(self, text: str) -> bool:
        """Whether the text holds one of the phrases: the plain form of `rows_with`.

        >>> "Oh DARN it, again" in Lexicon(("darn it",)), "darning it" in Lexicon(("darn it",))
        (True, False)
        """
        said = f" {' '.join(words(text))} "
        return any(f" {phrase} " in said for phrase in self.phrases)

    def rows_with(self, found: WordHashes, rows: int) -> Flags:
        """The rows in which one of the phrases stands."""
        unsafe = np.zeros(rows, np.bool_)
        for n, hashes in self._hashes.items():
            runs = runs_of(found, n)
            unsafe[runs.rows[is_among(runs.hashes, hashes)]] = True
        return unsafe


def _phrase_hashes(phrases: list[str], n: int) -> Hashes:
    array = pa.array(phrases, pa.string())
    plain = np.array([phrase.isascii() for phrase in phrases])
    return np.sort(runs_of(word_hashes(array, plain), n).hashes)
