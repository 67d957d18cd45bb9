"""Opening a database: what can go wrong is said in words, and old or new schemas are met properly."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import event

from tertulia.core.errors import MissingExtra, StoreError, UsageError
from tertulia.store import Store
from tertulia.store.database import make_engine, parse_url, transaction
from tertulia.store.migrate import revisions
from tertulia.store.schema import VERSION_TABLE, metadata

OWNER = "ada"
Python = Callable[..., subprocess.Popen[str]]
Rows = Callable[[str, str], list[tuple[Any, ...]]]


def test_opening_again_finds_everything(url: str) -> None:
    with Store.open(url) as store:
        made = store.create_conversation(OWNER, "tfidf", title="kept")
    with Store.open(url) as store:
        assert store.conversation(made.id, OWNER) == made


def differences(url: str) -> list[Any]:
    engine = make_engine(parse_url(url), busy_seconds=5)
    with transaction(engine) as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True, "compare_server_default": True}
        found = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    engine.dispose()
    return found


def test_the_migrations_make_the_tables_of_the_schema(url: str, rows: Rows) -> None:
    Store.open(url).close()
    assert differences(url) == []
    rows(url, "DROP INDEX ix_conversations_owner_updated")
    rows(url, "ALTER TABLE turns ADD COLUMN surprise INTEGER")
    assert sorted(change[0] for change in differences(url)) == ["add_index", "remove_column"]  # it does look


def test_a_newer_database_is_refused_and_left_alone(url: str, rows: Rows) -> None:
    Store.open(url).close()
    rows(url, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(StoreError, match=r"newer version of Tertulia \(schema 9999\)") as caught:
        Store.open(url)
    assert "pip install --upgrade" in caught.value.hint
    assert rows(url, f"SELECT version_num FROM {VERSION_TABLE}") == [("9999",)]


def test_a_migration_that_fails_leaves_nothing_behind(url: str, rows: Rows) -> None:
    rows(url, "CREATE TABLE turns (id INTEGER)")  # somebody else's
    with pytest.raises(StoreError, match="turns"):
        Store.open(url)
    engine = make_engine(parse_url(url), busy_seconds=5)
    with transaction(engine) as connection:
        assert revisions(connection) == set()
        assert engine.dialect.get_table_names(connection) == ["turns"]
    engine.dispose()


@pytest.mark.parametrize(
    "url",
    [
        "mysql://root@localhost/chat",
        "postgresql+psycopg2://localhost/chat",
        "chat.db",
        "",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///chat.db?mode=ro",
        "sqlite://host/chat.db",
    ],
)
def test_other_urls_are_refused_with_the_two_known_forms(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Store.open(url)
    assert "sqlite:///FILE" in caught.value.hint
    assert "postgresql+psycopg://" in caught.value.hint


def test_the_password_is_never_shown(postgresql_url: str) -> None:
    secret = postgresql_url.replace("postgres:@", "postgres:hunter2@").replace("+psycopg", "")
    assert "hunter2" in secret
    with Store.open(secret) as store:
        assert "hunter2" not in store.url
        assert store.url.startswith("postgresql+psycopg://postgres:***@")
    with pytest.raises(StoreError) as caught:
        Store.open("postgresql+psycopg://ada:hunter2@127.0.0.1:1/chat?password=hunter2")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(UsageError) as refused:
        Store.open("what://ever:hunter2@[")
    assert "hunter2" not in str(refused.value)


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder"):
        Store.open(f"sqlite:///{tmp_path}")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"There is no folder .*nowhere"):
        Store.open(f"sqlite:///{tmp_path}/nowhere/chat.db")
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_that_may_not_be_written_to(tmp_path: Path) -> None:
    folder = tmp_path
    if os.geteuid() == 0:  # root may write everywhere, but not even root makes files in /proc
        folder = Path("/proc/self")
    else:
        tmp_path.chmod(0o555)
    with pytest.raises(StoreError, match="cannot be opened") as caught:
        Store.open(f"sqlite:///{folder}/chat.db")
    assert "may be written to" in caught.value.hint


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "diary.txt"
    file.write_text("Dear diary, " * 100)
    with pytest.raises(StoreError, match="not a SQLite database"):
        Store.open(f"sqlite:///{file}")
    assert file.read_text() == "Dear diary, " * 100


def test_a_damaged_database_is_reported(sqlite_url: str, tmp_path: Path) -> None:
    with Store.open(sqlite_url) as store:
        conversation = store.create_conversation(OWNER, "tfidf").id
        for number in range(50):
            store.say(conversation, OWNER, "hello " * 100, key=str(number), bot="tfidf")
    file = tmp_path / "chat.db"
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(StoreError, match="damaged"), Store.open(sqlite_url) as store:
        store.conversation(conversation, OWNER)


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
print("free", flush=True)
"""


def test_a_locked_database_is_reported_and_used_again(sqlite_url: str, tmp_path: Path, python: Python) -> None:
    with Store.open(sqlite_url, busy_seconds=0.2) as store:
        conversation = store.create_conversation(OWNER, "tfidf").id
        holder = python(HOLDER, str(tmp_path / "chat.db"))
        assert holder.stdout
        assert holder.stdin
        assert holder.stdout.readline() == "locked\n"
        started = time.monotonic()
        with pytest.raises(StoreError, match="locked by another program") as caught:
            store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
        assert 0.15 < time.monotonic() - started < 5
        assert caught.value.hint
        assert store.conversation(conversation, OWNER).turns == ()  # reading goes on
        with Store.open(sqlite_url, busy_seconds=0.2) as other:  # and so does opening
            assert len(other.conversations(OWNER)) == 1
        holder.stdin.write("go\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "free\n"
        assert store.say(conversation, OWNER, "hello", key="k", bot="tfidf").fresh


def test_a_new_file_locked_by_another_program(tmp_path: Path, python: Python) -> None:
    holder = python(HOLDER, str(tmp_path / "chat.db"))
    assert holder.stdout
    assert holder.stdout.readline() == "locked\n"
    with pytest.raises(StoreError, match="locked by another program"):
        Store.open(f"sqlite:///{tmp_path / 'chat.db'}", busy_seconds=0.2)


def test_a_locked_row_on_postgresql_is_reported(postgresql_url: str) -> None:
    with Store.open(postgresql_url, busy_seconds=0.2) as store:
        conversation = store.create_conversation(OWNER, "tfidf").id
        engine = make_engine(parse_url(postgresql_url), busy_seconds=5)
        with transaction(engine, write=True) as connection:
            connection.exec_driver_sql("LOCK TABLE conversations")
            with pytest.raises(StoreError, match="locked by another program"):
                store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
        engine.dispose()
        assert store.say(conversation, OWNER, "hello", key="k", bot="tfidf").fresh


def test_a_postgresql_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: nobody answers, and nobody else can
        port = taken.getsockname()[1]
        with pytest.raises(StoreError, match="cannot be reached") as caught:
            Store.open(f"postgresql+psycopg://ada@127.0.0.1:{port}/chat")
    assert "server is running" in caught.value.hint


def test_a_postgresql_that_never_answers() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        started = time.monotonic()
        with pytest.raises(StoreError, match="cannot be reached"):
            Store.open(f"postgresql+psycopg://ada@127.0.0.1:{silent.getsockname()[1]}/chat", busy_seconds=1)
        assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("known", "unknown"), [("/postgres?", "/nowhere?"), ("//postgres:", "//nobody:")], ids=["database", "user"]
)
def test_a_postgresql_that_does_not_let_us_in(postgresql_url: str, known: str, unknown: str) -> None:
    with pytest.raises(StoreError, match=r'does not let us in: (database|role) "\w+" does not exist') as caught:
        Store.open(postgresql_url.replace(known, unknown))
    assert "the database's name" in caught.value.hint


def test_a_postgresql_user_without_rights(postgresql_url: str, rows: Rows) -> None:
    ((schema,),) = rows(postgresql_url, "SELECT current_schema()")
    rows(postgresql_url, f"CREATE ROLE guest_{schema} LOGIN; GRANT USAGE ON SCHEMA {schema} TO guest_{schema}")
    with pytest.raises(StoreError, match="does not let us do that: permission denied"):
        Store.open(postgresql_url.replace("//postgres:", f"//guest_{schema}:"))
    rows(postgresql_url, f"DROP OWNED BY guest_{schema}; DROP ROLE guest_{schema}")


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # what Python itself notes down for a package that is not there
    with pytest.raises(MissingExtra, match="psycopg") as caught:
        Store.open("postgresql+psycopg://ada@127.0.0.1/chat")
    assert "pip install 'tertulia[postgres]'" in caught.value.hint


def test_no_statement_searches_a_whole_table(sqlite_url: str, rows: Rows) -> None:
    """What takes no time in a test must not take seconds in a database of a million turns."""
    statements: set[str] = set()
    with Store.open(sqlite_url) as store:

        @event.listens_for(store._engine, "before_cursor_execute")
        def _note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            statements.add(statement)

        conversation = store.create_conversation(OWNER, "tfidf").id
        said = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
        store.stop_pending()
        store.finish(said.bot.id, text="hi", status="done")
        store.regenerate(conversation, OWNER, key="r", bot="tfidf")
        store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
        store.undo(conversation, OWNER)
        store.update_conversation(conversation, OWNER, title="Hello", bot="generic")
        assert len(store.conversations(OWNER)) == len(list(store.export(OWNER, history=True))) == 1
        store.erase_conversation(conversation, OWNER)
        store.erase_owner(OWNER)
    assert len(statements) > 12
    for statement in statements:
        literal = statement.replace("?", "0")
        plan = [step for *_, step in rows(sqlite_url, f"EXPLAIN QUERY PLAN {literal}")]
        assert not [step for step in plan if step.startswith("SCAN") and step != "SCAN CONSTANT ROW"], statement
