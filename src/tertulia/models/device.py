"""Which device a model computes on."""

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
