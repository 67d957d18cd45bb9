"""SQLAlchemy engines for SQLite and PostgreSQL, with the settings that make them safe, and their errors in plain words.

SQLite: the write-ahead log (readers never wait for the writer), synchronous = FULL (a commit has reached the disk, even
if the power fails a moment later), foreign keys on, deleted text overwritten with zeros, and transactions that take the
write lock at their start, because SQLite refuses to upgrade a read transaction while somebody else writes.
PostgreSQL: bounded waits for the server and for locks, and a check of each pooled connection before it is used.
"""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from tertulia.core.errors import MissingExtra, MissingStore, StoreError, UsageError

URL_FORMS = "sqlite:///FILE (four slashes for an absolute path) or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
CONNECT_SECONDS = (2, 5)
"""Minimum and maximum time to wait for a PostgreSQL server to answer."""
WAL_RETRY_SECONDS = 0.02


def parse_url(text: str) -> URL:
    """Parse and check the URL of a database."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        public = text.rpartition("@")[2]  # what precedes the host may hold a password
        raise UsageError(f"Not a database URL: {public!r}.", hint=f"Use {URL_FORMS}.") from None
    if url.drivername in ("sqlite", "sqlite+pysqlite"):
        if url.host or url.query or url.database in (None, "", ":memory:"):
            raise UsageError("A SQLite URL must name a file, without host or query.", hint=f"Use {URL_FORMS}.")
        return url
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    raise UsageError(f"Unsupported database {url.drivername!r}.", hint=f"Use {URL_FORMS}.")


def public_url(url: URL) -> str:
    """The URL without the password, neither before the host nor in the query."""
    query = {name: value for name, value in url.query.items() if name in ("host", "port")}
    return url.set(query=query).render_as_string(hide_password=True)


def make_engine(url: URL, *, busy_seconds: float) -> Engine:
    """The engine for a URL; nothing is connected yet."""
    return _sqlite_engine(url, busy_seconds) if is_sqlite(url) else _postgresql_engine(url, busy_seconds)


def is_sqlite(url: URL) -> bool:
    """Whether the database is a file, rather than a server."""
    return url.get_backend_name() == "sqlite"


@contextmanager
def transaction(engine: Engine, *, write: bool = False) -> Iterator[Connection]:
    """A transaction that is committed at the end of the block, and rolled back when the block raises."""
    with engine.begin() as connection:
        if is_sqlite(engine.url):  # by hand: an event listener for it would slow down every statement
            driver(connection).execute("BEGIN IMMEDIATE" if write else "BEGIN")
        yield connection


def driver(connection: Connection) -> Any:
    """The connection of SQLite's own driver."""
    return connection.connection.driver_connection


def commit(connection: Connection) -> None:
    """Commit a transaction that was begun on SQLite's driver, and what SQLAlchemy knows of it."""
    if connection.in_transaction():
        connection.commit()
    else:
        driver(connection).commit()


def connect(engine: Engine, *, busy_seconds: float) -> None:
    """Check that the database can be reached, and switch a new SQLite file to the write-ahead log."""
    if not is_sqlite(engine.url):
        engine.connect().close()
        return
    path = Path(engine.url.database or "")
    if path.is_dir():
        raise StoreError(f"{path} is a folder, not a database file.", hint="Name a file in it.")
    if not path.parent.is_dir():
        raise MissingStore(f"The database's folder does not exist: {path.parent}", hint="Create the folder first.")
    if _switch_to_wal(engine, busy_seconds) != "wal":
        raise StoreError(
            f"SQLite cannot use a write-ahead log for {path}.",
            hint="Put the file on a local disk: network file systems do not support it.",
        )


def truncate_log(engine: Engine) -> None:
    """Remove deleted text from SQLite's log. Where a reader blocks this for too long, later commits overwrite it."""
    if is_sqlite(engine.url):
        _pragma(engine, "wal_checkpoint(TRUNCATE)", busy_seconds=1)  # nobody can write in the meantime


def _switch_to_wal(engine: Engine, busy_seconds: float) -> Any:
    """Set the journal mode, and try again while somebody else is switching the same new file.

    The switch reads the file under a shared lock and then needs the exclusive one. When two connections do this at the
    same time, waiting would be a deadlock, so SQLite refuses one of them at once, without regard to the busy timeout.
    """
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            return _pragma(engine, "journal_mode = WAL", busy_seconds)
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(WAL_RETRY_SECONDS)


def _pragma(engine: Engine, statement: str, busy_seconds: float) -> Any:
    file = engine.url.database or ""
    with closing(sqlite3.connect(file, timeout=busy_seconds, isolation_level=None)) as connection:
        return connection.execute(f"PRAGMA {statement}").fetchone()[0]


def to_json(value: Any) -> str:
    """The JSON of a value; orjson is several times as fast, but does not know all that the standard library does."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # such as an integer of more than 64 bits
        return json.dumps(value)


# As many connections as threads are active, because a thread that waits for one may starve: the pool gives a connection
# that was just returned to the thread that asks next, not to the one that has waited longest. Twenty stay open.
_OPTIONS: dict[str, Any] = {"pool_size": 20, "max_overflow": -1, "pool_use_lifo": True}


_PRAGMAS = ("synchronous = FULL", "foreign_keys = ON", "secure_delete = ON", "wal_autocheckpoint = 4000")
"""A checkpoint after 16 MB of log instead of 4: pages that many messages change are copied less often."""


def _sqlite_engine(url: URL, busy_seconds: float) -> Engine:
    engine = create_engine(
        url, connect_args={"timeout": busy_seconds, "isolation_level": None}, json_serializer=to_json, **_OPTIONS
    )

    @event.listens_for(engine, "connect")
    def _on_connect(connection: sqlite3.Connection, _: object) -> None:
        for setting in _PRAGMAS:
            connection.execute(f"PRAGMA {setting}")

    return engine


def _postgresql_engine(url: URL, busy_seconds: float) -> Engine:
    minimum, maximum = CONNECT_SECONDS
    options = url.query.get("options", "")
    settings = {
        "connect_timeout": int(min(max(busy_seconds, minimum), maximum)),
        "options": f"{options if isinstance(options, str) else ' '.join(options)} -c lock_timeout={busy_seconds:.3f}s",
    }
    try:
        return create_engine(url, connect_args=settings, pool_pre_ping=True, json_serializer=to_json, **_OPTIONS)
    except ImportError as error:
        raise MissingExtra("psycopg, which PostgreSQL needs,", "pip install 'tertulia[postgres]'") from error


# Errors. The original stays chained to the new one, so that a bug keeps its traceback.

_LOCKED = ("{where} is locked by another program.", "Wait until it is done and try again, or close it.")
_SQLITE_ERRORS = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_CANTOPEN: ("{where} cannot be opened.", "Check that its folder exists and is writable."),
    sqlite3.SQLITE_PERM: ("No permission to use {where}.", "Check the owner of the file and of its folder."),
    sqlite3.SQLITE_READONLY: ("{where} is not writable.", "Check the owner of the file and of its folder."),
    sqlite3.SQLITE_NOTADB: ("{where} is not a SQLite database.", "Name another file; this one was not changed."),
    sqlite3.SQLITE_CORRUPT: (
        "{where} is damaged.",
        "Restore a backup, or recover what is readable with: sqlite3 FILE .recover",
    ),
    sqlite3.SQLITE_FULL: ("No space left to write to {where}.", "Free some disk space and try again."),
    sqlite3.SQLITE_IOERR: ("{where} could not be read or written: {why}.", "Check the disk: is it full, or failing?"),
}
_POSTGRESQL_ERRORS = {
    "55P03": _LOCKED,
    "42501": ("{where} denied the operation: {why}", "Grant the user the right to create and use tables there."),
}
_REFUSED = (
    "{where} refused the connection: {why}",
    "Check the user, the password and the database name in the URL, and the server's connection limit.",
)
_UNREACHABLE = (
    "{where} cannot be reached: {why}",
    "Check that the server is running, and the host and port in the URL.",
)
_OTHER = ("{where} reported an error: {why}", "")


@contextmanager
def store_errors(where: str) -> Iterator[None]:
    """Turn every error of SQLite, psycopg or SQLAlchemy into a `StoreError` that says what to do."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise _explain(error, where) from error


def explained(error: BaseException, where: str) -> BaseException:
    """The error as `store_errors` would raise it; one that is not the database's is returned as it is."""
    if not isinstance(error, (SQLAlchemyError, sqlite3.Error)):
        return error
    explanation = _explain(error, where)
    explanation.__cause__ = error
    return explanation


def primary_code(error: sqlite3.Error) -> int:
    """The error's primary result code: extended codes carry it in their lowest byte."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # errors of the Python module itself have none


def _explain(error: Exception, where: str) -> StoreError:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
    why = str(cause).strip().partition("\n")[0]
    if isinstance(cause, sqlite3.Error):
        message, hint = _SQLITE_ERRORS.get(primary_code(cause), _OTHER)
    elif state := getattr(cause, "sqlstate", None):  # psycopg is optional, so its classes cannot be named here
        message, hint = _POSTGRESQL_ERRORS.get(state, _OTHER)
    else:  # no connection; only the wording shows whether the server answered at all
        message, hint = _REFUSED if "FATAL:" in why else _UNREACHABLE
        why = why.rpartition("FATAL:")[2].strip()
    return StoreError(message.format(where=where, why=why), hint=hint)
