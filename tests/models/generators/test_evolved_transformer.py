"""The Evolved Transformer's blocks: their size, their convolutions, and what is left out without an encoder."""

import json
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from torch import nn
from torch.nn.functional import pad, relu, silu

from tertulia.core.config import validate
from tertulia.core.errors import ConfigError, DataError
from tertulia.models.checkpoint import count_parameters
from tertulia.models.generators.evolved_transformer import (
    Convolution,
    DecoderBranches,
    EncoderBranches,
    EvolvedConfig,
    EvolvedDecoderBlock,
    EvolvedEncoderBlock,
    EvolvedTransformer,
    SeparableConvolution,
)
from tertulia.models.tokenizer import WordTokenizer

from ..conftest import assert_close

M = TypeVar("M", bound=nn.Module)
CONFIG = EvolvedConfig(d_model=32, heads=4, encoder_blocks=1, decoder_blocks=1, dropout=0.0)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@torch.no_grad()
def randomise(module: M) -> M:
    """Random weights in double precision, norms and biases too."""
    torch.manual_seed(2)
    for weight in module.parameters():
        weight.normal_(std=0.3)
    return module.double()


def test_meena_has_2_59_billion_parameters() -> None:
    config = EvolvedConfig(d_model=2560, heads=32, encoder_blocks=1, decoder_blocks=13)
    with torch.device("meta"):
        model = EvolvedTransformer(config, WordTokenizer([f"w{i}" for i in range(8192 - 6)]))
    assert 2.585e9 <= count_parameters(model) < 2.595e9
    squares = {len(model.encoder): 21.5, len(model.decoder): 28.5}
    for blocks, (count, expected) in zip((model.encoder, model.decoder), squares.items(), strict=True):
        assert count_parameters(blocks) / count / 2560**2 == pytest.approx(expected, rel=2e-3)


def test_separable_convolutions_are_those_of_torch() -> None:
    layer = randomise(SeparableConvolution(6, 4, 5))
    filters = nn.Conv1d(6, 6, 5, groups=6, bias=False, dtype=torch.float64)
    filters.weight.data = layer.filters.data[:, None]
    x = randn(2, 4 + 7, 6)
    expected = layer.dense(filters(x.transpose(1, 2)).transpose(1, 2))
    assert_close(layer(x), expected)
    assert_close(layer.step(x[:, 2:7]), expected[:, 2])


def test_convolutions_are_those_of_torch() -> None:
    layer = randomise(Convolution(6, 4, 3))
    reference = nn.Conv1d(6, 4, 3, padding=1, dtype=torch.float64)
    reference.weight.data = layer.dense.weight.data.view(4, 3, 6).transpose(1, 2)
    reference.bias.data = layer.dense.bias.data  # type: ignore[union-attr]
    x = randn(2, 7, 6)
    assert_close(layer(x), reference(x.transpose(1, 2)).transpose(1, 2))


def test_the_narrower_encoder_branch_is_padded_with_zeros() -> None:
    branches = randomise(EncoderBranches(8))
    x = randn(1, 6, 8)
    output = branches(x, None)
    assert not output[..., 4:].any()
    h = branches.norm(x)
    wide = relu(branches.wide(h))  # (1, 6, 32)
    wide[..., :4] += relu(branches.narrow(h))
    expected = branches.out(pad(branches.joined_norm(wide), (0, 0, 4, 4)))
    assert_close(output[..., :4], expected)


def test_padding_is_zero_before_each_convolution() -> None:
    block = randomise(EvolvedEncoderBlock(CONFIG))
    x = randn(2, 9, 32)
    bias = torch.zeros(2, 1, 1, 9, dtype=torch.float64)
    bias[1, ..., 5:] = -torch.inf
    output = block(x, bias)
    assert_close(output[1, :5], block(x[1:, :5], None)[0])
    assert not torch.allclose(output[1, :5], block(x[1:], None)[0, :5], atol=1e-2)


def test_decoder_branches_see_eleven_and_seven_positions() -> None:
    branches = randomise(DecoderBranches(8))
    x = randn(1, 30, 8)
    changed = x.clone()
    changed[0, 9, 0] += 1
    differs = (branches(x)[0] - branches(changed)[0]).abs().amax(-1)[0] > 1e-9  # (30,)
    assert differs.nonzero().flatten().tolist() == list(range(9, 9 + 10 + 6 + 1))


def test_the_decoder_block_is_that_of_the_paper() -> None:
    block = randomise(EvolvedDecoderBlock(CONFIG))
    x, encoded = randn(2, 6, 32), randn(2, 4, 32)
    memory = block.project_memory(encoded)
    output = block(x, memory, None).x
    assert block.first_memory is not None
    assert block.second_memory is not None
    assert (block.first.heads, block.second.heads) == (8, 4)

    h = block.first_norm(x)
    x = x + block.first(h, block.first.project(h), causal=True) + block.first_memory(h, memory[0])
    h = pad(block.branches.norm(x), (0, 0, 10, 0))
    wide, narrow = relu(block.branches.wide(h)), block.branches.narrow(h[:, 4:])
    joined = torch.cat([wide[..., :16] + narrow, wide[..., 16:]], -1)
    x = x + block.branches.out(pad(block.branches.joined_norm(joined), (0, 0, 6, 0)))
    h = block.second_norm(x)
    x = x + block.second(h, block.second.project(h), causal=True)
    x = x + block.second_memory(block.memory_norm(x), memory[1])
    dense = block.feed_forward
    assert dense.inner_norm is not None
    x = x + dense.out(dense.inner_norm(silu(dense.wide(dense.norm(x)))))
    assert_close(output, x)


def test_heads_are_doubled_up_to_sixteen() -> None:
    heads = {n: EvolvedConfig(d_model=960, heads=n).first_heads for n in (1, 4, 8, 12, 16, 32)}
    assert heads == {1: 2, 4: 8, 8: 16, 12: 16, 16: 16, 32: 32}


def test_dropout_is_on_attention_weights_branches_and_between_dense_layers() -> None:
    """With everything else at rest, each of them alone makes two passes differ in training, and none when evaluated."""
    block = randomise(EvolvedDecoderBlock(CONFIG.model_copy(update={"dropout": 0.5, "encoder_blocks": 0})))
    x = randn(1, 6, 32)
    for part in (block.first, block.second, block.branches, block.feed_forward):
        assert part.dropout
        block.eval()
        assert_close(block(x, (), None).x, block(x, (), None).x)
        part.train()
        assert not torch.allclose(block(x, (), None).x, block(x, (), None).x)


def test_a_checkpoint_of_another_layout_is_refused(tmp_path: Path) -> None:
    model = EvolvedTransformer.untrained(CONFIG, WordTokenizer(["a", "b"]))
    model.save(tmp_path)
    assert_close(EvolvedTransformer.load(tmp_path).embedding.weight, model.embedding.weight)
    about = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({"config": about["config"]}))  # as earlier versions wrote it
    with pytest.raises(DataError, match=r"EvolvedTransformer in .* its weights do not fit.\nTrain the model again"):
        EvolvedTransformer.load(tmp_path)


def test_without_an_encoder_both_encoder_attentions_are_left_out() -> None:
    with_encoder, without = (
        EvolvedDecoderBlock(CONFIG.model_copy(update={"encoder_blocks": blocks})) for blocks in (1, 0)
    )
    missing = {name for name, _ in with_encoder.named_parameters()} - {name for name, _ in without.named_parameters()}
    assert {name.split(".")[0] for name in missing} == {"first_memory", "memory_norm", "second_memory"}


def test_the_doubled_heads_must_divide_the_width() -> None:
    with pytest.raises(ConfigError, match="multiple of 8"):
        validate(EvolvedConfig, {"d_model": 20, "heads": 4}, where="a test")
