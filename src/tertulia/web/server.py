"""Running the app: on a port known to be free before anything starts, until told to stop, without losing replies."""

import asyncio
import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from tertulia.core.errors import PortTaken, UsageError
from tertulia.web.jobs import Desk

KEEP_OPEN_SECONDS = 75
"""How long an idle connection stays open."""
CONNECTIONS = 2048
"""How many may wait to be accepted."""
Ready = Callable[[str], None]
"""Called with the server's address once it works."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; PortTaken when another program has the port. Port 0 gets any free one."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UsageError(f"There is no address {host!r} to serve on ({error}).", hint="Try 127.0.0.1.") from None
    listening = socket.socket(family, kind, proto)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(CONNECTIONS)  # now, because two sockets may be bound to a port until one listens
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(host, port) from None
        raise UsageError(
            f"Cannot serve on {host}, port {port}: {error.strerror or error}.",
            hint="Ports below 1024 need special rights; the address must be one of this machine's.",
        ) from None
    return listening


def serve(app: FastAPI, host: str = "127.0.0.1", port: int = 8000, *, ready: Ready | None = None) -> None:
    """Serve until a signal comes, then finish what is begun."""
    listening = bind(host, port)
    server = _Server(app, host, listening, ready)
    try:
        server.run(sockets=[listening])
    finally:
        listening.close()


@contextmanager
def running(app: FastAPI, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve on a thread while the block runs; gives the address. For tests and notebooks."""
    listening = bind(host, port)
    started = threading.Event()
    server = _Server(app, host, listening, lambda _: started.set())
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="server", daemon=True)
    thread.start()
    try:
        while not started.wait(0.05):
            if not thread.is_alive():
                raise RuntimeError("the server ended before it began to serve")
        yield server.address
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


class _Server(uvicorn.Server):
    """Uvicorn, but replies in the making end before connections do, and a signal means an orderly return."""

    def __init__(self, app: FastAPI, host: str, listening: socket.socket, ready: Ready | None = None) -> None:
        self.desk: Desk = app.state.desk
        self.ready = ready
        name = f"[{host}]" if ":" in host else host
        self.address = f"http://{name}:{listening.getsockname()[1]}"
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_OPEN_SECONDS,
                timeout_graceful_shutdown=int(self.desk.settings.grace_seconds) + 3,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve, and say so."""
        await super().startup(sockets)
        if self.started and self.ready is not None:
            self.ready(self.address)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End replies in the making while their listeners are still connected, so that they see the end."""
        closing = asyncio.create_task(self.desk.close())
        await super().shutdown(sockets)
        await closing

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Like uvicorn's, but do not raise the signal again at the end: who called us has things to close."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._told) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _told(self, number: int, frame: FrameType | None) -> None:
        self.handle_exit(number, frame)
