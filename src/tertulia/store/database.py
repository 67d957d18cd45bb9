"""From a URL to an engine that is safe to use: what SQLite and PostgreSQL each must be told first.

SQLite: the write-ahead log (readers never wait for the writer), synchronous = FULL (a commit has reached the disk, also
when the power fails a moment later), foreign keys on, deleted text overwritten with zeros, and transactions that take
the write lock at their start, because one that asks for it halfway is refused at once instead of waiting its turn.
PostgreSQL: bounded waits for the server and for locks, and a look at each pooled connection before it is used.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from tertulia.core.errors import MissingExtra, StoreError, UsageError

FORMS = "sqlite:///FILE (four slashes for an absolute path) or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
CONNECT_SECONDS = (2, 5)
"""Least and most time a PostgreSQL server may take to answer."""


def parse_url(text: str) -> URL:
    """The URL of a database that we know how to use."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        public = text.rpartition("@")[2]  # what stands before may hold a password
        raise UsageError(f"{public!r} is not the URL of a database.", hint=f"Use {FORMS}.") from None
    if url.drivername in ("sqlite", "sqlite+pysqlite"):
        if url.host or url.query or url.database in (None, "", ":memory:"):
            raise UsageError("A SQLite URL names a file, and nothing else.", hint=f"Use {FORMS}.")
        return url
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    raise UsageError(f"Conversations cannot be kept in {url.drivername!r}.", hint=f"Use {FORMS}.")


def shown(url: URL) -> str:
    """The URL for people: without the password, wherever it stands."""
    query = {name: value for name, value in url.query.items() if name in ("host", "port")}
    return url.set(query=query).render_as_string(hide_password=True)


def make_engine(url: URL, *, busy_seconds: float) -> Engine:
    """The engine for a URL; nothing is connected yet."""
    return _sqlite(url, busy_seconds) if is_sqlite(url) else _postgresql(url, busy_seconds)


def is_sqlite(url: URL) -> bool:
    """Whether it is a file of our own, rather than a server."""
    return url.get_backend_name() == "sqlite"


@contextmanager
def transaction(engine: Engine, *, write: bool = False) -> Iterator[Connection]:
    """A transaction that is committed at the end of the block, and rolled back when the block fails."""
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":  # by hand: an event listener for it would slow down every statement
            sqlite: Any = connection.connection.driver_connection
            sqlite.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        yield connection


def prepare(engine: Engine, *, busy_seconds: float) -> None:
    """Make the first connection, with errors that say what is wrong, and switch a new SQLite file to the log."""
    if not is_sqlite(engine.url):
        engine.connect().close()
        return
    path = Path(engine.url.database or "")
    if path.is_dir():
        raise StoreError(f"{path} is a folder, not a database file.", hint="Name a file in it.")
    if not path.parent.is_dir():
        raise StoreError(f"There is no folder {path.parent} for the database.", hint="Make the folder first.")
    if _pragma(engine, "journal_mode = WAL", busy_seconds) != "wal":
        raise StoreError(
            f"SQLite cannot keep a write-ahead log beside {path}.",
            hint="Put the file on a local disk: network file systems cannot share one.",
        )


def empty_log(engine: Engine) -> None:
    """Take out of SQLite's log what was deleted; where a reader is in the way for long, later commits overwrite it."""
    if is_sqlite(engine.url):
        _pragma(engine, "wal_checkpoint(TRUNCATE)", busy_seconds=1)  # meanwhile nobody can write


def _pragma(engine: Engine, statement: str, busy_seconds: float) -> Any:
    file = engine.url.database or ""
    with closing(sqlite3.connect(file, timeout=busy_seconds, isolation_level=None)) as connection:
        return connection.execute(f"PRAGMA {statement}").fetchone()[0]


# As many connections as threads are at work, since a thread that waits for one may starve: the pool hands one that has
# just come back to the thread that asks next, not to the one that has waited longest. The first twenty stay open.
_POOL: dict[str, Any] = {"pool_size": 20, "max_overflow": -1, "pool_use_lifo": True}


def _sqlite(url: URL, busy_seconds: float) -> Engine:
    engine = create_engine(url, connect_args={"timeout": busy_seconds, "isolation_level": None}, **_POOL)

    @event.listens_for(engine, "connect")
    def _on_connect(connection: sqlite3.Connection, _: object) -> None:
        for setting in ("synchronous = FULL", "foreign_keys = ON", "secure_delete = ON"):
            connection.execute(f"PRAGMA {setting}")

    return engine


def _postgresql(url: URL, busy_seconds: float) -> Engine:
    least, most = CONNECT_SECONDS
    options = url.query.get("options", "")
    settings = {
        "connect_timeout": int(min(max(busy_seconds, least), most)),
        "options": f"{options if isinstance(options, str) else ' '.join(options)} -c lock_timeout={busy_seconds:.3f}s",
    }
    try:
        return create_engine(url, connect_args=settings, pool_pre_ping=True, **_POOL)
    except ImportError as error:
        raise MissingExtra("psycopg, which PostgreSQL needs,", "pip install 'tertulia[postgres]'") from error
