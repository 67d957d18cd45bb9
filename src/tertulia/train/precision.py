"""What a training computes in: bfloat16 where the machine gains by it, float32 elsewhere.

Half as many bits are half as much to move, and some processors multiply them several times as fast; others have to
imitate them and are several times slower. So `auto` asks the machine itself: a product of the size of the model's
largest matrix, in both. The answer belongs to a run: it stands in its state, record and manifest, and a run that goes
on keeps it, also on another machine. Weights, gradients, losses and validation stay in float32 in any case, and so does
all of a model with recurrent networks: not every processor's library has those in bfloat16.
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
GAIN = 1.2
"""How many times as fast a product must be: what autocast does around it is not for nothing."""
WORK = 1e8
"""Multiplications of a product that is measured, about: some milliseconds."""
SECONDS = 0.1
"""Time for measuring each kind."""


class Times(NamedTuple):
    """Milliseconds of the same product."""

    float32: float
    bfloat16: float


@dataclass(frozen=True, slots=True)
class Computing:
    """What a run computes in, and why."""

    kind: Literal["float32", "bfloat16"] = "float32"
    float32_ms: float | None = None
    """What was measured, where something was."""
    bfloat16_ms: float | None = None

    def context(self, device: str) -> AbstractContextManager[object]:
        """In which losses are computed."""
        return torch.autocast(device, dtype=torch.bfloat16, enabled=self.kind == "bfloat16")

    def as_json(self) -> dict[str, str | float]:
        """For the record, the manifest and the state; what was not measured is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def as_text(self) -> str:
        """One line of JSON, for the state."""
        return json.dumps(self.as_json())


def choose(module: nn.Module, wanted: Precision) -> Computing:
    """What is wanted, or what the machine is faster in; nothing is drawn from torch's generator."""
    recurrent = any(isinstance(one, nn.RNNBase | nn.RNNCellBase) for one in module.modules())
    if recurrent and wanted == "bfloat16":
        raise UsageError(
            f"A model with recurrent networks ({type(module).__name__}) is not trained in bfloat16.",
            hint='Leave precision away, or set it to "float32".',
        )
    if wanted != "auto":
        return Computing(wanted)
    found = None if recurrent else measure(module)
    if found is None:
        return Computing()
    kind: Literal["float32", "bfloat16"] = "bfloat16" if found.float32 >= GAIN * found.bfloat16 else "float32"
    return Computing(kind, round(found.float32, 3), round(found.bfloat16, 3))


def measure(module: nn.Module) -> Times | None:
    """Times of a product with a matrix of the module's largest size; None where it has no matrix."""
    weights = [p for p in module.parameters() if p.requires_grad and p.dim() == 2]
    if not weights:
        return None
    weight = max(weights, key=lambda p: p.numel())
    rows, columns = (min(size, 4096) for size in weight.shape)
    matrix = torch.full((rows, columns), 0.01, device=weight.device)
    x = torch.full((int(min(512, max(16, WORK / matrix.numel()))), columns), 0.5, device=weight.device)
    return Times(_milliseconds(matrix, x, torch.float32), _milliseconds(matrix, x, torch.bfloat16))


@torch.no_grad()
def _milliseconds(matrix: torch.Tensor, x: torch.Tensor, kind: torch.dtype) -> float:
    """The fastest of several, conversion included, since autocast converts too."""
    best, end = float("inf"), time.perf_counter() + SECONDS
    while True:
        _wait(matrix.device)
        began = time.perf_counter()
        functional.linear(x.to(kind), matrix.to(kind))
        _wait(matrix.device)
        now = time.perf_counter()
        best = min(best, now - began)
        if now >= end:
            return best * 1000


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
