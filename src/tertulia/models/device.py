"""Which device a model computes on, and in which number format it talks there.

Training keeps its weights in float32 and lets `precision` decide what is computed in bfloat16 (`train/compute.py`).
"""

from typing import Literal

import torch

from tertulia.core.errors import UsageError

Device = Literal["auto", "cpu", "cuda", "mps"]
"""`auto` takes a GPU where there is one."""


def resolve_device(name: str) -> torch.device:
    """The device of that name; `auto` is the first available of cuda, mps and cpu."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(device for device, usable in available.items() if usable))
    kind = name.partition(":")[0]  # "cuda:1" is the second GPU
    if kind not in available:
        raise UsageError(f"Unknown device {name!r}.", hint="Choose auto, cpu, cuda or mps.")
    if not available[kind]:
        usable = [device for device, there in available.items() if there]
        raise UsageError(
            f"The device {name!r} is not available on this machine.",
            hint=f"Available: {', '.join(usable)}. `auto` takes the fastest of them.",
        )
    return torch.device(name)


def dtype_for(device: torch.device | str) -> torch.dtype:
    """The format of the weights of a language model that is not trained, by what the device is good at.

    GPUs multiply 16-bit numbers several times as fast, and a model needs half the memory: bfloat16 where CUDA has it,
    else float16. On most CPUs half precision is far slower than float32.

    >>> dtype_for("cpu"), dtype_for("mps")
    (torch.float32, torch.float16)
    """
    kind = torch.device(device).type
    if kind == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return torch.float16 if kind == "mps" else torch.float32
