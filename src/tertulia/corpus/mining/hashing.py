"""A 64-bit hash of texts that stays the same for ever: the place of a thread must not change with a library.

The hash of a run of bytes b0 b1 ... is the sum of code(b_i) * M^i modulo 2^64, mixed at the end, where the codes are
256 fixed odd numbers. Sums over neighbouring runs are differences of one running sum, so all rows of a column are
hashed at once. Words, which are short and many, are taken eight bytes at a time instead, all words at once. Nothing
here is secret: whoever wants two texts to collide can make them; by chance it happens once in 10^19 pairs.
"""

import hashlib

import numpy as np
import numpy.typing as npt

from tertulia.corpus.mining.columns import Bytes, Ints, StringArray, texts_of

Hashes = npt.NDArray[np.uint64]

_BLOCK = 1 << 16
"""Bytes hashed at a time: the running sum stays in the processor's cache."""
_FACTOR = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _fixed_numbers(count: int, start: int) -> Hashes:
    """Odd numbers without a pattern, by SplitMix64 (Steele et al. 2014), spelled out so that they are ours for ever."""
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
_PLACES = _fixed_numbers(64, start=2)
"""Weights for parts that are put together: the n-th word of a run, a thread and an id."""
_POWERS, _INVERSES = _powers(_FACTOR), _powers(pow(_FACTOR, -1, 1 << 64))
_MANY = 1 << 12
_SHORT = 64
"""Bytes of a word that are taken eight at a time."""
_PADDING = np.zeros(8, np.uint8)
_LOW_BYTES = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)
"""Masks for the first bytes of eight."""
_NOTHING = np.uint64(0x5851F42D4C957F2D)
"""Stands for a null, which is not an empty text."""


def mixed(values: Hashes) -> Hashes:
    """Every bit of the result depends on every bit of the value."""
    values = (values ^ (values >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    values = (values ^ (values >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return values ^ (values >> np.uint64(29))


def hash_runs(data: Bytes, starts: Ints, ends: Ints) -> Hashes:
    """The hash of each data[start:end]; starts and ends must rise, runs must not overlap."""
    found = np.empty(len(starts), np.uint64)
    running = np.zeros(_BLOCK + 1, np.uint64)
    i = 0
    while i < len(starts):
        base = int(starts[i])
        j = int(np.searchsorted(ends, base + _BLOCK, side="right"))
        if j <= i:  # longer than a block: seldom, so one by one
            digest = hashlib.blake2b(data[base : ends[i]].tobytes(), digest_size=8).digest()
            found[i] = int.from_bytes(digest, "little")
            i += 1
            continue
        size = int(ends[j - 1]) - base
        np.cumsum(_CODES[data[base : base + size]] * _POWERS[:size], out=running[1 : size + 1])
        low, high = starts[i:j] - base, ends[i:j] - base
        found[i:j] = (running[high] - running[low]) * _INVERSES[low] + (high - low).astype(np.uint64) * _PLACES[63]
        i = j
    return mixed(found)


def hash_words(data: Bytes, starts: Ints, ends: Ints) -> Hashes:
    """The same for short runs: another hash, and sooner done."""
    eights = np.ndarray((len(data) + 1,), "<u8", np.concatenate([data, _PADDING]), strides=(1,))
    sizes = ends - starts
    found = (eights[starts] & _LOW_BYTES[np.minimum(sizes, 8)]) * _PLACES[0] + sizes.astype(np.uint64) * _PLACES[1]
    longer = np.flatnonzero(sizes > 8)
    for place in range(8, _SHORT, 8):
        left = sizes[longer] - place
        more = eights[starts[longer] + place] & _LOW_BYTES[np.minimum(left, 8)]
        found[longer] = mixed(found[longer]) + more * _PLACES[2]
        longer = longer[left > 8]
    if len(longer):
        found[longer] = mixed(found[longer]) + hash_runs(data, starts[longer] + _SHORT, ends[longer])
    return mixed(found)


def hash_texts(array: StringArray) -> Hashes:
    """The hash of each text of a column.

    >>> import pyarrow as pa
    >>> [f"{h:x}" for h in hash_texts(pa.array(["tertulia", "", None]))]
    ['8095cc569c485800', '0', '5851f42d4c957f2d']
    """
    texts = texts_of(array)
    found = hash_runs(texts.data, texts.offsets[:-1], texts.offsets[1:])
    if array.null_count:
        found[array.is_null().to_numpy(zero_copy_only=False)] = _NOTHING
    return found


def together(*parts: Hashes) -> Hashes:
    """One hash of several, in their order."""
    total = parts[0] * _PLACES[0]
    for place, part in enumerate(parts[1:], 1):
        total = total + part * _PLACES[place % 63]
    return mixed(total)


def is_among(values: Hashes, ordered: Hashes) -> npt.NDArray[np.bool_]:
    """Whether each value stands in a sorted array."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    if len(values) < _MANY:
        return np.asarray(ordered[place_among(values, ordered)] == values)
    # Most values are not there, and a table of the lowest bits, which fits into the cache, says so before a search.
    seen = np.zeros(_MANY * 256, np.bool_)
    low = np.uint64(len(seen) - 1)
    seen[ordered & low] = True
    found: npt.NDArray[np.bool_] = seen[values & low]
    rest = values[found]
    found[found] = ordered[place_among(rest, ordered)] == rest
    return found


def place_among(values: Hashes, ordered: Hashes) -> Ints:
    """Where each value stands in a sorted array, if it does; any valid place where it does not."""
    return np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
