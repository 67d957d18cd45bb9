"""Tasks on a Ray cluster: the same functions, on many machines that share a disk. Needs the extra `ray`."""

import os
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, TypeVar

from tertulia.core.errors import MissingExtra, TertuliaError
from tertulia.corpus.engines.base import ENVIRONMENT

T = TypeVar("T")
R = TypeVar("R")


class RayEngine:
    """Ray core tasks of one core each; Ray itself does a task again whose worker or node is lost."""

    def __init__(self, *, address: str | None = None, workers: int | None = None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would send figures about its use; read on import
        try:
            self._ray: Any = import_module("ray")  # by name, so that types are checked alike with and without it
        except ImportError:
            raise MissingExtra("Ray", "pip install 'tertulia[ray]'") from None
        self._mine = not self._ray.is_initialized()
        if self._mine:
            local = {} if address else {"num_cpus": workers or os.cpu_count(), "include_dashboard": False}
            # "local", since without an address Ray would join whatever cluster it finds on this machine.
            self._ray.init(
                address=address or "local", log_to_driver=False, runtime_env={"env_vars": ENVIRONMENT}, **local
            )

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """The results as they come."""
        remote = self._ray.remote(function).options(num_cpus=1, max_retries=10)
        waiting = [remote.remote(task) for task in tasks]
        while waiting:
            done, waiting = self._ray.wait(waiting, num_returns=1)
            yield from self._results(done)

    def _results(self, done: list[Any]) -> Iterator[Any]:
        try:
            yield from self._ray.get(done)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, TertuliaError) else error from None

    def renew(self) -> None:
        """Ray looks after its workers itself."""

    def close(self) -> None:
        """Leave the cluster, if it was entered here."""
        if self._mine:
            self._ray.shutdown()
