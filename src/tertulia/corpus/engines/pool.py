"""The default engine: a pool of processes on this machine.

Workers are started as plain programs, or copied from one that has imported what they need, so a script that calls the
library needs no `if __name__ == "__main__"`. Each holds the reading end of a pipe that closes with the driver. A worker
that dies is replaced and its task is run again, up to three times: that distinguishes a task that kills its workers
from a worker that was killed.
"""

import pickle
import selectors
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tertulia.core.errors import DataError
from tertulia.corpus.engines.forkserver import IS_SAFE, ForkServer
from tertulia.corpus.engines.processes import WorkerProcess, start_worker
from tertulia.corpus.engines.worker import FUNCTION, TASK

T = TypeVar("T")
R = TypeVar("R")
ATTEMPTS = 3


@dataclass(slots=True)
class _Job:
    task: Any
    attempts: int = 0


class Pool:
    """A fixed number of worker processes, started when first needed.

    Modules that every worker needs, and that start no threads, can be named to be imported only once for all of them.
    """

    def __init__(self, workers: int, *, preload: Sequence[str] = ()) -> None:
        self._size = workers
        self._preload = preload if IS_SAFE and workers > 1 else ()
        self._server: ForkServer | None = None
        self._idle: list[WorkerProcess] = []
        self._all: list[WorkerProcess] = []
        self._calls = 0
        self._call_of: dict[int, int] = {}
        """The call of `map` whose function a worker has, by process id."""

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers; one that has died is among them until it is missed."""
        return [worker.pid for worker in self._all]

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """The results as they arrive."""
        self._calls += 1
        waiting, again = (_Job(task) for task in tasks), deque[_Job]()
        with selectors.DefaultSelector() as selector:
            while True:
                while len(selector.get_map()) < self._size:
                    job = again.popleft() if again else next(waiting, None)
                    if job is None:
                        break
                    self._assign(function, job, selector)
                if not selector.get_map():
                    return
                for key, _ in selector.select():
                    worker, job = key.data
                    selector.unregister(key.fileobj)
                    try:
                        kind, value = pickle.load(worker.results)
                    except (EOFError, OSError, pickle.UnpicklingError):
                        again.append(self._retry(worker, job))
                        continue
                    self._idle.append(worker)
                    yield _result(kind, value)

    def restart_workers(self) -> None:
        """Stop the workers; all are idle between two calls of `map`, which starts new ones."""
        self.close()

    def close(self) -> None:
        """Stop the workers."""
        for worker in self._all:
            worker.stop()
        if self._server:
            self._server.close()
        self._all, self._idle, self._call_of, self._server = [], [], {}, None

    def _assign(self, function: Callable[[T], R], job: _Job, selector: selectors.BaseSelector) -> None:
        worker = self._idle.pop() if self._idle else self._start()
        try:
            if self._call_of.get(worker.pid) != self._calls:
                pickle.dump((FUNCTION, function), worker.tasks)
                self._call_of[worker.pid] = self._calls
            pickle.dump((TASK, job.task), worker.tasks)
            worker.tasks.flush()
        except OSError:
            pass  # it died while idle: its output has ended, which the selector reports
        selector.register(worker.results, selectors.EVENT_READ, (worker, job))

    def _start(self) -> WorkerProcess:
        if self._preload and not self._server:
            self._server = ForkServer(self._preload)
        worker = (self._server.start() if self._server else None) or start_worker()
        self._all.append(worker)
        return worker

    def _retry(self, worker: WorkerProcess, job: _Job) -> _Job:
        self._all.remove(worker)
        self._call_of.pop(worker.pid, None)
        code = worker.stop()
        if job.attempts + 1 == ATTEMPTS:
            raise DataError(
                f"A worker died {ATTEMPTS} times on the same task (exit code {code}).",
                hint="It may have run out of memory: use fewer --workers, or more --buckets.",
            )
        return _Job(job.task, job.attempts + 1)


def _result(kind: str, value: Any) -> Any:
    if kind == "rejected":
        message, hint = value
        raise DataError(message, hint=hint)
    if kind == "system":
        raise OSError(*value)
    if kind == "failed":
        raise RuntimeError(f"A worker failed:\n{value}")
    return value
