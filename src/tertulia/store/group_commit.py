"""Two ways to make a unit of work durable: one transaction each (PostgreSQL), and group commit (SQLite).

SQLite has one writer at a time, and each commit waits for the disk. So one thread writes for all callers: it runs all
waiting units of work in one transaction, in savepoints so that a failure does not affect the others, and wakes the
callers after the one commit. Nobody returns before their own work is on disk. (A lock around one transaction each
is slower, and unfair: the thread that has just released the lock takes it again before the waiting ones have woken up.)

Callers need not wait on a thread: `submit` gives a future, and each thread that a message does not visit saves it two
switches.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from queue import Empty, SimpleQueue
from threading import Condition, Thread
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine

from tertulia.core.errors import StoreError
from tertulia.store.engine import commit, driver, explained, public_url, store_errors, transaction

R = TypeVar("R")
T = TypeVar("T")

BEGIN = "BEGIN IMMEDIATE"
SUBMIT_THREADS = 32
"""How many submitted transactions a PostgreSQL server runs at once."""


class Committer(Protocol):
    """Runs units of work, each completely or not at all, and returns when they are durable."""

    def run(self, work: Callable[[Connection], T], /) -> T:
        """What the work returned, after its commit."""
        ...

    def submit(self, work: Callable[[Connection], T], then: Callable[[T], R], /) -> Future[R]:
        """The future of what `then` makes of the work's result, after its commit; its errors are explained."""
        ...

    def close(self) -> None:
        """Release resources, when nothing is running any more."""
        ...


class SingleCommit:
    """One transaction per unit of work: PostgreSQL runs many at once, and groups their commits itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._where = public_url(engine.url)
        self._threads = ThreadPoolExecutor(SUBMIT_THREADS, thread_name_prefix="commit")  # starts them when needed

    def run(self, work: Callable[[Connection], T], /) -> T:
        """What the work returned, after its commit."""
        with transaction(self._engine, write=True) as connection:
            return work(connection)

    def submit(self, work: Callable[[Connection], T], then: Callable[[T], R], /) -> Future[R]:
        """The future of what `then` makes of the work's result, after its commit."""

        def call() -> R:
            with store_errors(self._where):
                return then(self.run(work))

        return self._threads.submit(call)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


class _Job:
    """A waiting unit of work, and the future of its result."""

    __slots__ = ("error", "future", "result", "then", "work")

    def __init__(self, work: Callable[[Connection], Any], then: Callable[[Any], Any] | None = None) -> None:
        self.work = work
        self.then = then
        self.future: Future[Any] = Future()
        self.result: Any = None
        self.error: Exception | None = None

    def run(self, connection: Connection, *, is_first: bool) -> None:
        """Do the work, or undo all of it. Raises only when the transaction itself is lost.

        What only the first of a group has done is undone with the transaction; the others need a savepoint.
        """
        if not self.future.set_running_or_notify_cancel():
            return
        sqlite = driver(connection)
        if not is_first:
            sqlite.execute("SAVEPOINT job")
        try:
            self.result = self.work(connection)
        except Exception as error:
            if not sqlite.in_transaction:  # disk full or failing: SQLite has rolled back everything
                raise
            sqlite.execute("ROLLBACK" if is_first else "ROLLBACK TO job")
            if is_first:
                sqlite.execute(BEGIN)
            self.error = error
        if not is_first:
            sqlite.execute("RELEASE job")

    def resolve(self, where: str, transaction_error: BaseException | None = None) -> None:
        """Wake the caller, with the outcome or with the error that ended the transaction."""
        if self.future.cancelled():
            return
        error = self.error or transaction_error
        try:
            if error is None and self.then is not None:
                self.result = self.then(self.result)
        except Exception as failure:  # a bug, but the caller must not wait forever
            error = failure
        if error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(explained(error, where))


class GroupCommit:
    """One transaction for all waiting units of work."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._where = public_url(engine.url)
        self._waiting: SimpleQueue[_Job | None] = SimpleQueue()
        # A daemon: a program that forgets to close the database can still end, and nothing acknowledged is lost.
        self._writer = Thread(target=self._write, name="tertulia-store", daemon=True)
        self._writer.start()

    def run(self, work: Callable[[Connection], T], /) -> T:
        """What the work returned, after the commit of its group."""
        result: T = self._put(_Job(work)).result()
        return result

    def submit(self, work: Callable[[Connection], T], then: Callable[[T], R], /) -> Future[R]:
        """The future of what `then` makes of the work's result, after the commit of its group."""
        return self._put(_Job(work, then))

    def close(self) -> None:
        """End the thread; by then no caller may be waiting."""
        self._waiting.put(None)
        self._writer.join()

    def _put(self, job: _Job) -> Future[Any]:
        if not self._writer.is_alive():  # closed, or left behind by a fork
            raise closed_error()
        self._waiting.put(job)
        return job.future

    def _write(self) -> None:
        """Write group after group, on one connection for as long as it works."""
        connection: Connection | None = None
        while (first := self._waiting.get()) is not None:
            group: list[_Job] = []
            try:
                connection = connection or self._engine.connect()
                driver(connection).execute(BEGIN)
                for job in chain([first], self._more_jobs()):
                    group.append(job)
                    job.run(connection, is_first=job is first)
                commit(connection)
            except BaseException as error:  # whatever it is, no caller may be left waiting
                _discard(connection)
                connection = None
                self._resolve(group or [first], error)
                self._resolve(self._more_jobs(), error)  # or they would wait for the same lock just as long
            else:
                self._resolve(group)
        _discard(connection)

    def _more_jobs(self) -> Iterator[_Job]:
        """The jobs that wait, and those that arrive while these are running."""
        with suppress(Empty):
            while (job := self._waiting.get_nowait()) is not None:
                yield job
            self._waiting.put(None)

    def _resolve(self, jobs: Iterable[_Job], error: BaseException | None = None) -> None:
        for job in jobs:
            job.resolve(self._where, error)


def _discard(connection: Connection | None) -> None:
    """Close a connection, whatever state it is in; an open transaction is rolled back."""
    if connection is not None:
        with suppress(Exception):
            connection.close()


class Gate:
    """Admits calls until it is closed; closing waits for those inside, so that none is interrupted."""

    def __init__(self) -> None:
        self._inside = 0
        self._open = True
        self._change = Condition()

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, *_: object) -> None:
        self.leave()

    def enter(self) -> None:
        """Begin a call; refused once the gate is closed."""
        with self._change:
            if not self._open:
                raise closed_error()
            self._inside += 1

    def leave(self, *_: object) -> None:
        """End a call, on any thread."""
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
