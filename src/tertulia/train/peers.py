"""Several processes that train one model together, on one machine or many, as torchrun starts them.

Each takes its share of the batches; gradients are summed over all of them before every update, so that the update is
the one that a single process would have made on all the batches. The first process alone validates and writes.
"""

import os
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from tertulia.core.errors import UsageError


class Peers:
    """The processes of this training; one where torchrun did not start it."""

    def __init__(self) -> None:
        self.size, self.rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
        if self.size > 1 and not dist.is_initialized():
            if not dist.is_available():
                raise UsageError("This build of torch cannot train with several processes.", hint="Start it without.")
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

    @property
    def first(self) -> bool:
        """Whether this is the one that validates and writes."""
        return self.rank == 0

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter], count: float) -> float:
        """Sum all gradients over the processes, in place; the sum of their counts."""
        if self.size == 1:
            return count
        wanted = [p for p in parameters if p.requires_grad]
        for p in wanted:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        flat = torch.cat([p.grad.flatten() for p in wanted if p.grad is not None] + [torch.tensor([float(count)])])
        dist.all_reduce(flat)
        start = 0
        for p in wanted:
            assert p.grad is not None
            p.grad.copy_(flat[start : start + p.numel()].view_as(p))
            start += p.numel()
        return float(flat[-1])

    def share(self, value: Any) -> Any:
        """What the first process says, told to all."""
        if self.size == 1:
            return value
        told = [value]
        dist.broadcast_object_list(told, src=0)
        return told[0]

    def close(self) -> None:
        """Part."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()
