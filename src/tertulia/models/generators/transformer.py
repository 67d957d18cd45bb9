"""The Transformer (Vaswani et al. 2017) as a generator: Meena's baseline (Adiwardana et al. 2020).

Differences from 2017: layer norms come before the sublayers and once at the end, attention has no biases, the
activation is GELU, and dropout is on the embeddings and on the outputs of attention and feed-forward. Without encoder
layers the decoder reads the context itself (see `blocks`).
"""

import torch
from pydantic import Field
from torch import nn

from tertulia.models.generators.attention import Attention, BlockCache, DecoderState, KeyValue, apply_norm
from tertulia.models.generators.blocks import (
    BlockConfig,
    BlockGenerator,
    BlockOutput,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
)


class TransformerConfig(BlockConfig):
    """Sizes of a Transformer."""

    encoder_layers: int = Field(default=0, ge=0)
    """Layers of the encoder; with 0 the decoder reads the context itself."""
    decoder_layers: int = Field(default=4, ge=1)
    """Layers of the decoder."""
    feed_forward: int = Field(default=4, ge=1)
    """Width of the feed-forward sublayers, in multiples of d_model."""


class TransformerEncoderLayer(EncoderBlock):
    """Self-attention, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.attention = Attention(config.d_model, config.heads, config.dropout)
        self.feed_forward = FeedForward(config.d_model, config.feed_forward, nn.GELU(), dropout=config.dropout)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Every position attends to every position. (n, t, width)"""
        h = self.norm(x)
        x = x + self.dropout(self.attention(h, self.attention.project(h), bias=bias))
        return x + self.dropout(self.feed_forward(x))  # type: ignore[no-any-return]


class TransformerDecoderLayer(DecoderBlock):
    """Self-attention, encoder attention if there is an encoder, feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.attention = Attention(config.d_model, config.heads, config.dropout)
        has_encoder = config.encoder_layers > 0
        self.memory_norm = nn.LayerNorm(config.d_model) if has_encoder else nn.Identity()
        self.memory = Attention(config.d_model, config.heads, config.dropout) if has_encoder else None
        self.feed_forward = FeedForward(config.d_model, config.feed_forward, nn.GELU(), dropout=config.dropout)
        self.dropout = nn.Dropout(config.dropout)

    def project_memory(self, memory: torch.Tensor) -> tuple[KeyValue, ...]:
        """For the one encoder attention."""
        return () if self.memory is None else (self.memory.project(memory),)

    def forward(self, x: torch.Tensor, memory: tuple[KeyValue, ...], bias: torch.Tensor | None) -> BlockOutput:
        """Every position attends to those up to itself, and to the memory. (n, t, width)"""
        h = self.norm(x)
        prefix = self.attention.project(h)
        x = x + self.dropout(self.attention(h, prefix, causal=True))
        if self.memory is not None:
            x = x + self.dropout(self.memory(self.memory_norm(x), *memory, bias=bias))
        return BlockOutput(x + self.dropout(self.feed_forward(x)), (prefix,))

    def step(self, x: torch.Tensor, cache: BlockCache, state: DecoderState) -> tuple[torch.Tensor, BlockCache]:
        """One more token of each row. (rows, width)"""
        x, rows = self.attention.step(x, apply_norm(self.norm, x), cache.prefix[0], cache.rows[0], state)
        if self.memory is not None:
            x = self.memory.step_memory(x, self.memory_norm(x), cache.memory[0], state)
        return self.feed_forward.step(x), cache._replace(rows=(rows,))


class Transformer(BlockGenerator[TransformerConfig]):
    """The vanilla Transformer."""

    config_type = TransformerConfig

    @classmethod
    def make_blocks(cls, config: TransformerConfig) -> tuple[list[EncoderBlock], list[DecoderBlock]]:
        """The layers of encoder and decoder."""
        return (
            [TransformerEncoderLayer(config) for _ in range(config.encoder_layers)],
            [TransformerDecoderLayer(config) for _ in range(config.decoder_layers)],
        )
