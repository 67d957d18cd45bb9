"""Several server processes on one port: started together, restarted when they crash, stopped together.

The parent binds the port and passes the listening socket to each process; the kernel gives each new connection to one
of them. A process that ends by itself is started again, after a pause that grows while processes end early; one that
reports an error, such as that no bot can be loaded, ends them all, because the next one would do the same. When the
parent gets SIGTERM or SIGINT, it passes it on, waits until pending replies have ended, and kills what is left. Should
the parent be killed, the processes notice and stop.
"""

import logging
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from socket import socket
from types import FrameType
from typing import Protocol

from prometheus_client.multiprocess import mark_process_dead

from tertulia.core.errors import TertuliaError
from tertulia.web.metrics import FOLDER_VARIABLE

log = logging.getLogger(__name__)

EARLY_SECONDS = 10.0
"""A process that ends within this time after its start has failed to start."""
MAX_EARLY_ENDS = 5
"""After as many failed starts in a row, there is no point in going on."""
PAUSES = (0.2, 1.0, 2.0, 5.0, 10.0)
"""Seconds before a restart, by the number of failed starts in a row."""
STOP_SECONDS = 10.0
"""How long processes may take to stop, in addition to the grace period of pending replies."""


class WorkerTarget(Protocol):
    """What each process runs, until its server stops; picklable."""

    def __call__(self, listening: socket, on_ready: Callable[[], None], /) -> None:
        """Serve on the socket, and call `on_ready` once connections are accepted."""
        ...


class _Process:
    """One process and the pipe on which it reports that it is ready, or why it cannot serve."""

    def __init__(self, target: WorkerTarget, listening: socket) -> None:
        self.reports, theirs = multiprocessing.Pipe(duplex=False)
        spawn = multiprocessing.get_context("spawn")  # a forked process would inherit threads' locks
        self.process: SpawnProcess = spawn.Process(target=_run, args=(target, listening, theirs), name="tertulia")
        self.process.start()
        theirs.close()
        self.started = time.monotonic()
        self.is_ready = False

    def receive(self) -> None:
        """Note that the process is ready; an error that it reports is raised here."""
        with suppress(EOFError):
            report = self.reports.recv()
            if report is not None:
                message, hint = report
                raise TertuliaError(message, hint=hint)
            self.is_ready = True

    def ended(self) -> bool:
        """Whether it has ended; if so, nothing is left of it."""
        if self.process.is_alive():
            return False
        self.process.join()
        self.reports.close()
        if self.process.pid is not None:
            mark_process_dead(self.process.pid)  # type: ignore[no-untyped-call]
        return True


class Supervisor:
    """Runs `count` processes until a signal comes."""

    def __init__(self, target: WorkerTarget, listening: socket, count: int, *, grace_seconds: float) -> None:
        self._target = target
        self._listening = listening
        self._count = count
        self._grace_seconds = grace_seconds
        self._stopping = threading.Event()
        self._processes: list[_Process] = []
        self._early_ends = 0

    def run(self, on_ready: Callable[[], None]) -> None:
        """Call `on_ready` when all processes accept connections; return after all have ended."""
        with _metrics_folder(), self._handling_signals():
            self._processes = [_Process(self._target, self._listening) for _ in range(self._count)]
            announced = False
            try:
                while not self._stopping.is_set():
                    self._wait()
                    if not announced and all(process.is_ready for process in self._processes):
                        announced = True
                        on_ready()
                    self._restart_ended()
            finally:
                self._stop_all()

    def _wait(self) -> None:
        """Until a process is ready or ends, or half a second is over."""
        pipes = {process.reports: process for process in self._processes}
        sentinels = [process.process.sentinel for process in self._processes]
        for item in connection.wait([*pipes, *sentinels], timeout=0.5):
            if isinstance(item, Connection):
                pipes[item].receive()

    def _restart_ended(self) -> None:
        for index, process in enumerate(self._processes):
            if self._stopping.is_set() or not process.ended():
                continue
            early = time.monotonic() - process.started < EARLY_SECONDS
            self._early_ends = self._early_ends + 1 if early else 0
            code = process.process.exitcode
            log.error("Server process %d ended with exit code %s; starting another", process.process.pid, code)
            if self._early_ends >= MAX_EARLY_ENDS:
                raise TertuliaError("The server processes end right after they start.", hint="See the log above.")
            if not self._stopping.wait(PAUSES[min(self._early_ends, len(PAUSES) - 1)]):
                self._processes[index] = _Process(self._target, self._listening)

    def _stop_all(self) -> None:
        for process in self._processes:
            if process.process.is_alive():
                process.process.terminate()
        deadline = time.monotonic() + self._grace_seconds + STOP_SECONDS
        for process in self._processes:
            process.process.join(max(0.0, deadline - time.monotonic()))
            if process.process.is_alive():
                log.error("Server process %d did not stop in time", process.process.pid)
                process.process.kill()
                process.process.join()

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        def on_signal(number: int, frame: FrameType | None) -> None:
            self._stopping.set()

        before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _metrics_folder() -> Iterator[None]:
    """A folder in which the processes share their metrics."""
    with tempfile.TemporaryDirectory(prefix="tertulia-metrics-") as folder:
        os.environ[FOLDER_VARIABLE] = folder
        try:
            yield
        finally:
            del os.environ[FOLDER_VARIABLE]


def _run(target: WorkerTarget, listening: socket, reports: Connection) -> None:
    """In the new process."""
    threading.Thread(target=_stop_with_parent, name="watch parent", daemon=True).start()
    try:
        target(listening, lambda: reports.send(None))
    except TertuliaError as error:  # such as no bot that can be loaded: another process would fail the same way
        reports.send((error.message, error.hint))


def _stop_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
