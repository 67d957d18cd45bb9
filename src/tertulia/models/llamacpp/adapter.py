"""Low-rank adapters of a fine-tuned run as the GGUF file that llama.cpp reads.

llama.cpp computes W x + (alpha / rank) B A x at every step, as peft does; W stays quantised. Its Llama models order the
rows of the query and key projections in another way than transformers (pairs of rotated dimensions are neighbours), so
those of B are ordered likewise.

The file is kept in the cache folder under the digests of base and adapter, so it is never used with another base.
"""

from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tertulia.artefacts.cache import cache_folder
from tertulia.artefacts.files import atomic_write, sha256_of
from tertulia.core.errors import BotError
from tertulia.models.checkpoint import WEIGHTS
from tertulia.models.hf.lora import TuningConfig
from tertulia.models.llamacpp.context import Weights

ARCHITECTURE = "llama"
"""The only one whose order of rows is known here; SmolLM2 is one."""
_PARTS = {"lora_A": "lora_a", "lora_B": "lora_b"}


class AdapterFile(NamedTuple):
    """An adapter as GGUF."""

    path: Path
    sha256: str
    """Of the run's weights, from which it was made."""


def write_adapter(run: Path, config: TuningConfig, base: Weights, *, base_sha256: str) -> AdapterFile:
    """The run's adapters as GGUF, written now unless they are in the cache."""
    digest = sha256_of(run / WEIGHTS)
    path = cache_folder() / f"adapter-{base_sha256[:12]}-{digest[:16]}-{config.alpha:g}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as unfinished:
            _write(unfinished, load_file(run / WEIGHTS), config, base)
    return AdapterFile(path, digest)


def _write(path: Path, weights: dict[str, NDArray[Any]], config: TuningConfig, base: Weights) -> None:
    architecture = base.metadata("general.architecture")
    if architecture != ARCHITECTURE:
        raise BotError(f"Adapters for {architecture!r} are not supported in llama.cpp.", hint="Use engine=torch.")
    heads = int(base.metadata("llama.attention.head_count"))
    key_heads = int(base.metadata("llama.attention.head_count_kv") or heads)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, int(base.metadata("llama.block_count")))
    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, config.alpha)
    for name, value in sorted(weights.items()):
        layer, part = _split(name)
        target = names.get_name(layer)
        if target is None or part not in _PARTS:
            raise BotError(f"The weights {name} are not an adapter that llama.cpp knows.", hint="Use engine=torch.")
        value = value.astype(np.float32)
        if part == "lora_B" and layer.endswith(("q_proj", "k_proj")):
            value = neighbour_rotations(value, heads if layer.endswith("q_proj") else key_heads)
        writer.add_tensor(f"{target}.weight.{_PARTS[part]}", np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def neighbour_rotations(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """From transformers' order of the rows of each head (first halves, then second halves) to pairs side by side.

    >>> neighbour_rotations(np.arange(8, dtype=np.float32)[:, None], 2)[:, 0].tolist()
    [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]
    """
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def _split(name: str) -> tuple[str, str]:
    """The layer and which of the two matrices.

    >>> _split("model.layers.0.mlp.up_proj.lora_A.default.weight")
    ('model.layers.0.mlp.up_proj', 'lora_A')
    """
    layer, _, rest = name.partition(".lora_")
    return layer, f"lora_{rest.partition('.')[0]}"
