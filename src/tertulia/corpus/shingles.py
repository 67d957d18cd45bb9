"""The word n-grams of many texts as hashes, all at once, and their MinHash signatures (Broder 1997).

An n-gram's hash is the CRC-32 of its words joined by spaces: the same on every machine and in every version. CRC-32 is
linear, so the hash of an n-gram follows from those of its words: appending a word of k bytes multiplies by a fixed
matrix, which four small tables per k hold. That makes numpy do the work that `duplicates.shingles` states in one line.
"""

import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tertulia.core.text import words_of_each

SIGNATURE = 128
"""Hashes per text: enough for a standard error of about .04 at a similarity of .7."""
BANDS = 32
"""Of four hashes each: two texts of similarity .7 share at least one band with probability .9998, of .3 with .23."""
_LONG_WORD = 64
"""Bytes, the space before it included; n-grams with longer words are hashed one by one."""
_BLOCK = 16_384
"""n-grams mixed at once: their working set fits into the processor's cache."""
_MAX_KNOWN = 1 << 17
"""Words whose hashes are remembered; then all are forgotten."""
_SALTS = np.random.default_rng(20240229).integers(0, 1 << 63, SIGNATURE, dtype=np.uint64)
_EMPTY = np.iinfo(np.uint64).max

Hashes = NDArray[np.uint32]
Signatures = NDArray[np.uint64]


class ShingleSets(NamedTuple):
    """The sets of n-grams of many texts: those of text i are values[offsets[i]:offsets[i + 1]], sorted."""

    values: Hashes
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, i: int) -> Hashes:
        """The set of one text."""
        return self.values[self.offsets[i] : self.offsets[i + 1]]


def shingle_sets(texts: Sequence[str], n: int = 3) -> ShingleSets:
    """The sets of word n-grams of many texts; a text of fewer words is one n-gram, a text without words has none.

    >>> sets = shingle_sets(["to be or not", "To be, or not!", "no", "..."])
    >>> sets.of(0).tolist() == sets.of(1).tolist(), [len(sets.of(i)) for i in range(4)]
    (True, [2, 2, 1, 0])
    """
    return joined_shingle_sets([(text,) for text in texts], n)


def joined_shingle_sets(texts: Sequence[Sequence[str]], n: int = 3, *, min_words: int = 1) -> ShingleSets:
    """Those of texts that are given in pieces, such as turns, as if these were joined by line ends.

    Texts of fewer words than `min_words` have none. A piece that occurs several times (a message in the contexts of
    several replies) is cut into words only once.
    """
    pieces = {piece: i for i, piece in enumerate(dict.fromkeys(chain.from_iterable(texts)))}
    numbers, piece_lengths = _WORDS.numbered(words_of_each(list(pieces)))
    used = np.fromiter((pieces[piece] for text in texts for piece in text), np.int64)
    of_text = np.repeat(np.arange(len(texts)), np.fromiter(map(len, texts), np.int64, count=len(texts)))
    lengths = np.bincount(of_text, weights=piece_lengths[used], minlength=len(texts)).astype(np.int64)
    starts = np.cumsum(piece_lengths) - piece_lengths
    runs = piece_lengths[used]
    indices = np.repeat(starts[used] - (np.cumsum(runs) - runs), runs) + np.arange(int(runs.sum()))
    if min_words > 1:
        enough = lengths >= min_words
        indices, lengths = indices[np.repeat(enough, lengths)], np.where(enough, lengths, 0)
    return _sets_of(numbers[indices], lengths, n)


def _sets_of(numbers: NDArray[np.int64], lengths: NDArray[np.int64], n: int) -> ShingleSets:
    """The n-grams of texts of so many words each, which are given by number."""
    ends = np.cumsum(lengths)
    rows = np.repeat(np.arange(len(lengths), dtype=np.uint64), lengths)
    room = np.repeat(ends, lengths) - np.arange(len(numbers))
    keys = [np.zeros(0, np.uint64)]
    for words, hashes in enumerate(_rolling_hashes(numbers, n), 1):
        # A text of fewer words is one n-gram.
        starts = (ends - lengths)[lengths == words] if words < n else np.flatnonzero(room >= n)
        keys.append((rows[starts] << np.uint64(32)) | hashes[starts])
    merged = sorted_unique(np.concatenate(keys))
    counts = np.bincount((merged >> np.uint64(32)).astype(np.int64), minlength=len(lengths))
    return ShingleSets(merged.astype(np.uint32), np.concatenate([[0], np.cumsum(counts)]))


def sorted_unique(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The distinct values in order; faster than `numpy.unique`, which builds a hash table first.

    >>> sorted_unique(np.array([3, 1, 3], np.uint64)).tolist()
    [1, 3]
    """
    ordered = np.sort(values)
    return np.asarray(ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]])


class _Words:
    """The hashes of words, alone and after a space, with their lengths; remembered by number."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.numbers: dict[str, int] = {}
        self.rows = np.zeros((0, 3), np.int64)

    def numbered(self, texts: Sequence[list[str]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The words of all texts by number, and how many each text has."""
        if len(self.words) > _MAX_KNOWN:
            self.words, self.numbers, self.rows = [], {}, self.rows[:0]
        flat = list(chain.from_iterable(texts))
        if new := sorted(set(flat) - self.numbers.keys()):
            data = [word.encode() for word in new]
            rows = [(zlib.crc32(word), zlib.crc32(b" " + word), len(word) + 1) for word in data]
            self.numbers.update(zip(new, range(len(self.words), len(self.words) + len(new)), strict=True))
            self.words += new
            self.rows = np.concatenate([self.rows, np.array(rows, np.int64)])
        lengths = np.fromiter(map(len, texts), np.int64, count=len(texts))
        return np.fromiter(map(self.numbers.__getitem__, flat), np.int64, count=len(flat)), lengths


_WORDS = _Words()


def _rolling_hashes(numbers: NDArray[np.int64], n: int) -> Iterator[Hashes]:
    """The CRC-32 of every run of one word, of two words joined by a space, and so on up to n words.

    Where fewer words are left, the value has no meaning.
    """
    rows = _WORDS.rows[numbers]
    hashes, spaced = rows[:, 0].astype(np.uint32), rows[:, 1].astype(np.uint32)
    lengths = np.minimum(rows[:, 2], _LONG_WORD)
    long_words = np.flatnonzero(rows[:, 2] > _LONG_WORD).tolist()
    yield hashes
    for j in range(1, n):
        hashes = _shift(hashes, np.roll(lengths, -j), _shift_tables()) ^ np.roll(spaced, -j)
        for position in long_words:
            for start in range(max(0, position - j), position + 1):
                words = [_WORDS.words[number] for number in numbers[start : start + j + 1].tolist()]
                hashes[start] = zlib.crc32(" ".join(words).encode())
        yield hashes


def _shift(hashes: Hashes, lengths: NDArray[np.int64], tables: NDArray[np.uint32]) -> Hashes:
    """What appending zero bytes, so many for each, makes of the hashes."""
    base = lengths << 10
    shifted = tables[base + (hashes & np.uint32(255))]
    for byte in (1, 2, 3):
        part = (hashes >> np.uint32(8 * byte)) & np.uint32(255)
        shifted = shifted ^ tables[base + (byte << 8) + part]
    return np.asarray(shifted, np.uint32)


@cache
def _shift_tables() -> NDArray[np.uint32]:
    """For every length up to `_LONG_WORD`, four tables of 256: one for each byte of a hash."""
    polynomial = np.uint32(0xEDB88320)
    basis = np.uint32(1) << np.arange(32, dtype=np.uint32)
    values = np.arange(256, dtype=np.uint32)
    tables = np.zeros((_LONG_WORD + 1, 4, 256), np.uint32)
    for length in range(_LONG_WORD + 1):
        for byte in range(4):
            for bit in range(8):
                has_bit = (values >> np.uint32(bit)) & np.uint32(1)
                tables[length, byte] ^= has_bit * basis[8 * byte + bit]
        for _ in range(8):  # one more zero byte
            basis = (basis >> np.uint32(1)) ^ ((basis & np.uint32(1)) * polynomial)
    return tables.reshape(-1)


def signatures(sets: ShingleSets) -> Signatures:
    """One row of SIGNATURE hashes per set: for each salt, the least of its mixed n-grams. Empty sets have the largest
    value everywhere; `band_keys` makes them match nothing."""
    rows = np.full((len(sets), SIGNATURE), _EMPTY, np.uint64)
    filled = np.flatnonzero(np.diff(sets.offsets))
    start = 0
    while start < len(filled):
        limit = sets.offsets[filled[start]] + _BLOCK
        end = max(start + 1, int(np.searchsorted(sets.offsets[filled + 1], limit, side="right")))
        chosen = filled[start:end]
        first, last = sets.offsets[chosen[0]], sets.offsets[chosen[-1] + 1]
        values = sets.values[first:last].astype(np.uint64)
        rows[chosen] = _least_mixed(values, sets.offsets[chosen] - first).T
        start = end
    return rows


def _least_mixed(values: NDArray[np.uint64], starts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """For every salt, the least mixed value of each run: (SIGNATURE, runs)."""
    least = np.empty((SIGNATURE, len(starts)), np.uint64)
    mixed, shifted = np.empty_like(values), np.empty_like(values)
    for row, salt in zip(least, _SALTS, strict=True):
        np.bitwise_xor(values, salt, out=mixed)
        _mix_in_place(mixed, shifted)
        np.minimum.reduceat(mixed, starts, out=row)
    return least


def _mix_in_place(x: NDArray[np.uint64], spare: NDArray[np.uint64]) -> None:
    """The finaliser of SplitMix64 (Steele et al. 2014): every bit of the input affects every bit of the output."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 0)):
        np.right_shift(x, np.uint64(shift), out=spare)
        np.bitwise_xor(x, spare, out=x)
        if factor:
            np.multiply(x, np.uint64(factor), out=x)


def band_keys(rows: Signatures) -> NDArray[np.uint64]:
    """For each text and band, a hash of the band's number and its four values: (texts, BANDS).

    Two texts with the same key in a band are candidates. The keys of texts without words are 0.
    """
    bands = rows.reshape(len(rows), BANDS, SIGNATURE // BANDS)
    keys = np.empty((len(rows), BANDS), np.uint64)
    keys[:] = np.arange(1, BANDS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    spare = np.empty_like(keys)
    for column in range(bands.shape[2]):
        np.bitwise_xor(keys, bands[:, :, column], out=keys)
        _mix_in_place(keys, spare)
        np.multiply(keys, np.uint64(0xD6E8FEB86659FD93), out=keys)
    keys[keys == 0] = np.uint64(1)
    keys[rows[:, 0] == _EMPTY] = 0
    return keys


def jaccard_sorted(a: Hashes, b: Hashes) -> float:
    """Size of the intersection over that of the union of two sorted sets; 0 for two empty sets.

    >>> jaccard_sorted(np.array([1, 2, 3], np.uint32), np.array([2, 3, 4], np.uint32))
    0.5
    """
    shared = len(np.intersect1d(a, b, assume_unique=True))
    total = len(a) + len(b) - shared
    return shared / total if total else 0.0
