"""Which sequences of llama.cpp's memory hold which tokens: rows that generate, and prompts kept for the next turn.

A `TokenRow` only ever grows, and a state remembers how long its rows were. So an older state stays valid: whoever
continues a row that has grown in the meantime, or continues one row twice, gets a fork of its first tokens.

There are two memories. `Streams` has few sequences with a part of the memory each: the conversations. When a reply
ends, its sequence stays idle with all its tokens, and the next turn of the conversation goes on from there. If another
conversation needs the sequence, its content moves to a `PrefixCache`. `SharedMemory` is for rows that share a prompt
(samples, beams), for rows beyond the number of streams, and for rows that outgrow their stream; its prompts are kept in
a cache of their own, as llama.cpp cannot move sequences between the two kinds of memory.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tertulia.core.errors import BotError
from tertulia.models.llamacpp.context import Context
from tertulia.models.prefix_cache import PrefixCache, common_prefix

SHORT_PREFIX = 8
"""Fewer common tokens than this are not worth copying a sequence for; and so many tokens may be lost without a copy."""

TILE = 4
"""Tokens that llama.cpp's kernels multiply together: eight of them take less time than seven, and no more than five."""


class TokenRow:
    """A sequence in a memory; when nobody holds it any more, the memory may use it for something else."""

    __slots__ = ("memory", "number", "tokens")

    def __init__(self, memory: "Streams | SharedMemory", number: int, tokens: list[int]) -> None:
        self.memory, self.number, self.tokens = memory, number, tokens

    def __del__(self) -> None:
        # It can run at any moment and on any thread: the memory looks at it when it is next used.
        self.memory.released.append(self.number)


class Streams:
    """A few sequences, each with `size` tokens of memory of its own."""

    def __init__(self, context: Context, *, sequences: int, size: int, cache: PrefixCache[NDArray[np.uint8]]) -> None:
        self.context, self.size, self.cache = context, size, cache
        self.released: deque[int] = deque()
        self._sequences = sequences
        self._unused = list(reversed(range(sequences)))
        self._idle: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._tokens: dict[int, list[int]] = {}  # of all sequences that are in use or idle

    def acquire(self, prompt: Sequence[int]) -> TokenRow | None:
        """A row that begins as the prompt does, all but the last token at most; None if all sequences are in use."""
        while self.released:
            self._idle[self.released.popleft()] = None
        if not self._unused and not self._idle:
            return None
        common = {number: common_prefix(tokens, prompt[:-1]) for number, tokens in self._tokens.items()}
        best = max(common, key=lambda number: (common[number], number in self._idle), default=None)
        if best is not None and best in self._idle and len(self._tokens[best]) - common[best] <= SHORT_PREFIX:
            del self._idle[best]  # the same conversation goes on
            return self._row(best, prompt[: common[best]])
        if best is not None and common[best] >= SHORT_PREFIX:
            self._keep(best)
        match = self.cache.longest(prompt[:-1])
        number = self._take()
        if match is None or match.length < SHORT_PREFIX:
            return self._row(number, ())
        self.context.truncate(number, 0)
        self.context.restore(number, match.value)
        return self._row(number, prompt[: match.length])

    def companions(self, numbers: Sequence[int]) -> dict[int, int]:
        """Other sequences, with their lengths, that should get a token, too, so that one pass computes all of them.

        llama.cpp computes sequences with streams in one pass if their numbers are consecutive. Where there are gaps, a
        token for each sequence in between costs less than another pass. It must be removed again.
        """
        if len(numbers) < TILE:
            return {}
        width = min(-(-(max(numbers) + 1 - min(numbers)) // TILE) * TILE, self._sequences)
        first = min(min(numbers), self._sequences - width)
        beside = {i: len(self._tokens.get(i, ())) for i in range(first, first + width) if i not in numbers}
        return beside if all(length < self.size for length in beside.values()) else {}

    def _take(self) -> int:
        """A sequence for a new conversation; what the least recently used one holds moves to the cache."""
        if self._unused:
            return self._unused.pop()
        number, _ = self._idle.popitem(last=False)
        self._keep(number)
        return number

    def _keep(self, number: int) -> None:
        tokens = self._tokens[number]
        if self.cache.max_bytes and tokens and tokens not in self.cache:
            content = self.context.save(number)
            self.cache.put(tokens, content, len(content))

    def _row(self, number: int, tokens: Sequence[int]) -> TokenRow:
        self.context.truncate(number, len(tokens))
        self._tokens[number] = list(tokens)
        return TokenRow(self, number, self._tokens[number])


class SharedMemory:
    """Many sequences that share all of the memory."""

    def __init__(self, context: Context, *, sequences: int, cache: PrefixCache[NDArray[np.uint8]]) -> None:
        self.context, self.cache = context, cache
        self.released: deque[int] = deque()
        self._unused = list(range(sequences))

    def acquire(self, prompt: Sequence[int] = ()) -> TokenRow:
        """A row that begins as the prompt does, as far as that is in the cache, all but the last token at most."""
        while self.released:
            number = self.released.popleft()
            self.context.truncate(number, 0)
            self._unused.append(number)
        if not self._unused:
            raise BotError(
                "The engine llama.cpp cannot generate so many replies side by side.",
                hint="Ask for fewer samples or beams, or use engine=torch.",
            )
        row = TokenRow(self, self._unused.pop(), [])
        match = self.cache.longest(prompt[:-1])
        if match is not None and match.length >= SHORT_PREFIX:
            self.context.restore(row.number, match.value)
            self.context.truncate(row.number, match.length)
            row.tokens.extend(prompt[: match.length])
        return row

    def companions(self, _: Sequence[int]) -> dict[int, int]:
        """None: any sequences of this memory are computed in one pass."""
        return {}

    def keep(self, row: TokenRow) -> None:
        """Put what a row holds into the cache, for the next turn of its conversation."""
        if self.cache.max_bytes and row.tokens not in self.cache:
            content = self.context.save(row.number)
            self.cache.put(row.tokens, content, len(content))

    def fork(self, row: TokenRow, length: int) -> TokenRow:
        """A new row that begins with the first tokens of another one of this memory; they are not copied."""
        new = self.acquire()
        self.context.share(row.number, new.number, length)
        new.tokens.extend(row.tokens[:length])
        return new
