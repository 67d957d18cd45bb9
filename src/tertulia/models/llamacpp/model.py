"""A GGUF model in llama.cpp behind the interface of `models.hf.state.LanguageModel`: encode prompts, extend rows.

So everything that is built on logits (decoding with seeds, sample-and-rank, beam search, penalties, log-probabilities
of the unmodified distribution, the likelihood of given replies) is the code that torch models use, too.

llama.cpp multiplies quantised weights with activations that it quantises to 8 bits: logits differ a little from those
of torch, which multiplies the same weights in float32. docs/design/0020-fast-cpu-chat.md has the figures.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tertulia.models.llamacpp.context import Context, Weights
from tertulia.models.llamacpp.sequences import SharedMemory, Streams, TokenRow
from tertulia.models.prefix_cache import PrefixCache

TOKENS = 8192
"""Tokens of each of the two memories: 190 MB for a model like SmolLM2 (23 KB a token)."""
STREAMS = 8
"""Conversations with a memory of their own."""
MAX_ROWS = 256
"""Sequences of the shared memory; llama.cpp's own limit."""


class _Part(NamedTuple):
    """Tokens that are appended to one sequence of a memory."""

    number: int
    start: int
    tokens: Sequence[int]
    row: int | None
    """None if nobody wants them: they only keep the others company."""


class LlamaCppModel:
    """Computes logits for rows of tokens. Safe to use from several threads, one of which computes at a time."""

    seq2seq = False
    decoder_prefix: Sequence[int] = ()
    max_tokens: int | None = TOKENS
    device = torch.device("cpu")

    def __init__(self, weights: Weights, *, threads: int, pad: int = 0, cache_bytes: int = 0) -> None:
        """At most `cache_bytes` of conversations are kept beside the memories."""
        self.weights, self.pad, self._threads = weights, pad, threads
        self.vocabulary = weights.vocabulary
        self.window = min(weights.window, TOKENS)
        self._cache_bytes = cache_bytes
        self._lock = threading.RLock()
        streams, size = self._context(sequences=STREAMS, unified=False), TOKENS // STREAMS
        self._streams = Streams(streams, sequences=STREAMS, size=size, cache=PrefixCache(cache_bytes // 2))
        self._shared: SharedMemory | None = None

    @property
    def decoded_tokens(self) -> int:
        """Tokens that went through the model so far."""
        return self._streams.context.decoded + (self._shared.context.decoded if self._shared else 0)

    def encode(self, prompts: Sequence[Sequence[int]], *, reuse: bool = False) -> "LlamaCppPrompts":
        """One row for each prompt. They are read when it is known whether each is continued once or several times."""
        return LlamaCppPrompts(self, tuple(map(tuple, prompts)), reuse)

    def read(self, prompts: Sequence[tuple[int, ...]], *, shared: bool, reuse: bool) -> "LlamaCppState":
        """A row for each prompt; with `reuse`, what is known of its beginning is not computed again."""
        rows: dict[tuple[int, ...], tuple[TokenRow, NDArray[np.float32]]] = {}
        with self._lock:
            for prompt in dict.fromkeys(prompts):
                row = None if shared or len(prompt) > self._streams.size else self._streams.acquire(prompt)
                if row is None:
                    row = self.shared.acquire(prompt if reuse else ())
                rows[prompt] = row, self._append([row], [prompt[len(row.tokens) :]], last_only=True)[0]
                if reuse and isinstance(row.memory, SharedMemory):
                    row.memory.keep(row)
        logits = torch.from_numpy(np.concatenate([rows[prompt][1] for prompt in prompts]))
        return LlamaCppState(self, tuple(rows[prompt][0] for prompt in prompts), tuple(map(len, prompts)), logits)

    def extend(self, state: "LlamaCppState", tokens: torch.Tensor) -> tuple[torch.Tensor, "LlamaCppState"]:
        """Append tokens (rows, n); the logits after each of them (rows, n, vocabulary), and the new state."""
        count = tokens.shape[1]
        with self._lock:
            rows = self._own_rows(state.rows, state.lengths, count)
            logits = torch.from_numpy(np.stack(self._append(rows, tokens.tolist())))
        lengths = tuple(length + count for length in state.lengths)
        return logits, LlamaCppState(self, tuple(rows), lengths, logits[:, -1])

    def logits_before(
        self, sequences: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]
    ) -> list[torch.Tensor]:
        """What the model predicts at some positions of each sequence, none of them the first: (n, vocabulary)."""
        logits = []
        for tokens, some in zip(sequences, positions, strict=True):
            with self._lock:
                row = self.shared.acquire()
                outputs = np.zeros(len(tokens), dtype=np.bool_)
                outputs[[position - 1 for position in some]] = True
                wanted = row.memory.context.decode(tokens, range(len(tokens)), [row.number] * len(tokens), outputs)
            order = {position: i for i, position in enumerate(sorted(set(some)))}
            logits.append(torch.from_numpy(wanted)[[order[position] for position in some]])
        return logits

    @property
    def shared(self) -> SharedMemory:
        """The memory of rows that share prompts; made when it is first needed."""
        if self._shared is None:
            context = self._context(sequences=MAX_ROWS, unified=True)
            self._shared = SharedMemory(context, sequences=MAX_ROWS, cache=PrefixCache(self._cache_bytes // 2))
        return self._shared

    def _context(self, *, sequences: int, unified: bool) -> Context:
        return Context(self.weights, tokens=TOKENS, sequences=sequences, unified=unified, threads=self._threads)

    def _own_rows(self, rows: Sequence[TokenRow], lengths: Sequence[int], count: int) -> list[TokenRow]:
        """A row for each that can grow by `count` tokens: itself, or a fork if others continue it, too."""
        times, forks, own = Counter(map(id, rows)), dict[tuple[int, int], TokenRow](), list[TokenRow]()
        claimed = set[int]()
        for row, length in zip(rows, lengths, strict=True):
            unchanged = len(row.tokens) == length
            if isinstance(row.memory, Streams):
                stays = unchanged and times[id(row)] == 1 and length + count <= row.memory.size
            else:
                stays = unchanged and id(row) not in claimed
                claimed.add(id(row))
            if stays:
                own.append(row)
                continue
            source = forks.get((id(row), length), row)  # the second fork shares the memory of the first
            if isinstance(source.memory, SharedMemory):
                own.append(source.memory.fork(source, length))
            else:
                own.append(self.shared.acquire(row.tokens[:length]))
                self._append(own[-1:], [row.tokens[len(own[-1].tokens) : length]], last_only=True)
            forks.setdefault((id(row), length), own[-1])
        return own

    def _append(
        self, rows: Sequence[TokenRow], tokens: Sequence[Sequence[int]], *, last_only: bool = False
    ) -> list[NDArray[np.float32]]:
        """Let rows grow; the logits after each token, or after the last one, of each row: (n, vocabulary)."""
        logits: dict[int, NDArray[np.float32]] = {}
        for memory in {id(row.memory): row.memory for row in rows}.values():
            parts = [
                _Part(row.number, len(row.tokens), tokens[i], i) for i, row in enumerate(rows) if row.memory is memory
            ]
            if all(len(part.tokens) == 1 for part in parts):
                beside = memory.companions([part.number for part in parts])
                parts += [_Part(number, length, (self.pad,), None) for number, length in beside.items()]
            parts.sort()
            ids, positions, numbers, outputs = list[int](), list[int](), list[int](), list[bool]()
            for part in parts:
                count = len(part.tokens)
                ids += part.tokens
                positions += range(part.start, part.start + count)
                numbers += [part.number] * count
                outputs += [not last_only] * (count - 1) + [True]
            computed, first = memory.context.decode(ids, positions, numbers, outputs), 0
            for part in parts:
                last = first + (1 if last_only else len(part.tokens))
                if part.row is None:
                    memory.context.truncate(part.number, part.start)
                else:
                    rows[part.row].tokens.extend(part.tokens)
                    logits[part.row] = computed[first:last]
                first = last
        return [logits[i] for i in range(len(rows))]


class LlamaCppPrompts:
    """Prompts that may not have been read yet; a `State`. They are read into streams, or into the shared memory if one
    of them is continued several times."""

    def __init__(self, lm: LlamaCppModel, prompts: tuple[tuple[int, ...], ...], reuse: bool) -> None:
        self.lm, self.prompts, self.reuse = lm, prompts, reuse

    @cached_property
    def in_streams(self) -> "LlamaCppState":
        """A row for each prompt, in streams if they are prompts of conversations."""
        return self.lm.read(self.prompts, shared=not self.reuse, reuse=self.reuse)

    @cached_property
    def in_shared_memory(self) -> "LlamaCppState":
        """A row for each prompt, in the shared memory."""
        return self.lm.read(self.prompts, shared=True, reuse=self.reuse)

    @property
    def logits(self) -> torch.Tensor:
        """(prompts, vocabulary): of the next token."""
        return self.in_streams.logits

    def expand(self, count: int, /) -> "LlamaCppState":
        """Each prompt `count` times, side by side."""
        return (self.in_shared_memory if count > 1 else self.in_streams).expand(count)

    def select(self, rows: torch.Tensor, /) -> "LlamaCppState":
        """Only these prompts, in this order; one may appear several times."""
        chosen = rows.tolist()
        once = len(set(chosen)) == len(chosen)
        return (self.in_streams if once and self.reuse else self.in_shared_memory).select(rows)

    def join(self, other: "LlamaCppState", /) -> "LlamaCppState":
        """The rows of both."""
        return self.in_streams.join(other)

    def extend(self, tokens: torch.Tensor) -> tuple[torch.Tensor, "LlamaCppState"]:
        """Append tokens (rows, n); the logits after each of them (rows, n, vocabulary), and the new state."""
        return self.in_streams.extend(tokens)


@dataclass(frozen=True, slots=True)
class LlamaCppState:
    """Rows of tokens and the logits of the next one; a `State`. Rows grow, but an older state stays valid."""

    lm: LlamaCppModel
    rows: tuple[TokenRow, ...]
    lengths: tuple[int, ...]
    """How many tokens of each row belong to this state."""
    logits: torch.Tensor
    """(rows, vocabulary): of the next token."""

    def expand(self, count: int, /) -> "LlamaCppState":
        """Each row `count` times, side by side."""
        return self.select(torch.arange(len(self.rows)).repeat_interleave(count))

    def select(self, rows: torch.Tensor, /) -> "LlamaCppState":
        """Only these rows, in this order; a row may appear several times."""
        chosen = rows.tolist()
        return LlamaCppState(
            self.lm, tuple(self.rows[i] for i in chosen), tuple(self.lengths[i] for i in chosen), self.logits[rows]
        )

    def join(self, other: "LlamaCppState", /) -> "LlamaCppState":
        """The rows of both."""
        logits = torch.cat([self.logits, other.logits])
        return LlamaCppState(self.lm, self.rows + other.rows, self.lengths + other.lengths, logits)

    def extend(self, tokens: torch.Tensor) -> tuple[torch.Tensor, "LlamaCppState"]:
        """Append tokens (rows, n); the logits after each of them (rows, n, vocabulary), and the new state."""
        return self.lm.extend(self, tokens)
