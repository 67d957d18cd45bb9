"""Runs the app: on a port that is checked before anything starts, until a signal comes, without losing replies.

`run` is what `tertulia serve` does: it takes the port, opens the database, and serves at once, in one process or
several, while the bots load in the background.
"""

import asyncio
import errno
import gc
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from types import FrameType

import uvicorn
from fastapi import FastAPI

from tertulia.core.dialogue import Persona
from tertulia.core.errors import PortTaken, UsageError
from tertulia.store import AccountStore, ConversationStore, Database
from tertulia.store.timed import TimedDatabase
from tertulia.web import logs
from tertulia.web.admin.access import new_setup_token
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig, lazy_bots
from tertulia.web.protocol import ConnectionLimits, LimitedProtocol
from tertulia.web.services import Services
from tertulia.web.supervisor import Supervisor

KEEP_ALIVE_SECONDS = 75
"""How long an idle connection stays open."""
GC_THRESHOLDS = (10_000, 20, 20)
"""Python collects garbage after 700 new objects, which is a handful of messages."""
SWITCH_SECONDS = 0.001
"""How long a thread may compute while others wait for the interpreter: a message passes through several threads, so
with Python's 5 ms a bot that thinks about one visitor's long text would cost each other visitor several times that."""
BACKLOG = 2048
"""How many connections may wait to be accepted."""
Ready = Callable[[str], None]
"""Called with the server's address once it accepts requests."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; PortTaken when another program uses the port. Port 0 picks a free one."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UsageError(f"Unknown host address {host!r} ({error}).", hint="Try 127.0.0.1.") from None
    listening = socket.socket(family, kind, proto)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)  # now, because two sockets may be bound to a port until one listens
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(host, port) from None
        raise UsageError(
            f"Cannot serve on {host}, port {port}: {error.strerror or error}.",
            hint="Ports below 1024 need privileges, and the address must belong to this machine.",
        ) from None
    return listening


def run(
    config: ServeConfig,
    *,
    personas: Sequence[Persona] = (),
    ready: Ready | None = None,
    on_setup: Callable[[str], None] | None = None,
) -> None:
    """Serve until a signal comes, in `config.workers` processes; `ready` is called once they accept requests.

    If no researcher has an account yet, `on_setup` is called before with the path of the link that creates the first.
    If no bot at all can be loaded, the server stops and the first bot's error is raised.
    """
    logs.configure(config.log)
    lazy_bots(config.bots)  # reports unknown names now
    with closing(bind(config.host, config.port)) as listening, TimedDatabase.open(config.db) as database:
        config = _with_setup_link(config, database, on_setup)
        if config.workers == 1:
            app = create_app(lazy_bots(config.bots), database, personas=personas, config=config)
            app.openapi()  # and all routes: the first visitor would wait for them
            _run_server(_Server(app, config.host, listening, ready, owns_process=True), listening)
            return
        ConversationStore(database).stop_abandoned()  # here, because a process must not stop the replies of another
        address = _address(config.host, listening)
        process = _ServerProcess(config, tuple(personas))
        supervisor = Supervisor(process, listening, config.workers, grace_seconds=config.grace_seconds)
        supervisor.run(lambda: ready(address) if ready else None)


def _with_setup_link(config: ServeConfig, database: Database, on_setup: Callable[[str], None] | None) -> ServeConfig:
    """The config with the hash of a new token, which is only shown through `on_setup`."""
    if on_setup is None or AccountStore(database).count():
        return config
    token, digest = new_setup_token()
    on_setup(f"/admin/setup?token={token}")
    return config.model_copy(update={"setup_sha256": digest})


@dataclass(frozen=True, slots=True)
class _ServerProcess:
    """One of several server processes: all that it needs, to be pickled."""

    config: ServeConfig
    personas: tuple[Persona, ...]

    def __call__(self, listening: socket.socket, on_ready: Callable[[], None], /) -> None:
        logs.configure(self.config.log)
        config = self.config
        with TimedDatabase.open(config.db) as database:
            bots = lazy_bots(config.bots)
            app = create_app(bots, database, personas=self.personas, config=config, stops_abandoned=False)
            app.openapi()  # as above
            server = _Server(app, config.host, listening, lambda _: on_ready(), owns_process=True)
            _run_server(server, listening)


def _run_server(server: "_Server", listening: socket.socket) -> None:
    server.run(sockets=[listening])
    if server.services.fatal_error is not None:
        raise server.services.fatal_error


def _address(host: str, listening: socket.socket) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listening.getsockname()[1]}"


def serve(app: FastAPI, host: str = "127.0.0.1", port: int = 8000, *, ready: Ready | None = None) -> None:
    """Serve until a signal comes, then finish pending replies."""
    listening = bind(host, port)
    try:
        _run_server(_Server(app, host, listening, ready), listening)
    finally:
        listening.close()


@contextmanager
def running(app: FastAPI, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve on a thread while the block runs; yields the address. For tests and notebooks."""
    listening = bind(host, port)
    started = threading.Event()
    server = _Server(app, host, listening, lambda _: started.set())
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="server", daemon=True)
    thread.start()
    try:
        while not started.wait(0.05):
            if not thread.is_alive():
                raise RuntimeError("the server ended before it was ready")
        yield server.address
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def _settle() -> None:
    """Leave modules, models and indexes out of garbage collections: they stay, and there are a million of them.

    And collect less often: most of what a request leaves behind is freed at once, without being collected. Threads
    take turns more often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_SECONDS)


class _Server(uvicorn.Server):
    """Uvicorn, but pending replies end before connections do, after a signal it returns normally, and connections
    are limited."""

    def __init__(
        self,
        app: FastAPI,
        host: str,
        listening: socket.socket,
        ready: Ready | None = None,
        *,
        owns_process: bool = False,
    ) -> None:
        """A server that owns its process settles it once all bots are loaded."""
        self.services: Services = app.state.services
        self.ready = ready
        self.unsettled = owns_process
        self.address = _address(host, listening)
        config, metrics = self.services.config, self.services.metrics
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                http=LimitedProtocol,
                ws="none",
                forwarded_allow_ips=list(config.trusted_proxies),
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=int(config.grace_seconds) + 3,
            )
        )
        self.server_state = ConnectionLimits(
            head_seconds=config.head_seconds,
            body_seconds=config.body_seconds,
            max_connections=config.max_connections,
            exempt=config.trusted_proxies,
            on_timeout=metrics.request_timeouts.inc,
            on_refused=metrics.connections_refused.inc,
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving, and call `ready`."""
        await super().startup(sockets)
        if self.started and self.ready is not None:
            self.ready(self.address)

    async def on_tick(self, counter: int) -> bool:
        """Also stop when there is nothing to serve, because no bot could be loaded."""
        if self.services.fatal_error is not None:
            self.should_exit = True
        if self.unsettled and not self.services.loading:
            self.unsettled = False
            _settle()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End pending replies while their clients are still connected, so that they see the end."""
        closing = asyncio.create_task(self.services.close())
        await super().shutdown(sockets)
        await closing

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Like uvicorn's, but do not raise the signal again at the end: the caller has resources to close."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.handle_exit(number, frame)
