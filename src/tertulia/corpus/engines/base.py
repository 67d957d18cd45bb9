"""What an engine is, and the simplest one."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Runs a function on every task. The function is found by its name where it runs; tasks and results are pickled."""

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """The results as they come, in any order; a task whose worker is lost is done again."""
        ...

    def close(self) -> None:
        """Let the workers go."""
        ...


class Here:
    """One task after the other in this process: for small inputs, where starting a worker would take longer."""

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """The results in order."""
        return map(function, tasks)

    def close(self) -> None:
        """Nothing to let go."""
