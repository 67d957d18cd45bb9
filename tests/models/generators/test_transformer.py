"""The Transformer's layers against torch's own, and the cost of streams and pairs."""

import torch
from torch import nn

from tertulia.models.generator import DialogueView
from tertulia.models.generators.attention import Attention
from tertulia.models.generators.transformer import (
    Transformer,
    TransformerConfig,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)
from tertulia.models.tokenizer import WordTokenizer

from ..conftest import assert_close

CONFIG = TransformerConfig(d_model=16, heads=4, encoder_layers=1, decoder_layers=1, dropout=0.0)
VIEW = DialogueView(("a b", "c", "d d d"), (False, True, False))


@torch.no_grad()
def copy_weights(layer: TransformerEncoderLayer | TransformerDecoderLayer, reference: nn.Module) -> None:
    """Give torch's layer our weights, which are random, so that norms and biases are not just ones and zeros."""
    for weight in layer.parameters():
        weight.normal_(std=0.3)
    attentions = {"self_attn": layer.attention, "norm1": layer.norm}
    last = "norm2"
    if isinstance(layer, TransformerDecoderLayer):
        attentions |= {"multihead_attn": layer.memory, "norm2": layer.memory_norm}
        last = "norm3"
    for name, ours in {**attentions, last: layer.feed_forward.norm}.items():
        theirs = reference.get_submodule(name)
        if isinstance(ours, Attention):
            theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
            theirs.out_proj.weight.copy_(ours.out.weight)
            theirs.in_proj_bias.zero_()
            theirs.out_proj.bias.zero_()
        else:
            theirs.load_state_dict(ours.state_dict())
    reference.get_submodule("linear1").load_state_dict(layer.feed_forward.wide.state_dict())
    reference.get_submodule("linear2").load_state_dict(layer.feed_forward.out.state_dict())


def test_the_encoder_layer_is_that_of_torch() -> None:
    torch.manual_seed(0)
    layer = TransformerEncoderLayer(CONFIG).double()
    reference = nn.TransformerEncoderLayer(
        16, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True, dtype=torch.float64
    )
    copy_weights(layer, reference)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    bias = torch.zeros(2, 1, 1, 5, dtype=torch.float64).masked_fill(padding[:, None, None], -torch.inf)
    output, expected = layer(x, bias), reference(x, src_key_padding_mask=padding)
    assert_close(output[~padding], expected[~padding])


def test_the_decoder_layer_is_that_of_torch() -> None:
    torch.manual_seed(0)
    layer = TransformerDecoderLayer(CONFIG).double()
    reference = nn.TransformerDecoderLayer(
        16, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True, dtype=torch.float64
    )
    copy_weights(layer, reference)
    x, memory = torch.randn(2, 5, 16, dtype=torch.float64), torch.randn(2, 7, 16, dtype=torch.float64)
    output = layer(x, layer.project_memory(memory), None).x
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    assert_close(output, reference(x, memory, tgt_mask=mask, tgt_is_causal=True))


def test_streams_take_a_row_per_dialogue_and_pairs_a_row_per_turn() -> None:
    rows = {}
    for layers in (0, 1):
        model = Transformer.untrained(CONFIG.model_copy(update={"encoder_layers": layers}), WordTokenizer(list("abcd")))
        batches: list[int] = []
        model.decoder[0].register_forward_hook(lambda _m, inputs, _out, to=batches: to.append(len(inputs[0])))
        logits: list[int] = []
        model.decoder_norm.register_forward_hook(lambda _m, _in, out, to=logits: to.append(len(out)))
        assert model.nll([VIEW, VIEW]).tokens.tolist() == [9, 9]
        assert sum(logits) == 18
        rows[layers] = batches
    assert rows == {0: [2], 1: [6]}


def test_without_encoder_layers_there_are_no_encoder_weights() -> None:
    model = Transformer.untrained(CONFIG.model_copy(update={"encoder_layers": 0}), WordTokenizer(list("abcd")))
    assert not [name for name, _ in model.named_parameters() if "memory" in name or "encoder" in name]


def test_dropout_is_off_outside_training() -> None:
    torch.manual_seed(0)
    model = Transformer.untrained(CONFIG.model_copy(update={"dropout": 0.5}), WordTokenizer(list("abcd")))
    model.double()
    assert not torch.allclose(model.nll([VIEW]).total, model.nll([VIEW]).total, atol=1e-3)
    model.eval()
    assert_close(model.nll([VIEW]).total, model.nll([VIEW]).total)
