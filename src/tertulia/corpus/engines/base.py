"""What an engine is, and the simplest one."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

# One thread for each worker: the engine itself is what runs side by side. One allocator for all, which is told to keep
# large pieces of memory for the next batch instead of asking the system for the same pages again and again, and to keep
# them in one place: only one thread of a worker works.
_KEPT_BYTES = str(64 << 20)
ENVIRONMENT = {
    "POLARS_MAX_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": _KEPT_BYTES,
    "MALLOC_TRIM_THRESHOLD_": _KEPT_BYTES,
}
"""Variables that workers are started with."""

T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Runs a function on every task. The function is found by its name where it runs; tasks and results are pickled."""

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """The results as they come, in any order; a task whose worker is lost is done again."""
        ...

    def renew(self) -> None:
        """Let the workers go that wait for tasks; the next tasks meet new ones, which hold no memory yet."""
        ...

    def close(self) -> None:
        """Let the workers go."""
        ...


class Here:
    """One task after the other in this process: for small inputs, where starting a worker would take longer."""

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """The results in order."""
        return map(function, tasks)

    def renew(self) -> None:
        """There is nobody to replace."""

    def close(self) -> None:
        """Nothing to let go."""
