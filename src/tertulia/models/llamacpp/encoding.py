"""Weights in the encoding that llama.cpp computes fastest with.

The file of SmolLM2 has Q4_1: for every 32 weights a scale, an offset and 4 bits each. llama.cpp's kernels for several
tokens at once (prompts, conversations side by side) know Q8_0, a scale and 8 bits each, and not Q4_1, which they
multiply token by token. A weight of 4 bits written with 8 moves by at most a 254th of the largest one of its block,
several times less than the rounding that Q4_1 itself is, and less than that of activations, which both round to 8 bits.

The file is made once and kept in the cache folder under the digest of the original.
"""

from pathlib import Path

import gguf
from gguf import quants

from tertulia.artefacts.cache import cache_folder
from tertulia.artefacts.files import atomic_write

SLOW = gguf.GGMLQuantizationType.Q4_1
FAST = gguf.GGMLQuantizationType.Q8_0
ENCODING = FAST.name.lower()
_WRITTEN_ANEW = ("general.architecture", "general.file_type")
"""Metadata that the writer adds itself, and what no longer holds."""


def fast_file(original: Path, *, sha256: str) -> Path:
    """The same model with all Q4_1 weights as Q8_0, written now unless it is in the cache."""
    path = cache_folder() / f"{ENCODING}-{sha256[:16]}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as unfinished:
            encode_again(original, unfinished)
    return path


def encode_again(original: Path, path: Path, *, encoding: gguf.GGMLQuantizationType = FAST) -> None:
    """Write a GGUF file with its Q4_1 weights in another encoding; everything else is copied."""
    reader = gguf.GGUFReader(str(original))
    architecture = reader.get_field("general.architecture")
    writer = gguf.GGUFWriter(path, architecture.contents() if architecture else "")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in _WRITTEN_ANEW:
            kind, items = field.types[0], field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), kind, sub_type=items)
    for tensor in reader.tensors:
        if tensor.tensor_type == SLOW:
            content = quants.quantize(quants.dequantize(tensor.data, SLOW), encoding)
            writer.add_tensor(tensor.name, content, raw_dtype=encoding)
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
