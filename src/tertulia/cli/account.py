"""`tertulia account ...`: the accounts of researchers, for whoever has the server's database."""

import getpass
import os
import sys
from typing import Annotated

from tertulia.cli.command import command
from tertulia.cli.database import open_database
from tertulia.cli.output import out, print_json, print_table
from tertulia.core.config import Cli, Config
from tertulia.core.errors import UnknownName, UsageError
from tertulia.store import AccountStore
from tertulia.store.review import AuditLog
from tertulia.store.study_records import AccountRecord, AccountRole
from tertulia.web.admin.access import checked_name

PASSWORD_VARIABLE = "TERTULIA_ACCOUNT_PASSWORD"
OPERATOR = "operator"
"""Who changes accounts on the command line, in the audit log."""


class AddAccountConfig(Config):
    """A new account."""

    name: Annotated[str, Cli(argument=True)]
    """Name to sign in with."""
    role: AccountRole = "researcher"
    """What it may do: view and export; also run studies and adjudicate; also manage accounts."""
    db: str = "sqlite:///tertulia.db"
    """Database of the server, as for `tertulia serve`."""


@command(AddAccountConfig, file=False)
def add(settings: AddAccountConfig, *, as_json: bool) -> None:
    """Add an account. You are asked for its password, unless TERTULIA_ACCOUNT_PASSWORD is set."""
    name, password = checked_name(settings.name), _password()
    with open_database(settings.db, create=True) as database:
        record = AccountStore(database).create(name, password, settings.role)
        detail = {"account": record.name, "role": record.role}
        AuditLog(database).record(OPERATOR, "added an account", detail)
    if as_json:
        print_json(_as_json(record))
    else:
        out.print(f"Added the account {record.name!r} ({record.role}). Sign in at /admin.", markup=False)


class ListAccountsConfig(Config):
    """Which accounts to list."""

    db: str = "sqlite:///tertulia.db"
    """Database of the server, as for `tertulia serve`."""


@command(ListAccountsConfig, file=False)
def list_accounts(settings: ListAccountsConfig, *, as_json: bool) -> None:
    """List the accounts."""
    with open_database(settings.db) as database:
        records = AccountStore(database).list()
    if as_json:
        print_json([_as_json(record) for record in records])
    else:
        print_table(("name", "role", "created"), [(r.name, r.role, f"{r.created:%Y-%m-%d}") for r in records])
        if not records:
            out.print(f"No accounts yet. Add one with: tertulia account add NAME --db {settings.db}", markup=False)


class RemoveAccountConfig(Config):
    """The account to remove."""

    name: Annotated[str, Cli(argument=True)]
    """Name of the account."""
    db: str = "sqlite:///tertulia.db"
    """Database of the server, as for `tertulia serve`."""


@command(RemoveAccountConfig, file=False)
def remove(settings: RemoveAccountConfig, *, as_json: bool) -> None:
    """Remove an account, and end its sessions. What it did stays in the audit log."""
    with open_database(settings.db) as database:
        accounts = AccountStore(database)
        if settings.name not in (names := [record.name for record in accounts.list()]):
            raise UnknownName("account", settings.name, names)
        accounts.delete(settings.name)
        AuditLog(database).record(OPERATOR, "deleted an account", {"account": settings.name})
    if as_json:
        print_json({"removed": settings.name})
    else:
        out.print(f"Removed the account {settings.name!r}.", markup=False)


def _password() -> str:
    if password := os.environ.get(PASSWORD_VARIABLE):
        return password
    if not sys.stdin.isatty():
        raise UsageError("A password is needed, and there is no terminal to ask on.", hint=f"Set {PASSWORD_VARIABLE}.")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != password:
        raise UsageError("The passwords differ.", hint="Try again.")
    return password


def _as_json(record: AccountRecord) -> dict[str, str]:
    return {"name": record.name, "role": record.role, "created": record.created.isoformat()}
