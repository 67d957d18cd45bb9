"""What a model computed for sequences of tokens, kept for sequences that begin with the same tokens.

The prompt of a turn begins with the prompt of the turn before it, as long as the template does not rewrite history. A
cache belongs to one model with one set of weights; what it keeps (keys and values, as tensors or as bytes) is the
model's business.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Entry(NamedTuple, Generic[T]):
    value: T
    size: int


class Match(NamedTuple, Generic[T]):
    """An entry that begins as the tokens that were looked up."""

    length: int
    """How many of the first tokens are the same."""
    value: T
    """What was kept for the entry's tokens, which may go on in another way."""


class PrefixCache(Generic[T]):
    """Values by sequences of tokens; at most `max_bytes` of them, the least recently used ones leave."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._entries: OrderedDict[tuple[int, ...], _Entry[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, tokens: Sequence[int]) -> bool:
        return tuple(tokens) in self._entries

    def put(self, tokens: Sequence[int], value: T, size: int) -> None:
        """Keep a value of `size` bytes; entries whose tokens are the first ones of these are not needed any more."""
        key = tuple(tokens)
        if size > self.max_bytes:
            return
        for shorter in [one for one in self._entries if key[: len(one)] == one]:
            self._remove(shorter)
        self._entries[key] = _Entry(value, size)
        self.bytes += size
        while self.bytes > self.max_bytes:
            self._remove(next(iter(self._entries)))

    def longest(self, tokens: Sequence[int]) -> Match[T] | None:
        """The entry with the longest common prefix, which is now the last one to leave; None if there is none."""
        best = max(self._entries, key=lambda one: common_prefix(one, tokens), default=())
        length = common_prefix(best, tokens)
        if not length:
            return None
        self._entries.move_to_end(best)
        return Match(length, self._entries[best].value)

    def _remove(self, key: tuple[int, ...]) -> None:
        self.bytes -= self._entries.pop(key).size


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many of the first elements are the same.

    >>> common_prefix([1, 2, 3], [1, 2, 4, 5])
    2
    """
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return min(len(one), len(other))
