"""Two ways to make a unit of work durable: PostgreSQL's own, and group commit for SQLite.

SQLite has one writer at a time, and each commit waits for the disk. So those who wait are served together: whoever gets
the lock runs the work of all that wait in one transaction, each in a savepoint of its own, and all of them return only
after the one commit. There is no thread to start, stop or lose: the leader is one of the callers.
"""

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import Connection, Engine

from tertulia.store.database import transaction
T = TypeVar("T")


class Committer(Protocol):
    """Runs units of work, each wholly or not at all, and returns when they are safe on disk."""

    def run(self, work: Callable[[Connection], T], /) -> T:
        """What the work returned, after its commit."""
        ...


class OwnCommit:
    """One transaction for each unit of work: PostgreSQL takes many at once, and groups their commits itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, work: Callable[[Connection], T], /) -> T:
        """What the work returned, after its commit."""
        with transaction(self._engine,write=True) as connection:
            return work(connection)


class _Job(Generic[T]):
    """A unit of work that waits, and later what became of it."""

    __slots__ = ("error", "result", "settled", "work")

    def __init__(self, work: Callable[[Connection], T]) -> None:
        self.work = work
        self.settled = False
        self.result: T | None = None
        self.error: BaseException | None = None


class GroupCommit:
    """One transaction for all units of work that wait."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._leading = Lock()
        self._waiting: deque[_Job[Any]] = deque()

    def run(self, work: Callable[[Connection], T], /) -> T:
        """What the work returned, after the commit of its group."""
        job = _Job(work)
        self._waiting.append(job)
        with self._leading:
            if not job.settled:
                self._lead()
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[return-value]

    def _lead(self) -> None:
        jobs = []
        try:
            with transaction(self._engine,write=True) as connection:
                while self._waiting:
                    jobs.append(self._waiting.popleft())
                    self._attempt(jobs[-1], connection)
        finally:
            for job in jobs: job.settled = True

    def _attempt(self, job, connection):
        raw = connection.connection.driver_connection
        raw.execute("SAVEPOINT job")
        try:
            job.result = job.work(connection)
        except Exception as error:
            job.error = error
            raw.execute("ROLLBACK TO job")
        raw.execute("RELEASE job")
