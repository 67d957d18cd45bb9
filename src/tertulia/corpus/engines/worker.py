"""A worker of the pool: reads pickled tasks from its standard input, writes pickled results, dies with its driver.

The function comes first, alone and once, because it may hold much that all tasks share; then task after task.

A thread reads the input all the time. When the driver ends, however it ends, the pipe closes, and the worker exits at
once in the middle of its task: nobody waits for the result any more, and the next run removes unfinished files.
"""

import gc
import os
import pickle
import queue
import sys
import threading
import traceback
from typing import IO, Any

from tertulia.core.errors import TertuliaError
from tertulia.corpus.engines.memory import release_memory

FUNCTION, TASK = "function", "task"
"""Kinds of what the driver sends."""
_OBJECTS_BEFORE_COLLECTION = 100_000
"""Tasks make lists of millions of texts and no cycles: looking for these every 700 objects took 4 % of the time."""
_DRIVER_GONE = 3
"""Exit code of a worker whose driver has ended."""


def main() -> None:
    """Work until the driver ends."""
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    results = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of libraries must not mix with the results
    tasks: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks), daemon=True).start()
    function: Any = None
    while True:
        kind, value = tasks.get()
        if kind == FUNCTION:
            function = value
            continue
        pickle.dump(_run(function, value), results)
        results.flush()
        del value
        release_memory()


def _listen(tasks_in: IO[bytes], tasks: "queue.Queue[Any]") -> None:
    try:
        while True:
            tasks.put(pickle.load(tasks_in))  # from our own driver, over a pipe that only it holds
    finally:
        os._exit(_DRIVER_GONE)


def _run(function: Any, task: Any) -> tuple[str, Any]:
    """A result, or an error as text, since not every exception can be pickled."""
    try:
        return "result", function(task)
    except TertuliaError as error:
        return "rejected", (error.message, error.hint)
    except OSError as error:
        return "system", (error.errno or 0, error.strerror or str(error), error.filename)
    except Exception:
        return "failed", traceback.format_exc()


if __name__ == "__main__":
    main()
