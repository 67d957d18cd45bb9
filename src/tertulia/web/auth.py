"""Who may use the server: hosts, named API keys, the password of the page, and signed sessions. No HTTP in here.

A key is a long random text, so its SHA-256 is all that needs to be kept. A password may be short: it is compared by its
scrypt hash, and attempts are limited by `Attempts`. Whoever signs in on the page, with the password or with a key, gets
a session: a cookie that this server signed. Its signature also covers the credential, so that a session ends when its
password is changed or its key is revoked.
"""

import hashlib
import hmac
import ipaddress
import re
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tertulia.web.config import KeyConfig, ServeConfig
from tertulia.web.errors import TooMany
from tertulia.web.exposure import is_wildcard

PASSWORD = "password"
"""The name of the password among the credentials; keys cannot have it."""
ENVIRONMENT_KEY = "default"
"""The name of the key that comes from TERTULIA_API_KEY."""
ATTEMPTS_PER_MINUTE = 10
_SCRYPT_COST = {"n": 2**14, "r": 8, "p": 1}
_SESSION = re.compile(r"([0-9]{1,12})\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_.-]{1,64})\.([0-9a-f]{64})")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")

Clock = Callable[[], float]


class WebSession(NamedTuple):
    """A session that was checked."""

    id: str
    credential: str
    expires: int


class Access:
    """Decides who may use the server, according to its config."""

    def __init__(self, config: ServeConfig, *, clock: Clock = time.time) -> None:
        self._clock = clock
        keys = dict(config.keys)
        if config.api_key is not None:
            keys[ENVIRONMENT_KEY] = KeyConfig(key_sha256=key_digest(config.api_key.get_secret_value()))
        self._keys = {name: key for name, key in keys.items() if not key.revoked}
        self.has_keys = bool(keys)
        self._salt = secrets.token_bytes(16)
        self._password = self._scrypt(config.password.get_secret_value()) if config.password else None
        self._digests = {name: bytes.fromhex(key.key_sha256) for name, key in self._keys.items()}
        if config.password:
            self._digests[PASSWORD] = hashlib.sha256(config.password.get_secret_value().encode()).digest()
        self._secret = config.session_secret.get_secret_value().encode()
        self.session_seconds = config.session_seconds
        self._revoked = RevokedSessions(config.revoked_sessions, clock)
        self.quotas = {name: Quota(key.per_minute) for name, key in self._keys.items() if key.per_minute}
        self.attempts = Attempts(ATTEMPTS_PER_MINUTE)
        self._hosts = {host.lower() for host in (config.host, "localhost", "127.0.0.1", "[::1]", *config.allow_hosts)}
        self._hosts |= {f"[{host}]" for host in self._hosts if ":" in host and not host.startswith("[")}
        self._any_address = is_wildcard(config.host)

    @property
    def is_protected(self) -> bool:
        """Whether visitors must sign in. A server whose keys were all revoked stays closed."""
        return self.has_keys or self._password is not None

    def allows_host(self, host: bytes | None) -> bool:
        """Whether the Host header names this server.

        A page of another site can make a visitor's browser call us under its own name (DNS rebinding); the browser then
        takes us for that site. It cannot do so under an IP address, so a server that listens on all addresses accepts
        any of them.
        """
        match = _HOST.fullmatch((host or b"").decode("latin-1").lower())
        if match is None:
            return False
        name = match[1].rstrip(".")
        return name in self._hosts or "*" in self._hosts or (self._any_address and _is_address(name))

    def key_name(self, authorization: bytes | None) -> str | None:
        """The name of the key in an Authorization header; None if there is none, or it is wrong or revoked."""
        scheme, _, token = (authorization or b"").partition(b" ")
        return self._key_of(token.strip()) if scheme.lower() == b"bearer" else None

    def _key_of(self, token: bytes) -> str | None:
        """Compares with every key, and in constant time, so that the time taken tells nothing."""
        digest, name = hashlib.sha256(token).digest(), None
        for candidate in self._keys:
            if hmac.compare_digest(digest, self._digests[candidate]) and token:
                name = candidate
        return name

    def sign_in(self, text: str) -> str | None:
        """The value of a new session's cookie, or None if the text is neither the password nor a key.

        Takes tens of milliseconds of computation: call it on a thread.
        """
        credential = self._key_of(text.encode("utf-8", "replace"))
        if credential is None and self._password is not None:
            credential = PASSWORD if hmac.compare_digest(self._scrypt(text), self._password) else None
        if credential is None:
            return None
        session = WebSession(secrets.token_urlsafe(16), credential, int(self._clock() + self.session_seconds))
        return f"{session.expires}.{session.id}.{session.credential}.{self._signature(session)}"

    def session(self, cookie: str) -> WebSession | None:
        """The session of a cookie, unless it is forged, expired, signed out, or its credential is no longer valid."""
        match = _SESSION.fullmatch(cookie)
        if match is None:
            return None
        session = WebSession(match[2], match[3], int(match[1]))
        if session.credential not in self._digests or session.expires < self._clock():
            return None
        genuine = hmac.compare_digest(match[4], self._signature(session))
        return session if genuine and session.id not in self._revoked else None

    def sign_out(self, session: WebSession) -> None:
        """End a session: its cookie is refused from now on, wherever it has been copied to."""
        self._revoked.add(session)

    def _signature(self, session: WebSession) -> str:
        payload = f"{session.expires}.{session.id}.{session.credential}.".encode()
        return hmac.new(self._secret, payload + self._digests[session.credential], "sha256").hexdigest()

    def _scrypt(self, text: str) -> bytes:
        return hashlib.scrypt(text.encode("utf-8", "replace"), salt=self._salt, **_SCRYPT_COST)


class RevokedSessions:
    """The sessions that were signed out and have not expired yet, shared between processes through a small file.

    A line is an expiry time and the session's id. Appending a line is atomic, and a check only looks at the file's size
    unless another process has added to it.
    """

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._read_bytes = 0
        self._expiry: dict[str, int] = {}

    def __contains__(self, id: object) -> bool:  # noqa: A002
        self._read()
        return id in self._expiry

    def add(self, session: WebSession) -> None:
        """Revoke a session."""
        now = self._clock()
        self._expiry = {id: expires for id, expires in self._expiry.items() if expires >= now}  # noqa: A001
        self._expiry[session.id] = session.expires
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(f"{session.expires} {session.id}\n".encode())

    def _read(self) -> None:
        if self._path is None or not self._path.exists() or self._path.stat().st_size <= self._read_bytes:
            return
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            lines = file.read()
        lines = lines[: lines.rfind(b"\n") + 1]  # another process may be writing the last one
        self._read_bytes += len(lines)
        for line in lines.decode().splitlines():
            expires, _, id = line.partition(" ")  # noqa: A001
            self._expiry[id] = int(expires)


class Quota:
    """At most so many requests within any minute."""

    def __init__(self, per_minute: int, *, clock: Clock = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._times: deque[float] = deque()

    def take(self, what: str) -> None:
        """Count a request; raises TooMany, with the time to wait, if there were too many already."""
        now = self._clock()
        while self._times and self._times[0] <= now - 60:
            self._times.popleft()
        if len(self._times) >= self._per_minute:
            message = f"Too many {what}: the limit is {self._per_minute} a minute."
            raise TooMany(message, retry_after=self._times[0] + 60 - now)
        self._times.append(now)


class Attempts:
    """Limits the attempts to sign in from one address, or from one /64 network of IPv6 addresses."""

    MAX_ADDRESSES = 10_000

    def __init__(self, per_minute: int, *, clock: Clock = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._quotas: OrderedDict[str, Quota] = OrderedDict()

    def take(self, address: str) -> None:
        """Count an attempt; raises TooMany if there were too many."""
        network = _network(address)
        if network not in self._quotas:
            self._quotas[network] = Quota(self._per_minute, clock=self._clock)
        self._quotas.move_to_end(network)
        while len(self._quotas) > self.MAX_ADDRESSES:
            self._quotas.popitem(last=False)
        self._quotas[network].take("attempts to sign in")


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else str(parsed)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def new_key() -> str:
    """A new API key."""
    return f"tt-{secrets.token_urlsafe(32)}"


def key_digest(key: str) -> str:
    """What the server's config keeps of a key."""
    return hashlib.sha256(key.encode()).hexdigest()
