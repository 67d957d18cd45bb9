"""Multi-head attention, and the KV cache of a decoder.

Many samples of one context differ only in the few tokens that each row has generated. So the cache has two parts:

    shared prefix   keys and values of everything that was read, by the encoder and by the decoder: stored once per
                    context, however many rows there are (`BlockCache.prefix`, `BlockCache.memory`)
    row cache       keys and values of a row's own tokens (`RowCache`)

Rows are grouped by context (`RowGroups`): the queries of all rows of a context meet its prefix in one matrix product,
the rows' own tokens in a second one, and one softmax goes over both. `expand` copies nothing that was read; `select`
copies what the selected rows generated. Groups of unequal size are padded to the largest. Contexts without rows are
removed once they are at least half of all contexts. If the decoder itself reads no more than the special token of its
turn, since an encoder reads the context, rows own that token's keys and values too, and need no groups.

The row cache has one small key matrix per row and head, far too small for a matrix product. It is stored token by
token, with all rows of a token side by side; multiplying and summing along that layout takes half the time.

Two states can be joined (`DecoderState.join`), also if their rows have generated different numbers of tokens: shorter
contexts are padded at their end, rows with fewer tokens of their own at their beginning, so that all rows append at the
same index. Padding gets no attention. `select` removes padding that no row needs any more.

A `DecoderState` is immutable: `step` makes a new one. Row caches still grow in place, into spare room at the end of
their buffer. Only when the same state is continued a second time is its row cache copied.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self, TypeVar

import torch
from torch import nn
from torch.nn.functional import linear, pad, scaled_dot_product_attention

M = TypeVar("M", bound=nn.Module)
INITIAL_ROOM = 32
"""Tokens that a new row cache has room for; the room doubles when it is full."""


class KeyValue(NamedTuple):
    """Keys and values that queries attend to; n rows or contexts."""

    keys: torch.Tensor  # (n, heads, length, width / heads)
    values: torch.Tensor  # (n, heads, length, width / heads)

    def select(self, indices: torch.Tensor) -> "KeyValue":
        """Only these rows or contexts."""
        return KeyValue(self.keys.index_select(0, indices), self.values.index_select(0, indices))

    def contiguous(self) -> "KeyValue":
        """Contiguous in memory: every step reads all of it."""
        return KeyValue(self.keys.contiguous(), self.values.contiguous())

    def resize(self, length: int) -> "KeyValue":
        """The first `length` positions, or zeros after the last one."""
        missing = length - self.keys.shape[2]
        return self if not missing else KeyValue(*(pad(part, (0, 0, 0, missing)) for part in self)).contiguous()

    def join(self, other: "KeyValue") -> "KeyValue":
        """The rows or contexts of both, the shorter ones with zeros at their end."""
        length = max(self.keys.shape[2], other.keys.shape[2])
        pairs = zip(self.resize(length), other.resize(length), strict=True)
        return KeyValue(*(torch.cat(pair) for pair in pairs))


class RowCache:
    """Keys and values of the tokens that rows generated: the first `length` tokens of a buffer."""

    __slots__ = ("_buffer", "length")

    def __init__(self, buffer: "_Buffer", length: int) -> None:
        self._buffer, self.length = buffer, length

    @classmethod
    def empty(cls, like: KeyValue) -> "RowCache":
        """For rows that have no tokens of their own yet, one for each row of `like`."""
        rows, heads, _, width = like.keys.shape
        return cls(_Buffer(like.keys.new_empty(2, 0, rows, heads, width)), 0)

    @classmethod
    def from_prefix(cls, prefix: KeyValue) -> "RowCache":
        """For rows that own everything that was read."""
        return cls(_Buffer(torch.stack(prefix).permute(0, 3, 1, 2, 4).contiguous()), prefix.keys.shape[2])

    def append(self, key_value: torch.Tensor) -> "RowCache":
        """With the keys and values (rows, 2, heads, width / heads) of one more token.

        Invariant: tokens at or after a cache's `length` belong to no other cache unless `filled` says so. If another
        continuation of this state has already filled the next position, or there is no room, the buffer is copied.
        """
        buffer, end = self._buffer, self.length
        if buffer.filled != end or end == buffer.data.shape[1]:
            buffer = buffer.copy(end, max(INITIAL_ROOM, 2 * end))
        buffer.data[:, end] = key_value.transpose(0, 1)
        buffer.filled = end + 1
        return RowCache(buffer, end + 1)

    def select(self, rows: torch.Tensor, first: int = 0) -> "RowCache":
        """Only these rows, without their tokens before the `first`; copied."""
        return RowCache(_Buffer(self.key_values[:, first:].index_select(2, rows)), self.length - first)

    def join(self, other: "RowCache") -> "RowCache":
        """The rows of both; rows with fewer tokens are padded in front, with zeros, since all append at their end."""
        length = max(self.length, other.length)
        # From the last axis: width, heads, rows, tokens.
        padded = [pad(one.key_values, (0,) * 6 + (length - one.length, 0)) for one in (self, other)]
        return RowCache(_Buffer(torch.cat(padded, 2)), length)

    @property
    def key_values(self) -> torch.Tensor:
        """Keys and values as a view: (2, length, rows, heads, width / heads)."""
        return self._buffer.data[:, : self.length]

    def scores(self, queries: torch.Tensor) -> torch.Tensor:
        """Dot products of each row's query with its tokens: (rows, heads, width / heads) -> (length, rows, heads)."""
        return (self.key_values[0] * queries).sum(-1)

    def weighted_values(self, weights: torch.Tensor) -> torch.Tensor:
        """(length, rows, heads) -> (rows, heads, width / heads)."""
        return (self.key_values[1] * weights[..., None]).sum(0)


class _Buffer:
    """Memory of row caches; `filled` is the length of the longest cache that uses it."""

    __slots__ = ("data", "filled")

    def __init__(self, data: torch.Tensor) -> None:
        self.data, self.filled = data, data.shape[1]  # (2, room, rows, heads, width / heads)

    def copy(self, length: int, room: int) -> "_Buffer":
        two, _, *shape = self.data.shape
        copy = _Buffer(self.data.new_empty(two, room, *shape))
        copy.data[:, :length] = self.data[:, :length]
        return copy


class RowGroups(NamedTuple):
    """The rows of each context."""

    context: torch.Tensor  # (rows,): index of each row's context
    contexts: int
    size: int
    """Number of rows of the largest group."""
    slot: torch.Tensor | None
    """(rows,): index of each row if all groups are padded to `size` and stacked; None if that is its index anyway."""

    @classmethod
    def from_contexts(cls, context: torch.Tensor, contexts: int) -> "RowGroups":
        """Group rows by context; the rows themselves keep their order."""
        rows = torch.arange(len(context), device=context.device)
        counts = torch.bincount(context, minlength=contexts)
        size = int(counts.max()) if len(context) else 0
        order = torch.argsort(context, stable=True)
        sorted_context = context[order]
        rank = rows - (counts.cumsum(0) - counts)[sorted_context]  # of each sorted row within its group
        slot = torch.empty_like(context)
        slot[order] = sorted_context * size + rank
        is_identity = len(context) == contexts * size and torch.equal(slot, rows)
        return cls(context, contexts, size, None if is_identity else slot)

    def group(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, heads, n) -> (contexts, heads, size, n), padded with zeros."""
        if self.slot is not None:
            x = x.new_zeros(self.contexts * self.size, *x.shape[1:]).index_copy_(0, self.slot, x)
        return x.reshape(self.contexts, self.size, *x.shape[1:]).transpose(1, 2)

    def ungroup(self, x: torch.Tensor) -> torch.Tensor:
        """(contexts, heads, size, n) -> (rows, heads, n)."""
        flat = x.transpose(1, 2).reshape(self.contexts * self.size, x.shape[1], x.shape[3])
        return flat if self.slot is None else flat.index_select(0, self.slot)


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017), without biases."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        """On the attention weights, in training."""
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def project(self, x: torch.Tensor) -> KeyValue:
        """Keys and values of what is attended to. x: (n, length, width)"""
        keys, values = self.key_value(x).view(*x.shape[:2], 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        return KeyValue(keys, values)

    def forward(
        self, x: torch.Tensor, memory: KeyValue, *, bias: torch.Tensor | None = None, causal: bool = False
    ) -> torch.Tensor:
        """Attend to the memory from each position of x. x: (n, t, width); bias on the memory: (n, 1, 1, length)"""
        queries = self.query(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2)  # (n, heads, t, width / heads)
        dropout = self.dropout if self.training else 0.0
        attended = scaled_dot_product_attention(queries, *memory, attn_mask=bias, dropout_p=dropout, is_causal=causal)
        return self.out(attended.transpose(1, 2).reshape(x.shape))  # type: ignore[no-any-return]

    def step_memory(self, x: torch.Tensor, h: torch.Tensor, memory: KeyValue, state: "DecoderState") -> torch.Tensor:
        """x plus the attention of h to the encoder's memory of each row's context. x and h: (rows, width)"""
        queries = linear(h, self.query.weight).view(len(h), self.heads, -1)  # (rows, heads, width / heads)
        attended = scaled_dot_product_attention(state.groups.group(queries), *memory, attn_mask=state.memory_bias)
        return torch.addmm(x, state.groups.ungroup(attended).reshape(x.shape), self.out.weight.t())

    def step(
        self, x: torch.Tensor, h: torch.Tensor, prefix: KeyValue, cache: RowCache, state: "DecoderState"
    ) -> tuple[torch.Tensor, RowCache]:
        """x plus the self-attention of the newest token h, over the shared prefix and the row's own tokens with h.

        x and h: (rows, width)
        """
        groups = state.groups
        queries = linear(h, self.query.weight).view(len(h), self.heads, -1)  # (rows, heads, width / heads)
        queries = queries * queries.shape[-1] ** -0.5
        cache = cache.append(linear(h, self.key_value.weight).view(len(h), 2, self.heads, -1))
        own = cache.scores(queries)  # (own tokens, rows, heads)
        if state.padding is not None:
            tokens = torch.arange(cache.length, device=own.device)
            own = own.masked_fill((tokens[:, None] < state.padding)[..., None], -torch.inf)
        if not prefix.keys.shape[2]:  # rows own everything
            attended = cache.weighted_values(own.softmax(0))
            return torch.addmm(x, attended.view(x.shape), self.out.weight.t()), cache
        scores = groups.group(queries) @ prefix.keys.mT  # (contexts, heads, size, length)
        if state.prefix_bias is not None:
            scores += state.prefix_bias
        # One softmax over prefix and own tokens: (contexts, heads, size, length + own tokens)
        weights = torch.cat([scores, groups.group(own.permute(1, 2, 0))], -1).softmax(-1)
        prefix_weights, own_weights = weights[..., : -cache.length], weights[..., -cache.length :]
        attended = groups.ungroup(prefix_weights @ prefix.values)  # (rows, heads, width / heads)
        attended = attended + cache.weighted_values(groups.ungroup(own_weights).permute(2, 0, 1))
        return torch.addmm(x, attended.reshape(x.shape), self.out.weight.t()), cache


class BlockCache(NamedTuple):
    """What one decoder block keeps between steps."""

    prefix: tuple[KeyValue, ...]
    """Shared, by context: of the tokens that the decoder read, for each of the block's self-attentions."""
    memory: tuple[KeyValue, ...]
    """Shared, by context: of the encoder's output, for each of the block's encoder attentions."""
    rows: tuple[RowCache, ...]
    """Of the rows' own tokens, for each of the block's self-attentions."""
    windows: tuple[torch.Tensor, ...] = ()
    """The last kernel - 1 inputs of each causal convolution, by row: (rows, kernel - 1, channels)"""

    def select_rows(self, rows: torch.Tensor, first: int = 0) -> "BlockCache":
        """Only these rows, without their own tokens before the `first`; contexts stay."""
        return self._replace(
            rows=tuple(cache.select(rows, first) for cache in self.rows),
            windows=tuple(window.index_select(0, rows) for window in self.windows),
        )

    def select_contexts(self, contexts: torch.Tensor) -> "BlockCache":
        """Only these contexts; rows stay."""
        return self._replace(
            prefix=tuple(one.select(contexts) for one in self.prefix),
            memory=tuple(one.select(contexts) for one in self.memory),
        )

    def resize_contexts(self, prefix: int, memory: int) -> "BlockCache":
        """With this many positions of each prefix and each memory."""
        return self._replace(
            prefix=tuple(one.resize(prefix) for one in self.prefix),
            memory=tuple(one.resize(memory) for one in self.memory),
        )

    def join(self, other: "BlockCache") -> "BlockCache":
        """The rows and the contexts of both."""
        return BlockCache(
            prefix=tuple(a.join(b) for a, b in zip(self.prefix, other.prefix, strict=True)),
            memory=tuple(a.join(b) for a, b in zip(self.memory, other.memory, strict=True)),
            rows=tuple(a.join(b) for a, b in zip(self.rows, other.rows, strict=True)),
            windows=tuple(torch.cat(pair) for pair in zip(self.windows, other.windows, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class DecoderState:
    """What a decoder keeps between two tokens; a `State`."""

    caches: tuple[BlockCache, ...]
    """One per block."""
    groups: RowGroups
    last: torch.Tensor
    """(contexts, width): the decoder's output at the last token that was read."""
    lengths: torch.Tensor
    """(contexts,): number of tokens that the decoder read."""
    prefix_bias: torch.Tensor | None
    """(contexts, 1, 1, length): minus infinity at the padding of shorter contexts; None if there is no padding."""
    memory_bias: torch.Tensor | None
    """The same for what the encoder read."""
    generated: int = 0
    """Number of tokens that each row has generated, padding included."""
    padding: torch.Tensor | None = None
    """(rows,): how many of those are padding, in front of what the row generated; None if there is no padding."""

    @property
    def positions(self) -> torch.Tensor:
        """(rows,): the position of each row's next token."""
        positions = self.lengths[self.groups.context] + self.generated
        return positions if self.padding is None else positions - self.padding

    @property
    def max_position(self) -> int:
        """An upper bound of `positions`, without reading the tensors."""
        first = self.caches[0]
        return first.prefix[0].keys.shape[2] + first.rows[0].length

    def expand(self, count: int, /) -> Self:
        """Repeat each row; what was read is shared."""
        rows = torch.arange(len(self.groups.context), device=self.lengths.device)
        return self.select(rows.repeat_interleave(count))

    def select(self, rows: torch.Tensor, /) -> Self:
        """Only these rows, in this order."""
        context = self.groups.context[rows]
        used = torch.unique(context)
        state = self
        if 2 * len(used) <= self.groups.contexts:  # dropping contexts copies the others: only if half of them go
            state = self._select_contexts(used)
            context = torch.searchsorted(used, context)
        padding = None if self.padding is None or not len(rows) else self.padding[rows]
        first = 0 if padding is None else int(padding.min())  # padding that no row needs any more
        return replace(
            state,
            caches=tuple(cache.select_rows(rows, first) for cache in state.caches),
            groups=RowGroups.from_contexts(context, len(state.lengths)),
            generated=self.generated - first,
            padding=padding - first if padding is not None and bool((padding > first).any()) else None,
        )

    def join(self, other: Self, /) -> Self:
        """The rows of both; they may have generated different numbers of tokens."""
        contexts = [self.groups.context, other.groups.context + self.groups.contexts]
        generated = max(self.generated, other.generated)
        padding = torch.cat([one._padding_for(generated) for one in (self, other)])
        return replace(
            self,
            caches=tuple(a.join(b) for a, b in zip(self.caches, other.caches, strict=True)),
            groups=RowGroups.from_contexts(torch.cat(contexts), self.groups.contexts + other.groups.contexts),
            last=torch.cat([self.last, other.last]),
            lengths=torch.cat([self.lengths, other.lengths]),
            prefix_bias=_join_biases(
                (self.prefix_bias, self.caches[0].prefix), (other.prefix_bias, other.caches[0].prefix)
            ),
            memory_bias=_join_biases(
                (self.memory_bias, self.caches[0].memory), (other.memory_bias, other.caches[0].memory)
            ),
            generated=generated,
            padding=padding if bool(padding.any()) else None,
        )

    def advance(self, caches: tuple[BlockCache, ...]) -> Self:
        """After one more token."""
        return replace(self, caches=caches, generated=self.generated + 1)

    def _padding_for(self, generated: int) -> torch.Tensor:
        """The padding of each row if all rows are to have `generated` tokens."""
        padding = torch.zeros_like(self.groups.context) if self.padding is None else self.padding
        return padding + (generated - self.generated)

    def _select_contexts(self, contexts: torch.Tensor) -> Self:
        """Only these contexts, without the padding that only longer ones needed."""
        caches = [cache.select_contexts(contexts) for cache in self.caches]
        prefix_bias, prefix = _crop_bias(self.prefix_bias, contexts, self.caches[0].prefix)
        memory_bias, memory = _crop_bias(self.memory_bias, contexts, self.caches[0].memory)
        return replace(
            self,
            caches=tuple(cache.resize_contexts(prefix, memory) for cache in caches),
            last=self.last[contexts],
            lengths=self.lengths[contexts],
            prefix_bias=prefix_bias,
            memory_bias=memory_bias,
        )


def _join_biases(*sides: tuple[torch.Tensor | None, tuple[KeyValue, ...]]) -> torch.Tensor | None:
    """The bias of contexts that are joined, from the bias and the keys of each side; see `KeyValue.join`."""
    if not all(keys for _, keys in sides):
        return None
    longest = max(keys[0].keys.shape[2] for _, keys in sides)
    if not any(bias is not None or keys[0].keys.shape[2] < longest for bias, keys in sides):
        return None
    padded = []
    for bias, ((keys, _), *_) in sides:
        full = keys.new_zeros(len(keys), 1, 1, keys.shape[2]) if bias is None else bias
        padded.append(pad(full, (0, longest - full.shape[3]), value=-torch.inf))
    return torch.cat(padded)


def _crop_bias(
    bias: torch.Tensor | None, contexts: torch.Tensor, keys: tuple[KeyValue, ...]
) -> tuple[torch.Tensor | None, int]:
    """The bias of some contexts, cropped to the longest of them, and that length; None if no padding is left."""
    if bias is None:
        return None, keys[0].keys.shape[2] if keys else 0
    present = bias[contexts] == 0  # (contexts, 1, 1, length)
    length = int(present.sum(-1).max())
    cropped = bias[contexts][..., :length]
    return (None if bool(present[..., :length].all()) else cropped), length


def column_major(model: M) -> M:
    """Store the model's matrices column by column, which multiplies few rows in a tenth less time.

    For inference. Only the order in memory changes; values and saved files stay the same.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            module.weight.data = module.weight.data.t().contiguous().t()
    return model


def apply_norm(norm: nn.LayerNorm, x: torch.Tensor) -> torch.Tensor:
    """norm(x) without the overhead of calling a module, which for one token is as long as the computation."""
    return torch.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def padding_bias(lengths: torch.Tensor, max_length: int, dtype: torch.dtype) -> torch.Tensor | None:
    """Minus infinity at the padding of shorter rows: (n, 1, 1, max_length); None if no row is padded."""
    present = torch.arange(max_length, device=lengths.device) < lengths[:, None]  # (n, max_length)
    if bool(present.all()):
        return None
    bias = torch.zeros(present.shape, dtype=dtype, device=lengths.device).masked_fill_(~present, -torch.inf)
    return bias[:, None, None]
