"""A database that reports how long its commits take."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from sqlalchemy import Connection, Engine

from tertulia.store.database import Database
from tertulia.store.group_commit import Committer

R = TypeVar("R")
T = TypeVar("T")


class TimedDatabase(Database):
    """A database that reports how long each write takes."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        super().__init__(engine, committer)
        self.on_commit: Callable[[float], None] | None = None

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run a function in a write transaction, and report its time once it is durable."""
        start = time.perf_counter()
        result = super().write(work)
        if self.on_commit is not None:
            self.on_commit(time.perf_counter() - start)
        return result

    def submit(self, work: Callable[[Connection], T], then: Callable[[T], R]) -> Future[R]:
        """Start a write transaction, and report its time once it is durable."""
        start, on_commit = time.perf_counter(), self.on_commit

        def durable(result: T) -> R:
            if on_commit is not None:
                on_commit(time.perf_counter() - start)
            return then(result)

        return super().submit(work, durable)
