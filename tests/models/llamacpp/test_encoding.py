"""A file of 4 bits a weight becomes one of 8, and nothing else of it changes."""

from pathlib import Path

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

from gguf import quants  # noqa: E402

from tertulia.models.llamacpp.encoding import FAST, SLOW, encode_again  # noqa: E402

TEXTS = ["<|end|>", "Ġthe", "ñandú"]


def write(path: Path, weights: np.ndarray) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 1e5)
    writer.add_token_list(TEXTS)
    writer.add_token_types([3, 1, 1])
    writer.add_tensor("blk.0.attn_q.weight", quants.quantize(weights, SLOW), raw_dtype=SLOW)
    writer.add_tensor("blk.0.attn_norm.weight", weights[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_weights_move_by_less_than_their_own_rounding(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(0.1, 1, (8, 64)).astype(np.float32)
    write(tmp_path / "slow.gguf", weights)
    encode_again(tmp_path / "slow.gguf", tmp_path / "fast.gguf")
    slow, fast = (gguf.GGUFReader(str(tmp_path / name)) for name in ("slow.gguf", "fast.gguf"))
    assert [tensor.tensor_type for tensor in fast.tensors] == [FAST, gguf.GGMLQuantizationType.F32]
    before, after = (quants.dequantize(one.tensors[0].data, one.tensors[0].tensor_type) for one in (slow, fast))
    largest = np.abs(before).reshape(8, 2, 32).max(-1).repeat(32, -1).reshape(8, 64)
    assert np.all(np.abs(after - before) <= largest / 254 * 1.13)  # the scale itself has 16 bits
    assert np.abs(after - before).mean() < np.abs(before - weights).mean() / 5
    assert np.array_equal(fast.tensors[1].data, weights[0])


def test_metadata_stays(tmp_path: Path) -> None:
    write(tmp_path / "slow.gguf", np.ones((8, 64), dtype=np.float32))
    encode_again(tmp_path / "slow.gguf", tmp_path / "fast.gguf")
    slow, fast = (
        {name: field.contents() for name, field in gguf.GGUFReader(str(tmp_path / one)).fields.items()}
        for one in ("slow.gguf", "fast.gguf")
    )
    assert fast == slow
    assert fast["tokenizer.ggml.tokens"] == TEXTS
