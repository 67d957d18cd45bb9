"""The accounts of researchers, and their sessions. Limiting the attempts to sign in is up to the caller.

A password is kept as its scrypt hash with a salt of its own, and a session's token as its SHA-256: who reads the
database can use neither. Hashes are computed before the transaction begins, because they take tens of milliseconds and
SQLite has one writer at a time.
"""

import hashlib
import hmac
import secrets
from datetime import timedelta
from typing import get_args

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from tertulia.core.errors import TertuliaError, UsageError
from tertulia.store.database import Database
from tertulia.store.records import NotFound
from tertulia.store.schema import account_sessions, accounts
from tertulia.store.study_base import Clock, new_id, token_digest
from tertulia.store.study_records import AccountRecord, AccountRole, utc_now
from tertulia.store.validation import check_id, check_names

SESSION_SECONDS = 12 * 3600.0
MIN_PASSWORD = 10
_SCRYPT_COST = {"n": 2**14, "r": 8, "p": 1}
_A, _S = accounts.c, account_sessions.c
_RECORD = select(_A.id, _A.name, _A.role, _A.created)


class AccountStore:
    """The accounts in a database. There is always an owner, once there is an account."""

    def __init__(self, database: Database, *, session_seconds: float = SESSION_SECONDS, now: Clock = utc_now) -> None:
        self._database = database
        self._session_seconds = session_seconds
        self._now = now
        self._nobody = hash_password(secrets.token_urlsafe())
        """Compared with when the name is unknown, so that the time taken does not tell which names exist."""

    def create(self, name: str, password: str, role: AccountRole, *, only_first: bool = False) -> AccountRecord:
        """Add an account. The first one must be an owner's; with `only_first`, any other one is refused."""
        check_names(name=name)
        _check_role(role)
        hashed = hash_password(_checked(password))

        def add(connection: Connection) -> AccountRecord:
            count = connection.execute(select(func.count()).select_from(accounts)).scalar_one()
            if role != "owner" and not count:
                raise UsageError("The first account must be an owner's.", hint="Create it with the role owner.")
            if only_first and count:
                raise UsageError("There is an account already.", hint="Ask an owner for one of your own.")
            record = AccountRecord(new_id(), name, role, self._now())
            row = {"id": record.id, "name": name, "role": role, "created": record.created, "password": hashed}
            try:
                connection.execute(insert(accounts), row)
            except IntegrityError:
                raise UsageError(f"An account {name!r} exists already.", hint="Choose another name.") from None
            return record

        return self._database.write(add)

    def sign_in(self, name: str, password: str) -> str | None:
        """The token of a new session, or None if the name or the password is wrong; both take the same time.

        Takes tens of milliseconds of computation: call it on a thread.
        """
        check_id(name, "account")
        query = select(_A.id, _A.password).where(_A.name == name)
        row = self._database.read(lambda c: c.execute(query).one_or_none())
        genuine = verify_password(password, self._nobody if row is None else row.password)
        if row is None or not genuine:
            return None
        token = secrets.token_urlsafe(32)

        def start(connection: Connection) -> str | None:
            now = self._now()
            connection.execute(delete(account_sessions).where(_S.expires <= now))
            locked = select(_A.password).where(_A.id == row.id).with_for_update(key_share=True)
            if connection.scalar(locked) != row.password:  # deleted or changed in the meantime
                return None
            expires = now + timedelta(seconds=self._session_seconds)
            values = {"sha256": token_digest(token), "account": row.id, "created": now, "expires": expires}
            connection.execute(insert(account_sessions), values)
            return token

        return self._database.write(start)

    def account_of(self, token: str) -> AccountRecord | None:
        """Whose session this is; None if it has expired or was ended, or never was one."""
        query = _RECORD.join(account_sessions, _S.account == _A.id)
        query = query.where(_S.sha256 == token_digest(token), _S.expires > self._now())
        row = self._database.read(lambda c: c.execute(query).one_or_none())
        return None if row is None else AccountRecord(*row)

    def sign_out(self, token: str) -> None:
        """End a session."""
        ended = delete(account_sessions).where(_S.sha256 == token_digest(token))
        self._database.write(lambda c: c.execute(ended).rowcount)

    def get(self, name: str) -> AccountRecord:
        """An account by its name."""
        check_id(name, "account")
        return self._database.read(lambda c: _record(c, name))

    def list(self) -> "tuple[AccountRecord, ...]":
        """All accounts by name."""
        return self._database.read(lambda c: tuple(AccountRecord(*row) for row in c.execute(_RECORD.order_by(_A.name))))

    def count(self) -> int:
        """The number of accounts: none before the first start."""
        return self._database.read(lambda c: int(c.execute(select(func.count()).select_from(accounts)).scalar_one()))

    def set_role(self, name: str, role: AccountRole) -> AccountRecord:
        """Change what an account may do; its sessions go on with the new role."""
        _check_role(role)
        check_id(name, "account")

        def change(connection: Connection) -> AccountRecord:
            if role != "owner":
                _keep_an_owner(connection, name)
            connection.execute(update(accounts).where(_A.name == name).values(role=role))
            return _record(connection, name)

        return self._database.write(change)

    def set_password(self, name: str, password: str) -> None:
        """Change a password, and end all sessions of the account."""
        check_id(name, "account")
        hashed = hash_password(_checked(password))

        def change(connection: Connection) -> None:
            account = _record(connection, name)
            connection.execute(update(accounts).where(_A.id == account.id).values(password=hashed))
            connection.execute(delete(account_sessions).where(_S.account == account.id))

        self._database.write(change)

    def delete(self, name: str) -> None:
        """Remove an account with its sessions, unless it is the last owner's."""
        check_id(name, "account")

        def remove(connection: Connection) -> None:
            _keep_an_owner(connection, name)
            connection.execute(delete(accounts).where(_A.id == _record(connection, name).id))

        self._database.write(remove)


def hash_password(password: str) -> str:
    """The scrypt hash of a password with a new salt, and the cost that it was computed with."""
    salt = secrets.token_bytes(16)
    cost = "$".join(str(value) for value in _SCRYPT_COST.values())
    return f"scrypt${cost}${salt.hex()}${_scrypt(password, salt, **_SCRYPT_COST).hex()}"


def verify_password(password: str, hashed: str) -> bool:
    """Whether a hash is that of a password. Compares in constant time.

    >>> verify_password("correct horse", hash_password("correct horse"))
    True
    >>> verify_password("wrong horse", hash_password("correct horse"))
    False
    """
    _, n, r, p, salt, expected = hashed.split("$")
    actual = _scrypt(password, bytes.fromhex(salt), n=int(n), r=int(r), p=int(p))
    return hmac.compare_digest(actual, bytes.fromhex(expected))


def _scrypt(password: str, salt: bytes, *, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode("utf-8", "replace"), salt=salt, n=n, r=r, p=p)


def _checked(password: str) -> str:
    if len(password) < MIN_PASSWORD:
        raise UsageError(f"The password is shorter than {MIN_PASSWORD} characters.", hint="Choose a longer one.")
    return password


def _check_role(role: str) -> None:
    if role not in get_args(AccountRole):
        raise UsageError(f"There is no role {role!r}.", hint=f"Choose one of {', '.join(get_args(AccountRole))}.")


def _record(connection: Connection, name: str) -> AccountRecord:
    row = connection.execute(_RECORD.where(_A.name == name)).one_or_none()
    if row is None:
        raise NotFound("account")
    return AccountRecord(*row)


def _keep_an_owner(connection: Connection, name: str) -> None:
    """Refuse to go on if the account is the only owner's. Locks the owners, so that two cannot leave at once."""
    owners = connection.scalars(select(_A.name).where(_A.role == "owner").order_by(_A.id).with_for_update()).all()
    if owners == [name]:
        raise TertuliaError("This is the only owner's account.", hint="Make somebody else an owner first.")
