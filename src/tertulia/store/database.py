"""A database: opened from a URL, migrated to this version's schema, and used in transactions by all stores.

    with Database.open("sqlite:///tertulia.db") as database:
        conversations = ConversationStore(database)

It knows nothing of what is stored. A store is a class with a database; each of its methods is one transaction.
"""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Self, TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from tertulia.core.errors import StoreError
from tertulia.store.engine import (
    connect,
    is_sqlite,
    make_engine,
    parse_url,
    public_url,
    store_errors,
    transaction,
    truncate_log,
)
from tertulia.store.group_commit import Committer, Gate, GroupCommit, SingleCommit
from tertulia.store.schema import VERSION_TABLE

R = TypeVar("R")
T = TypeVar("T")
MIGRATIONS = Path(__file__).parent / "migrations"
_MIGRATION_LOCK = 0x7E27_011A
"""Any number will do, as long as all versions of Tertulia use the same."""


class Database:
    """A SQLite file or PostgreSQL database. Thread-safe. Use `Database.open`, and close it or use a `with` block."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self.engine = engine
        self.url = public_url(engine.url)
        """For messages: without the password."""
        self._committer = committer
        self._gate = Gate()

    @classmethod
    def open(cls, url: str = "sqlite:///tertulia.db", *, busy_seconds: float = 10.0) -> Self:
        """Open a database, and create or migrate its tables where needed.

        A lock that another program holds for longer than `busy_seconds` is an error.
        """
        parsed = parse_url(url)
        with ExitStack() as on_failure, store_errors(public_url(parsed)):
            engine = make_engine(parsed, busy_seconds=busy_seconds)
            on_failure.callback(engine.dispose)
            connect(engine, busy_seconds=busy_seconds)
            migrate(engine)
            on_failure.pop_all()
        return cls(engine, GroupCommit(engine) if is_sqlite(parsed) else SingleCommit(engine))

    def close(self) -> None:
        """Finish what has begun, and close all connections."""
        self._gate.close()
        self._committer.close()
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file, rather than a PostgreSQL server."""
        return is_sqlite(self.engine.url)

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self._gate.is_closed

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run a function in a read transaction: it sees one state of the database."""
        with self._gate, store_errors(self.url), transaction(self.engine) as connection:
            return work(connection)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run a function in a write transaction; when this returns, its changes are on disk.

        The function may share a transaction with others and run on another thread. If it raises, its own changes are
        undone and the error is raised here.
        """
        with self._gate, store_errors(self.url):
            return self._committer.run(work)

    def submit(self, work: Callable[[Connection], T], then: Callable[[T], R]) -> Future[R]:
        """Run a function in a write transaction, without waiting: the future resolves when its changes are on disk.

        Its result is what `then` makes of the function's. `then` and the future's callbacks run on the thread that
        writes for everybody, so they must be quick.
        """
        self._gate.enter()
        try:
            future = self._committer.submit(work, then)
        except BaseException:
            self._gate.leave()
            raise
        future.add_done_callback(self._gate.leave)
        return future

    def purge_deleted(self) -> None:
        """Remove from SQLite's log what was deleted, so that no file holds it any more."""
        with self._gate, store_errors(self.url):
            truncate_log(self.engine)


def migrate(engine: Engine) -> None:
    """Bring a database to this version's schema, or refuse one of a newer version. If current, nothing is written.

    All migrations run in one transaction under a lock: of several programs that start at the same time on a new
    database, one creates the tables and the others find them.
    """
    script = ScriptDirectory(str(MIGRATIONS))
    with transaction(engine) as connection:
        current = revisions(connection)
    if current == set(script.get_heads()):
        return
    if current - {step.revision for step in script.walk_revisions()}:
        raise StoreError(
            f"{public_url(engine.url)} was created by a newer version of Tertulia "
            f"(schema {', '.join(sorted(current))}).",
            hint="Update with: pip install --upgrade tertulia",
        )
    with transaction(engine, write=True) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        command.upgrade(config, "head")


def revisions(connection: Connection) -> set[str]:
    """The schema revisions of a database: one, or none for a new one."""
    return set(MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_heads())
