"""Opening a database: errors say what is wrong, and databases of older and newer versions are handled."""

import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import event

from tertulia.core.errors import MissingExtra, StoreError, UsageError
from tertulia.store import ConversationStore, Database, StudyStore
from tertulia.store.database import revisions
from tertulia.store.engine import make_engine, parse_url, transaction
from tertulia.store.leases import Leases
from tertulia.store.schema import VERSION_TABLE, metadata

OWNER = "ada"
Python = Callable[..., subprocess.Popen[str]]
Rows = Callable[[str, str], list[tuple[Any, ...]]]


def test_data_survives_reopening(url: str) -> None:
    with Database.open(url) as database:
        store = ConversationStore(database)
        created = store.create(OWNER, "tfidf", title="kept")
    with Database.open(url) as database:
        store = ConversationStore(database)
        assert store.get(created.id, OWNER) == created


def differences(url: str) -> list[Any]:
    engine = make_engine(parse_url(url), busy_seconds=5)
    with transaction(engine) as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True, "compare_server_default": True}
        changes = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    engine.dispose()
    return changes


def test_the_migrations_create_the_tables_of_the_schema(url: str, rows: Rows) -> None:
    Database.open(url).close()
    assert differences(url) == []
    rows(url, "DROP INDEX ix_conversations_owner_updated_id")
    rows(url, "ALTER TABLE turns ADD COLUMN surprise INTEGER")
    assert sorted(change[0] for change in differences(url)) == [
        "add_index",
        "remove_column",
    ]  # the comparison does detect differences


def test_a_newer_database_is_refused_and_not_changed(url: str, rows: Rows) -> None:
    Database.open(url).close()
    rows(url, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(StoreError, match=r"newer version of Tertulia \(schema 9999\)") as caught:
        Database.open(url)
    assert "pip install --upgrade" in caught.value.hint
    assert rows(url, f"SELECT version_num FROM {VERSION_TABLE}") == [("9999",)]


def test_a_failed_migration_leaves_nothing_behind(url: str, rows: Rows) -> None:
    rows(url, "CREATE TABLE turns (id INTEGER)")  # of another program
    with pytest.raises(StoreError, match="turns"):
        Database.open(url)
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
def test_unsupported_urls_are_refused_with_the_supported_forms(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Database.open(url)
    assert "sqlite:///FILE" in caught.value.hint
    assert "postgresql+psycopg://" in caught.value.hint


def test_the_password_is_never_shown(postgresql_url: str) -> None:
    secret = postgresql_url.replace("postgres:@", "postgres:hunter2@").replace("+psycopg", "")
    assert "hunter2" in secret
    with Database.open(secret) as database:
        assert "hunter2" not in database.url
        assert database.url.startswith("postgresql+psycopg://postgres:***@")
    with pytest.raises(StoreError) as caught:
        Database.open("postgresql+psycopg://ada:hunter2@127.0.0.1:1/chat?password=hunter2")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(UsageError) as refused:
        Database.open("what://ever:hunter2@[")
    assert "hunter2" not in str(refused.value)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder"):
        Database.open(f"sqlite:///{tmp_path}")


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"folder does not exist: .*nowhere"):
        Database.open(f"sqlite:///{tmp_path}/nowhere/chat.db")
    assert not (tmp_path / "nowhere").exists()


def test_a_read_only_folder_is_reported(tmp_path: Path) -> None:
    folder = tmp_path
    if os.geteuid() == 0:  # root may write everywhere, but not even root makes files in /proc
        folder = Path("/proc/self")
    else:
        tmp_path.chmod(0o555)
    with pytest.raises(StoreError, match="cannot be opened") as caught:
        Database.open(f"sqlite:///{folder}/chat.db")
    assert "is writable" in caught.value.hint


def test_a_file_that_is_not_a_database_is_not_changed(tmp_path: Path) -> None:
    file = tmp_path / "diary.txt"
    file.write_text("Dear diary, " * 100)
    with pytest.raises(StoreError, match="not a SQLite database"):
        Database.open(f"sqlite:///{file}")
    assert file.read_text() == "Dear diary, " * 100


def test_a_damaged_database_is_reported(sqlite_url: str, tmp_path: Path) -> None:
    with Database.open(sqlite_url) as database:
        store = ConversationStore(database)
        conversation = store.create(OWNER, "tfidf").id
        for number in range(50):
            store.say(conversation, OWNER, "hello " * 100, key=str(number), bot="tfidf")
    file = tmp_path / "chat.db"
    contents = file.read_bytes()
    file.write_bytes(contents[:4096] + b"\xff" * (len(contents) - 4096))
    with pytest.raises(StoreError, match="damaged"), Database.open(sqlite_url) as database:
        ConversationStore(database).get(conversation, OWNER)


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
print("free", flush=True)
"""


def test_a_locked_database_is_reported_and_usable_afterwards(sqlite_url: str, tmp_path: Path, python: Python) -> None:
    with Database.open(sqlite_url, busy_seconds=0.2) as database:
        store = ConversationStore(database)
        conversation = store.create(OWNER, "tfidf").id
        holder = python(HOLDER, str(tmp_path / "chat.db"))
        assert holder.stdout
        assert holder.stdin
        assert holder.stdout.readline() == "locked\n"
        started = time.monotonic()
        with pytest.raises(StoreError, match="locked by another program") as caught:
            store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
        assert 0.15 < time.monotonic() - started < 5
        assert caught.value.hint
        assert store.get(conversation, OWNER).turns == ()  # reading still works
        with Database.open(sqlite_url, busy_seconds=0.2) as other_database:  # and so does opening
            other = ConversationStore(other_database)
            assert len(other.summaries(OWNER)) == 1
        holder.stdin.write("go\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "free\n"
        assert store.say(conversation, OWNER, "hello", key="k", bot="tfidf").is_new


def test_a_new_file_locked_by_another_program_is_reported(tmp_path: Path, python: Python) -> None:
    holder = python(HOLDER, str(tmp_path / "chat.db"))
    assert holder.stdout
    assert holder.stdout.readline() == "locked\n"
    with pytest.raises(StoreError, match="locked by another program"):
        Database.open(f"sqlite:///{tmp_path / 'chat.db'}", busy_seconds=0.2)


def test_opening_waits_for_a_program_that_writes_to_a_new_file(sqlite_url: str, tmp_path: Path) -> None:
    """SQLite refuses to switch a file to the write-ahead log while another program writes, and does so at once."""
    file = tmp_path / "chat.db"
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE something (id)")
        with closing(sqlite3.connect(file, timeout=60)) as second, pytest.raises(sqlite3.OperationalError):
            second.execute("PRAGMA journal_mode = WAL")
        commit = threading.Timer(0.2, other.execute, ["COMMIT"])
        commit.start()
        with Database.open(sqlite_url) as database:
            assert ConversationStore(database).summaries(OWNER) == []
        commit.join()


def test_a_locked_row_on_postgresql_is_reported(postgresql_url: str) -> None:
    with Database.open(postgresql_url, busy_seconds=0.2) as database:
        store = ConversationStore(database)
        conversation = store.create(OWNER, "tfidf").id
        engine = make_engine(parse_url(postgresql_url), busy_seconds=5)
        with transaction(engine, write=True) as connection:
            connection.exec_driver_sql("LOCK TABLE conversations")
            with pytest.raises(StoreError, match="locked by another program"):
                store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
        engine.dispose()
        assert store.say(conversation, OWNER, "hello", key="k", bot="tfidf").is_new


def test_an_absent_postgresql_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: nobody answers, and no other program can take the port
        port = taken.getsockname()[1]
        with pytest.raises(StoreError, match="cannot be reached") as caught:
            Database.open(f"postgresql+psycopg://ada@127.0.0.1:{port}/chat")
    assert "server is running" in caught.value.hint


def test_a_postgresql_that_never_answers_times_out() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        started = time.monotonic()
        with pytest.raises(StoreError, match="cannot be reached"):
            Database.open(f"postgresql+psycopg://ada@127.0.0.1:{silent.getsockname()[1]}/chat", busy_seconds=1)
        assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("known", "unknown"), [("/postgres?", "/nowhere?"), ("//postgres:", "//nobody:")], ids=["database", "user"]
)
def test_an_unknown_postgresql_user_or_database_is_reported(postgresql_url: str, known: str, unknown: str) -> None:
    with pytest.raises(StoreError, match=r'refused the connection: (database|role) "\w+" does not exist') as caught:
        Database.open(postgresql_url.replace(known, unknown))
    assert "the database name" in caught.value.hint


def test_missing_postgresql_privileges_are_reported(postgresql_url: str, rows: Rows) -> None:
    ((schema,),) = rows(postgresql_url, "SELECT current_schema()")
    rows(postgresql_url, f"CREATE ROLE guest_{schema} LOGIN; GRANT USAGE ON SCHEMA {schema} TO guest_{schema}")
    with pytest.raises(StoreError, match="denied the operation: permission denied"):
        Database.open(postgresql_url.replace("//postgres:", f"//guest_{schema}:"))
    rows(postgresql_url, f"DROP OWNED BY guest_{schema}; DROP ROLE guest_{schema}")


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # what Python itself records for a missing package
    with pytest.raises(MissingExtra, match="psycopg") as caught:
        Database.open("postgresql+psycopg://ada@127.0.0.1/chat")
    assert "pip install 'tertulia[postgres]'" in caught.value.hint


def test_no_statement_scans_a_table(sqlite_url: str, rows: Rows) -> None:
    """What is fast in a test must not take seconds in a database with a million turns."""
    statements: set[str] = set()
    with Database.open(sqlite_url) as database:
        store = ConversationStore(database)

        @event.listens_for(database.engine, "before_cursor_execute")
        def _record(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            statements.add(statement)

        conversation = store.create(OWNER, "tfidf").id
        exchange = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
        store.save_progress({exchange.bot.id: "h"})
        store.progress([exchange.bot.id])
        leases = Leases(database, process="")
        leases.renew()
        ConversationStore(database, leases=leases).say(conversation, OWNER, "dead", key="d", bot="tfidf")
        other = Leases(database, lease_seconds=0)
        assert [other.abandon_expired() for _ in range(2)] == [2, 0]
        store.save_progress({exchange.bot.id: "hi"})
        store.finish(exchange.bot.id, text="hi", status="done")
        store.regenerate(conversation, OWNER, key="r", bot="tfidf")
        store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
        store.undo(conversation, OWNER)
        store.update(conversation, OWNER, title="Hello", bot="generic")
        assert len(store.summaries(OWNER)) == len(list(store.export(OWNER, history=True))) == 1
        assert store.summaries(OWNER, before=conversation) == []
        assert store.turns(conversation, OWNER, limit=1) == (store.last_reply(conversation, OWNER),)
        leases.release()
        store.erase(conversation, OWNER)
        store.erase_owner(OWNER)
    assert len(statements) > 12
    assert_no_scans(statements, sqlite_url, rows)


def test_no_statement_of_a_study_scans_a_table(sqlite_url: str, rows: Rows) -> None:
    statements: set[str] = set()
    with Database.open(sqlite_url) as database:
        studies, store = StudyStore(database), ConversationStore(database)
        study = studies.create("pilot", {}, "digest").id
        studies.add_units(study, [("u", ["a"], {}, 2)])
        studies.set_state(study, "open", "ada")

        @event.listens_for(database.engine, "before_cursor_execute")
        def _record(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            statements.add(statement)

        (one, token), (two, _) = (studies.enroll(study, "link", name, limit=9) for name in ("p1", "p2"))
        studies.participant(token)
        studies.consent(one.id, "v1", "en")
        studies.set_step(one.id, "work", {})
        studies.touch(one.id)
        for person in (one, two):
            studies.join_waiting(study, person.id)
        pair = studies.match(study)
        assert pair is not None
        turn = store.add_turn(pair.conversation, "A", "hello", key="k")
        studies.mark_present(pair.conversation, one.id)
        assignment = studies.lease_unit(study, one.id, lambda units: units[0].id, 60)
        assert assignment is not None
        studies.attach_conversation(assignment.id, pair.conversation)
        studies.add_labels(assignment.id, one.id, [("unit", "q", 1), (f"turn:{turn.id}", "q", 1)], key="1")
        studies.add_labels(assignment.id, one.id, [("unit", "q", 2)], key="2")
        studies.undo_labels(assignment.id, one.id, "2")
        studies.renew(assignment.id, 90)
        studies.submit(assignment.id, one.id)
        assert len(studies.labels_of(assignment.id)) == len(list(studies.rows(study))) == 2
        studies.complete(one.id, "CODE")
        studies.progress(study)
        studies.events(study)
        studies.depart(pair.conversation, one.id)
        studies.withdraw(one.id)
    assert len(statements) > 40
    assert_no_scans(statements, sqlite_url, rows)


def assert_no_scans(statements: set[str], url: str, rows: Rows) -> None:
    for statement in statements:
        literal = statement.replace("?", "0")
        plan = [step for *_, step in rows(url, f"EXPLAIN QUERY PLAN {literal}")]
        assert not [step for step in plan if step.startswith("SCAN") and step != "SCAN CONSTANT ROW"], statement
        if "LIMIT" in statement:  # a page is read from the index, without sorting all the rest
            assert not [step for step in plan if "TEMP B-TREE" in step], statement
