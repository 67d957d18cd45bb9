"""Where things happen in a log, looked up for many questions at once: how often before, where last, where next.

An event has a key (a user, a pair of users, a conversation) and an index. All events are one sorted array of numbers,
key first, so that every question is a binary search, and thousands of them are one call of NumPy.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tertulia.corpus.chatlogs.encoded_log import NOBODY

Longs = NDArray[np.int64]


class Events:
    """The indices of events by key; an index is less than `length`, a key is at least zero.

    >>> events = Events([7, 8, 7], [0, 2, 5], length=9)
    >>> events.last_before([7, 7, 8, 9], [5, 6, 2, 6]).tolist()
    [0, 5, -1, -1]
    >>> events.next_after([7, 7, 8], [0, 5, 1]).tolist()
    [5, -1, 2]
    >>> events.count_before([7, 7, 8], [5, 6, 9]).tolist()
    [1, 2, 1]
    """

    def __init__(self, keys: ArrayLike, indices: ArrayLike, *, length: int) -> None:
        self._step = length + 1
        self._sorted: Longs = np.sort(np.asarray(keys, np.int64) * self._step + np.asarray(indices, np.int64))
        # A guard at the end, so that a search never leaves the array.
        self._guarded: Longs = np.append(self._sorted, np.iinfo(np.int64).max)

    def count_before(self, keys: ArrayLike, indices: ArrayLike) -> Longs:
        """How many events of a key are before an index."""
        start = np.asarray(keys, np.int64) * self._step
        ends = start + np.minimum(np.asarray(indices, np.int64), self._step - 1)
        return self._position(ends) - self._position(start)

    def last_before(self, keys: ArrayLike, indices: ArrayLike) -> Longs:
        """The last event of a key before an index, or NOBODY."""
        start = np.asarray(keys, np.int64) * self._step
        position = self._position(start + np.asarray(indices, np.int64))
        before: Longs = self._guarded[position - 1]  # position 0 wraps around to the guard
        return np.where((position > 0) & (before >= start), before - start, NOBODY)

    def next_after(self, keys: ArrayLike, indices: ArrayLike) -> Longs:
        """The first event of a key after an index, or NOBODY."""
        start = np.asarray(keys, np.int64) * self._step
        after: Longs = self._guarded[self._position(start + np.asarray(indices, np.int64) + 1)]
        return np.where(after < start + self._step, after - start, NOBODY)

    def holds(self, keys: ArrayLike, indices: ArrayLike) -> NDArray[np.bool_]:
        """Whether there is an event of a key at an index."""
        wanted = np.asarray(keys, np.int64) * self._step + np.asarray(indices, np.int64)
        present: NDArray[np.bool_] = self._guarded[self._position(wanted)] == wanted
        return present

    def _position(self, values: Longs) -> Longs:
        return np.searchsorted(self._sorted, values)


def next_of_same(keys: ArrayLike, *, steps: int = 1) -> Longs:
    """For each position the next one (or the one `steps` further) with the same key; the length where there is none.

    >>> next_of_same([1, 2, 1, 1]).tolist(), next_of_same([1, 2, 1, 1], steps=2).tolist()
    ([2, 4, 3, 4], [3, 4, 4, 4])
    """
    values = np.asarray(keys, np.int64)
    order = np.argsort(values, kind="stable")
    result = np.full(len(values), len(values), np.int64)
    if len(values) > steps:
        same = values[order[:-steps]] == values[order[steps:]]
        result[order[:-steps][same]] = order[steps:][same]
    return result
