"""Two ways to make a unit of work durable: PostgreSQL's own, and group commit for SQLite.

SQLite has one writer at a time, and each commit waits for the disk. So one thread writes for all who call: it runs the
work of everybody that waits in one transaction, each in a savepoint so that one failing does not fail the others, and
lets them go after the one commit. Nobody returns before their own work is on disk. (A mere lock around one transaction
each is slower, and unfair: the thread that has just released it takes it again before those that wait have woken up.)
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
from tertulia.store.database import transaction

T = TypeVar("T")


class Committer(Protocol):
    """Runs units of work, each wholly or not at all, and returns when they are safe."""

    def run(self, work: Callable[[Connection], T], /) -> T:
        """What the work returned, after its commit."""
        ...

    def close(self) -> None:
        """Let go, when nothing is running any more."""
        ...


class OwnCommit:
    """One transaction for each unit of work: PostgreSQL takes many at once, and groups their commits itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, work: Callable[[Connection], T], /) -> T:
        """What the work returned, after its commit."""
        with transaction(self._engine, write=True) as connection:
            return work(connection)

    def close(self) -> None:
        """Nothing to do: there is no thread."""


class _Job:
    """A unit of work that waits, and the future its caller sleeps on."""

    __slots__ = ("error", "future", "result", "work")

    def __init__(self, work: Callable[[Connection], Any]) -> None:
        self.work = work
        self.future: Future[Any] = Future()
        self.result: Any = None
        self.error: Exception | None = None

    def attempt(self, connection: Connection) -> None:
        """Do the work, or undo all of it. Raises only when the whole transaction is lost."""
        sqlite: Any = connection.connection.driver_connection
        sqlite.execute("SAVEPOINT job")
        try:
            self.result = self.work(connection)
        except Exception as error:
            if not sqlite.in_transaction:  # no room, or a failing disk: SQLite has rolled back everything
                raise
            sqlite.execute("ROLLBACK TO job")
            self.error = error
        sqlite.execute("RELEASE job")

    def settle(self, lost: BaseException | None = None) -> None:
        """Let the caller go, with the outcome or with what befell the transaction."""
        error = self.error or lost
        if error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(error)


class GroupCommit:
    """One transaction for all units of work that wait."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: SimpleQueue[_Job | None] = SimpleQueue()
        # A daemon: a program that forgets to close the store can still end, and nothing acknowledged is lost.
        self._writer = Thread(target=self._write, name="tertulia-store", daemon=True)
        self._writer.start()

    def run(self, work: Callable[[Connection], T], /) -> T:
        """What the work returned, after the commit of its group."""
        if not self._writer.is_alive():  # closed, or left behind by a fork
            raise closed()
        job = _Job(work)
        self._waiting.put(job)
        result: T = job.future.result()
        return result

    def close(self) -> None:
        """End the thread; by then nobody may be waiting."""
        self._waiting.put(None)
        self._writer.join()

    def _write(self) -> None:
        while (first := self._waiting.get()) is not None:
            group: list[_Job] = []
            try:
                with transaction(self._engine, write=True) as connection:
                    for job in chain([first], self._others()):
                        group.append(job)
                        job.attempt(connection)
            except BaseException as error:  # whatever it is, nobody may be left sleeping
                self._let_go(group or [first], error)
                self._let_go(self._others(), error)  # or they would wait for the same lock as long again
            else:
                self._let_go(group)

    def _others(self) -> Iterator[_Job]:
        """Those who wait, and those who come while their work is being done."""
        with suppress(Empty):
            while (job := self._waiting.get_nowait()) is not None:
                yield job
            self._waiting.put(None)

    @staticmethod
    def _let_go(group: Iterable[_Job], error: BaseException | None = None) -> None:
        for job in group:
            job.settle(error)


class Gate:
    """Lets calls in until it is closed, and closes behind the last one out: nothing is cut off halfway."""

    def __init__(self) -> None:
        self._inside = 0
        self._open = True
        self._change = Condition()

    def __enter__(self) -> None:
        with self._change:
            if not self._open:
                raise closed()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._change:
            self._inside -= 1
            self._change.notify_all()

    def close(self) -> None:
        """Let nobody in any more, and wait for those inside."""
        with self._change:
            self._open = False
            self._change.wait_for(lambda: not self._inside)


def closed() -> StoreError:
    """The error of those who come too late."""
    return StoreError("The store is closed.", hint="Open it again; after a fork, in each process.")
