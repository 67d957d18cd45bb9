"""A 64-bit hash of texts that never changes: the bucket of a thread must not depend on the version of a library.

The hash of bytes b0 b1 ... is the sum of code(b_i) * M^i modulo 2^64, mixed at the end, where the codes are 256 fixed
odd numbers. It is a polynomial hash: the sum over any run of bytes is a difference of two prefix sums times a power of
M's inverse, so all rows of a column are hashed with one cumulative sum. Words, which are short and many, are hashed
eight bytes at a time instead, all words at once. The hash is not cryptographic: collisions can be constructed, but by
chance they happen once in 10^19 pairs.
"""

import hashlib

import numpy as np
import numpy.typing as npt

from tertulia.corpus.mining.columns import LOW_BYTES, Bytes, Ints, StringArray, Texts, blocks, flags_of, texts_of

Hashes = npt.NDArray[np.uint64]

_BLOCK = 1 << 16
"""Bytes hashed at a time, so that the prefix sums stay in the processor's cache."""
_FACTOR = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _fixed_numbers(count: int, start: int) -> Hashes:
    """Odd pseudo-random numbers by SplitMix64 (Steele et al. 2014), written out here so that they never change."""
    numbers = []
    for i in range(1, count + 1):
        z = (start + i * _FACTOR) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        numbers.append((z ^ (z >> 31)) | 1)
    return np.array(numbers, np.uint64)


def _powers(base: int) -> Hashes:
    powers = np.full(_BLOCK + 1, base, np.uint64)
    powers[0] = 1
    return np.multiply.accumulate(powers)


_CODES = _fixed_numbers(256, start=1)
_WEIGHTS = _fixed_numbers(64, start=2)
"""Weights for combining hashes: the n-th word of a run, a thread and an id."""
_POWERS, _INVERSES = _powers(_FACTOR), _powers(pow(_FACTOR, -1, 1 << 64))
_MANY = 1 << 12
"""From this many values on, `is_in_sorted` filters before it searches."""
_LOW_BITS = (1 << 20) - 1
"""Of a hash, those that `may_be_among` looks at."""
_SHORT = 64
"""The first bytes of a word, which are hashed eight at a time."""
_PADDING = np.zeros(8, np.uint8)
_MIXER = np.uint64(0xD6E8FEB86659FD93)
_NULL = np.uint64(0x5851F42D4C957F2D)
"""The hash of a null, which differs from that of an empty text."""


def mix(values: Hashes) -> Hashes:
    """A bijection in which every bit of the result depends on every bit of the value."""
    mixed = values ^ (values >> np.uint64(32))
    mixed *= _MIXER
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MIXER
    mixed ^= mixed >> np.uint64(29)
    return mixed


def hash_runs(data: Bytes, starts: Ints, ends: Ints) -> Hashes:
    """The hash of each data[start:end]; starts and ends must be non-decreasing and runs must not overlap."""
    hashes = np.empty(len(starts), np.uint64)
    terms = np.empty(_BLOCK, np.uint64)
    prefix = np.zeros(_BLOCK + 1, np.uint64)  # prefix[k] = sum of the first k terms of the block
    i = 0
    while i < len(starts):
        base = int(starts[i])
        j = int(np.searchsorted(ends, base + _BLOCK, side="right"))  # runs i to j - 1 fit into one block
        if j <= i:  # a run longer than a block: rare, so hashed alone
            digest = hashlib.blake2b(data[base : ends[i]].tobytes(), digest_size=8).digest()
            hashes[i] = int.from_bytes(digest, "little")
            i += 1
            continue
        size = int(ends[j - 1]) - base
        block = np.take(_CODES, data[base : base + size], out=terms[:size], mode="clip")
        np.cumsum(np.multiply(block, _POWERS[:size], out=block), out=prefix[1 : size + 1])
        low, high = starts[i:j] - base, ends[i:j] - base
        # Dividing by M^low (multiplying by its inverse) makes the hash independent of where the run lies.
        hashes[i:j] = (prefix[high] - prefix[low]) * _INVERSES[low] + (high - low).astype(np.uint64) * _WEIGHTS[63]
        i = j
    return mix(hashes)


def hash_words(data: Bytes, starts: Ints, ends: Ints) -> Hashes:
    """A different hash with the same contract, faster for short runs."""
    eights = _eights(data)
    sizes = ends - starts
    hashes = eights[starts]
    hashes &= LOW_BYTES.take(sizes, mode="clip")
    hashes *= _WEIGHTS[0]
    hashes += sizes.view(np.uint64) * _WEIGHTS[1]
    longer = np.flatnonzero(sizes > 8)  # most words end here; each round keeps only those that continue
    for position in range(8, _SHORT, 8):
        remaining = sizes[longer] - position
        next_bytes = eights[starts[longer] + position] & LOW_BYTES.take(remaining, mode="clip")
        hashes[longer] = mix(hashes[longer]) + next_bytes * _WEIGHTS[2]
        longer = longer[remaining > 8]
    if len(longer):
        hashes[longer] = mix(hashes[longer]) + hash_runs(data, starts[longer] + _SHORT, ends[longer])
    return mix(hashes)


def hash_texts(array: StringArray) -> Hashes:
    """The hash of each text of a column.

    >>> import pyarrow as pa
    >>> [f"{h:x}" for h in hash_texts(pa.array(["tertulia", "", None]))]
    ['8095cc569c485800', '0', '5851f42d4c957f2d']
    """
    texts = texts_of(array)
    hashes = hash_runs(texts.data, texts.offsets[:-1], texts.offsets[1:])
    if array.null_count:
        hashes[flags_of(array.is_null())] = _NULL
    return hashes


def hash_contents(array: StringArray) -> Hashes:
    """Another hash of each text, eight bytes at a time: faster, for columns of long texts without nulls."""
    return np.concatenate([_hash_contents(texts_of(array[part])) for part in blocks(len(array))])


def _hash_contents(texts: Texts) -> Hashes:
    eights = _eights(texts.data)
    counts = (texts.sizes + 7) >> 3
    edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    place = np.arange(edges[-1])
    place -= np.repeat(edges[:-1], counts)
    values = eights[np.repeat(texts.offsets[:-1], counts) + (place << 3)]
    rows = np.flatnonzero(counts)
    values[edges[1:][rows] - 1] &= LOW_BYTES[texts.sizes[rows] - 8 * (counts[rows] - 1)]
    sums = np.zeros(len(counts), np.uint64)
    if len(rows):
        sums[rows] = np.add.reduceat(mix(values ^ (place.view(np.uint64) * _WEIGHTS[0])), edges[rows])
    return mix(sums + texts.sizes.view(np.uint64) * _WEIGHTS[1])


def _eights(data: Bytes) -> Hashes:
    """A view with a stride of one byte: [i] holds the eight bytes from position i on."""
    return np.ndarray((len(data) + 1,), "<u8", np.concatenate([data, _PADDING]), strides=(1,))


def combine(*parts: Hashes) -> Hashes:
    """One hash of several; their order matters."""
    return mix(weighted_sum(*parts))


def weighted_sum(*parts: Hashes) -> Hashes:
    """The same before it is mixed: enough where the parts are mixed and the result is only compared."""
    total: Hashes = parts[0] * _WEIGHTS[0]
    for i, part in enumerate(parts[1:], 1):
        total += part * _WEIGHTS[i % 63]
    return total


def is_in_sorted(values: Hashes, ordered: Hashes) -> npt.NDArray[np.bool_]:
    """Whether each value occurs in a sorted array."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    if len(values) < _MANY:
        return np.asarray(ordered[index_in_sorted(values, ordered)] == values)
    # Most values do not occur. A bitmap of the lowest bits, which fits into the cache, rules them out without a search.
    occurs = may_be_among(values, ordered)
    possible = values[occurs]
    occurs[occurs] = ordered[index_in_sorted(possible, ordered)] == possible
    return occurs


def may_be_among(values: Hashes, others: Hashes) -> npt.NDArray[np.bool_]:
    """Whether each value has the lowest bits of one of the others: never false for one that is among them."""
    seen = np.zeros(_LOW_BITS + 1, np.bool_)
    seen[low_bits(others, _LOW_BITS)] = True
    return seen.take(low_bits(values, _LOW_BITS))


def low_bits(values: Hashes, mask: int) -> Ints:
    """Some of the bits as an index; NumPy takes signed indices only, and would convert unsigned ones slowly."""
    return (values & np.uint64(mask)).view(np.int64)


def rows_of(values: Hashes, keys: Hashes) -> Ints:
    """The row of the key that equals each value, or the number of keys where none does; no key occurs twice.

    >>> rows_of(np.array([7, 8, 9], np.uint64), np.array([9, 7], np.uint64)).tolist()
    [1, 2, 0]
    """
    # A table by the lowest bits, eight times as large as needed; in each slot the last of the keys that belong there.
    count, mask = len(keys), (8 << len(keys).bit_length()) - 1
    rows, slots, table = np.arange(count), low_bits(keys, mask), np.zeros(mask + 1, np.int64)
    if not count:
        return np.zeros(len(values), np.int64)
    table[slots] = rows
    indices = table.take(low_bits(values, mask))
    missing = np.flatnonzero(keys.take(indices) != values)
    indices[missing] = count
    displaced = np.flatnonzero(table.take(slots) != rows)
    if len(displaced):  # a few percent of the keys, among which the rest is searched for
        displaced = displaced[np.argsort(keys[displaced])]
        sought = values[missing]
        candidates = displaced[index_in_sorted(sought, keys[displaced])]
        equal = keys[candidates] == sought
        indices[missing[equal]] = candidates[equal]
    return indices


def index_in_sorted(values: Hashes, ordered: Hashes) -> Ints:
    """The index of each value in a sorted array; for a value that does not occur, any valid index."""
    return np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
