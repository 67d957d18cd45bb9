"""`tertulia store export | backup | restore | check` on a real database."""

import json
from pathlib import Path
from typing import Any

from tests.cli.conftest import Tertulia

from tertulia.store import ConversationStore, Database
from tertulia.store.study_base import study_owner
from tertulia.web.study.chats import participant_owner


def make(file: Path) -> str:
    url = f"sqlite:///{file}"
    with Database.open(url) as database:
        store = ConversationStore(database)
        store.say(store.create("ada", "tfidf").id, "ada", "hello", key="k")
    return url


def test_a_database_is_backed_up_checked_and_restored(tertulia: Tertulia, tmp_path: Path) -> None:
    url, file, restored = make(tmp_path / "chat.db"), tmp_path / "backup.db", f"sqlite:///{tmp_path / 'new.db'}"
    assert f"Wrote 3 rows to {file}" in tertulia("store", "backup", "--db", url, "--out", file).out
    report: Any = json.loads(tertulia("store", "check", "--db", f"sqlite:///{file}", "--json").out)
    assert (report["problems"], report["rows"]["turns"]) == ([], 2)
    assert "Restored 3 rows" in tertulia("store", "restore", file, "--db", restored).out
    checked = tertulia("store", "check", "--db", restored)
    assert (checked.code, "No problems" in checked.out) == (0, True)
    again = tertulia("store", "restore", file, "--db", restored)
    assert (again.code, "is not empty" in again.stderr) == (1, True)


def test_conversations_of_studies_are_exported_only_on_request(tertulia: Tertulia, tmp_path: Path) -> None:
    url, file = make(tmp_path / "chat.db"), tmp_path / "all.jsonl"
    with Database.open(url) as database:
        store = ConversationStore(database)
        for owner in (study_owner("a" * 32), participant_owner("b" * 32)):
            store.say(store.create(owner, "study:tfidf").id, owner, "a secret", key="k")
    result = tertulia("store", "export", "--db", url, "--out", file)
    assert "Wrote 1 conversation " in result.out
    assert "Left out the conversations of studies" in result.out
    assert "secret" not in file.read_text()
    again = ("store", "export", "--db", url, "--out", file, "--studies", "--json")
    assert tertulia(*again).code == 2  # the file exists
    asked: Any = json.loads(tertulia(*again, "--force").out)
    assert (asked["conversations"], asked["studies_left_out"]) == (3, False)
    assert file.read_text().count('"text":"a secret"') == 2


def test_problems_give_exit_code_1(tertulia: Tertulia, tmp_path: Path) -> None:
    url = make(tmp_path / "chat.db")
    with Database.open(url) as database, database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE conversations SET turn_count = 7")
    for arguments in (["check", "--db", url], ["backup", "--db", url, "--out", tmp_path / "backup.db"]):
        result = tertulia("store", *arguments)
        assert (result.code, "wrong count of turns" in result.stderr) == (1, True)
