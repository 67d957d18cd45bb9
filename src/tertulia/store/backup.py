"""Backup, restore and check of a database. A backup is a SQLite file, whichever database it came from.

SQLite is copied by its online backup API, PostgreSQL row by row from one snapshot: servers may go on writing meanwhile.
A backup appears under its name only when it is complete and on disk. A restore needs an empty database: nothing is ever
overwritten. It also migrates backups of earlier versions, and moves a server from SQLite to PostgreSQL or back.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, ForeignKeyConstraint, Table, and_, exists, func, insert, inspect, select

from tertulia.core.errors import MissingStore, StoreError
from tertulia.store.database import MIGRATIONS, Database, revisions
from tertulia.store.engine import connect, make_engine, parse_url, public_url, store_errors, transaction
from tertulia.store.schema import assignments, conversations, labels, metadata, servers, study_units, turns

ROWS_PER_STEP = 1000
MAX_PROBLEMS = 20
"""At most so many of SQLite's own findings are reported."""


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup or a restored database contains."""

    path: str
    """The file, or the URL of the database without its password."""
    rows: dict[str, int]
    """By table."""
    problems: tuple[str, ...] = ()
    """What a check of the backup reports: the database itself has the same problems."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check of a database came to."""

    url: str
    revision: str
    rows: dict[str, int]
    """By table."""
    problems: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Whether there is no problem."""
        return not self.problems


def backup(url: str, path: Path, *, busy_seconds: float = 10.0) -> BackupReport:
    """Write a backup of a database to a new file."""
    if path.exists():
        raise StoreError(f"{path} exists already.", hint="Name a new file: backups are never overwritten.")
    if not path.parent.is_dir():
        raise MissingStore(f"The backup's folder does not exist: {path.parent}", hint="Create the folder first.")
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # readable by this user only
    os.close(descriptor)
    part = Path(name)
    try:
        with _existing(url, busy_seconds) as engine:
            if engine.dialect.name == "sqlite":
                _copy_sqlite(engine, part)
            else:
                _require_current(engine)
                _copy_to_sqlite(engine, part)
        report = check(f"sqlite:///{part.absolute()}")
        _sync(part)
        part.rename(path)
        _sync(path.parent)
    finally:
        for leftover in (part, Path(f"{part}-wal"), Path(f"{part}-shm"), Path(f"{part}-journal")):
            leftover.unlink(missing_ok=True)
    return BackupReport(str(path), report.rows, report.problems)


def restore(path: Path, url: str, *, busy_seconds: float = 10.0) -> BackupReport:
    """Copy a backup into an empty database, which is created if it is a SQLite file."""
    if not path.is_file():
        raise MissingStore(f"File not found: {path}", hint="Name a file that `tertulia store backup` has written.")
    with tempfile.TemporaryDirectory(prefix="tertulia-restore-") as folder, ExitStack() as stack:
        copy = Path(folder) / "backup.db"
        shutil.copyfile(path, copy)  # migrating it must not change the backup
        source_url = f"sqlite:///{copy}"
        report = check(source_url)
        if not report.is_sound or not report.revision:
            why = report.problems[0] if report.problems else "it is not a backup of Tertulia."
            raise StoreError(f"{path} cannot be restored: {why}", hint="Restore another backup.")
        source = stack.enter_context(Database.open(source_url))
        target = stack.enter_context(Database.open(url, busy_seconds=busy_seconds))
        with (
            store_errors(target.url),
            transaction(source.engine) as reader,
            transaction(target.engine, write=True) as writer,
        ):
            filled = [table.name for table in metadata.sorted_tables if _count(writer, table)]
            if filled:
                raise StoreError(
                    f"{target.url} is not empty: it has rows in {', '.join(filled)}.",
                    hint="Restore into a new file or database.",
                )
            rows = _copy_rows(reader, writer)
    return BackupReport(public_url(parse_url(url)), rows)


def check(url: str, *, busy_seconds: float = 10.0) -> CheckReport:
    """Check a database: its file, its references, and what must always hold. Changes nothing."""
    parsed = parse_url(url)
    public = public_url(parsed)
    with _existing(url, busy_seconds) as engine:
        if parsed.get_backend_name() == "sqlite" and (damage := _damage(parsed.database or "")):
            return CheckReport(public, "", {}, tuple(damage))
        with transaction(engine) as connection:
            return _check_contents(connection, public)


def _check_contents(connection: Connection, public: str) -> CheckReport:
    problems: list[str] = []
    present = set(inspect(connection).get_table_names())
    tables = [table for table in metadata.sorted_tables if table.name in present]
    revision = " ".join(sorted(revisions(connection)))
    if revision == _head():
        problems += [f"The table {table.name} is missing." for table in metadata.sorted_tables if table not in tables]
        if not problems:
            problems += [*_dangling(connection), *_violations(connection)]
    return CheckReport(public, revision, {table.name: _count(connection, table) for table in tables}, tuple(problems))


@contextmanager
def _existing(url: str, busy_seconds: float) -> Iterator[Engine]:
    """An engine for a database that exists; nothing is created or migrated."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").is_file():
        raise MissingStore(f"File not found: {parsed.database}", hint="Name the database of a server with --db.")
    engine = make_engine(parsed, busy_seconds=busy_seconds)
    try:
        with store_errors(public_url(parsed)):
            if parsed.get_backend_name() != "sqlite":
                connect(engine, busy_seconds=busy_seconds)
            yield engine
    finally:
        engine.dispose()


def _copy_sqlite(engine: Engine, path: Path) -> None:
    pooled = engine.raw_connection()
    try:
        source = pooled.driver_connection
        assert isinstance(source, sqlite3.Connection)
        with closing(sqlite3.connect(path)) as target:
            # In one step: it reads one snapshot, and with a write-ahead log no writer waits for a reader. Between
            # several steps SQLite would start over whenever a server has written, and might never get to the end.
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
    finally:
        pooled.close()


def _copy_to_sqlite(engine: Engine, path: Path) -> None:
    path.unlink()
    with Database.open(f"sqlite:///{path.absolute()}") as target:
        snapshot = engine.execution_options(isolation_level="REPEATABLE READ")
        with transaction(snapshot) as reader, transaction(target.engine, write=True) as writer:
            _copy_rows(reader, writer)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    path.chmod(0o600)


def _copy_rows(source: Connection, target: Connection) -> dict[str, int]:
    """Copy all tables, those that others refer to first. Leases of servers are not copied: they are not of this one."""
    counts: dict[str, int] = {}
    for table in metadata.sorted_tables:
        if table is servers:
            continue
        counts[table.name] = 0
        keys = table.columns.keys()  # a column's key may differ from its name
        with source.execute(select(table).execution_options(yield_per=ROWS_PER_STEP)) as result:
            for step in result.partitions():
                target.execute(insert(table), [dict(zip(keys, row, strict=True)) for row in step])
                counts[table.name] += len(step)
    return counts


def _require_current(engine: Engine) -> None:
    with transaction(engine) as connection:
        current = " ".join(sorted(revisions(connection)))
    if current != _head():
        raise StoreError(
            f"{public_url(engine.url)} has the schema of another version ({current or 'none'} instead of {_head()}).",
            hint="Back it up with pg_dump, or start a server of this version once to migrate it.",
        )


def _head() -> str:
    return " ".join(sorted(ScriptDirectory(str(MIGRATIONS)).get_heads()))


def _count(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def _damage(path: str) -> list[str]:
    """What SQLite itself finds wrong with the file."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            lines = [line for (line,) in connection.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})")]
    except sqlite3.DatabaseError as error:
        lines = [str(error)]
    return [f"The file is damaged: {line}" for line in lines if line != "ok"]


def _dangling(connection: Connection) -> Iterator[str]:
    """Rows that refer to rows that do not exist."""
    for table in metadata.sorted_tables:
        for key in (one for one in table.constraints if isinstance(one, ForeignKeyConstraint)):
            other = key.referred_table.alias()
            same = and_(*(element.parent == other.c[element.column.key] for element in key.elements))
            given = and_(*(element.parent.is_not(None) for element in key.elements))
            query = select(func.count()).select_from(table).where(given, ~exists(other).where(same))
            if count := connection.execute(query).scalar_one():
                yield f"{count} rows of {table.name} refer to missing rows of {key.referred_table.name}."


def _violations(connection: Connection) -> Iterator[str]:
    """What the stores guarantee, but no constraint of the database does."""
    current = select(func.count()).select_from(turns).where(turns.c.conversation == conversations.c.id, turns.c.current)
    miscounted = select(func.count()).where(conversations.c.turn_count != current.scalar_subquery())
    taken = select(func.count()).select_from(assignments)
    taken = taken.where(assignments.c.study == study_units.c.study, assignments.c.unit == study_units.c.id)
    taken = taken.where(assignments.c.state.in_(("live", "submitted")))
    exceeded = select(func.count()).where(study_units.c.wanted < taken.scalar_subquery())
    answered = (labels.c.assignment, labels.c.target, labels.c.question)
    twice = select(labels.c.assignment).where(labels.c.current).group_by(*answered).having(func.count() > 1).subquery()
    doubled = select(func.count()).select_from(twice)
    for query, problem in (
        (miscounted, "conversations have a wrong count of turns"),
        (exceeded, "units have more ratings than they want"),
        (doubled, "questions have several current labels"),
    ):
        if count := connection.execute(query).scalar_one():
            yield f"{count} {problem}."


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
