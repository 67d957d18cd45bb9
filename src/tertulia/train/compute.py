"""How a run computes: in float32 or bfloat16, and whether the model's blocks are compiled.

bfloat16 halves the memory traffic, and some processors multiply it several times as fast; others emulate it and are
several times slower. So `auto` measures: one matrix product of the size of the model's largest weight, in both formats.
The choice belongs to the run: it is part of its state, record and manifest, and a resumed run keeps it, also on another
machine. Weights, gradients, losses and validation always stay in float32, and so do models with recurrent networks: not
every CPU library implements those in bfloat16.

Compilation (torch.compile) is applied to the blocks, once for all shapes and in place: names of weights and checkpoints
stay the same. Collating dialogues is Python and is not compiled.
"""

import json
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from tertulia.core.errors import UsageError

Precision = Literal["auto", "float32", "bfloat16"]
MIN_SPEEDUP = 1.2
"""How many times as fast the product must be in bfloat16: autocast has a cost of its own."""
WORK = 1e8
"""Multiplications in the measured product, about: some milliseconds."""
SECONDS = 0.1
"""Time for measuring each format."""


class Timings(NamedTuple):
    """Milliseconds of the same product."""

    float32: float
    bfloat16: float


@dataclass(frozen=True, slots=True)
class Computing:
    """The format that a run computes in, and the timings that decided it."""

    kind: Literal["float32", "bfloat16"] = "float32"
    float32_ms: float | None = None
    """Milliseconds measured, if any were."""
    bfloat16_ms: float | None = None

    def context(self, device: str) -> AbstractContextManager[object]:
        """The autocast context in which losses are computed."""
        return torch.autocast(device, dtype=torch.bfloat16, enabled=self.kind == "bfloat16")

    def as_json(self) -> dict[str, str | float]:
        """For the record, the manifest and the state; timings only if they were measured."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def as_text(self) -> str:
        """One line of JSON, for the state."""
        return json.dumps(self.as_json())


def choose_precision(module: nn.Module, precision: Precision) -> Computing:
    """The requested format, or the faster one; nothing is drawn from torch's random generator."""
    recurrent = any(isinstance(part, nn.RNNBase | nn.RNNCellBase) for part in module.modules())
    if recurrent and precision == "bfloat16":
        raise UsageError(
            f"{type(module).__name__} has recurrent networks, which cannot be trained in bfloat16.",
            hint='Omit precision, or set it to "float32".',
        )
    if precision != "auto":
        return Computing(precision)
    timings = None if recurrent else measure(module)
    if timings is None:
        return Computing()
    faster = timings.float32 >= MIN_SPEEDUP * timings.bfloat16
    return Computing("bfloat16" if faster else "float32", round(timings.float32, 3), round(timings.bfloat16, 3))


def measure(module: nn.Module) -> Timings | None:
    """Time a product with a matrix of the size of the module's largest weight; None if it has no matrix."""
    weights = [p for p in module.parameters() if p.dim() == 2]  # frozen ones, too: beside adapters they are most of it
    if not weights:
        return None
    weight = max(weights, key=lambda p: p.numel())
    rows, columns = (min(size, 4096) for size in weight.shape)
    matrix = torch.full((rows, columns), 0.01, device=weight.device)
    x = torch.full((int(min(512, max(16, WORK / matrix.numel()))), columns), 0.5, device=weight.device)
    return Timings(_milliseconds(matrix, x, torch.float32), _milliseconds(matrix, x, torch.bfloat16))


@torch.no_grad()
def _milliseconds(matrix: torch.Tensor, x: torch.Tensor, dtype: torch.dtype) -> float:
    """The fastest of several products, conversion included, since autocast converts too."""
    best, end = float("inf"), time.perf_counter() + SECONDS
    while True:
        _synchronize(matrix.device)
        start = time.perf_counter()
        functional.linear(x.to(dtype), matrix.to(dtype))
        _synchronize(matrix.device)
        now = time.perf_counter()
        best = min(best, now - start)
        if now >= end:
            return best * 1000


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def compile_blocks(module: nn.Module) -> int:
    """Compile the blocks of a model, or the model itself if its `forward` is all of it; returns how many there are."""
    blocks = [block for part in module.modules() if isinstance(part, nn.ModuleList) for block in part]
    if not blocks and type(module).forward is not nn.Module.forward:
        blocks = [module]
    if not blocks:
        raise UsageError(
            f"{type(module).__name__} has no blocks that could be compiled.", hint="Omit compile in the recipe."
        )
    _check_compiler()
    for block in blocks:
        block.compile(dynamic=True)
    return len(blocks)


def _check_compiler() -> None:
    """Compile next to nothing, so that a missing compiler is noticed before training starts."""
    try:
        with torch.no_grad():
            torch.compile(_double)(torch.ones(2))
    except Exception as error:  # every part of the compiler has exceptions of its own
        reason = str(error).strip().split("\n", 1)[0]
        raise UsageError(
            f"torch.compile does not work on this machine ({type(error).__name__}: {reason}).",
            hint="It needs a C++ compiler that torch can find. Or omit compile: the results are the same without.",
        ) from None


def _double(x: torch.Tensor) -> torch.Tensor:
    return x + x
