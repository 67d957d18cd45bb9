"""Who may use the researchers' pages: sessions of accounts, tokens of forms, the link for the first account.

A form carries a token that this server signed for the session it was shown in. A page of another site can make a
browser send a form, but can neither read the token nor, since the cookies are SameSite=Strict, send the session along.
Before there is a session (signing in, the first account), the token belongs to a random cookie of the form.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import NamedTuple

from fastapi import Request

from tertulia.core.errors import UsageError
from tertulia.store import AccountStore, Database
from tertulia.store.accounts import SESSION_SECONDS
from tertulia.store.review import AuditLog, account_name
from tertulia.store.study_records import AccountRecord, AccountRole
from tertulia.web.auth import ATTEMPTS_PER_MINUTE, Attempts
from tertulia.web.config import ServeConfig
from tertulia.web.errors import Unauthorized

SESSION_COOKIE = "tertulia_admin"
FORM_COOKIE = "tertulia_admin_form"
CSRF_FIELD = "csrf"
NAME_LENGTH = 64
"""Maximum length of an account's name."""
_RANK: dict[AccountRole, int] = {"viewer": 0, "researcher": 1, "owner": 2}


class Forbidden(UsageError):  # noqa: N818 - reads better than ForbiddenError where it is raised
    """The account's role does not allow this, or the form is not one that this server showed."""


class SignInNeeded(Unauthorized):
    """There is no session, or it has expired."""

    def __init__(self) -> None:
        super().__init__("You are not signed in.", hint="Sign in to continue.")


class AdminSession(NamedTuple):
    """A researcher who is signed in."""

    account: AccountRecord
    token: str

    @property
    def who(self) -> str:
        """The name in the audit log."""
        return account_name(self.account.name)

    def may(self, role: AccountRole) -> bool:
        """Whether the account has at least this role."""
        return _RANK[self.account.role] >= _RANK[role]


class AdminAccess:
    """Decides who may use the researchers' pages."""

    def __init__(self, database: Database, config: ServeConfig) -> None:
        self.accounts = AccountStore(database)
        self.audit = AuditLog(database)
        self.session_seconds = int(SESSION_SECONDS)
        self._secret = config.session_secret.get_secret_value().encode()
        self._setup = config.setup_sha256
        self._by_address = Attempts(ATTEMPTS_PER_MINUTE)
        self._by_name = Attempts(ATTEMPTS_PER_MINUTE)

    def session(self, request: Request) -> AdminSession | None:
        """The session whose cookie came with the request."""
        token = cookies_of(request).get(SESSION_COOKIE, "")
        account = self.accounts.account_of(token) if token else None
        return None if account is None else AdminSession(account, token)

    def take_attempt(self, address: str, name: str) -> None:
        """Count an attempt to sign in, by address and by account; raises TooMany."""
        self._by_address.take(address)
        self._by_name.take(f"account {name}")

    def sign_in(self, name: str, password: str) -> str | None:
        """The token of a new session, or None. Takes tens of milliseconds: call it on a thread."""
        token = self.accounts.sign_in(name, password)
        if token is not None:
            self.audit.record(account_name(name), "signed in")
        else:  # an unknown name may be a password in the wrong field, so it is not logged
            exists = any(account.name == name for account in self.accounts.list())
            self.audit.record(account_name(name) if exists else "unknown", "failed to sign in")
        return token

    def sign_out(self, session: AdminSession) -> None:
        """End a session."""
        self.accounts.sign_out(session.token)
        self.audit.record(session.who, "signed out")

    def allows_setup(self, token: str) -> bool:
        """Whether the token is that of the link for the first account, and there still is no account."""
        digest = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        genuine = bool(self._setup) and hmac.compare_digest(digest, self._setup)
        return genuine and self.accounts.count() == 0

    def create_first(self, token: str, name: str, password: str) -> str | None:
        """Create the owner's account with the link's token, and sign in; the link does not work again."""
        if not self.allows_setup(token):
            raise Forbidden("This link is not valid.", hint="It works once, until there is an account.")
        self.accounts.create(name, password, "owner", only_first=True)
        self._setup = ""
        self.audit.record(account_name(name), "created the first account", {"account": name, "role": "owner"})
        return self.sign_in(name, password)

    def csrf_token(self, key: str) -> str:
        """The token of the forms in one session, or of one form cookie."""
        return hmac.new(self._secret, b"admin form:" + key.encode("utf-8", "replace"), "sha256").hexdigest()

    def check_csrf(self, key: str, form: Mapping[str, str]) -> None:
        """Refuse a form without the right token."""
        given = form.get(CSRF_FIELD, "").encode("utf-8", "replace")
        if not key or not hmac.compare_digest(given, self.csrf_token(key).encode()):
            raise Forbidden("This form is not valid any more.", hint="Go back, reload the page, and try again.")


def new_setup_token() -> tuple[str, str]:
    """A token for the link that creates the first account, and its SHA-256, which is all the server keeps."""
    token = secrets.token_urlsafe(32)
    return token, hashlib.sha256(token.encode()).hexdigest()


def require(session: AdminSession | None, role: AccountRole) -> AdminSession:
    """The session, if it may do what needs this role."""
    if session is None:
        raise SignInNeeded
    if not session.may(role):
        raise Forbidden(f"Your account may not do this: it is a {session.account.role}'s.", hint="Ask an owner.")
    return session


def check_origin(request: Request) -> None:
    """Refuse a form that a browser sent from a page of another origin."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise Forbidden("The form came from a page of another site.", hint="Use Tertulia's own page.")


def cookies_of(request: Request) -> dict[str, str]:
    """The cookies of a request. A name that occurs twice counts as absent: one of the two was planted."""
    given: dict[str, list[str]] = {}
    for header in request.headers.getlist("cookie"):
        for part in header.split(";"):
            name, equals, value = part.strip().partition("=")
            if equals:
                given.setdefault(name, []).append(value)
    return {name: values[0] for name, values in given.items() if len(values) == 1}


def cookie(request: Request, name: str, value: str, max_age: int) -> str:
    """The value of a Set-Cookie header; an age of 0 removes the cookie."""
    secure = "; Secure" if request.url.scheme == "https" else ""
    return f"{name}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}"


def checked_name(name: str) -> str:
    """The name of a new account: short, visible, on one line."""
    name = name.strip()
    if not 1 <= len(name) <= NAME_LENGTH or not name.isprintable():
        raise UsageError(f"A name has 1 to {NAME_LENGTH} visible characters.", hint="Choose another name.")
    return name
