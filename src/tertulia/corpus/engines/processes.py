"""Worker processes as the driver of a pool sees them, and how one is started as a program of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from tertulia.corpus.engines.base import ENVIRONMENT


@dataclass(frozen=True, slots=True, eq=False)
class WorkerProcess:
    """A worker and the two pipes that connect it with its driver."""

    pid: int
    tasks: IO[bytes]
    results: IO[bytes]
    kill: Callable[[], int]
    """Kills the process, if it is still running, and returns its exit code."""

    def stop(self) -> int:
        """Kill the process, close its pipes and return its exit code."""
        code = self.kill()
        for pipe in (self.tasks, self.results):
            with suppress(OSError):  # unsent data is lost with the worker
                pipe.close()
        return code


def start_program(module: str, *arguments: str, **pipes: Any) -> subprocess.Popen[bytes]:
    """Run a module in a new interpreter that finds what this one finds and has the environment of workers."""
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": paths}
    return subprocess.Popen([sys.executable, "-m", module, *arguments], env=environment, **pipes)


def start_worker() -> WorkerProcess:
    """A worker that is a program of its own, and imports all that it needs."""
    process = start_program("tertulia.corpus.engines.worker", stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def kill() -> int:
        process.kill()
        return process.wait()

    assert process.stdin
    assert process.stdout
    return WorkerProcess(process.pid, process.stdin, process.stdout, kill)
