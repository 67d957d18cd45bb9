"""Multi-head attention, and what a decoder remembers between two tokens.

Many samples of one context differ only in the few tokens each has written itself. So the keys and values of all that
was read, by the encoder and by the decoder, are there once for each context, however many rows read them; a row owns no
more than those of its own tokens (`Tail`). Rows are put together by context: the queries of a context's rows meet its
keys in one product, those of the rows' own tokens in a second one, and one softmax goes over both. To fan out copies
nothing that was read; to keep some rows copies what they wrote, and groups of unequal size are filled up to the
largest. A context that nobody reads any more goes when half of them have gone. Where the decoder itself read no more
than the mark of its turn, since an encoder reads the context, rows own that too, and nothing is put together.

What rows own has one matrix of keys for each row and head, far too small for a matrix product: multiplying and adding
up, over memory in which a row's tokens are far apart and each token's rows are side by side, takes half the time.

A `Decoding` is never changed: `step` makes a new one. Tails nevertheless grow in place, in room kept free behind them;
only when a state is gone on from a second time is its tail copied.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self, TypeVar

import torch
from torch import nn
from torch.nn.functional import linear, scaled_dot_product_attention

M = TypeVar("M", bound=nn.Module)
ROOM = 32
"""Tokens that a fresh tail has room for; it doubles when it is full."""


class KeyValue(NamedTuple):
    """What attention can read."""

    keys: torch.Tensor  # (n, heads, length, width / heads)
    values: torch.Tensor  # (n, heads, length, width / heads)


class Tail:
    """Keys and values of the tokens that rows wrote themselves."""

    __slots__ = ("_buffer", "length")

    def __init__(self, buffer: "_Buffer", length: int) -> None:
        self._buffer, self.length = buffer, length

    @classmethod
    def empty(cls, like: KeyValue) -> "Tail":
        """Of rows that wrote nothing yet, one for each row of `like`."""
        rows, heads, _, width = like.keys.shape
        return cls(_Buffer(like.keys.new_empty(2, 0, rows, heads, width)), 0)

    @classmethod
    def of(cls, pair: KeyValue) -> "Tail":
        """Of rows that own what was read."""
        return cls(_Buffer(torch.stack(pair).permute(0, 3, 1, 2, 4).contiguous()), pair.keys.shape[2])

    def add(self, pair: torch.Tensor) -> "Tail":
        """With the keys and values (rows, 2, heads, width / heads) of one more token."""
        buffer, at = self._buffer, self.length
        if buffer.filled != at or at == buffer.data.shape[1]:
            buffer = buffer.copy(at, max(ROOM, 2 * at))
        buffer.data[:, at] = pair.transpose(0, 1)
        buffer.filled = at + 1
        return Tail(buffer, at + 1)

    def keep(self, rows: torch.Tensor) -> "Tail":
        """Only these rows."""
        return Tail(_Buffer(self._buffer.data[:, : self.length].index_select(2, rows)), self.length)

    def scores(self, queries: torch.Tensor) -> torch.Tensor:
        """How well each token fits its row's query. (rows, heads, width / heads) as (length, rows, heads)"""
        return (self.read()[0] * queries).sum(-1)

    def found(self, weights: torch.Tensor) -> torch.Tensor:
        """What the tokens hold, by weight. (length, rows, heads) as (rows, heads, width / heads)"""
        return (self.read()[1] * weights[..., None]).sum(0)

    def read(self) -> torch.Tensor:
        """Keys and values (2, length, rows, heads, width / heads), nothing copied."""
        return self._buffer.data[:, : self.length]


class _Buffer:
    """Memory that tails write to: `filled` says how far the longest of them has come."""

    __slots__ = ("data", "filled")

    def __init__(self, data: torch.Tensor) -> None:
        self.data, self.filled = data, data.shape[1]  # (2, room, rows, heads, width / heads)

    def copy(self, length: int, room: int) -> "_Buffer":
        two, _, *shape = self.data.shape
        copy = _Buffer(self.data.new_empty(two, room, *shape))
        copy.data[:, :length] = self.data[:, :length]
        return copy


class Groups(NamedTuple):
    """Which rows read which context."""

    context: torch.Tensor  # (rows,)
    contexts: int
    size: int
    """Rows of the largest group."""
    place: torch.Tensor | None
    """(rows,): where each row is when all groups lie side by side, filled up to `size`; None: where it is anyway."""

    @classmethod
    def by(cls, context: torch.Tensor, contexts: int) -> "Groups":
        """Rows put together by their contexts; their order is left as it is."""
        rows = torch.arange(len(context), device=context.device)
        counts = torch.bincount(context, minlength=contexts)
        size = int(counts.max()) if len(context) else 0
        order = torch.argsort(context, stable=True)
        of = context[order]
        place = torch.empty_like(context)
        place[order] = of * size + rows - (counts.cumsum(0) - counts)[of]
        full = len(context) == contexts * size and torch.equal(place, rows)
        return cls(context, contexts, size, None if full else place)

    def together(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, heads, n) as (contexts, heads, size, n)."""
        if self.place is not None:
            x = x.new_zeros(self.contexts * self.size, *x.shape[1:]).index_copy_(0, self.place, x)
        return x.reshape(self.contexts, self.size, *x.shape[1:]).transpose(1, 2)

    def apart(self, x: torch.Tensor) -> torch.Tensor:
        """(contexts, heads, size, n) as (rows, heads, n)."""
        flat = x.transpose(1, 2).reshape(self.contexts * self.size, x.shape[1], x.shape[3])
        return flat if self.place is None else flat.index_select(0, self.place)


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017), without biases."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.pair = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def remember(self, x: torch.Tensor) -> KeyValue:
        """Keys and values of what is to be read. x: (n, length, width)"""
        keys, values = self.pair(x).view(*x.shape[:2], 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        return KeyValue(keys, values)

    def forward(
        self, x: torch.Tensor, memory: KeyValue, *, bias: torch.Tensor | None = None, causal: bool = False
    ) -> torch.Tensor:
        """What each place of x finds in the memory. x: (n, t, width), bias on what is read: (n, 1, 1, length)"""
        queries = self.query(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2)  # (n, heads, t, width / heads)
        found = scaled_dot_product_attention(queries, *memory, attn_mask=bias, is_causal=causal)
        return self.out(found.transpose(1, 2).reshape(x.shape))  # type: ignore[no-any-return]

    def step_memory(self, x: torch.Tensor, h: torch.Tensor, memory: KeyValue, state: "Decoding") -> torch.Tensor:
        """x, and what each row finds in the memory of its context when it asks with h. x and h: (rows, width)"""
        queries = linear(h, self.query.weight).view(len(h), self.heads, -1)  # (rows, heads, width / heads)
        found = scaled_dot_product_attention(state.groups.together(queries), *memory, attn_mask=state.memory_bias)
        return torch.addmm(x, state.groups.apart(found).reshape(x.shape), self.out.weight.t())

    def step(
        self, x: torch.Tensor, h: torch.Tensor, prefix: KeyValue, tail: Tail, state: "Decoding"
    ) -> tuple[torch.Tensor, Tail]:
        """x, and what each row finds in what its context read and in its own tokens, the newest one, h, included.

        x and h: (rows, width)
        """
        groups = state.groups
        queries = linear(h, self.query.weight).view(len(h), self.heads, -1)  # (rows, heads, width / heads)
        queries = queries * queries.shape[-1] ** -0.5
        tail = tail.add(linear(h, self.pair.weight).view(len(h), 2, self.heads, -1))
        own = tail.scores(queries)  # (tokens, rows, heads)
        if not prefix.keys.shape[2]:
            return torch.addmm(x, tail.found(own.softmax(0)).view(x.shape), self.out.weight.t()), tail
        scores = groups.together(queries) @ prefix.keys.mT  # (contexts, heads, size, length)
        if state.prefix_bias is not None:
            scores += state.prefix_bias
        weights = torch.cat([scores, groups.together(own.permute(1, 2, 0))], -1).softmax(-1)
        read, written = weights[..., : -tail.length], weights[..., -tail.length :]
        found = groups.apart(read @ prefix.values)  # (rows, heads, width / heads)
        found = found + tail.found(groups.apart(written).permute(2, 0, 1))
        return torch.addmm(x, found.reshape(x.shape), self.out.weight.t()), tail


class Cache(NamedTuple):
    """What one decoder block remembers."""

    prefix: tuple[KeyValue, ...]
    """Of what the decoder read: for each of its self-attentions, by context."""
    memory: tuple[KeyValue, ...]
    """Of what the encoder made: for each of its encoder attentions, by context."""
    tails: tuple[Tail, ...]
    """Of the rows' own tokens: for each of its self-attentions."""
    windows: tuple[torch.Tensor, ...] = ()
    """Last inputs of each of its convolutions: (rows, kernel - 1, channels)"""

    def keep(self, rows: torch.Tensor) -> "Cache":
        """Only these rows."""
        return self._replace(
            tails=tuple(tail.keep(rows) for tail in self.tails),
            windows=tuple(window.index_select(0, rows) for window in self.windows),
        )

    def narrow(self, contexts: torch.Tensor) -> "Cache":
        """Only these contexts."""
        return self._replace(prefix=_narrow(self.prefix, contexts), memory=_narrow(self.memory, contexts))


@dataclass(frozen=True, slots=True)
class Decoding:
    """What a decoder remembers between two tokens; a `State`."""

    caches: tuple[Cache, ...]
    """Of each block."""
    groups: Groups
    last: torch.Tensor
    """(contexts, width): what the decoder made of the last token that was read."""
    lengths: torch.Tensor
    """(contexts,): tokens that the decoder read."""
    prefix_bias: torch.Tensor | None
    """(contexts, 1, 1, length): minus infinity where a shorter context is filled up; None where none is."""
    memory_bias: torch.Tensor | None
    """The same for what the encoder read."""
    written: int = 0
    """Tokens that each row has written."""

    @property
    def places(self) -> torch.Tensor:
        """(rows,): the next token's place in each row."""
        return self.lengths[self.groups.context] + self.written

    @property
    def reach(self) -> int:
        """The most tokens that a row has behind it, read or written."""
        first = self.caches[0]
        return first.prefix[0].keys.shape[2] + first.tails[0].length

    def fan(self, count: int, /) -> Self:
        """Each row so many times."""
        rows = torch.arange(len(self.groups.context), device=self.lengths.device)
        return self.keep(rows.repeat_interleave(count))

    def keep(self, rows: torch.Tensor, /) -> Self:
        """Only these rows, in this order."""
        context = self.groups.context[rows]
        alive = torch.unique(context)
        kept = self._narrow(alive) if 2 * len(alive) <= self.groups.contexts else self
        if kept is not self:
            context = torch.searchsorted(alive, context)
        return replace(
            kept,
            caches=tuple(cache.keep(rows) for cache in kept.caches),
            groups=Groups.by(context, len(kept.lengths)),
        )

    def grown(self, caches: tuple[Cache, ...]) -> Self:
        """After one more token."""
        return replace(self, caches=caches, written=self.written + 1)

    def _narrow(self, contexts: torch.Tensor) -> Self:
        return replace(
            self,
            caches=tuple(cache.narrow(contexts) for cache in self.caches),
            last=self.last[contexts],
            lengths=self.lengths[contexts],
            prefix_bias=None if self.prefix_bias is None else self.prefix_bias[contexts],
            memory_bias=None if self.memory_bias is None else self.memory_bias[contexts],
        )


def by_input(model: M) -> M:
    """The same model with its matrices laid out input by input, which multiplies few rows in a tenth less time.

    For a model that writes and does not learn. Nothing but the order in memory changes; what is saved stays the same.
    """
    for part in model.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            part.weight.data = part.weight.data.t().contiguous().t()
    return model


def normed(norm: nn.LayerNorm, x: torch.Tensor) -> torch.Tensor:
    """What the norm makes of it, straight: for one token, calling a module takes as long as what it computes."""
    return torch.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def filled_up(lengths: torch.Tensor, longest: int) -> torch.Tensor | None:
    """The bias that hides what is behind the end of shorter rows; None where all are of one length."""
    there = torch.arange(longest, device=lengths.device) < lengths[:, None]  # (n, longest)
    if bool(there.all()):
        return None
    bias = torch.zeros(there.shape, device=lengths.device).masked_fill_(~there, -torch.inf)
    return bias[:, None, None]


def _narrow(pairs: tuple[KeyValue, ...], contexts: torch.Tensor) -> tuple[KeyValue, ...]:
    return tuple(KeyValue(*(part.index_select(0, contexts) for part in pair)) for pair in pairs)
