"""The server's log, as text or as one JSON object per line, and the middleware that logs each request.

A request is logged with its id, the visitor (the start of a hash), the route, the status and the milliseconds: never
with a message, an id in a path, a cookie, a key or an address. Everything logged while a request is handled has the
request's id, and so has the response, in the header X-Request-Id.
"""

import logging
import sys
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tertulia.core.text import visible
from tertulia.store.ids import new_id
from tertulia.web.metrics import Metrics

access = logging.getLogger("tertulia.access")
request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request that is being handled; empty outside of requests."""

LogFormat = Literal["text", "json"]
FIELDS = ("request", "visitor", "method", "route", "status", "ms")
"""What the log of a request consists of."""
VISITOR_DIGITS, REQUEST_DIGITS = 12, 16
UNMATCHED = "unmatched"
"""The route of a request to a path that does not exist: its path would be the client's choice."""


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if current := request_id.get():
            entry["request"] = current
        entry |= {name: record.__dict__[name] for name in FIELDS if name in record.__dict__}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(entry, default=str).decode()


class TextFormatter(logging.Formatter):
    """A line for people, with the request's id at its end."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")
        self._second = (0, "")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - its name there
        """The time of the record; a second has the same text for all its records."""
        second, text = self._second
        if second != int(record.created):
            second, text = int(record.created), time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
            self._second = (second, text)
        return f"{text},{record.msecs:03.0f}"

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line, then the traceback if there is one."""
        first, newline, rest = visible(super().format(record)).partition("\n")
        current = request_id.get()
        return f"{first} [{current}]{newline}{rest}" if current else first + newline + rest


def configure(kind: LogFormat, stream: TextIO | None = None) -> None:
    """Send all logs of this process to a stream (standard error by default) in one format. For the server only."""
    # Nothing of this is in our formats, and to find the caller of each log call takes longer than to write the entry.
    logging._srcfile = None  # as the documentation of logging advises
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if kind == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("tertulia").setLevel(logging.INFO)


class AccessMiddleware:
    """Gives each request an id, and logs and counts it when its response has ended."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500
        number = new_id()[:REQUEST_DIGITS]
        token = request_id.set(number)

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", number.encode())]
            await send(message)

        try:
            await self.app(scope, receive, sending)
        finally:
            self._report(scope, status, time.perf_counter() - start)
            request_id.reset(token)

    def _report(self, scope: Scope, status: int, seconds: float) -> None:
        method, route = scope["method"], route_of(scope)
        self.metrics.on_request(method, route, status, seconds)
        if access.isEnabledFor(logging.INFO):
            ms = round(1000 * seconds, 1)
            visitor = scope.get("state", {}).get("owner", "")[:VISITOR_DIGITS]
            values = {"visitor": visitor, "method": method, "route": route, "status": status, "ms": ms}
            access.info("%s %s %d in %.1f ms", method, route, status, ms, extra=values)


def route_of(scope: Scope) -> str:
    """The route of a handled request, with the names of its parameters instead of their values."""
    path: str = scope["path"]
    if path.startswith("/static/"):
        return "/static"
    route = scope.get("route")
    return UNMATCHED if route is None else str(route.path)
