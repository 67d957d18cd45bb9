"""The database that a command works on: made only by commands that put something in, and never in silence."""

from pathlib import Path

from rich.text import Text

from tertulia.cli.output import err
from tertulia.cli.verbosity import verbosity
from tertulia.core.errors import MissingStore
from tertulia.store import Database
from tertulia.store.engine import is_sqlite, parse_url


def open_database(url: str, *, create: bool = False) -> Database:
    """Open a database. One that does not exist is created, and announced, if the command may; otherwise an error."""
    if not create and (file := missing_file(url)):
        raise MissingStore(f"File not found: {file}", hint="Name the database of a server with --db.")
    announce_new(url)
    return Database.open(url)


def announce_new(url: str) -> None:
    """Say that a database will be created, if there is none."""
    if (file := missing_file(url)) and not verbosity().quiet:
        err.print(Text(f"Creating the database {file}; --db names another."), soft_wrap=True)


def missing_file(url: str) -> Path | None:
    """The file of a SQLite database that does not exist yet; None if it does, or there is a server."""
    parsed = parse_url(url)
    if not is_sqlite(parsed) or not parsed.database or parsed.database == ":memory:":
        return None
    file = Path(parsed.database)
    return None if file.exists() else file
