"""Limits per visitor, API key and address, so that one client cannot take what others need.

| what | whom | limit |
|---|---|---|
| messages (token bucket, half a minute's worth at once; long ones count more) | visitor | `messages_per_minute` |
| long messages (token bucket, four seconds' worth at once; the others wait for their turn) | visitor | the same |
| other requests to the APIs (token bucket) | visitor | ten times as many |
| replies in flight: queued or being generated, whether or not anybody still listens | visitor | `max_in_flight` |
| stored conversations, bytes of stored text | visitor | `max_conversations`, `max_stored_bytes` |
| messages and requests of everybody behind one address, or with one key | address, key | `address_factor` times |
| replies in flight of everybody behind one address, or with one key | address, key | half a bot's queue |

A visitor is a cookie. Anybody can make up cookies, hence the limit per address as well; requests without a cookie count
for their address only. Behind a proxy, the address is the one that the proxy reports, provided that the proxy is one of
`trusted_proxies`. An IPv6 client counts by its /64 network, because it owns all of it.

Buckets and counters are in memory: each process of `serve --workers N` has its own, so that with N processes a visitor
can send up to N times as much. What is stored is read from the database, at most once a minute per visitor, and counted
here in between. A client that keeps sending after it was refused gets its refusals with a growing delay.
"""

import asyncio
import hashlib
import ipaddress
import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tertulia.core.errors import TertuliaError
from tertulia.store.usage import StoredUsage
from tertulia.web.errors import is_openai, openai_error, page_error
from tertulia.web.middleware import COOKIE
from tertulia.web.responses import Json

STUDY_API = "/api/study/"
_STUDY_TOKEN = re.compile(rb"tertulia_study_[0-9a-f]{32}=[^;\s]+")
"""A participant of a study counts by the token in their cookie."""
REQUESTS_PER_MESSAGE = 10
"""How many other requests a client may make for each message it may send."""
BURST_MINUTES = 0.5
"""How many minutes' worth of messages or requests may come at once."""
BYTES_PER_MESSAGE = 2_000
"""A larger request counts as several messages: what it costs a bot grows with its length."""
LONG_BURST_MINUTES, MAX_PACE = 4 / 60, 10.0
"""Long messages that come faster than the limit are spread over its time: handled at once, half a minute's worth of
them would keep a core busy for a second or more. One that would have to wait for more than ten seconds is refused."""
COOKIELESS_COST = 5
"""A conversation without a cookie costs its address this many messages: browsers have a cookie by then."""
MAX_CLIENTS = 100_000
"""How many clients are remembered; the least recently seen are forgotten first."""
USAGE_SECONDS = 60.0
"""How long a visitor's stored conversations and bytes, as read from the database, are trusted."""
BUSY_RETRY_SECONDS = 2
FREE_REFUSALS, DELAY_STEP, MAX_DELAY = 10, 0.05, 1.0
"""After ten refusals in a row, each further one is delayed by 0.05 s more than the one before, at most by 1 s."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits; 0 means no limit."""

    messages_per_minute: int = 0
    max_in_flight: int = 0
    max_in_flight_shared: int = 0
    """For an address or key. Less than the length of a bot's queue: nobody can fill it alone."""
    max_conversations: int = 0
    max_stored_bytes: int = 0
    address_factor: int = 50
    """An address or key may send as many messages and requests as this many visitors."""


class LimitReached(TertuliaError):  # noqa: N818 - reads better than LimitReachedError where it is raised
    """A client has reached one of its limits."""

    def __init__(self, limit: str, message: str, *, retry_after: float, delay: float = 0.0, hint: str = "") -> None:
        self.limit = limit
        """Short name of the limit, for the metrics."""
        self.retry_after = max(1, math.ceil(retry_after))
        """After how many seconds trying again can help."""
        self.delay = delay
        """How long to wait before answering."""
        super().__init__(message, hint=hint or f"Try again in {self.retry_after} seconds.")


class Bucket:
    """A token bucket that is full at first and holds some minutes' worth of tokens."""

    __slots__ = ("_minutes", "_spent", "_updated")

    def __init__(self, minutes: float = BURST_MINUTES) -> None:
        self._minutes = minutes
        self._spent = 0.0
        self._updated = 0.0

    def wait(self, amount: float, per_minute: float, now: float) -> float:
        """Seconds until `amount` tokens (or a full bucket) are there; 0 if they are there now. Takes nothing."""
        self._spent = max(0.0, self._spent - (now - self._updated) * per_minute / 60)
        self._updated = now
        capacity = max(1.0, per_minute * self._minutes)
        missing = self._spent + min(amount, capacity) - capacity
        return 0.0 if missing <= 0 else missing * 60 / per_minute

    def take(self, amount: float) -> None:
        """Take tokens; more than there are delays what comes later."""
        self._spent += amount


class Client:
    """What is counted for one visitor, key or address."""

    __slots__ = ("factor", "in_flight", "long_messages", "messages", "refusals", "requests")

    def __init__(self, factor: int) -> None:
        self.factor = factor
        self.messages = Bucket()
        self.long_messages = Bucket(LONG_BURST_MINUTES)
        self.requests = Bucket()
        self.in_flight = 0
        self.refusals = 0


class Admission:
    """The right to one reply. It turns into one reply in flight per job, or ends with the request if there is none."""

    def __init__(self, limiter: "Limiter", clients: tuple[Client, ...], pace: float = 0.0) -> None:
        self._limiter = limiter
        self._clients = clients
        self._reserved = True
        self.pace = pace
        """Seconds to wait before the request is handled."""

    def hold(self) -> Callable[[], None]:
        """Count a job as in flight until the returned function is called, on any thread."""
        if self._reserved:
            self._reserved = False
        else:  # a request for several replies: each counts as a message
            self._limiter.add(self._clients)
            for client in self._clients:
                client.messages.take(1)
        return lambda: self._limiter.release(self._clients)

    def close(self) -> None:
        """At the end of the request: give back what no job has used."""
        if self._reserved:
            self._reserved = False
            self._limiter.release(self._clients)


current_admission: ContextVar[Admission | None] = ContextVar("current_admission", default=None)
"""The admission of the request that is being handled; the workers' jobs count for it."""


class Identity(NamedTuple):
    """For whom a request counts."""

    visitor: str | None
    """A cookie's owner or an API key; None if the request has neither."""
    address: str
    shared: bool = False
    """Whether many people may be behind `visitor`, as behind an API key."""


class Limiter:
    """Counts messages and replies in flight. Thread-safe where jobs end; all else happens on the event loop."""

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._clients: OrderedDict[str, Client] = OrderedDict()
        self._usage: OrderedDict[str, tuple[float, StoredUsage]] = OrderedDict()
        self._lock = threading.Lock()

    def admit_message(self, who: Identity, size: int = 0) -> Admission:
        """Count a message of `size` bytes, and reserve a reply in flight; raises LimitReached."""
        clients = self._clients_of(who)
        cost = max(1.0, size / BYTES_PER_MESSAGE)
        self._check_messages(clients, cost)
        for client in clients:
            most = self.limits.max_in_flight if client.factor == 1 else self.limits.max_in_flight_shared
            if most and client.in_flight >= most:
                message = "Too many replies are being generated for you."
                hint = "Wait until one of them is finished, or stop it."
                raise self._refuse(client, "in_flight", message, BUSY_RETRY_SECONDS, hint)
        pace = self._pace(clients, cost) if cost > 1 else 0.0
        self._take_messages(clients, cost)
        self.add(clients)
        return Admission(self, clients, pace)

    def admit_conversation(self, who: Identity) -> None:
        """Count a new conversation as a message, or as several without a cookie; raises LimitReached."""
        clients = self._clients_of(who)
        cost = 1.0 if who.visitor else COOKIELESS_COST
        self._check_messages(clients, cost)
        self._take_messages(clients, cost)

    def admit_request(self, who: Identity) -> None:
        """Count a request that is not a message; raises LimitReached."""
        clients = self._clients_of(who)
        per_minute = self.limits.messages_per_minute * REQUESTS_PER_MESSAGE
        self._check(clients, "requests", per_minute, lambda client: client.requests, 1.0)
        for client in clients:
            client.requests.take(1.0)

    async def check_usage(
        self, owner: str, read: Callable[[], Awaitable[StoredUsage]], *, creates: bool, size: int
    ) -> None:
        """Check what a visitor has stored, and count what the request adds; raises LimitReached."""
        if not (self.limits.max_conversations or self.limits.max_stored_bytes):
            return
        now = self._clock()
        read_at, usage = self._usage.get(owner, (-math.inf, StoredUsage(0, 0)))
        if now - read_at >= USAGE_SECONDS:
            read_at, usage = now, await read()
        hint = "Delete conversations that you no longer need."
        if creates and 0 < self.limits.max_conversations <= usage.conversations:
            message = f"You have reached the limit of {self.limits.max_conversations:,} conversations."
            raise LimitReached("conversations", message, retry_after=USAGE_SECONDS, hint=hint)
        if 0 < self.limits.max_stored_bytes < usage.bytes + size:
            message = f"Your conversations have reached the limit of {self.limits.max_stored_bytes:,} bytes."
            raise LimitReached("stored_bytes", message, retry_after=USAGE_SECONDS, hint=hint)
        self._usage[owner] = (read_at, StoredUsage(usage.conversations + creates, usage.bytes + size))
        self._usage.move_to_end(owner)
        if len(self._usage) > MAX_CLIENTS:
            self._usage.popitem(last=False)

    def forget_usage(self, owner: str) -> None:
        """Read it again next time: the visitor has deleted something."""
        self._usage.pop(owner, None)

    def in_flight(self, name: str) -> int:
        """The replies in flight of a visitor, key or address."""
        client = self._clients.get(name)
        return client.in_flight if client else 0

    def add(self, clients: tuple[Client, ...]) -> None:
        """Count one more reply in flight."""
        with self._lock:
            for client in clients:
                client.in_flight += 1

    def release(self, clients: tuple[Client, ...]) -> None:
        """Count one less."""
        with self._lock:
            for client in clients:
                client.in_flight -= 1

    def _clients_of(self, who: Identity) -> tuple[Client, ...]:
        address = self._client(who.address, self.limits.address_factor)
        if who.visitor is None:
            return (address,)
        return self._client(who.visitor, self.limits.address_factor if who.shared else 1), address

    def _client(self, name: str, factor: int) -> Client:
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = Client(factor)
            if len(self._clients) > MAX_CLIENTS:
                self._forget_one()
        else:
            self._clients.move_to_end(name)
        return client

    def _forget_one(self) -> None:
        """Forget the least recently seen client; one with replies in flight stays, and moves to the end."""
        name, client = self._clients.popitem(last=False)
        if client.in_flight:
            self._clients[name] = client

    def _check_messages(self, clients: tuple[Client, ...], cost: float) -> None:
        self._check(clients, "messages", self.limits.messages_per_minute, lambda client: client.messages, cost)

    def _take_messages(self, clients: tuple[Client, ...], cost: float) -> None:
        for client in clients:
            client.messages.take(cost)
            client.refusals = 0

    def _pace(self, clients: tuple[Client, ...], cost: float) -> float:
        """Count a long message, and tell how long it has to wait for its turn; raises LimitReached if too long."""
        per_minute, now = self.limits.messages_per_minute, self._clock()
        if not per_minute:
            return 0.0
        waits = [client.long_messages.wait(cost, per_minute * client.factor, now) for client in clients]
        for client, wait in zip(clients, waits, strict=True):
            if wait > MAX_PACE:
                raise self._refuse(client, "long_messages", "Too many long messages within a minute.", wait - MAX_PACE)
        for client in clients:
            client.long_messages.take(cost)
        return max(waits)

    def _check(
        self, clients: tuple[Client, ...], limit: str, per_minute: int, bucket: Callable[[Client], Bucket], cost: float
    ) -> None:
        now = self._clock()
        for client in clients if per_minute else ():
            wait = bucket(client).wait(cost, per_minute * client.factor, now)
            if wait > 0:
                raise self._refuse(client, limit, f"Too many {limit} within a minute.", wait)

    def _refuse(self, client: Client, limit: str, message: str, retry_after: float, hint: str = "") -> LimitReached:
        client.refusals += 1
        delay = min(MAX_DELAY, max(0, client.refusals - FREE_REFUSALS) * DELAY_STEP)
        return LimitReached(limit, message, retry_after=retry_after, delay=delay, hint=hint)


class LimitedApp(Protocol):
    """What the middleware needs of the app's services."""

    limiter: Limiter

    async def usage_of(self, owner: str) -> StoredUsage:
        """What a visitor has stored."""
        ...

    def on_limit(self, limit: str) -> None:
        """Called with each refusal."""
        ...

    @property
    def requires_key(self) -> bool:
        """Whether /v1 requires an API key."""
        ...


class LimitsMiddleware:
    """Refuses requests over a limit with status 429. Inside the middleware that identifies visitors."""

    def __init__(self, app: ASGIApp, services: LimitedApp) -> None:
        self.app = app
        self.services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit a request, or refuse it."""
        path: str = scope.get("path", "")
        if scope["type"] != "http" or not path.startswith(("/api/", "/v1/")):
            await self.app(scope, receive, send)
            return
        try:
            admission = await self._admit(scope)
        except LimitReached as error:
            self.services.on_limit(error.limit)
            await asyncio.sleep(error.delay)
            await refusal(path, error)(scope, receive, send)
            return
        token = current_admission.set(admission)
        try:
            if admission is not None and admission.pace:
                await asyncio.sleep(admission.pace)
            await self.app(scope, receive, self._watching_deletions(scope, send))
        finally:
            current_admission.reset(token)
            if admission is not None:
                admission.close()

    async def _admit(self, scope: Scope) -> Admission | None:
        limiter, path = self.services.limiter, scope["path"]
        headers: dict[bytes, bytes] = dict(scope["headers"])
        who = identify(scope, headers, requires_key=self.services.requires_key)
        if not is_message(scope["method"], path):
            limiter.admit_request(who)
            return None
        length = headers.get(b"content-length", b"0")
        size = int(length) if length.isdigit() else 0
        if path.startswith("/v1/"):
            return limiter.admit_message(who, size)
        if path == "/api/conversations":
            limiter.admit_conversation(who)
            await self._check_usage(who, creates=True, size=0)
            return None
        admission = limiter.admit_message(who, size)
        if path.startswith(STUDY_API):
            return admission
        try:
            await self._check_usage(who, creates=False, size=size)
        except BaseException:
            admission.close()
            raise
        return admission

    async def _check_usage(self, who: Identity, *, creates: bool, size: int) -> None:
        if who.visitor is not None:  # without a cookie, nothing is stored yet
            read = partial(self.services.usage_of, who.visitor)
            await self.services.limiter.check_usage(who.visitor, read, creates=creates, size=size)

    def _watching_deletions(self, scope: Scope, send: Send) -> Send:
        if scope["method"] != "DELETE" or "owner" not in scope.get("state", {}):
            return send

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.services.limiter.forget_usage(scope["state"]["owner"])
            await send(message)

        return sending


def is_message(method: str, path: str) -> bool:
    """Whether a request makes a bot reply or adds a conversation.

    >>> [is_message("POST", f"/api/conversations/ab/{what}") for what in ("messages", "regenerate", "stop")]
    [True, True, False]
    """
    if method != "POST":
        return False
    if path.startswith("/v1/"):
        return True
    if path.startswith(STUDY_API):
        return path.endswith("/say")
    return path.startswith("/api/conversations") and not path.endswith(("/stop", "/undo"))


def identify(scope: Scope, headers: dict[bytes, bytes], *, requires_key: bool) -> Identity:
    """For whom a request counts. The page and /v1 count apart, so that a script does not lock out its user."""
    address = network_of(scope["client"][0] if scope.get("client") else "")
    if is_openai(scope["path"]):
        key = headers.get(b"authorization")
        if not requires_key or key is None:
            return Identity(None, f"v1 {address}")
        return Identity(f"key {hashlib.sha256(key).hexdigest()}", f"v1 {address}", shared=True)
    if scope["path"].startswith(STUDY_API):
        participant = _STUDY_TOKEN.search(headers.get(b"cookie", b""))
        visitor = f"participant {hashlib.sha256(participant[0]).hexdigest()}" if participant else None
        return Identity(visitor, f"study {address}")
    has_cookie = f"{COOKIE}=".encode() in headers.get(b"cookie", b"")
    return Identity(scope["state"]["owner"] if has_cookie else None, f"page {address}")


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """What a client's address counts as: an IPv6 address as its /64 network.

    >>> network_of("192.0.2.7"), network_of("2001:db8:1:2:3:4:5:6"), network_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8:1:2::/64', '192.0.2.7')
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def refusal(path: str, error: LimitReached) -> Json:
    """The response to a request over a limit, in the format of the API it was made to."""
    if is_openai(path):
        body = openai_error(f"{error.message} {error.hint}", "requests", code="rate_limit_exceeded")
    else:
        body = page_error(error.message, error.hint)
    return Json(body, 429, {"Retry-After": str(error.retry_after)})
