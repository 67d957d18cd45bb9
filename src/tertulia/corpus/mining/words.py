"""The words of all rows at once, as hashes: for n-grams shared with the parent and for unsafe phrases.

A word is what `tertulia.core.text.words` returns. In plain ASCII that is a run of letters and digits, with single
apostrophes and hyphens between two of them. Other rows are first normalised, so that every remaining byte beyond ASCII
is part of a word.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
    replace_rows,
    row_starts,
    runs_in_rows,
    sparse_positions,
    strings_to_arrow,
    texts_of,
    to_arrow,
    to_lower_case,
)
from tertulia.corpus.mining.hashing import Hashes, hash_words, is_in_sorted, may_be_among, mix, weighted_sum

_UNKNOWN, _LETTER, _MARK, _OTHER = range(4)
_KINDS = np.zeros(0x110000, np.uint8)
"""How `words` treats every code point; filled in on first use."""


class WordHashes(NamedTuple):
    """The words (or n-grams) of a column, row after row."""

    hashes: Hashes  # (words,)
    rows: Ints  # (words,)
    """The row of each word; non-decreasing."""


def word_hashes(array: StringArray, plain: Flags, rows: Ints) -> WordHashes:
    """Hashes of the words in the given rows (in ascending order); `plain` says which of all rows are ASCII."""
    parts = [_hash_block(array, plain, rows[part]) for part in blocks(len(rows))]
    return WordHashes(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _hash_block(array: StringArray, plain: Flags, rows: Ints) -> WordHashes:
    texts = texts_of(normalise(array.take(to_arrow(rows)), plain[rows]))
    runs = word_runs(texts)
    return WordHashes(hash_words(to_lower_case(texts.data), runs.starts, runs.ends), rows.take(runs.rows))


def normalise(array: StringArray, plain: Flags) -> StringArray:
    """The texts in a form in which every byte beyond ASCII is part of a word: lower case, spaces elsewhere."""
    odd = np.flatnonzero(~plain)
    if not len(odd):
        return array
    lowered = [text.lower().replace("\u2019", "'") for text in array.take(to_arrow(odd)).to_pylist()]
    signs = np.frombuffer("".join(lowered).encode("utf-32-le"), np.uint32).copy()
    ends = np.concatenate([[0], np.cumsum([len(text) for text in lowered])])
    kinds = _kinds_of(signs)
    # A combining mark belongs to a word if its base does: the last sign before it that is not a mark. The running
    # maximum carries the index of that base over all marks that follow it; a base in an earlier row does not count.
    base = np.maximum.accumulate(np.where(kinds == _MARK, 0, np.arange(len(signs))))
    row_start = np.repeat(ends[:-1], np.diff(ends))
    on_letter = (kinds[base] == _LETTER) & (base >= row_start)
    signs[(signs >= 128) & ~((kinds == _LETTER) | ((kinds == _MARK) & on_letter))] = ord(" ")
    joined = signs.tobytes().decode("utf-32-le")
    normalised = [joined[a:b] for a, b in pairwise(ends.tolist())]
    return replace_rows(array, odd, strings_to_arrow(normalised))


def _kinds_of(signs: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    new = signs[_KINDS[signs] == _UNKNOWN]
    if len(new):
        for sign in np.unique(new).tolist():
            # A letter or digit is a word by itself, a combining mark only after a letter.
            _KINDS[sign] = (
                _LETTER if words(chr(sign)) else _MARK if words(f"a{chr(sign)}a") == [f"a{chr(sign)}a"] else _OTHER
            )
    return _KINDS[signs]


def word_runs(texts: Texts) -> Runs:
    """The words of rows that are ASCII or normalised."""
    data = texts.data
    inside = are_letters(data) | are_digits(data) | (data >= 128)
    joints = sparse_positions((data == ord("'")) | (data == ord("-")))
    joints = joints[(joints > 0) & (joints < len(inside) - 1)]
    is_start = row_starts(texts)
    within_row = ~is_start[joints] & ~is_start[joints + 1]
    # An apostrophe or hyphen joins two word bytes of the same row.
    inside[joints[inside[joints - 1] & inside[joints + 1] & within_row]] = True
    return runs_in_rows(inside, texts.offsets)


def ngram_hashes(row_words: WordHashes, n: int) -> WordHashes:
    """Hashes of all n-grams of words that lie within one row."""
    count = max(0, len(row_words.hashes) - n + 1)
    hashes = weighted_sum(*(row_words.hashes[i : i + count] for i in range(n)))
    in_one_row = row_words.rows[:count] == row_words.rows[n - 1 : n - 1 + count]
    return WordHashes(hashes[in_one_row], row_words.rows[:count][in_one_row])


def overlaps_parent(row_words: WordHashes, parent: Ints, selected: Flags, *, n: int, share: float) -> Flags:
    """The selected rows of whose n-grams more than this share occurs in their parent's text.

    `parent` is a row, or the number of rows where there is none.
    """
    size = len(parent)
    rows = np.flatnonzero(selected & (parent < size))
    overlapping = np.zeros(size, np.bool_)
    for part in blocks(len(rows)):
        in_part = np.zeros(size, np.bool_)
        in_part[rows[part]] = True
        part_words = _words_of(row_words, in_part, parent) if len(rows) > BLOCK else row_words
        overlapping |= _overlaps(ngram_hashes(part_words, n), parent, in_part, share)
    return overlapping


def _words_of(row_words: WordHashes, selected: Flags, parent: Ints) -> WordHashes:
    """The words of the selected rows and of their parents."""
    needed = selected.copy()
    needed[parent[selected]] = True
    chosen = needed[row_words.rows]
    return WordHashes(row_words.hashes[chosen], row_words.rows[chosen])


def _overlaps(ngrams: WordHashes, parent: Ints, selected: Flags, share: float) -> Flags:
    # XOR with a number per row keeps the rows apart: an n-gram of row r equals one of row p, made with salt[p], only if
    # it is looked up with the salt of r's own parent p.
    salt = mix(np.arange(1, len(parent) + 2, dtype=np.uint64))
    is_parent = np.zeros(len(parent) + 1, np.bool_)
    is_parent[parent[selected]] = True
    above = is_parent.take(ngrams.rows)
    in_parents = ngrams.hashes[above] ^ salt.take(ngrams.rows[above])
    of_selected = selected.take(ngrams.rows)
    rows = ngrams.rows[of_selected]
    own = ngrams.hashes[of_selected] ^ salt[parent].take(rows)
    # The bitmap alone, which never says no to one that occurs, rules out nearly all rows; the rest is looked up.
    may_occur = may_be_among(own, in_parents)
    total = np.bincount(rows, minlength=len(parent))
    possible = _has_share(rows[may_occur], total, share)
    if not possible.any():
        return possible
    remaining = np.flatnonzero(may_occur & possible.take(rows))
    looked_up = own.take(remaining)
    occurs = is_in_sorted(looked_up, np.sort(in_parents[may_be_among(in_parents, looked_up)]))
    return possible & _has_share(rows[remaining[occurs]], total, share)


def _has_share(rows: Ints, total: Ints, share: float) -> Flags:
    """The rows that occur more often than this share of their total."""
    counts = np.bincount(rows, minlength=len(total))
    return np.asarray(np.divide(counts, total, out=np.zeros(len(total)), where=total > 0) > share)


class UnsafePhrases:
    """Words and phrases that make a text unsafe, matched as whole words in sequence, whatever their case."""

    def __init__(self, phrases: tuple[str, ...]) -> None:
        self.phrases = tuple(p for phrase in phrases if (p := " ".join(words(phrase))))
        by_length: dict[int, set[str]] = {}
        for phrase in self.phrases:
            by_length.setdefault(phrase.count(" ") + 1, set()).add(phrase)
        self._hashes = {n: _phrase_hashes(sorted(same_length), n) for n, same_length in by_length.items()}

    def __contains__(self, text: str) -> bool:
        """Whether the text contains one of the phrases: the reference for `rows_with`.

        >>> "Oh DARN it, again" in UnsafePhrases(("darn it",)), "darning it" in UnsafePhrases(("darn it",))
        (True, False)
        """
        padded = f" {' '.join(words(text))} "
        return any(f" {phrase} " in padded for phrase in self.phrases)

    def rows_with(self, row_words: WordHashes, rows: int) -> Flags:
        """The rows that contain one of the phrases."""
        unsafe = np.zeros(rows, np.bool_)
        for n, hashes in self._hashes.items():
            ngrams = ngram_hashes(row_words, n)
            unsafe[ngrams.rows[is_in_sorted(ngrams.hashes, hashes)]] = True
        return unsafe


def _phrase_hashes(phrases: list[str], n: int) -> Hashes:
    array = strings_to_arrow(phrases)
    plain = np.array([phrase.isascii() for phrase in phrases])
    return np.sort(ngram_hashes(word_hashes(array, plain, np.arange(len(phrases))), n).hashes)
