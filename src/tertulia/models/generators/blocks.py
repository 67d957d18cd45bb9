"""A generator made of blocks, all of it but the blocks: the Transformer and the Evolved Transformer provide those.

There are two architectures. With encoder blocks, the encoder reads persona and turns, and the decoder generates the
next turn; training needs a (source, target) pair per target turn. Without, the decoder reads everything as one stream,
and a single pass predicts every turn of a dialogue: a small part of the work for the same number of turns (see
`segments`).

One embedding matrix serves encoder, decoder and softmax. Positions are sinusoids, so that a dialogue may be longer than
any in training. Logits are computed at target tokens only; for losses a few hundred tokens at a time, since those of a
complete batch would not stay in the processor's cache.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, Self, TypeVar, cast

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.nn import functional

from tertulia.core.config import Config
from tertulia.models.generator import DialogueView, Nll, State, TargetTurns
from tertulia.models.generators.attention import (
    BlockCache,
    DecoderState,
    KeyValue,
    RowCache,
    RowGroups,
    apply_norm,
    column_major,
    padding_bias,
)
from tertulia.models.generators.base import GeneratorModule, full_precision
from tertulia.models.generators.segments import Segment, batch_segments, context_ids, pair_segments, stream_segments
from tertulia.models.token_logits import TokenLogits
from tertulia.models.tokenizer import OWN, PAD, Tokenizer

PASS_TOKENS = 4096
"""Tokens that go through the blocks together, padding included."""

LOSS_CHUNK = 256
"""Tokens whose losses are computed at once."""

POSITION_SCALE = 0.1
"""Weight of the sinusoids relative to the embeddings, which start small."""


class BlockConfig(Config):
    """Options of all models made of blocks."""

    renamed: ClassVar[Mapping[str, str]] = {"longest": "max_length"}

    d_model: int = Field(default=256, ge=2)
    """Width of the model: size of the vectors between blocks."""
    heads: int = Field(default=4, ge=1)
    """Heads of each attention."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout on embeddings, attention weights, inside feed-forward layers and on the output of each sublayer."""
    max_length: int = Field(default=512, ge=8)
    """Maximum number of tokens read: by the encoder, or by the decoder without one. The oldest turns go first."""
    reserve: int = Field(default=64, ge=0)
    """Part of max_length that is kept free for the reply if the decoder reads everything."""

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.d_model % 2 or self.d_model % self.heads:
            raise ValueError("d_model must be even and a multiple of heads")
        if self.reserve >= self.max_length:
            raise ValueError("reserve must be less than max_length")
        return self


B = TypeVar("B", bound=BlockConfig)


class BlockOutput(NamedTuple):
    """The output of a decoder block, and what it keeps for the steps that follow."""

    x: torch.Tensor  # (n, t, width)
    prefix: tuple[KeyValue, ...]
    """Of each self-attention."""
    conv_inputs: tuple[torch.Tensor, ...] = ()
    """Of each causal convolution, after the zeros before the first token: (n, kernel - 1 + t, channels)"""


class EncoderBlock(nn.Module):
    """A block in which every position sees every position."""

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """x: (n, t, width); bias (n, 1, 1, t): minus infinity at padding."""
        raise NotImplementedError


class DecoderBlock(nn.Module):
    """A block in which a position sees those before it, and the encoder's output if there is one."""

    def project_memory(self, memory: torch.Tensor) -> tuple[KeyValue, ...]:
        """Keys and values of the encoder's output (n, t, width), for each of the block's encoder attentions."""
        raise NotImplementedError

    def forward(self, x: torch.Tensor, memory: tuple[KeyValue, ...], bias: torch.Tensor | None) -> BlockOutput:
        """All tokens at once. x: (n, t, width); bias on the memory: (n, 1, 1, length)"""
        raise NotImplementedError

    def step(self, x: torch.Tensor, cache: BlockCache, state: DecoderState) -> tuple[torch.Tensor, BlockCache]:
        """One more token of each row, without dropout: single steps are for inference only. x: (rows, width)"""
        raise NotImplementedError


class _Predictions(NamedTuple):
    """The decoder's output before each target token."""

    states: torch.Tensor  # (n, width)
    targets: torch.Tensor  # (n,): the tokens to predict
    rows: torch.Tensor  # (n,): index of each one's segment in the batch


class BlockGenerator(GeneratorModule[B]):
    """A `Generator` made of blocks."""

    sinusoids: torch.Tensor  # (positions, width)

    def __init__(self, config: B, tokenizer: Tokenizer) -> None:
        super().__init__(config, tokenizer)
        encoder, decoder = self.make_blocks(config)
        self.embedding = nn.Embedding(len(tokenizer), config.d_model)
        self.register_buffer("sinusoids", sinusoids(config.max_length, config.d_model), persistent=False)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(encoder)
        self.encoder_norm = nn.LayerNorm(config.d_model) if encoder else None
        self.decoder = nn.ModuleList(decoder)
        self.decoder_norm = nn.LayerNorm(config.d_model)
        self.bias = nn.Parameter(torch.zeros(len(tokenizer)))

    @classmethod
    def make_blocks(cls, config: B) -> tuple[Sequence[EncoderBlock], Sequence[DecoderBlock]]:
        """The blocks of encoder and decoder."""
        raise NotImplementedError

    @torch.no_grad()
    def init_weights(self) -> None:
        """Normal, scaled by fan-in; layers that add to the residual stream (`out`) also by the number of such layers.

        The embedding, shared with the softmax, starts small: otherwise each token would predict itself.
        """
        layers = sum(".out." in name and name.endswith("weight") for name, _ in self.decoder.named_parameters())
        for name, weight in self.named_parameters():
            if name == "embedding.weight":
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)
            elif "norm" in name:
                nn.init.ones_(weight)
            else:
                terms = layers if ".out." in name and name.endswith("weight") else 1
                nn.init.normal_(weight, std=(terms * weight.shape[-1]) ** -0.5)

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """Load what `save` wrote, laid out for inference."""
        return column_major(super().load(folder))

    def nll(self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all") -> Nll:
        """Negative log-likelihood of the target turns. Segments of similar length share a pass."""
        total = self.bias.new_zeros(len(views))
        tokens = torch.zeros(len(views), dtype=torch.long, device=self.device)
        for batch in batch_segments(self._segments(views, target_turns), PASS_TOKENS):
            predictions = self._predict(batch)
            owners = self.indices([segment.view for segment in batch])[predictions.rows]
            total = total.index_add(0, owners, self._losses(predictions))
            tokens = tokens.index_add(0, owners, torch.ones_like(owners))
        return Nll(total, tokens)

    def token_logits(self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all") -> TokenLogits:
        """Logits at all target tokens, in the order of the text."""
        segments = self._segments(views, target_turns)
        ranks = {key: rank for rank, key in enumerate(sorted((one.view, one.turn) for one in segments))}
        states, targets, order = [self.bias.new_zeros(0, self.config.d_model)], [self.indices([])], [self.indices([])]
        for batch in batch_segments(segments, PASS_TOKENS):
            predictions = self._predict(batch)
            states.append(predictions.states)
            targets.append(predictions.targets)
            order.append(self.indices([ranks[one.view, one.turn] for one in batch])[predictions.rows])
        in_text_order = torch.cat(order).argsort(stable=True)
        return TokenLogits(self._logits(torch.cat(states)[in_text_order]), torch.cat(targets)[in_text_order])

    @torch.no_grad()
    def start(self, views: Sequence[DialogueView], /) -> DecoderState:
        """Read the dialogues and the special token of the turn to generate."""
        room = self._context_length
        contexts = [(*context_ids(view, self.tokenizer, room), OWN) for view in views]
        memory, memory_bias = self._encode(contexts)
        ids = self._pad([(OWN,)] * len(views) if self.encoder else contexts)  # (n, t)
        lengths = (ids != PAD).sum(1)
        x, caches = self._embed(ids), []
        for block in self._decoder_blocks:
            key_values = () if memory is None else block.project_memory(memory)
            output: BlockOutput = block(x, key_values, memory_bias)
            x = output.x
            caches.append(_first_cache(output, key_values, lengths, rows_own_prefix=bool(self.encoder)))
        rows = torch.arange(len(views), device=self.device)
        return DecoderState(
            caches=tuple(caches),
            groups=RowGroups.from_contexts(rows, len(views)),
            last=x[rows, lengths - 1],
            lengths=lengths,
            prefix_bias=padding_bias(lengths, ids.shape[1], self.dtype),
            memory_bias=memory_bias,
        )

    @torch.no_grad()
    def step(self, state: State, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, DecoderState]:
        """Logits of the next token; those of the first one are the same in all rows of a context."""
        if not isinstance(state, DecoderState):
            raise TypeError(f"not a state of this model: {type(state).__name__}")
        if tokens is None:
            if state.generated:
                raise ValueError("only the first step takes None as its tokens")
            return self._logits(state.last).index_select(0, state.groups.context), state
        self._extend_sinusoids(state.max_position + 1)
        x, caches = self._embed_at(tokens, state.positions), []  # (rows, width)
        for block, cache in zip(self._decoder_blocks, state.caches, strict=True):
            x, after = block.step(x, cache, state)
            caches.append(after)
        return self._logits(x), state.advance(tuple(caches))

    @property
    def _decoder_blocks(self) -> Iterator[DecoderBlock]:
        return cast(Iterator[DecoderBlock], iter(self.decoder))

    @property
    def _context_length(self) -> int:
        """Maximum number of tokens that are read before a turn."""
        return self.config.max_length - (0 if self.encoder else self.config.reserve)

    def _segments(self, views: Sequence[DialogueView], target_turns: TargetTurns) -> list[Segment]:
        room = self._context_length
        if self.encoder:
            return list(pair_segments(views, self.tokenizer, target_turns, context_length=room))
        max_length = self.config.max_length
        return list(stream_segments(views, self.tokenizer, target_turns, max_length=max_length, context_length=room))

    def _predict(self, batch: Sequence[Segment]) -> _Predictions:
        """One pass through all blocks."""
        memory, bias = self._encode([segment.source for segment in batch])
        ids = self._pad([segment.ids for segment in batch])  # (n, t + 1)
        loss_mask = self._pad([segment.loss_mask for segment in batch])[:, 1:].bool()  # (n, t)
        x = self._embed(ids[:, :-1])  # (n, t, width)
        for block in self._decoder_blocks:
            x = block(x, () if memory is None else block.project_memory(memory), bias).x
        rows = torch.arange(len(batch), device=self.device).repeat_interleave(loss_mask.sum(1))
        return _Predictions(x[loss_mask], ids[:, 1:][loss_mask], rows)

    def _losses(self, predictions: _Predictions) -> torch.Tensor:
        """Negative log-likelihood of each target: (n,)."""
        chunks = zip(
            torch.split(predictions.states, LOSS_CHUNK), torch.split(predictions.targets, LOSS_CHUNK), strict=True
        )
        return torch.cat(
            [functional.cross_entropy(full_precision(self._logits(x)), t, reduction="none") for x, t in chunks]
        )

    def _encode(self, sources: Sequence[tuple[int, ...]]) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """The encoder's output (n, t, width), and the bias at its padding; both None without an encoder."""
        if self.encoder_norm is None:
            return None, None
        ids = self._pad(sources)  # (n, t)
        bias = padding_bias((ids != PAD).sum(1), ids.shape[1], self.dtype)
        x = self._embed(ids)
        for block in self.encoder:
            x = block(x, bias)
        return self.encoder_norm(x), bias

    def _pad(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        longest = max(len(row) for row in rows)
        return torch.tensor([(*row, *(PAD,) * (longest - len(row))) for row in rows], device=self.device)

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        """(n, t) -> (n, t, width)."""
        self._extend_sinusoids(ids.shape[1])
        return self.dropout(self._embed_at(ids, torch.arange(ids.shape[1], device=self.device)))  # type: ignore[no-any-return]

    def _embed_at(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return self.embedding(ids) * self.config.d_model**0.5 + POSITION_SCALE * self.sinusoids[positions]  # type: ignore[no-any-return]

    def _extend_sinusoids(self, positions: int) -> None:
        """Make sure that there are sinusoids for that many positions."""
        if positions > len(self.sinusoids):
            self.sinusoids = sinusoids(2 * positions, self.config.d_model, self.device).to(self.sinusoids)

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        """(n, width) -> (n, vocabulary)."""
        return functional.linear(self.decoder_norm(x), self.embedding.weight, self.bias)


class FeedForward(nn.Module):
    """Layer norm, wide layer, activation, in some models another norm, narrow layer."""

    def __init__(
        self, width: int, multiple: int, activation: nn.Module, *, dropout: float = 0.0, inner_norm: bool = False
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.inner_norm = nn.LayerNorm(multiple * width) if inner_norm else None
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, multiple * width)
        self.activation = activation
        self.out = nn.Linear(multiple * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., width), without the residual."""
        wide = self.dropout(self.activation(self.wide(self.norm(x))))
        return self.out(wide if self.inner_norm is None else self.inner_norm(wide))  # type: ignore[no-any-return]

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """With the residual, for one more token. (rows, width)"""
        wide = self.activation(torch.addmm(self.wide.bias, apply_norm(self.norm, x), self.wide.weight.t()))
        if self.inner_norm is not None:
            wide = apply_norm(self.inner_norm, wide)
        return torch.addmm(x, wide, self.out.weight.t()).add_(self.out.bias)


def sinusoids(positions: int, width: int, device: torch.device | None = None) -> torch.Tensor:
    """Sines and cosines of falling frequency: (positions, width)."""
    wavelengths = 10_000 ** (torch.arange(0, width, 2, device=device) / width)
    angles = torch.arange(positions, device=device)[:, None] / wavelengths  # (positions, width / 2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def _first_cache(
    output: BlockOutput, memory: tuple[KeyValue, ...], lengths: torch.Tensor, *, rows_own_prefix: bool
) -> BlockCache:
    """A block's cache after the contexts, of `lengths` (n,) tokens, were read.

    Rows share the prefix, and own nothing yet. Where the decoder read a single token, rows own it, and share nothing.
    """
    if rows_own_prefix:
        prefix = tuple(KeyValue(keys[:, :, :0], values[:, :, :0]) for keys, values in output.prefix)
        rows = tuple(RowCache.from_prefix(one) for one in output.prefix)
    else:
        prefix = tuple(one.contiguous() for one in output.prefix)
        rows = tuple(RowCache.empty(one) for one in prefix)
    windows = tuple(_last_inputs(padded, lengths, padded.shape[1] - output.x.shape[1]) for padded in output.conv_inputs)
    return BlockCache(prefix, tuple(one.contiguous() for one in memory), rows, windows)


def _last_inputs(padded: torch.Tensor, lengths: torch.Tensor, size: int) -> torch.Tensor:
    """The window of a causal convolution: the last `size` = kernel - 1 inputs before each row's end.

    A row's inputs start at index `size` of `padded`, after as many zeros, so the last ones before its end at
    size + length start at index `length`. (n, size + t, channels) -> (n, size, channels)
    """
    positions = lengths[:, None] + torch.arange(size, device=lengths.device)  # (n, size)
    return padded[torch.arange(len(padded), device=lengths.device)[:, None], positions]
