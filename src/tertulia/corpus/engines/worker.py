"""A worker of the pool: reads pickled tasks from its standard input, writes pickled results, dies with its driver.

A thread reads the input all the time. When the driver ends, however it ends, the pipe closes, and the worker leaves at
once in the middle of whatever it does: nobody waits for it any more, and unfinished files are swept by the next run.
"""

import os
import pickle
import queue
import sys
import threading
import traceback
from typing import IO, Any

from tertulia.core.errors import TertuliaError
from tertulia.corpus.engines.memory import give_back

_GONE = 3
"""Exit code of a worker whose driver is gone."""


def main() -> None:
    """Work until the driver is gone."""
    results = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not get among the results
    tasks: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks), daemon=True).start()
    while True:
        function, task = tasks.get()
        pickle.dump(_answer(function, task), results)
        results.flush()
        give_back()


def _listen(tasks_in: IO[bytes], tasks: "queue.Queue[Any]") -> None:
    try:
        while True:
            tasks.put(pickle.load(tasks_in))  # from our own driver, over a pipe that only it holds
    finally:
        os._exit(_GONE)


def _answer(function: Any, task: Any) -> tuple[str, Any]:
    """A result; or an error in plain words, since not every exception survives pickling."""
    try:
        return "result", function(task)
    except TertuliaError as error:
        return "refused", (error.message, error.hint)
    except Exception:
        return "failed", traceback.format_exc()


if __name__ == "__main__":
    main()
