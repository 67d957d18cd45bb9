"""Backup, restore and check, from and to both databases, with every table filled."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tertulia.core.dialogue import Persona
from tertulia.core.errors import StoreError
from tertulia.store import AccountStore, ConversationStore, Database, StudyStore
from tertulia.store.backup import backup, check, restore
from tertulia.store.review import AuditLog
from tertulia.store.schema import metadata, servers

OWNER = "ada"
Rows = Callable[[str, str], list[tuple[Any, ...]]]


def fill(url: str) -> None:
    """Put rows into every table."""
    with Database.open(url) as database:
        store, studies, accounts = ConversationStore(database), StudyStore(database), AccountStore(database)
        AuditLog(database).record(OWNER, "signed in")
        conversation = store.create(OWNER, "tfidf", Persona(("I drink tea.",))).id
        exchange = store.say(conversation, OWNER, "hello", key="k")
        store.finish(exchange.bot.id, text="hi – ¡hola!", status="done", reply={"seconds": 0.1, "score": None})
        store.say(conversation, OWNER, "pending", key="p")
        study = studies.create("pilot", {"preset": "arena", "n": [1, None]}, "digest").id
        studies.add_units(study, [("u1", ["a", "b"], {"context": []}, 2)])
        studies.set_state(study, "open", "ada")
        people = [studies.enroll(study, "prolific", f"p{n}", {"session": "s"})[0].id for n in range(3)]
        for participant in people[:2]:
            studies.join_waiting(study, participant, "u1")
        pair = studies.match(study)
        assert pair is not None
        store.add_turn(pair.conversation, "A", "hello", key="1")
        studies.join_waiting(study, people[2])
        assignment = studies.lease_unit(study, people[0], lambda units: units[0].id, 60, side_order=lambda _: [1, 0])
        assert assignment is not None
        studies.attach_conversation(assignment.id, pair.conversation)
        studies.add_labels(assignment.id, people[0], [("unit", "q", None), ("unit", "r", {"x": 1.5})], key="1")
        studies.add_labels(assignment.id, people[0], [("unit", "r", False)], key="2")
        studies.submit(assignment.id, people[0])
        accounts.create("ada", "correct horse battery", "owner")
        accounts.sign_in("ada", "correct horse battery")


def contents(url: str) -> dict[str, list[tuple[Any, ...]]]:
    with Database.open(url) as database, database.engine.connect() as connection:
        return {
            table.name: sorted(map(tuple, connection.execute(select(table))), key=repr)
            for table in metadata.sorted_tables
            if table is not servers
        }


@pytest.fixture(params=["sqlite", "postgresql"])
def target_url(request: pytest.FixtureRequest, tmp_path: Path, postgresql_url: str, url: str) -> str:
    """An empty database to restore into; a test on PostgreSQL restores to SQLite, and one on SQLite to both."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'restored.db'}"
    if url == postgresql_url:
        pytest.skip("the source is this database")
    return postgresql_url


def test_a_backup_restores_everything(url: str, target_url: str, tmp_path: Path) -> None:
    fill(url)
    before = contents(url)
    assert all(before.values())  # every table has rows
    report = backup(url, tmp_path / "backup.db")
    assert report.problems == ()
    assert {name: report.rows[name] for name in before} == {name: len(rows) for name, rows in before.items()}
    assert sorted(file.name for file in tmp_path.glob("*backup.db*")) == ["backup.db"]  # one file, and no leftovers
    assert (tmp_path / "backup.db").stat().st_mode & 0o077 == 0
    assert contents(url) == before
    kept = (tmp_path / "backup.db").read_bytes()
    assert restore(tmp_path / "backup.db", target_url).rows == {name: len(rows) for name, rows in before.items()}
    assert contents(target_url) == before
    assert (tmp_path / "backup.db").read_bytes() == kept
    with Database.open(target_url) as database:
        assert AccountStore(database).sign_in("ada", "correct horse battery") is not None
        (row,) = (
            row for row in StudyStore(database).rows(StudyStore(database).by_name("pilot").id) if row.question == "r"
        )
        assert row.value is False
    assert check(target_url).is_sound


def test_nothing_is_overwritten(url: str, tmp_path: Path) -> None:
    fill(url)
    before = contents(url)
    file = tmp_path / "backup.db"
    backup(url, file)
    kept = file.read_bytes()
    with pytest.raises(StoreError, match="exists already"):
        backup(url, file)
    with pytest.raises(StoreError, match=r"is not empty: it has rows in .*studies"):
        restore(file, url)
    assert contents(url) == before
    assert file.read_bytes() == kept


def test_a_backup_of_a_busy_database_is_consistent(url: str, tmp_path: Path) -> None:
    with Database.open(url) as database:
        store = ConversationStore(database)
        conversation = store.create(OWNER, "tfidf").id
        ended = threading.Event()

        def write() -> None:
            number = 0
            while not ended.is_set():
                store.say(conversation, OWNER, "hello", key=str(number))
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(3):
                report = backup(url, tmp_path / f"{number}.db")
                assert report.problems == ()
                assert report.rows["turns"] % 2 == 0
        finally:
            ended.set()
            writer.join()
        assert len(store.get(conversation, OWNER).turns) >= report.rows["turns"]


def test_an_older_sqlite_backup_is_migrated_when_restored(sqlite_url: str, tmp_path: Path, rows: Rows) -> None:
    """A backup before an update must not update the database."""
    fill(sqlite_url)
    for table in reversed(metadata.sorted_tables):
        if table.name not in ("conversations", "turns", "servers"):
            rows(sqlite_url, f"DROP TABLE {table.name}")
    rows(sqlite_url, "ALTER TABLE conversations DROP COLUMN evidence")
    rows(sqlite_url, "UPDATE tertulia_version SET version_num = '0002'")
    backup(sqlite_url, tmp_path / "old.db")
    for url in (sqlite_url, f"sqlite:///{tmp_path / 'old.db'}"):
        report = check(url)
        assert (report.revision, report.is_sound) == ("0002", True)
        assert report.rows["turns"] == 5
        assert "labels" not in report.rows
    restored = f"sqlite:///{tmp_path / 'new.db'}"
    restore(tmp_path / "old.db", restored)
    assert check(restored).revision == "0005"
    assert check(f"sqlite:///{tmp_path / 'old.db'}").revision == "0002"
    with Database.open(restored) as database:
        assert len(ConversationStore(database).export(OWNER).__next__().turns) == 4


def test_postgresql_of_another_version_is_not_backed_up(postgresql_url: str, tmp_path: Path, rows: Rows) -> None:
    Database.open(postgresql_url).close()
    rows(postgresql_url, "UPDATE tertulia_version SET version_num = '0002'")
    with pytest.raises(StoreError, match=r"schema of another version \(0002 instead of 0005\)") as caught:
        backup(postgresql_url, tmp_path / "backup.db")
    assert "pg_dump" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_missing_and_foreign_files_are_reported(sqlite_url: str, tmp_path: Path) -> None:
    foreign, text = tmp_path / "foreign.db", tmp_path / "text.db"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE something (id)")
    text.write_text("This is not a database. " * 100)
    for call, message in (
        (lambda: backup(sqlite_url, tmp_path / "b.db"), "File not found"),
        (lambda: check(sqlite_url), "File not found"),
        (lambda: restore(tmp_path / "no.db", sqlite_url), "File not found"),
        (lambda: restore(foreign, sqlite_url), "not a backup of Tertulia"),
        (lambda: backup(f"sqlite:///{text}", tmp_path / "b.db"), "not a SQLite database"),
        (lambda: backup(f"sqlite:///{foreign}", tmp_path / "no" / "b.db"), "folder does not exist"),
    ):
        with pytest.raises(StoreError, match=message):
            call()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["foreign.db", "text.db"]  # nothing was created


BREAKAGES = {
    "UPDATE conversations SET turn_count = turn_count + 1 WHERE owner = 'ada'": "1 conversations have a wrong count",
    "UPDATE study_units SET wanted = 0": "1 units have more ratings than they want",
    "UPDATE labels SET current = (1 = 1)": "1 questions have several current labels",
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_check_detects_what_must_not_be(url: str, rows: Rows, breakage: str) -> None:
    fill(url)
    before = contents(url)
    report = check(url)
    assert (report.is_sound, report.revision) == (True, "0005")
    assert report.rows["labels"] == 3
    rows(url, breakage)
    assert [problem for problem in check(url).problems if BREAKAGES[breakage] in problem]
    assert before.keys() == contents(url).keys()


def test_a_check_detects_dangling_references_and_damage(sqlite_url: str, tmp_path: Path, rows: Rows) -> None:
    fill(sqlite_url)
    rows(sqlite_url, "DELETE FROM study_units")  # on a connection that does not enforce foreign keys
    assert check(sqlite_url).problems == ("1 rows of assignments refer to missing rows of study_units.",)
    report = backup(sqlite_url, tmp_path / "backup.db")
    assert len(report.problems) == 1  # backed up, but not silently
    file = tmp_path / "backup.db"
    ((page,),) = rows(f"sqlite:///{file}", "SELECT rootpage FROM sqlite_master WHERE name = 'labels'")
    content = bytearray(file.read_bytes())
    content[4096 * (page - 1) : 4096 * page] = b"\xff" * 4096
    file.write_bytes(content)
    assert "damaged" in check(f"sqlite:///{file}").problems[0]
    with pytest.raises(StoreError, match="cannot be restored"):
        restore(file, f"sqlite:///{tmp_path / 'new.db'}")
