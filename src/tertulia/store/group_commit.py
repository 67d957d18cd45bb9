"""Two ways to make a unit of work durable: one transaction each (PostgreSQL), and group commit (SQLite).

SQLite has one writer at a time, and each commit waits for the disk. So one thread writes for all callers: it runs all
waiting units of work in one transaction, each in a savepoint so that a failure does not affect the others, and wakes
the callers after the one commit. Nobody returns before their own work is on disk. (A lock around one transaction each
is slower, and unfair: the thread that has just released the lock takes it again before the waiting ones have woken up.)
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from itertools import chain
from queue import Empty, SimpleQueue
from threading import Condition, Thread
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine

from tertulia.core.errors import StoreError
from tertulia.store.engine import transaction

T = TypeVar("T")


class Committer(Protocol):
    """Runs units of work, each completely or not at all, and returns when they are durable."""

    def run(self, work: Callable[[Connection], T], /) -> T:
        """What the work returned, after its commit."""
        ...

    def close(self) -> None:
        """Release resources, when nothing is running any more."""
        ...


class SingleCommit:
    """One transaction per unit of work: PostgreSQL runs many at once, and groups their commits itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, work: Callable[[Connection], T], /) -> T:
        """What the work returned, after its commit."""
        with transaction(self._engine, write=True) as connection:
            return work(connection)

    def close(self) -> None:
        """Nothing to do: there is no thread."""


class _Job:
    """A waiting unit of work, and the future its caller waits for."""

    __slots__ = ("error", "future", "result", "work")

    def __init__(self, work: Callable[[Connection], Any]) -> None:
        self.work = work
        self.future: Future[Any] = Future()
        self.result: Any = None
        self.error: Exception | None = None

    def run(self, connection: Connection) -> None:
        """Do the work, or undo all of it. Raises only when the transaction itself is lost."""
        sqlite: Any = connection.connection.driver_connection
        sqlite.execute("SAVEPOINT job")
        try:
            self.result = self.work(connection)
        except Exception as error:
            if not sqlite.in_transaction:  # disk full or failing: SQLite has rolled back everything
                raise
            sqlite.execute("ROLLBACK TO job")
            self.error = error
        sqlite.execute("RELEASE job")

    def resolve(self, transaction_error: BaseException | None = None) -> None:
        """Wake the caller, with the outcome or with the error that ended the transaction."""
        error = self.error or transaction_error
        if error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(error)


class GroupCommit:
    """One transaction for all waiting units of work."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: SimpleQueue[_Job | None] = SimpleQueue()
        # A daemon: a program that forgets to close the database can still end, and nothing acknowledged is lost.
        self._writer = Thread(target=self._write, name="tertulia-store", daemon=True)
        self._writer.start()

    def run(self, work: Callable[[Connection], T], /) -> T:
        """What the work returned, after the commit of its group."""
        if not self._writer.is_alive():  # closed, or left behind by a fork
            raise closed_error()
        job = _Job(work)
        self._waiting.put(job)
        result: T = job.future.result()
        return result

    def close(self) -> None:
        """End the thread; by then no caller may be waiting."""
        self._waiting.put(None)
        self._writer.join()

    def _write(self) -> None:
        while (first := self._waiting.get()) is not None:
            group: list[_Job] = []
            try:
                with transaction(self._engine, write=True) as connection:
                    for job in chain([first], self._more_jobs()):
                        group.append(job)
                        job.run(connection)
            except BaseException as error:  # whatever it is, no caller may be left waiting
                self._resolve(group or [first], error)
                self._resolve(self._more_jobs(), error)  # or they would wait for the same lock just as long
            else:
                self._resolve(group)

    def _more_jobs(self) -> Iterator[_Job]:
        """The jobs that wait, and those that arrive while these are running."""
        with suppress(Empty):
            while (job := self._waiting.get_nowait()) is not None:
                yield job
            self._waiting.put(None)

    @staticmethod
    def _resolve(jobs: Iterable[_Job], error: BaseException | None = None) -> None:
        for job in jobs:
            job.resolve(error)


class Gate:
    """Admits calls until it is closed; closing waits for those inside, so that none is interrupted."""

    def __init__(self) -> None:
        self._inside = 0
        self._open = True
        self._change = Condition()

    def __enter__(self) -> None:
        with self._change:
            if not self._open:
                raise closed_error()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._change:
            self._inside -= 1
            self._change.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether it admits nobody any more."""
        return not self._open

    def close(self) -> None:
        """Admit nobody any more, and wait for those inside."""
        with self._change:
            self._open = False
            self._change.wait_for(lambda: not self._inside)


def closed_error() -> StoreError:
    """The error for calls that come too late."""
    return StoreError("The database is closed.", hint="Open it again; after a fork, in each process.")
