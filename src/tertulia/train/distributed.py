"""Data-parallel training in several processes, on one machine or many, as torchrun starts them.

Each process takes its share of the batches; gradients are summed over all processes before every update, so that the
update equals the one that a single process would make on all the batches. The main process alone validates and writes.
"""

import contextlib
import os
from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from tertulia.core.errors import UsageError

LEAVE_SECONDS = 10.0
"""How long a process waits for the others before it leaves the group."""


class Distributed:
    """The processes of a training run: one, unless torchrun started more. A context manager, which leaves the group."""

    def __init__(self, device: torch.device) -> None:
        """Join the other processes; with CUDA, each process has a device of its own.

        The backend follows the device of the tensors: NCCL for CUDA tensors, Gloo for CPU tensors, also on a machine
        that has CUDA. Objects are broadcast by Gloo in either case.
        """
        self.size, self.rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
        self.device = device
        self._owns_group = self.size > 1 and not dist.is_initialized()
        if self.size > 1 and device.type == "cuda":
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(self.device)
        if self._owns_group:
            if not dist.is_available():
                raise UsageError(
                    "This build of torch cannot train in several processes.", hint="Start the run without torchrun."
                )
            self._store, rank, size = next(rendezvous("env://"))
            dist.init_process_group(backend_for(device), store=self._store, rank=rank, world_size=size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owns_group and dist.is_initialized():
            self._wait_for_the_others(LEAVE_SECONDS)
            dist.destroy_process_group()

    @property
    def is_main(self) -> bool:
        """Whether this is the process that validates and writes."""
        return self.rank == 0

    def _wait_for_the_others(self, seconds: float) -> None:
        """Leave together: Gloo aborts a process whose peer closes its connection in the middle of a message.

        The wait goes through the store, not through the group, since some processes may have failed alone and never
        come; then this one leaves after `seconds`.
        """
        with contextlib.suppress(dist.DistError):  # the store is gone, or somebody does not come
            self._store.set(f"tertulia/leaves/{self.rank}", "1")
            self._store.wait([f"tertulia/leaves/{i}" for i in range(self.size)], timedelta(seconds=seconds))

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter], count: float) -> float:
        """Sum all gradients over the processes, in place; returns the sum of `count`."""
        if self.size == 1:
            return count
        trained = [p for p in parameters if p.requires_grad]
        for p in trained:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        gradients = [p.grad.flatten() for p in trained if p.grad is not None]
        # One message for everything; the count travels in its last element.
        flat = torch.cat([*gradients, torch.tensor([float(count)], device=self.device)])
        dist.all_reduce(flat)
        start = 0
        for p in trained:
            assert p.grad is not None
            p.grad.copy_(flat[start : start + p.numel()].view_as(p))
            start += p.numel()
        return float(flat[-1])

    def broadcast(self, value: Any) -> Any:
        """The main process's value, in every process."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, device=torch.device("cpu"))
        return values[0]

    def barrier(self) -> None:
        """Wait for all processes."""
        self.broadcast(None)


def backend_for(device: torch.device) -> str:
    """The backend for tensors on a device, and for objects.

    >>> backend_for(torch.device("cpu")), backend_for(torch.device("cuda"))
    ('gloo', 'cpu:gloo,cuda:nccl')
    """
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
