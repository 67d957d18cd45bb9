"""A model that writes, made of blocks: all of it but the blocks. The Transformer and the Evolved Transformer fill it.

There are two shapes. With encoder blocks, the encoder reads persona and turns, and the decoder writes the next turn; a
talk is as many (source, target) pairs as it has turns that count. Without, the decoder reads everything as one stream,
and a single pass predicts every turn of a talk: for as many turns learned from, a small part of the work.

One embedding matrix serves encoder, decoder and softmax. Places are sinusoids, so that a talk may be longer than any in
training. Logits are computed where a token counts, and nowhere else; for losses a few hundred tokens at a time, since
those of a whole batch would have to be fetched from memory again and again.
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
from tertulia.models.attention import Cache, Decoding, Groups, KeyValue, Tail, by_input, filled_up, normed
from tertulia.models.checkpoint import load_weights, read_model, save_weights
from tertulia.models.generator import Nll, Scored, State, Talk, counted, stream
from tertulia.models.token_logits import TokenLogits
from tertulia.models.tokenizer import END, OTHER, OWN, PAD, Tokenizer, load_tokenizer

AT_ONCE = 4096
"""Tokens that go through the blocks together, filled-up places included."""

LOGITS_AT_ONCE = 256
"""Tokens whose losses are computed together."""

PLACES = 0.1
"""Weight of the places beside the tokens, which begin small."""


class BlockConfig(Config):
    """What all models made of blocks have."""

    d_model: int = Field(256, ge=2)
    """Width: numbers for each token between blocks."""
    heads: int = Field(4, ge=1)
    """Heads of each attention."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Share of the numbers that are left out in training."""
    longest: int = Field(512, ge=8)
    """Tokens read at most: by the encoder, or by the decoder where it reads everything. The oldest turns go first."""
    reserve: int = Field(64, ge=0)
    """Of those, tokens left free for the reply where the decoder reads everything."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.d_model % 2 or self.d_model % self.heads:
            raise ValueError("d_model must be even and a multiple of heads")
        if self.reserve >= self.longest:
            raise ValueError("reserve must be less than longest")
        return self


B = TypeVar("B", bound=BlockConfig)


class Read(NamedTuple):
    """What a decoder block makes of some tokens, and what it remembers of them."""

    x: torch.Tensor  # (n, t, width)
    prefix: tuple[KeyValue, ...]
    inputs: tuple[torch.Tensor, ...] = ()
    """Of causal convolutions, with the zeros before the first: (n, kernel - 1 + t, channels)"""


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
        """One more token of each row, without dropout: nobody learns from single steps. x: (rows, width)"""
        raise NotImplementedError


class _Piece(NamedTuple):
    """What is learned in one row: tokens to be written, and where there is an encoder, those that it reads."""

    talk: int
    turn: int
    """The first one it is about."""
    source: tuple[int, ...]
    target: tuple[int, ...]
    counts: tuple[bool, ...]
    """Which tokens of the target are predicted; never the first."""


class _Predicting(NamedTuple):
    """Where tokens that count are predicted."""

    states: torch.Tensor  # (n, width): what the last block made of the token before
    tokens: torch.Tensor  # (n,): those that stand there
    pieces: torch.Tensor  # (n,): the row each is of


class BlockGenerator(nn.Module, Generic[B]):
    """A model that writes, made of blocks; a `Generator`."""

    config_type: type[B]
    sinusoids: torch.Tensor  # (places, width)

    def __init__(self, config: B, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.config, self.tokenizer = config, tokenizer
        encoder, decoder = self.blocks(config)
        self.embedding = nn.Embedding(len(tokenizer), config.d_model)
        self.register_buffer("sinusoids", sinusoids(config.longest, config.d_model), persistent=False)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(encoder)
        self.encoder_norm = nn.LayerNorm(config.d_model) if encoder else None
        self.decoder = nn.ModuleList(decoder)
        self.decoder_norm = nn.LayerNorm(config.d_model)
        self.bias = nn.Parameter(torch.empty(len(tokenizer)))
        self._begin()

    @torch.no_grad()
    def _begin(self) -> None:
        """Where learning starts: what is added to the residual stream (`out`) is the smaller the more layers add."""
        layers = sum(".out." in name and name.endswith("weight") for name, _ in self.decoder.named_parameters())
        for name, weight in self.named_parameters():
            if name == "embedding.weight":
                nn.init.normal_(weight, std=0.02)  # shared with the softmax: more would have each token repeat itself
            elif name.endswith("bias"):
                nn.init.zeros_(weight)
            elif "norm" in name:
                nn.init.ones_(weight)
            else:
                adding = layers if ".out." in name and name.endswith("weight") else 1
                nn.init.normal_(weight, std=(adding * weight.shape[-1]) ** -0.5)

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
            found = self._predicting(batch)
            owners = self._numbers([piece.talk for piece in batch])[found.pieces]
            total = total.index_add(0, owners, self._losses(found))
            tokens = tokens.index_add(0, owners, torch.ones_like(owners))
        return Nll(total, tokens)

    def token_logits(self, talks: Sequence[Talk], /, *, scored: Scored = "all") -> TokenLogits:
        """The scores of all tokens where one counts, in the order of the text."""
        pieces = [piece for i, talk in enumerate(talks) for piece in self._pieces(i, talk, scored)]
        ranks = {key: rank for rank, key in enumerate(sorted((piece.talk, piece.turn) for piece in pieces))}
        states, tokens, places = [self.bias.new_zeros(0, self.config.d_model)], [self._numbers([])], [self._numbers([])]
        for batch in _batches(pieces):
            found = self._predicting(batch)
            states.append(found.states)
            tokens.append(found.tokens)
            places.append(self._numbers([ranks[piece.talk, piece.turn] for piece in batch])[found.pieces])
        order = torch.cat(places).argsort(stable=True)
        return TokenLogits(self._logits(torch.cat(states)[order]), torch.cat(tokens)[order])

    @torch.no_grad()
    def start(self, talks: Sequence[Talk], /) -> Decoding:
        """Read the talks, and the mark of the turn to be written."""
        contexts = [(*self._context(talk), OWN) for talk in talks]
        memory, memory_bias = self._memory(contexts)
        ids = self._padded([(OWN,)] * len(talks) if self.encoder else contexts)  # (n, t)
        lengths = (ids != PAD).sum(1)
        x, caches = self._embed(ids), []
        for block in self._decoder:
            pairs = () if memory is None else block.remember(memory)
            read: Read = block(x, pairs, memory_bias)
            x, shared, tails = read.x, *_owned(read.prefix, everything=bool(self.encoder))
            windows = tuple(_ends(padded, lengths, padded.shape[1] - ids.shape[1]) for padded in read.inputs)
            caches.append(Cache(shared, _solid(pairs), tails, windows))
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
        """Logits of the next token; those of the first one are the same in all rows of a context."""
        if not isinstance(state, Decoding):
            raise TypeError(f"not a state of this model: {type(state).__name__}")
        if tokens is None:
            if state.written:
                raise ValueError("only before the first token there is none")
            return self._logits(state.last).index_select(0, state.groups.context), state
        self._reach(state.reach + 1)
        x, caches = self._at(tokens, state.places), []  # (rows, width)
        for block, cache in zip(self._decoder, state.caches, strict=True):
            x, after = block.step(x, cache, state)
            caches.append(after)
        return self._logits(x), state.grown(tuple(caches))

    def save(self, folder: Path, /) -> list[str]:
        """Weights, sizes and tokenizer."""
        save_weights(folder, self, {"config": self.config.model_dump()})
        return [self.tokenizer.save(folder)]

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """What `save` wrote."""
        config = validate(cls.config_type, read_model(folder)["config"], where=str(folder))
        made = cls(config, load_tokenizer(folder))
        load_weights(folder, made)
        return by_input(made).eval()

    @property
    def _device(self) -> torch.device:
        return self.bias.device

    @property
    def _decoder(self) -> Iterator[DecoderBlock]:
        return cast(Iterator[DecoderBlock], iter(self.decoder))

    def _context(self, talk: Talk) -> tuple[int, ...]:
        """What is read before a turn is written; of a single turn that is too long, the end."""
        room = self.config.longest - (0 if self.encoder else self.config.reserve)
        return stream(talk, self.tokenizer, longest=room).ids[-room:]

    def _pieces(self, number: int, talk: Talk, scored: Scored) -> Iterator[_Piece]:
        """What of a talk is learned in which row; each turn that counts is predicted once."""
        if self.encoder or scored == "last":
            for turn, counts in enumerate(counted(talk, scored)):
                if counts:
                    yield self._pair(number, talk, turn)
            return
        while talk.turns:
            ids, which = stream(talk, self.tokenizer, scored=scored, longest=self.config.longest)
            first = len(talk.turns) - sum(i in (OWN, OTHER) for i in ids)
            if any(which):
                yield _Piece(number, first, (), ids, which)
            talk = _before(talk, first)  # what did not fit, by itself

    def _pair(self, number: int, talk: Talk, turn: int) -> _Piece:
        """A single turn after what is read to write it."""
        mark = OWN if talk.own[turn] else OTHER
        context = (*self._context(_before(talk, turn)), mark)
        words = (*self.tokenizer.encode(talk.turns[turn]), END)
        source, head = (context, (mark,)) if self.encoder else ((), context)
        return _Piece(number, turn, source, (*head, *words), (False,) * len(head) + (True,) * len(words))

    def _predicting(self, pieces: Sequence[_Piece]) -> _Predicting:
        """All blocks, for some pieces at once."""
        memory, bias = self._memory([piece.source for piece in pieces])
        ids = self._padded([piece.target for piece in pieces])  # (n, t + 1)
        counts = self._padded([piece.counts for piece in pieces])[:, 1:].bool()  # (n, t)
        x = self._embed(ids[:, :-1])
        for block in self._decoder:
            x = block(x, () if memory is None else block.remember(memory), bias).x
        rows = torch.arange(len(pieces), device=self._device).repeat_interleave(counts.sum(1))
        return _Predicting(x[counts], ids[:, 1:][counts], rows)

    def _losses(self, found: _Predicting) -> torch.Tensor:
        """Negative log-likelihood of each token: (n,)."""
        parts = zip(found.states.split(LOGITS_AT_ONCE), found.tokens.split(LOGITS_AT_ONCE), strict=True)  # type: ignore[no-untyped-call]
        return torch.cat([functional.cross_entropy(self._logits(x).float(), t, reduction="none") for x, t in parts])

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

    def _numbers(self, found: Sequence[int]) -> torch.Tensor:
        return torch.tensor(found, dtype=torch.long, device=self._device)

    def _padded(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        longest = max(len(row) for row in rows)
        return torch.tensor([(*row, *(PAD,) * (longest - len(row))) for row in rows], device=self._device)

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        """(n, t) as (n, t, width)."""
        self._reach(ids.shape[1])
        return self.dropout(self._at(ids, torch.arange(ids.shape[1], device=self._device)))  # type: ignore[no-any-return]

    def _at(self, ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return self.embedding(ids) * self.config.d_model**0.5 + PLACES * self.sinusoids[places]  # type: ignore[no-any-return]

    def _reach(self, places: int) -> None:
        """Make sure that there are sinusoids for so many places."""
        if places > len(self.sinusoids):
            self.sinusoids = sinusoids(2 * places, self.config.d_model).to(self.sinusoids)

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        """(n, width) as (n, vocabulary)."""
        return functional.linear(self.decoder_norm(x), self.embedding.weight, self.bias)


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

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """x and the same for one more token. (rows, width)"""
        wide = torch.addmm(self.wide.bias, normed(self.norm, x), self.wide.weight.t())
        return torch.addmm(x, self.activation(wide), self.out.weight.t()).add_(self.out.bias)


def sinusoids(places: int, width: int) -> torch.Tensor:
    """Sines and cosines of falling frequency, (places, width)."""
    angles = torch.arange(places)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)  # (places, width / 2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def _before(talk: Talk, turn: int) -> Talk:
    return replace(talk, turns=talk.turns[:turn], own=talk.own[:turn])


def _batches(pieces: Sequence[_Piece]) -> Iterator[list[_Piece]]:
    """Pieces of like length together, few enough to go through at once."""
    batch: list[_Piece] = []
    longest = 0
    for piece in sorted(pieces, key=lambda piece: (len(piece.source), len(piece.target))):
        longest = max(longest, len(piece.target))
        if batch and (len(batch) + 1) * (len(piece.source) + longest) > AT_ONCE:
            yield batch
            batch, longest = [], len(piece.target)
        batch.append(piece)
    if batch:
        yield batch


def _solid(pairs: tuple[KeyValue, ...]) -> tuple[KeyValue, ...]:
    """In one piece of memory, since every step goes through all of it."""
    return tuple(KeyValue(*(part.contiguous() for part in pair)) for pair in pairs)


def _owned(prefix: tuple[KeyValue, ...], *, everything: bool) -> tuple[tuple[KeyValue, ...], tuple[Tail, ...]]:
    """What rows share of what the decoder read, and what each owns: nothing yet, or everything."""
    if everything:
        nothing = tuple(KeyValue(keys[:, :, :0], values[:, :, :0]) for keys, values in prefix)
        return nothing, tuple(Tail.of(pair) for pair in prefix)
    shared = _solid(prefix)
    return shared, tuple(Tail.empty(pair) for pair in shared)


def _ends(padded: torch.Tensor, lengths: torch.Tensor, size: int) -> torch.Tensor:
    """The last `size` inputs before each row's end. (n, size + t, channels) as (n, size, channels)"""
    at = lengths[:, None] + torch.arange(size, device=lengths.device)  # (n, size)
    return padded[torch.arange(len(padded), device=lengths.device)[:, None], at]
