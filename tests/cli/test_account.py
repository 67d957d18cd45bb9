"""`tertulia account`: adding, listing and removing researchers' accounts."""

import json
from pathlib import Path
from typing import Any

import pytest

from tertulia.store import AccountStore, Database
from tertulia.store.review import AuditLog

VARIABLE = "TERTULIA_ACCOUNT_PASSWORD"


@pytest.fixture
def db(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'chat.db'}"


def test_accounts_are_added_listed_and_removed(tertulia: Any, db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "correct horse battery")
    assert tertulia("account", "add", "ada", "--role", "owner", "--db", db).code == 0
    assert tertulia("account", "add", "bob", "--db", db).code == 0
    listed = json.loads(tertulia("account", "list", "--db", db, "--json").out)
    assert [(one["name"], one["role"]) for one in listed] == [("ada", "owner"), ("bob", "researcher")]
    removed = tertulia("account", "remove", "bob", "--db", db)
    assert removed.code == 0
    table = tertulia("account", "list", "--db", db).out
    assert "ada" in table
    assert "bob" not in table
    with Database.open(db) as database:
        assert AccountStore(database).sign_in("ada", "correct horse battery") is not None
        log = [(entry.who, entry.what, entry.detail["account"]) for entry in AuditLog(database).entries()]
    assert log == [
        ("operator", "deleted an account", "bob"),
        ("operator", "added an account", "bob"),
        ("operator", "added an account", "ada"),
    ]


def test_mistakes_are_named(tertulia: Any, db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert f"Set {VARIABLE}" in tertulia("account", "add", "ada", "--db", db).stderr
    monkeypatch.setenv(VARIABLE, "correct horse battery")
    assert "must be an owner's" in tertulia("account", "add", "ada", "--db", db).stderr
    assert "visible characters" in tertulia("account", "add", " ", "--role", "owner", "--db", db).stderr
    unknown = tertulia("account", "remove", "nobody", "--db", db)
    assert (unknown.code, "no account called 'nobody'" in unknown.stderr) == (2, True)
    tertulia("account", "add", "ada", "--role", "owner", "--db", db)
    assert "only owner" in tertulia("account", "remove", "ada", "--db", db).stderr
    monkeypatch.setenv(VARIABLE, "short")
    assert "shorter than 10" in tertulia("account", "add", "bob", "--db", db).stderr
