"""Accounts of researchers: passwords, sessions and roles, on both databases."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

import pytest

from tertulia.core.errors import TertuliaError, UsageError
from tertulia.store import AccountStore, Database, NotFound
from tertulia.store.accounts import SESSION_SECONDS

AtOnce = Callable[[Sequence[Callable[[], Any]]], list[Any]]
Rows = Callable[[str, str], list[tuple[Any, ...]]]
PASSWORD = "correct horse battery"


class Clock(Protocol):
    """A clock that tests set."""

    time: datetime

    def __call__(self) -> datetime: ...

    def advance(self, seconds: float) -> None: ...


@pytest.fixture
def accounts(database: Database, clock: Clock) -> AccountStore:
    return AccountStore(database, now=clock)


def test_an_account_signs_in_with_its_password_only(accounts: AccountStore, url: str, rows: Rows, clock: Clock) -> None:
    assert accounts.count() == 0
    ada = accounts.create("ada", PASSWORD, "owner")
    bob = accounts.create("bob", PASSWORD, "viewer")
    assert accounts.count() == 2
    assert accounts.list() == (ada, bob)
    assert (ada.name, ada.role, ada.created) == ("ada", "owner", clock.time)
    token = accounts.sign_in("ada", PASSWORD)
    assert token is not None
    assert accounts.account_of(token) == accounts.get("ada") == ada
    for name, password in (("ada", "wrong horse battery"), ("eve", PASSWORD), ("ada", ""), ("ada", "\udc80")):
        assert accounts.sign_in(name, password) is None
    for forged in ("", token[:-1], ada.id):
        assert accounts.account_of(forged) is None
    kept = repr(rows(url, "SELECT * FROM accounts") + rows(url, "SELECT * FROM account_sessions"))
    assert PASSWORD not in kept
    assert token not in kept
    hashes = {password for (password,) in rows(url, "SELECT password FROM accounts")}
    assert len(hashes) == 2  # the same password, with different salts


def test_sessions_end(accounts: AccountStore, clock: Clock, url: str, rows: Rows) -> None:
    accounts.create("ada", PASSWORD, "owner")
    first, second, third = (accounts.sign_in("ada", PASSWORD) or "" for _ in range(3))
    accounts.sign_out(first)
    assert accounts.account_of(first) is None
    assert accounts.account_of(second) is not None
    accounts.set_password("ada", "another password")
    assert accounts.account_of(second) is accounts.account_of(third) is None
    assert accounts.sign_in("ada", PASSWORD) is None
    token = accounts.sign_in("ada", "another password") or ""
    clock.advance(SESSION_SECONDS - 1)
    assert accounts.account_of(token) is not None
    clock.advance(1)
    assert accounts.account_of(token) is None
    accounts.sign_in("ada", "another password")
    assert len(rows(url, "SELECT * FROM account_sessions")) == 1  # expired ones are removed


def test_roles_change_at_once_and_accounts_can_be_deleted(accounts: AccountStore) -> None:
    accounts.create("ada", PASSWORD, "owner")
    accounts.create("bob", PASSWORD, "viewer")
    token = accounts.sign_in("bob", PASSWORD) or ""
    assert accounts.set_role("bob", "researcher").role == "researcher"
    account = accounts.account_of(token)
    assert account is not None
    assert account.role == "researcher"
    accounts.delete("bob")
    assert accounts.account_of(token) is None
    for call in (
        lambda: accounts.delete("bob"),
        lambda: accounts.set_role("bob", "viewer"),
        lambda: accounts.set_password("bob", PASSWORD),
        lambda: accounts.get("bob"),
    ):
        with pytest.raises(NotFound):
            call()


def test_there_is_always_an_owner(accounts: AccountStore, at_once: AtOnce) -> None:
    with pytest.raises(UsageError, match="first account"):
        accounts.create("ada", PASSWORD, "viewer")
    names = ("ada", "bob", "cleo")
    for name in names:
        accounts.create(name, PASSWORD, "owner")
    outcomes = at_once(
        [
            lambda: accounts.delete("ada"),
            lambda: accounts.delete("bob"),
            lambda: accounts.set_role("cleo", "viewer"),
        ]
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert len(refused) == 1
    assert isinstance(refused[0], TertuliaError)
    assert "only owner" in refused[0].message
    assert [account.role for account in accounts.list()].count("owner") == 1


def test_bad_accounts_are_refused(accounts: AccountStore) -> None:
    accounts.create("ada", PASSWORD, "owner")
    with pytest.raises(UsageError, match="exists already"):
        accounts.create("ada", PASSWORD, "viewer")
    with pytest.raises(UsageError, match="shorter than 10"):
        accounts.create("bob", "short", "viewer")
    with pytest.raises(UsageError, match="no role 'admin'"):
        accounts.create("bob", PASSWORD, "admin")  # type: ignore[arg-type]
    assert accounts.count() == 1
