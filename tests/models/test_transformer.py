"""The Transformer's layers beside torch's own, and what makes the stream cheap."""

import torch
from torch import nn

from tertulia.models.attention import Attention
from tertulia.models.generator import Talk
from tertulia.models.tokenizer import WordTokenizer
from tertulia.models.transformer import (
    Transformer,
    TransformerConfig,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)

CONFIG = TransformerConfig(d_model=16, heads=4, encoder_layers=1, decoder_layers=1, dropout=0.0)
TALK = Talk(("a b", "c", "d d d"), (False, True, False))


@torch.no_grad()
def copy(layer: TransformerEncoderLayer | TransformerDecoderLayer, reference: nn.Module) -> None:
    """Give torch's layer our weights, drawn anew so that norms and biases are more than ones and zeros."""
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
            theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.pair.weight]))
            theirs.out_proj.weight.copy_(ours.out.weight)
            theirs.in_proj_bias.zero_()
            theirs.out_proj.bias.zero_()
        else:
            theirs.load_state_dict(ours.state_dict())
    reference.get_submodule("linear1").load_state_dict(layer.feed_forward.wide.state_dict())
    reference.get_submodule("linear2").load_state_dict(layer.feed_forward.out.state_dict())


def test_the_encoder_layer_is_the_one_known() -> None:
    torch.manual_seed(0)
    layer = TransformerEncoderLayer(CONFIG)
    reference = nn.TransformerEncoderLayer(16, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True)
    copy(layer, reference)
    x, absent = torch.randn(2, 5, 16), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    bias = torch.zeros(2, 1, 1, 5).masked_fill(absent[:, None, None], -torch.inf)
    found, expected = layer(x, bias), reference(x, src_key_padding_mask=absent)
    assert torch.allclose(found[~absent], expected[~absent], atol=1e-5)


def test_the_decoder_layer_is_the_one_known() -> None:
    torch.manual_seed(0)
    layer = TransformerDecoderLayer(CONFIG)
    reference = nn.TransformerDecoderLayer(16, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True)
    copy(layer, reference)
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    found = layer(x, layer.remember(memory), None).x
    expected = reference(x, memory, tgt_mask=nn.Transformer.generate_square_subsequent_mask(5), tgt_is_causal=True)
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_stream_goes_through_once_and_pairs_one_by_one() -> None:
    rows = {}
    for layers in (0, 1):
        model = Transformer(CONFIG.model_copy(update={"encoder_layers": layers}), WordTokenizer(list("abcd")))
        seen: list[int] = []
        model.decoder[0].register_forward_hook(lambda _m, inputs, _out, seen=seen: seen.append(len(inputs[0])))
        logits: list[int] = []
        model.decoder_norm.register_forward_hook(lambda _m, _in, out, logits=logits: logits.append(len(out)))
        assert model.nll([TALK, TALK]).tokens.tolist() == [9, 9]
        assert sum(logits) == 18
        rows[layers] = seen
    assert rows == {0: [2], 1: [6]}


def test_without_an_encoder_there_is_none() -> None:
    model = Transformer(CONFIG.model_copy(update={"encoder_layers": 0}), WordTokenizer(list("abcd")))
    assert not [name for name, _ in model.named_parameters() if "memory" in name or "encoder" in name]


def test_dropout_is_for_training_only() -> None:
    torch.manual_seed(0)
    model = Transformer(CONFIG.model_copy(update={"dropout": 0.5}), WordTokenizer(list("abcd")))
    assert not torch.equal(model.nll([TALK]).total, model.nll([TALK]).total)
    model.eval()
    assert torch.equal(model.nll([TALK]).total, model.nll([TALK]).total)
