"""Tasks on a Ray cluster: the same functions, on many machines. Needs the extra `ray`.

The machines need not share a disk if what is read and written lies in an object store.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import islice
from typing import Any, TypeVar

from tertulia.core.errors import MissingExtra, TertuliaError
from tertulia.corpus.engines.base import ENVIRONMENT

T = TypeVar("T")
R = TypeVar("R")
WINDOW = 512
"""Tasks that are submitted and not finished at a time, at least: a driver with millions of tasks holds only these."""
_PER_CORE = 4
"""The same for each core of a large cluster, so that no core waits for the driver."""


def _call(function: Callable[[T], R], task: T) -> R:
    """What Ray runs: the function comes out of its object store, once per machine, and is not sent with every task."""
    return function(task)


class RayEngine:
    """Ray core tasks of one core each; Ray itself reruns a task whose worker or node is lost."""

    def __init__(self, *, address: str | None = None, workers: int | None = None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry; Ray reads this on import
        try:
            self._ray: Any = import_module("ray")  # by name, so that types are checked the same with and without it
        except ImportError:
            raise MissingExtra("Ray", "pip install 'tertulia[ray]'") from None
        self._owns_ray = not self._ray.is_initialized()
        if self._owns_ray:
            local = {} if address else {"num_cpus": workers or os.cpu_count(), "include_dashboard": False}
            # "local", because without an address Ray would join any cluster it finds on this machine.
            try:
                self._ray.init(
                    address=address or "local", log_to_driver=False, runtime_env={"env_vars": ENVIRONMENT}, **local
                )
            except ConnectionError:
                raise TertuliaError(
                    f"No Ray cluster answers at {address or 'local'}.", hint="Check --address, and that Ray is running."
                ) from None

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """The results as they arrive."""
        remote = self._ray.remote(_call).options(num_cpus=1, max_retries=10)
        shared = self._ray.put(function)
        submitted = (remote.remote(shared, task) for task in tasks)
        window = max(WINDOW, _PER_CORE * int(self._ray.cluster_resources().get("CPU", 0)))
        waiting = list(islice(submitted, window))
        while waiting:
            done, waiting = self._ray.wait(waiting, num_returns=1)
            yield from self._results(done)
            waiting += islice(submitted, len(done))

    def _results(self, done: list[Any]) -> Iterator[Any]:
        try:
            yield from self._ray.get(done)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, TertuliaError | OSError) else error from None

    def restart_workers(self) -> None:
        """Ray manages its workers itself."""

    def close(self) -> None:
        """Disconnect from the cluster, if this engine connected to it."""
        if self._owns_ray:
            self._ray.shutdown()
