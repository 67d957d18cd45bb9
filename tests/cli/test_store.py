"""`tertulia store backup | restore | check` on a real database."""

import json
from pathlib import Path
from typing import Any

from tests.cli.conftest import Tertulia

from tertulia.store import ConversationStore, Database


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


def test_problems_give_exit_code_1(tertulia: Tertulia, tmp_path: Path) -> None:
    url = make(tmp_path / "chat.db")
    with Database.open(url) as database, database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE conversations SET turn_count = 7")
    for arguments in (["check", "--db", url], ["backup", "--db", url, "--out", tmp_path / "backup.db"]):
        result = tertulia("store", *arguments)
        assert (result.code, "wrong count of turns" in result.stderr) == (1, True)
