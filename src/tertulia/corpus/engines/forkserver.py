"""A fork server: one process imports what all workers need, and every worker is a copy of it.

Importing takes a worker a third of a second of CPU time, and a copy of a process that has imported everything none.
Memory that was mapped as shared before is shared by all copies. The server is a program like a plain worker, so that
nothing of the driver is copied: a process with threads cannot be copied safely. For the same reason the server only
forks as long as it has a single thread; it must not preload a module that starts others (as Polars does).

The driver sends a number over a socket: 0 with the two ends of pipes that a new worker shall hold, or the process id of
one that shall be killed. The answer is the process id, or the exit code. The driver never signals a process itself:
until the server has been asked about a process, its id cannot be that of another one. When the driver ends, the socket
closes, and the server ends with all its workers.
"""

import gc
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path

from tertulia.corpus.engines import worker
from tertulia.corpus.engines.processes import WorkerProcess, start_program

IS_SAFE = sys.platform == "linux"
"""Whether libraries survive being copied: those of macOS do not."""
_NUMBER = struct.Struct("<i")
_FORK = 0


class ForkServer:
    """The driver's side."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            program = "tertulia.corpus.engines.forkserver"
            self._process = start_program(program, *modules, stdin=theirs, stdout=subprocess.DEVNULL)

    def start(self) -> WorkerProcess | None:
        """A new worker; None if the server is gone or refuses."""
        tasks_in, tasks = os.pipe()
        results, results_out = os.pipe()
        pid = self._ask(_FORK, tasks_in, results_out)
        os.close(tasks_in)
        os.close(results_out)
        if pid is None:
            os.close(tasks)
            os.close(results)
            return None
        return WorkerProcess(pid, os.fdopen(tasks, "wb"), os.fdopen(results, "rb"), partial(self._kill, pid))

    def close(self) -> None:
        """End the server, and all workers that still run."""
        self._socket.close()
        self._process.wait()

    def _kill(self, pid: int) -> int:
        code = self._ask(pid)
        return -signal.SIGKILL if code is None else code  # without a server the worker ends when its pipe is closed

    def _ask(self, number: int, *descriptors: int) -> int | None:
        try:
            socket.send_fds(self._socket, [_NUMBER.pack(number)], descriptors)
            answer = self._socket.recv(_NUMBER.size)
        except OSError:
            return None
        return int(_NUMBER.unpack(answer)[0]) if answer else None


def main(modules: Sequence[str]) -> None:
    """Serve until the driver ends, or work in a forked process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver gets it, too, and ends this process
    for module in modules:
        import_module(module)
    gc.freeze()
    with socket.socket(fileno=os.dup(sys.stdin.fileno())) as driver:
        pipes = _serve(driver)
    if pipes:
        _work(*pipes)


def _serve(driver: socket.socket) -> list[int]:
    """Answer until the driver ends. In a forked process it returns the ends of that one's pipes, otherwise nothing."""
    workers: set[int] = set()
    with suppress(OSError):  # the driver has ended
        while _is_single_threaded():
            message, pipes, _, _ = socket.recv_fds(driver, _NUMBER.size, 2)
            if not message:
                break
            answer = _NUMBER.unpack(message)[0]
            if answer == _FORK:
                answer = os.fork()
                if not answer:
                    return pipes
                workers.add(answer)
                for pipe in pipes:
                    os.close(pipe)
            else:
                workers.discard(answer)
                answer = _kill(answer)
            driver.sendall(_NUMBER.pack(answer))
    for pid in workers:
        _kill(pid)
    return []


def _is_single_threaded() -> bool:
    return sum(1 for _ in Path("/proc/self/task").iterdir()) == 1


def _kill(pid: int) -> int:
    """Only here is a process waited for, so that the id is certainly its own."""
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _work(tasks_in: int, results_out: int) -> None:
    """Be a worker, as if started with these pipes."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(tasks_in, sys.stdin.fileno())
    os.dup2(results_out, sys.stdout.fileno())
    os.close(tasks_in)
    os.close(results_out)
    worker.main()


if __name__ == "__main__":
    main(sys.argv[1:])
