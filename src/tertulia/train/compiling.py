"""Compiling the blocks of a model (torch.compile), for machines on which that is faster.

Laying out talks and tokens is Python and stays as it is; what is compiled are the blocks, each once for all shapes, in
place: names of weights, checkpoints and everything else about the model stay the same.
"""

import torch
from torch import nn

from tertulia.core.errors import UsageError


def compile_blocks(module: nn.Module) -> int:
    """Compile the blocks of a model, or the model itself where its `forward` is all of it; how many there are."""
    blocks = [block for one in module.modules() if isinstance(one, nn.ModuleList) for block in one]
    if not blocks and type(module).forward is not nn.Module.forward:
        blocks = [module]
    if not blocks:
        raise UsageError(
            f"There is nothing to compile in a model like this one ({type(module).__name__}): it has no blocks.",
            hint="Leave compile away.",
        )
    _try()
    for block in blocks:
        block.compile(dynamic=True)
    return len(blocks)


def _try() -> None:
    """Compile next to nothing, so that what is missing is known before the training has begun."""
    try:
        with torch.no_grad():
            torch.compile(_double)(torch.ones(2))
    except Exception as error:  # every part of the compiler has errors of its own
        first = str(error).strip().split("\n", 1)[0]
        raise UsageError(
            f"torch.compile does not work here ({type(error).__name__}: {first}).",
            hint="It needs a C++ compiler that torch can find; or leave compile away: training is the same without.",
        ) from None


def _double(x: torch.Tensor) -> torch.Tensor:
    return x + x
