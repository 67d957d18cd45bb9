"""HTTP connections that cannot be held open by sending nothing: time-outs, and a cap per address.

Uvicorn closes idle connections, but waits forever for the rest of a request that has begun, so that a few hundred
half-sent requests ("Slowloris") would use up its connections. This subclass of uvicorn's protocol adds three things:

- A request's head must be complete `head_seconds` after its first byte (after the connection was made, for the first).
  Any byte counts as the first, also a blank line, which the parser skips but which ends uvicorn's keep-alive time-out.
- A request's body must be complete `body_seconds` after the head. While the server itself has paused reading, because
  of pipelined requests or a full buffer, the time-out is put off: the client cannot send then.
- An address has at most `max_connections` connections; further ones are closed at once. Trusted proxies have no cap.

A request that takes too long is answered with status 408, unless its response has begun, and its connection is closed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from tertulia.web.limits import network_of


class ConnectionLimits(ServerState):
    """Uvicorn's state of a server, with the limits of its connections and their number by address."""

    def __init__(
        self,
        *,
        head_seconds: float,
        body_seconds: float,
        max_connections: int,
        exempt: Collection[str] = (),
        on_timeout: Callable[[], None] = lambda: None,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.head_seconds = head_seconds
        self.body_seconds = body_seconds
        self.max_connections = max_connections
        self.exempt = frozenset(map(network_of, exempt))
        self.on_timeout = on_timeout
        self.on_refused = on_refused
        self.by_address: Counter[str] = Counter()

    def add(self, address: str) -> bool:
        """Count a connection; False if the address has too many already."""
        if address in self.exempt:
            return True
        if self.max_connections and self.by_address[address] >= self.max_connections:
            return False
        self.by_address[address] += 1
        return True

    def remove(self, address: str) -> None:
        """Count one less."""
        if address not in self.exempt:
            self.by_address[address] -= 1
            if self.by_address[address] <= 0:
                del self.by_address[address]


class LimitedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol with time-outs for requests and a cap on connections per address."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(server_state, ConnectionLimits), "the server must be started by tertulia.web.server"
        self.limits = server_state
        self.address: str | None = None  # set if the connection is counted
        self.request_timer: asyncio.TimerHandle | None = None
        self.in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and wait for the first request's head."""
        super().connection_made(transport)
        address = network_of(self.client[0] if self.client else "")
        if not self.limits.add(address):
            self.limits.on_refused()
            transport.abort()
            return
        self.address = address
        self._expect_within(self.limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._expect_nothing()
        if self.address is not None:
            self.limits.remove(self.address)
            self.address = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """On an idle connection, any byte begins a request."""
        if self.request_timer is None and not self._is_responding and not self.transport.is_closing():
            self._expect_within(self.limits.head_seconds)
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins; a pipelined one possibly in the middle of the data."""
        if self.request_timer is None:
            self._expect_within(self.limits.head_seconds)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is complete: now the body."""
        self.in_body = True
        self._expect_within(self.limits.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is complete."""
        self.in_body = False
        self._expect_nothing()
        super().on_message_complete()

    def _expect_within(self, seconds: float) -> None:
        self._expect_nothing()
        self.request_timer = self.loop.call_later(seconds, self._on_timeout)

    def _expect_nothing(self) -> None:
        if self.request_timer is not None:
            self.request_timer.cancel()
            self.request_timer = None

    @property
    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _on_timeout(self) -> None:
        self.request_timer = None
        if self.transport.is_closing():
            return
        if self._is_responding and not self.in_body:  # half of a pipelined request must not end a response
            self._expect_within(self.limits.head_seconds)
            return
        if self.in_body and self.flow.read_paused:
            self._expect_within(self.limits.body_seconds)
            return
        self.limits.on_timeout()
        if not self.in_body or (self._is_responding and not self.cycle.response_started):
            self.transport.write(STATUS_LINE[408] + b"connection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()
