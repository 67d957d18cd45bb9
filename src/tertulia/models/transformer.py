"""The Transformer (Vaswani et al. 2017) that writes replies: Meena's baseline (Adiwardana et al. 2020).

There are two shapes. With encoder layers, the encoder reads persona and turns, the decoder writes the next turn; a
talk is as many (source, target) pairs as it has turns that count. Without, the decoder reads all as one stream, and one
pass predicts every turn of a talk: for as many turns learned from, a small part of the work. One embedding matrix
serves encoder, decoder and softmax.

Differences from 2017: layer norms stand before the sublayers (and once at the end), attention has no biases, the
activation is GELU, dropout is on the embeddings and on what attention and feed-forward give back. Places are
sinusoids, so that a talk may be longer than any in training.

`BlockGenerator` is all but the blocks; the Evolved Transformer has it too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Generic, NamedTuple, Self, TypeVar, cast

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.nn import functional

from tertulia.core.config import Config, validate
from tertulia.models.attention import Attention, Cache, Decoding, Groups, KeyValue, Tail, filled_up
from tertulia.models.checkpoint import load_weights, read_model, save_weights
from tertulia.models.generator import Nll, Scored, State, Talk, counted, stream
from tertulia.models.tokenizer import END, OTHER, OWN, PAD, Tokenizer, load_tokenizer

AT_ONCE = 4096
"""Tokens that go through the blocks together, filled-up places included."""


class BlockConfig(Config):
    """What all models made of blocks have."""

    d_model: int = Field(256, ge=2)
    """Width: numbers for each token between blocks."""
    heads: int = Field(4, ge=1)
    """Heads of each attention."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Share of the numbers that are left out in training."""
    longest: int = Field(512, ge=8)
    """Tokens read at most: by the encoder, or by the decoder where it reads all. The oldest turns go first."""
    reserve: int = Field(64, ge=1)
    """Of those, tokens left free for the reply where the decoder reads all."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.d_model % 2 or self.d_model % self.heads:
            raise ValueError("d_model must be even and a multiple of heads")
        if self.reserve >= self.longest:
            raise ValueError("reserve must be less than longest")
        return self


B = TypeVar("B", bound=BlockConfig)


class TransformerConfig(BlockConfig):
    """Sizes of a Transformer."""

    encoder_layers: int = Field(0, ge=0)
    """Layers of the encoder; with 0 the decoder reads the context itself."""
    decoder_layers: int = Field(4, ge=1)
    """Layers of the decoder."""
    feed_forward: int = Field(4, ge=1)
    """Width of the feed-forward sublayers, in multiples of d_model."""


class Read(NamedTuple):
    """What a decoder block makes of some tokens, and what it remembers of them."""

    x: torch.Tensor  # (n, t, width)
    prefix: tuple[KeyValue, ...]
    inputs: tuple[torch.Tensor, ...] = ()
    """Of causal convolutions, zeros before the first included: (n, kernel - 1 + t, channels)"""


class EncoderBlock(nn.Module):
    """A block that sees all of its text."""

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """x: (n, t, width); bias (n, 1, 1, t): minus infinity where there is no token."""
        raise NotImplementedError


class DecoderBlock(nn.Module):
    """A block that sees the tokens before, and what the encoder made where there is one."""

    def remember(self, memory: torch.Tensor) -> tuple[KeyValue, ...]:
        """Keys and values of what the encoder made, for each of the block's encoder attentions."""
        raise NotImplementedError

    def forward(self, x: torch.Tensor, memory: tuple[KeyValue, ...], bias: torch.Tensor | None) -> Read:
        """All tokens at once. x: (n, t, width); bias on the memory: (n, 1, 1, length)"""
        raise NotImplementedError

    def step(self, x: torch.Tensor, cache: Cache, state: Decoding) -> tuple[torch.Tensor, Cache]:
        """One more token of each row. x: (rows, width)"""
        raise NotImplementedError


class _Piece(NamedTuple):
    """What is learned in one row: tokens to be written, and where there is an encoder, those that it reads."""

    talk: int
    source: tuple[int, ...]
    target: tuple[int, ...]
    counts: tuple[bool, ...]
    """Which tokens of the target are predicted; never the first."""


class BlockGenerator(nn.Module, Generic[B]):
    """A model that writes, made of blocks."""

    config_type: type[B]
    sinusoids: torch.Tensor  # (places, width)

    def __init__(self, config: B, tokenizer: Tokenizer) -> None:
        super().__init__()
        encoder, decoder = self.blocks(config)
        self.config, self.tokenizer, width = config, tokenizer, config.d_model
        self.embedding = nn.Embedding(len(tokenizer), width)
        self.register_buffer("sinusoids", sinusoids(config.longest + config.reserve, width), persistent=False)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(encoder)
        self.encoder_norm = nn.LayerNorm(width) if encoder else None
        self.decoder = nn.ModuleList(decoder)
        self.decoder_norm = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.empty(len(tokenizer)))
        self._begin()

    @torch.no_grad()
    def _begin(self) -> None:
        """Where learning starts; what is added to the residual stream (`out`) is small where many layers add to it."""
        depth = sum(name.endswith(".out.weight") for name, _ in self.decoder.named_parameters())
        for name, weight in self.named_parameters():
            if name == "embedding.weight":
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)
            elif "norm" in name:
                nn.init.ones_(weight)
            else:
                std = weight.shape[-1] ** -0.5
                nn.init.normal_(weight, std=std * depth**-0.5 if name.endswith(".out.weight") else std)

    @classmethod
    def blocks(cls, config: B) -> tuple[Sequence[EncoderBlock], Sequence[DecoderBlock]]:
        """What the model is made of."""
        raise NotImplementedError

    @classmethod
    def untrained(cls, config: B, tokenizer: Tokenizer) -> Self:
        """A model that has learned nothing yet; its weights are drawn from torch's generator."""
        return cls(config, tokenizer)

    def nll(self, talks: Sequence[Talk], /, *, scored: Scored = "all") -> Nll:
        """How improbable the turns that count are. Rows of like length go together."""
        pieces = [piece for i, talk in enumerate(talks) for piece in self._pieces(i, talk, scored)]
        total, tokens = self.bias.new_zeros(len(talks)), torch.zeros(len(talks), dtype=torch.long, device=self._device)
        for batch in _batches(pieces):
            losses, owners = self._losses(batch)
            total = total.index_add(0, owners, losses)
            tokens = tokens.index_add(0, owners, torch.ones_like(owners))
        return Nll(total, tokens)

    @torch.no_grad()
    def start(self, talks: Sequence[Talk], /) -> Decoding:
        """Read the talks, and the mark of the turn to be written."""
        contexts = [(*self._context(talk), OWN) for talk in talks]
        memory, memory_bias = self._memory(contexts)
        ids = self._padded([(OWN,)] * len(talks) if self.encoder else contexts)  # (n, t)
        lengths = (ids != PAD).sum(1)
        x, caches = self._embed(ids), []
        for block in self._blocks:
            pairs = () if memory is None else block.remember(memory)
            read = block(x, pairs, memory_bias)
            x = read.x
            prefix, pairs = _solid(read.prefix), _solid(pairs)
            windows = tuple(_ends(padded, lengths, padded.shape[1] - ids.shape[1]) for padded in read.inputs)
            caches.append(Cache(prefix, pairs, tuple(Tail.empty(pair) for pair in prefix), windows))
        rows = torch.arange(len(talks), device=self._device)
        return Decoding(
            caches=tuple(caches),
            groups=Groups.by(rows, len(talks)),
            last=x[rows, lengths - 1],
            lengths=lengths,
            prefix_bias=filled_up(lengths, ids.shape[1]),
            memory_bias=memory_bias,
        )

    @torch.no_grad()
    def step(self, state: State, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, Decoding]:
        """Logits of the next token. Those of the first one are the same in all rows of a context."""
        if not isinstance(state, Decoding) or (tokens is None and state.written):
            raise TypeError("This is no state that this model can go on from.")
        if tokens is None:
            return self._logits(state.last).index_select(0, state.groups.context), state
        places = state.places
        self._reach(state.caches[0].prefix[0].keys.shape[2] + state.written + 1)
        x = self.embedding(tokens) * self.scale + self.sinusoids[places]  # (rows, width)
        caches = []
        for block, cache in zip(self._blocks, state.caches, strict=True):
            x, cache = block.step(x, cache, state)
            caches.append(cache)
        return self._logits(x), state.grown(tuple(caches))

    def save(self, folder: Path, /) -> list[str]:
        """Weights, sizes and tokenizer."""
        save_weights(folder, self, {"config": self.config.model_dump()})
        return [self.tokenizer.save(folder)]

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """What `save` wrote."""
        config = validate(cls.config_type, read_model(folder)["config"], where=str(folder))
        made = cls.untrained(config, load_tokenizer(folder))
        load_weights(folder, made)
        return made.eval()

    @property
    def _device(self) -> torch.device:
        return self.bias.device

    @property
    def _decoder(self) -> Iterator[DecoderBlock]:
        return cast(Iterator[DecoderBlock], iter(self.decoder))

    def _context(self, talk: Talk) -> tuple[int, ...]:
        """What is read before a turn is written; of a single turn that is too long the end."""
        room = self.config.longest - (0 if self.encoder else self.config.reserve)
        return stream(talk, self.tokenizer, longest=room).ids[-room:]

    def _pieces(self, number: int, talk: Talk, scored: Scored) -> Iterator[_Piece]:
        """What of a talk is learned in which row; each turn that counts is predicted once."""
        if self.encoder or scored == "last":
            for i, counts in enumerate(counted(talk, scored)):
                if counts:
                    yield self._pair(number, talk, i)
            return
        while talk.turns:  # what did not fit is a talk of its own
            ids, counts_at = stream(talk, self.tokenizer, scored=scored, longest=self.config.longest)
            if any(counts_at):
                yield _Piece(number, (), ids, counts_at)
            talk = _before(talk, len(talk.turns) - sum(i in (OWN, OTHER) for i in ids))

    def _pair(self, number: int, talk: Talk, turn: int) -> _Piece:
        """A single turn after what would be read to write it."""
        mark = OWN if talk.own[turn] else OTHER
        context = (*self._context(_before(talk, turn)), mark)
        words = (*self.tokenizer.encode(talk.turns[turn]), END)
        source, head = (context, (mark,)) if self.encoder else ((), context)
        return _Piece(number, source, (*head, *words), (False,) * len(head) + (True,) * len(words))

    def _losses(self, pieces: Sequence[_Piece]) -> tuple[torch.Tensor, torch.Tensor]:
        """Of each token that counts: its negative log-likelihood, and which talk it is of."""
        memory, bias = self._memory([piece.source for piece in pieces])
        ids = self._padded([piece.target for piece in pieces])  # (n, t + 1)
        counts = self._padded([piece.counts for piece in pieces])[:, 1:].bool()  # (n, t)
        x = self._embed(ids[:, :-1])
        for block in self._decoder:
            x = block(x, () if memory is None else block.remember(memory), bias).x
        losses = functional.cross_entropy(self._logits(x[counts]), ids[:, 1:][counts], reduction="none")
        talks = torch.tensor([piece.talk for piece in pieces], device=self._device)
        return losses, talks.repeat_interleave(counts.sum(1))

    def _memory(self, sources: Sequence[tuple[int, ...]]) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """What the encoder makes of some texts (n, t, width), and the bias on it."""
        if self.encoder_norm is None:
            return None, None
        ids = self._padded(sources)
        bias = filled_up((ids != PAD).sum(1), ids.shape[1])
        x = self._embed(ids)
        for block in self.encoder:
            x = block(x, bias)
        return self.encoder_norm(x), bias

    def _padded(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        longest = max(len(row) for row in rows)
        return torch.tensor([(*row, *(PAD,) * (longest - len(row))) for row in rows], device=self._device)

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        """(n, t) as (n, t, width)."""
        return self.dropout(self._at(ids, torch.arange(ids.shape[1], device=ids.device)))  # type: ignore[no-any-return]

    def _at(self, ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return self.embedding(ids) * self.scale + self.sinusoids[places]

    def _reach(self, places: int) -> None:
        """Make sure that there are sinusoids for so many places."""
        if places > len(self.sinusoids):
            self.sinusoids = sinusoids(2 * places, self.config.d_model).to(self.sinusoids)

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        """(n, width) as (n, vocabulary)."""
        return functional.linear(self.decoder_norm(x), self.embedding.weight, self.bias)


class Transformer(BlockGenerator[TransformerConfig]):
    """The vanilla Transformer."""

    config_type = TransformerConfig

    @classmethod
    def blocks(cls, config: TransformerConfig) -> tuple[list[EncoderBlock], list[DecoderBlock]]:
        """Layers of attention and feed-forward."""
        cross = config.encoder_layers > 0
        return (
            [TransformerEncoderLayer(config) for _ in range(config.encoder_layers)],
            [TransformerDecoderLayer(config, cross=cross) for _ in range(config.decoder_layers)],
        )


class TransformerEncoderLayer(EncoderBlock):
    """Self-attention, feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.attention = Attention(config.d_model, config.heads)
        self.feed_forward = FeedForward(config.d_model, config.feed_forward, nn.GELU())
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Every place reads every place."""
        h = self.attention_norm(x)
        x = x + self.dropout(self.attention(h, self.attention.remember(h), bias=bias))
        return x + self.dropout(self.feed_forward(x))


class TransformerDecoderLayer(DecoderBlock):
    """Self-attention, encoder attention where there is an encoder, feed-forward."""

    def __init__(self, config: TransformerConfig, *, cross: bool) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.attention = Attention(config.d_model, config.heads)
        self.memory_norm = nn.LayerNorm(config.d_model) if cross else None
        self.memory = Attention(config.d_model, config.heads) if cross else None
        self.feed_forward = FeedForward(config.d_model, config.feed_forward, nn.GELU())
        self.dropout = nn.Dropout(config.dropout)

    def remember(self, memory: torch.Tensor) -> tuple[KeyValue, ...]:
        """For the one encoder attention."""
        return (self.memory.remember(memory),)

    def forward(self, x: torch.Tensor, memory: tuple[KeyValue, ...], bias: torch.Tensor | None) -> Read:
        """Every place reads those before it, and the memory."""
        h = self.attention_norm(x)
        own = self.attention.remember(h)
        x = x + self.dropout(self.attention(h, own, causal=True))
        if self.memory is not None:
            x = x + self.dropout(self.memory(self.memory_norm(x), *memory, bias=bias))
        return Read(x + self.dropout(self.feed_forward(x)), (own,))

    def step(self, x: torch.Tensor, cache: Cache, state: Decoding) -> tuple[torch.Tensor, Cache]:
        """The same for one more token."""
        found, tail = self.attention.step(
            self.attention_norm(x), cache.prefix[0], cache.tails[0], state.groups, state.prefix_bias
        )
        x = x + self.dropout(found)
        if self.memory is not None:
            found = self.memory.step_memory(self.memory_norm(x), cache.memory[0], state.groups, state.memory_bias)
            x = x + self.dropout(found)
        return x + self.dropout(self.feed_forward(x)), cache._replace(tails=(tail,))


class FeedForward(nn.Module):
    """Norm, wide layer, activation, narrow layer."""

    def __init__(self, width: int, multiple: int, activation: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, multiple * width)
        self.activation = activation
        self.out = nn.Linear(multiple * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., width), without the residual."""
        return self.out(self.activation(self.wide(self.norm(x))))  # type: ignore[no-any-return]


def sinusoids(places: int, width: int) -> torch.Tensor:
    """Sines and cosines of falling frequency, (places, width)."""
    angles = torch.arange(places)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)  # (places, width / 2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def _before(talk: Talk, turn: int) -> Talk:
    return replace(talk, turns=talk.turns[:turn], own=talk.own[:turn])


def _batches(pieces: Sequence[_Piece]) -> Iterator[list[_Piece]]:
    """Pieces of like length together, few enough to go through at once."""
    batch: list[_Piece] = []
    for piece in sorted(pieces, key=lambda piece: (len(piece.source), len(piece.target))):
        longest = max((len(other.target) for other in batch), default=0)
        if batch and (len(batch) + 1) * (len(piece.source) + max(longest, len(piece.target))) > AT_ONCE:
            yield batch
            batch = []
        batch.append(piece)
    if batch:
        yield batch


def _solid(pairs: tuple[KeyValue, ...]) -> tuple[KeyValue, ...]:
    """In one piece of memory, since every step goes through all of it."""
    return tuple(KeyValue(*(part.contiguous() for part in pair)) for pair in pairs)


def _ends(padded: torch.Tensor, lengths: torch.Tensor, size: int) -> torch.Tensor:
    """The last `size` inputs of each row: what is there before its end. (n, size + t, c) as (n, size, c)"""
    at = lengths[:, None] + torch.arange(size, device=lengths.device)  # (n, size)
    return padded[torch.arange(len(padded), device=lengths.device)[:, None], at]
