"""What went wrong with the database, in words: every error of SQLite, psycopg or SQLAlchemy becomes a `StoreError`.

The original stays chained to it, so that a bug of ours keeps its traceback.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tertulia.core.errors import StoreError

_LOCKED = ("{where} is locked by another program.", "Wait until it is done and try again, or close it.")
_SQLITE = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_CANTOPEN: ("{where} cannot be opened.", "Check that its folder is there and may be written to."),
    sqlite3.SQLITE_PERM: ("{where} may not be used.", "Check who owns the file and its folder."),
    sqlite3.SQLITE_READONLY: ("{where} cannot be written to.", "Check who owns the file and its folder."),
    sqlite3.SQLITE_NOTADB: ("{where} is not a SQLite database.", "Name another file: this one is left as it is."),
    sqlite3.SQLITE_CORRUPT: (
        "{where} is damaged.",
        "Restore a backup, or save what is left with: sqlite3 FILE .recover",
    ),
    sqlite3.SQLITE_FULL: ("There is no room left to write to {where}.", "Make room on the disk and try again."),
    sqlite3.SQLITE_IOERR: ("{where} could not be read or written: {why}.", "Check the disk: is it full, or failing?"),
}
_POSTGRESQL = {
    "55P03": _LOCKED,
    "42501": ("{where} does not let us do that: {why}", "Grant the user the right to make and use tables there."),
}
_NO_ENTRY = (
    "{where} does not let us in: {why}",
    "Check the user, the password and the database's name in the URL, and how many connections the server allows.",
)
_UNREACHABLE = (
    "{where} cannot be reached: {why}",
    "Check that the server is running, and the host and port in the URL.",
)
_OTHER = ("{where} refused: {why}", "")


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn the database's errors into ours."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise _explain(error, where) from error


def _explain(error: Exception, where: str) -> StoreError:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
    why = str(cause).strip().partition("\n")[0]
    if isinstance(cause, sqlite3.Error):
        message, hint = _SQLITE.get(getattr(cause, "sqlite_errorcode", 0) & 0xFF, _OTHER)
    elif state := getattr(cause, "sqlstate", None):
        message, hint = _POSTGRESQL.get(state, _OTHER)
    else:  # no connection; that the server answered at all can be told from its words only
        message, hint = _NO_ENTRY if "FATAL:" in why else _UNREACHABLE
        why = why.rpartition("FATAL:")[2].strip()
    return StoreError(message.format(where=where, why=why), hint=hint)
