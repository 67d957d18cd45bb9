"""The Evolved Transformer (So et al. 2019) as a generator: Meena's model (Adiwardana et al. 2020).

Each line is a sublayer, with a layer norm before it and a residual connection around it:

    encoder block                                     decoder block
    a  gated linear unit                              a  self-attention (twice the heads) + encoder attention
    b  dense 4d, ReLU + convolution 3 to d/2, ReLU    b  separable convolution 11 to 2d, ReLU + 7 to d/2
       then separable convolution 9 to d/2               then separable convolution 7 to d
    c  self-attention                                 c  self-attention
    d  feed-forward 4d, ReLU                          d  encoder attention
                                                      e  feed-forward 4d, Swish, norm

The narrower of two branches, and what is narrower than d, is padded with zeros; there is a norm between the two halves
of (b). A separable convolution is one filter per channel (without a bias), then a dense layer (with one). In the
encoder, padding is set to zero before each convolution; in the decoder convolutions are causal, and padding comes last.
More heads means narrower ones: all attentions are as wide as the model, without biases. Heads are doubled only up to
16, as in tensor2tensor, whose decoder also has a norm between Swish and the second dense layer (in e). Dropout is on
embeddings, attention weights, both branches of (b), between dense layers, and on the output of each sublayer.

What still differs from tensor2tensor: the sinusoids of positions have a weight of 0.1, the softmax has a bias, the
epsilon of norms is torch's (1e-5 instead of 1e-6), and weights are initialised in our way (`BlockGenerator`).

Meena's sizes (d = 2560, 1 + 13 blocks, 8192 subwords) give 2.59 billion parameters in this reading: 21.5 d^2 for an
encoder block, 28.5 d^2 for a decoder block, and one embedding matrix; filters, biases and norms are 2 million of them.

Without encoder blocks the decoder reads the context itself; both encoder attentions (half of a, and d) are left out.

To decode token by token, a causal convolution of kernel k needs its last k - 1 inputs. Each row keeps them as a window,
beside the keys and values of its own tokens: a step appends the newest input, computes one output from the k inputs,
and drops the oldest. `blocks` cuts the first windows out of the inputs of the pass that read the context.
"""

from typing import Self

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.nn.functional import conv2d, pad, relu, sigmoid

from tertulia.models.generators.attention import Attention, BlockCache, DecoderState, KeyValue, apply_norm
from tertulia.models.generators.blocks import (
    BlockConfig,
    BlockGenerator,
    BlockOutput,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
)

MAX_DOUBLED = 16
"""Up to this many, the first self-attention of a decoder block has twice the heads."""
WIDE, NARROW, JOINED = 11, 7, 7
"""Kernel sizes in a decoder block: of the two branches, and of the convolution over their sum."""


class EvolvedConfig(BlockConfig):
    """Sizes of an Evolved Transformer."""

    encoder_blocks: int = Field(default=0, ge=0)
    """Blocks of the encoder; with 0 the decoder reads the context itself."""
    decoder_blocks: int = Field(default=3, ge=1)
    """Blocks of the decoder."""

    @property
    def first_heads(self) -> int:
        """Heads of the first self-attention of a decoder block."""
        return max(min(2 * self.heads, MAX_DOUBLED), self.heads)

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.d_model % self.first_heads:
            raise ValueError(f"d_model must be a multiple of {self.first_heads}, the heads of the first attention")
        return self


class Convolution(nn.Module):
    """A centred convolution, as one dense layer over `kernel` neighbouring positions."""

    def __init__(self, channels: int, out: int, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.dense = nn.Linear(kernel * channels, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, t, channels) -> (n, t, out)."""
        padded = pad(x, (0, 0, self.kernel // 2, self.kernel // 2))
        shifted = [padded[:, i : i + x.shape[1]] for i in range(self.kernel)]
        return self.dense(torch.cat(shifted, -1))  # type: ignore[no-any-return]


class SeparableConvolution(nn.Module):
    """Depthwise separable convolution: a filter for each channel, then a dense layer. The caller pads."""

    def __init__(self, channels: int, out: int, kernel: int) -> None:
        super().__init__()
        self.filters = nn.Parameter(torch.empty(channels, kernel))
        self.dense = nn.Linear(channels, out)

    def forward(self, padded: torch.Tensor) -> torch.Tensor:
        """(n, kernel - 1 + t, channels) -> (n, t, out)."""
        # As an image of height 1 with the channels innermost in memory: three times as fast as conv1d.
        image = padded.transpose(1, 2).unsqueeze(2)  # (n, channels, 1, kernel - 1 + t)
        filtered = conv2d(image, self.filters[:, None, None], groups=len(self.filters))  # (n, channels, 1, t)
        return self.dense(filtered.squeeze(2).transpose(1, 2))  # type: ignore[no-any-return]

    def step(self, window: torch.Tensor) -> torch.Tensor:
        """One output from the last `kernel` inputs: (rows, kernel, channels) -> (rows, out)."""
        return self.dense(torch.einsum("rkc,ck->rc", window, self.filters))  # type: ignore[no-any-return]


class GatedLinear(nn.Module):
    """W1 x * sigmoid(W2 x)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, t, width), without the residual."""
        h = self.norm(x)
        return self.out(h) * sigmoid(self.gate(h))  # type: ignore[no-any-return]


class EncoderBranches(nn.Module):
    """A wide dense layer beside a convolution, and a separable convolution over their sum."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = Convolution(width, width // 2, 3)
        self.joined_norm = nn.LayerNorm(4 * width)
        self.out = SeparableConvolution(4 * width, width // 2, 9)

    def forward(self, x: torch.Tensor, padding: torch.Tensor | None) -> torch.Tensor:
        """(n, t, width), without the residual; padding: (n, t, 1)"""
        h = _zero_padding(self.norm(x), padding)
        wide, narrow = self.dropout(relu(self.wide(h))), self.dropout(relu(self.narrow(h)))
        joined = _add_branches(wide, narrow)  # (n, t, 4 width)
        joined = _zero_padding(self.joined_norm(joined), padding)
        return pad(self.out(pad(joined, (0, 0, 4, 4))), (0, x.shape[-1] // 2))


class EvolvedEncoderBlock(EncoderBlock):
    """Gated linear unit, branches, self-attention, feed-forward."""

    def __init__(self, config: EvolvedConfig) -> None:
        super().__init__()
        self.gated = GatedLinear(config.d_model)
        self.branches = EncoderBranches(config.d_model, config.dropout)
        self.norm = nn.LayerNorm(config.d_model)
        self.attention = Attention(config.d_model, config.heads, config.dropout)
        self.feed_forward = FeedForward(config.d_model, 4, nn.ReLU(), dropout=config.dropout)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Every position sees every position. (n, t, width)"""
        padding = None if bias is None else (bias < 0).flatten(1)[..., None]
        x = x + self.dropout(self.gated(x))
        x = x + self.dropout(self.branches(x, padding))
        h = self.norm(x)
        x = x + self.dropout(self.attention(h, self.attention.project(h), bias=bias))
        return x + self.dropout(self.feed_forward(x))  # type: ignore[no-any-return]


class DecoderBranches(nn.Module):
    """Two causal separable convolutions side by side, and a third over their sum."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(width)
        self.wide = SeparableConvolution(width, 2 * width, WIDE)
        self.narrow = SeparableConvolution(width, width // 2, NARROW)
        self.joined_norm = nn.LayerNorm(2 * width)
        self.out = SeparableConvolution(2 * width, width, JOINED)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """(n, t, width), without the residual; and the inputs of the convolutions, zeros before the first included."""
        h = pad(self.norm(x), (0, 0, WIDE - 1, 0))
        # Both branches share one padded input; the narrower kernel skips the zeros that only the wider one needs.
        wide, narrow = self.dropout(relu(self.wide(h))), self.dropout(self.narrow(h[:, WIDE - NARROW :]))
        joined = _add_branches(wide, narrow)  # (n, t, 2 width)
        joined = pad(self.joined_norm(joined), (0, 0, JOINED - 1, 0))
        return self.out(joined), (h, joined)

    def step(
        self, x: torch.Tensor, windows: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """One more token of each row, and the windows after it. x: (rows, width)"""
        h = torch.cat([windows[0], self.norm(x)[:, None]], 1)  # (rows, 11, width)
        joined = self.joined_norm(_add_branches(relu(self.wide.step(h)), self.narrow.step(h[:, WIDE - NARROW :])))
        joined = torch.cat([windows[1], joined[:, None]], 1)  # (rows, 7, 2 width)
        return self.out.step(joined), (h[:, 1:], joined[:, 1:])


class EvolvedDecoderBlock(DecoderBlock):
    """Attentions, branches, self-attention, encoder attention, feed-forward."""

    def __init__(self, config: EvolvedConfig) -> None:
        super().__init__()
        width, has_encoder = config.d_model, config.encoder_blocks > 0
        self.first_norm = nn.LayerNorm(width)
        self.first = Attention(width, config.first_heads, config.dropout)
        self.first_memory = Attention(width, config.heads, config.dropout) if has_encoder else None
        self.branches = DecoderBranches(width, config.dropout)
        self.second_norm = nn.LayerNorm(width)
        self.second = Attention(width, config.heads, config.dropout)
        self.memory_norm = nn.LayerNorm(width) if has_encoder else nn.Identity()
        self.second_memory = Attention(width, config.heads, config.dropout) if has_encoder else None
        self.feed_forward = FeedForward(width, 4, nn.SiLU(), dropout=config.dropout, inner_norm=True)
        self.dropout = nn.Dropout(config.dropout)

    def project_memory(self, memory: torch.Tensor) -> tuple[KeyValue, ...]:
        """Keys and values for both encoder attentions."""
        if self.first_memory is None or self.second_memory is None:
            return ()
        return self.first_memory.project(memory), self.second_memory.project(memory)

    def forward(self, x: torch.Tensor, memory: tuple[KeyValue, ...], bias: torch.Tensor | None) -> BlockOutput:
        """Every position sees those up to itself, and the memory. (n, t, width)"""
        h = self.first_norm(x)
        first = self.first.project(h)
        x = x + self.dropout(self.first(h, first, causal=True))
        if self.first_memory is not None:
            x = x + self.dropout(self.first_memory(h, memory[0], bias=bias))
        convolved, conv_inputs = self.branches(x)
        x = x + self.dropout(convolved)
        h = self.second_norm(x)
        second = self.second.project(h)
        x = x + self.dropout(self.second(h, second, causal=True))
        if self.second_memory is not None:
            x = x + self.dropout(self.second_memory(self.memory_norm(x), memory[1], bias=bias))
        return BlockOutput(x + self.dropout(self.feed_forward(x)), (first, second), conv_inputs)

    def step(self, x: torch.Tensor, cache: BlockCache, state: DecoderState) -> tuple[torch.Tensor, BlockCache]:
        """One more token of each row. (rows, width)"""
        h = apply_norm(self.first_norm, x)
        x, first = self.first.step(x, h, cache.prefix[0], cache.rows[0], state)
        if self.first_memory is not None:
            x = self.first_memory.step_memory(x, h, cache.memory[0], state)
        convolved, windows = self.branches.step(x, cache.windows)
        x = x + convolved
        x, second = self.second.step(x, apply_norm(self.second_norm, x), cache.prefix[1], cache.rows[1], state)
        if self.second_memory is not None:
            x = self.second_memory.step_memory(x, self.memory_norm(x), cache.memory[1], state)
        return self.feed_forward.step(x), cache._replace(rows=(first, second), windows=windows)


class EvolvedTransformer(BlockGenerator[EvolvedConfig]):
    """Meena's model."""

    config_type = EvolvedConfig
    layout = 2

    @classmethod
    def make_blocks(cls, config: EvolvedConfig) -> tuple[list[EncoderBlock], list[DecoderBlock]]:
        """The blocks of encoder and decoder."""
        return (
            [EvolvedEncoderBlock(config) for _ in range(config.encoder_blocks)],
            [EvolvedDecoderBlock(config) for _ in range(config.decoder_blocks)],
        )


def _add_branches(wide: torch.Tensor, narrow: torch.Tensor) -> torch.Tensor:
    """The sum of two branches, the narrower one padded with zeros."""
    return wide + pad(narrow, (0, wide.shape[-1] - narrow.shape[-1]))


def _zero_padding(x: torch.Tensor, padding: torch.Tensor | None) -> torch.Tensor:
    """Set padding to zero; padding: (n, t, 1)"""
    return x if padding is None else x.masked_fill(padding, 0.0)
