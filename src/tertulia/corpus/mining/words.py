"""The words of all rows at once, as hashes: for runs shared with the parent and for phrases of a lexicon.

A word is what `tertulia.core.text.words` calls one. In plain ASCII that is a run of letters and digits, with single
apostrophes and hyphens between two of them; rows with anything else are first spelled out, so that every byte beyond
ASCII is part of a word.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tertulia.core.text import words
from tertulia.corpus.mining.columns import (
    BLOCK,
    Flags,
    Ints,
    Runs,
    StringArray,
    Texts,
    are_digits,
    are_letters,
    blocks,
    in_lower_case,
    runs_in_rows,
    texts_of,
)
from tertulia.corpus.mining.hashing import Hashes, hash_words, is_among, mixed, together

_UNKNOWN, _LETTER, _MARK, _OTHER = range(4)
_KINDS = np.zeros(0x110000, np.uint8)
"""What `words` makes of every code point; filled in as they come."""


class WordHashes(NamedTuple):
    """The words of a column, row after row."""

    hashes: Hashes
    rows: Ints
    """The row of each word; never falls."""


def word_hashes(array: StringArray, plain: Flags, rows: Ints) -> WordHashes:
    """Hashes of the words in some rows (in order); `plain` says which of all rows are ASCII."""
    parts = [_hashed(array, plain, rows[part]) for part in blocks(len(rows))]
    return WordHashes(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _hashed(array: StringArray, plain: Flags, rows: Ints) -> WordHashes:
    texts = texts_of(spell_out(array.take(pa.array(rows)), plain[rows]))
    starts, ends, places = word_runs(texts)
    return WordHashes(hash_words(in_lower_case(texts.data), starts, ends), rows[places])


def spell_out(array: StringArray, plain: Flags) -> StringArray:
    """The texts in a form in which every byte beyond ASCII is part of a word: in lower case, blanks for other signs."""
    odd = np.flatnonzero(~plain)
    if not len(odd):
        return array
    lowered = [text.lower().replace("\u2019", "'") for text in array.take(pa.array(odd)).to_pylist()]
    signs = np.frombuffer("".join(lowered).encode("utf-32-le"), np.uint32).copy()
    ends = np.concatenate([[0], np.cumsum([len(text) for text in lowered])])
    kinds = _kinds_of(signs)
    # A combining mark belongs to a word if what it stands on does: the last sign before it that is no mark.
    bearer = np.maximum.accumulate(np.where(kinds == _MARK, 0, np.arange(len(signs))))
    row_start = np.repeat(ends[:-1], np.diff(ends))
    borne = (kinds[bearer] == _LETTER) & (bearer >= row_start)
    signs[(signs >= 128) & ~((kinds == _LETTER) | ((kinds == _MARK) & borne))] = ord(" ")
    spelled = signs.tobytes().decode("utf-32-le")
    pieces = [spelled[a:b] for a, b in pairwise(ends.tolist())]
    return pc.replace_with_mask(array, pa.array(~plain), pa.array(pieces, array.type))


def _kinds_of(signs: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    new = signs[_KINDS[signs] == _UNKNOWN]
    if len(new):
        for sign in np.unique(new).tolist():
            # A letter or digit is a word alone, a mark only on a letter.
            _KINDS[sign] = (
                _LETTER if words(chr(sign)) else _MARK if words(f"a{chr(sign)}a") == [f"a{chr(sign)}a"] else _OTHER
            )
    return _KINDS[signs]


def word_runs(texts: Texts) -> Runs:
    """The words of rows that are ASCII, or were spelled out."""
    data = texts.data
    inside = are_letters(data) | are_digits(data) | (data >= 128)
    joints = np.flatnonzero((data == ord("'")) | (data == ord("-")))
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
    rows = np.flatnonzero(asked & (parent < size))
    shared, total = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for part in blocks(len(rows)):
        some = np.zeros(size, np.bool_)
        some[rows[part]] = True
        counts = _shared(_words_of(found, some, parent) if len(rows) > BLOCK else found, parent, some, n)
        shared, total = shared + counts[0], total + counts[1]
    return shared, total


def _words_of(found: WordHashes, some: Flags, parent: Ints) -> WordHashes:
    """The words of some rows and of their parents."""
    wanted = some.copy()
    wanted[parent[some]] = True
    theirs = wanted[found.rows]
    return WordHashes(found.hashes[theirs], found.rows[theirs])


def _shared(found: WordHashes, parent: Ints, asked: Flags, n: int) -> tuple[Ints, Ints]:
    size = len(parent)
    runs = runs_of(found, n)
    is_parent = np.zeros(size + 1, np.bool_)
    is_parent[parent[asked]] = True
    salt = mixed(np.arange(1, size + 2, dtype=np.uint64))  # so that one sorted array holds the runs of every parent
    theirs = np.sort((runs.hashes ^ salt[runs.rows])[is_parent[runs.rows]])
    own = asked[runs.rows]
    rows = runs.rows[own]
    same = is_among(runs.hashes[own] ^ salt[parent[rows]], theirs)
    return np.bincount(rows[same], minlength=size), np.bincount(rows, minlength=size)


class Lexicon:
    """Words and phrases that make a text unsafe: found where their words stand side by side, whatever their case."""

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
    return np.sort(runs_of(word_hashes(array, plain, np.arange(len(phrases))), n).hashes)
