"""The engine protocol, and its simplest implementation."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

# One thread per worker: the engine itself provides the parallelism. One allocator for all libraries, configured to keep
# large blocks of memory for the next batch instead of requesting the same pages from the system again and again, and to
# keep them in one arena, since a worker has one busy thread.
_KEPT_BYTES = str(64 << 20)
ENVIRONMENT = {
    "POLARS_MAX_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # Arrow starts one with its other allocator, used or not
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": _KEPT_BYTES,
    "MALLOC_TRIM_THRESHOLD_": _KEPT_BYTES,
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # large pages, where the system gives them to those who ask
}
"""Environment variables of the workers."""

T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Runs a function on every task.

    The function is imported by name where it runs. What all tasks share belongs to the function, as arguments of a
    `functools.partial`: the function is sent to each worker once, a task is sent to one worker. Tasks are drawn from
    their iterator when they can be assigned, so that there may be millions of them.
    """

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """The results as they arrive, in any order; a task whose worker is lost is run again."""
        ...

    def restart_workers(self) -> None:
        """Replace idle workers by new ones, which hold no memory yet."""
        ...

    def close(self) -> None:
        """Stop the workers."""
        ...


class InProcess:
    """One task after the other in this process: for small inputs, where starting a worker would take longer."""

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """The results in order."""
        return map(function, tasks)

    def restart_workers(self) -> None:
        """There are no workers."""

    def close(self) -> None:
        """There is nothing to stop."""
