"""What a shell would do with a command line of the docs, in this process, which has imported everything already."""

import gc
import logging
import os
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import httpx

from tertulia.cli.main import run

TYPED = "Hi! Do you like bees?\n/quit\n"
LOGGING = ("_srcfile", "logThreads", "logProcesses", "logMultiprocessing")


class Ended(NamedTuple):
    """How a command ended: its exit code, and what it wrote to the standard output and the standard error."""

    code: int
    printed: str
    errors: str


def call(line: str) -> Ended:
    """Run a command line: `> FILE` and `&` as in a shell; a chat gets typed lines, a server a request and a signal."""
    words = shlex.split(line, comments=True)
    words = words[: -1 if words[-1] == "&" else None]
    printed, errors = StringIO(), StringIO()
    words, file = (words[:-2], Path(words[-1])) if len(words) > 2 and words[-2] == ">" else (words, None)
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(printed))
        stack.enter_context(redirect_stderr(errors))
        stack.enter_context(typed(TYPED))
        if words[1] == "serve" or (words[1] == "demo" and "--no-serve" not in words):
            words = [word for option, word in zip(["", *words], words, strict=False) if "--port" not in (option, word)]
            words += ["--port", "0"]
            stack.enter_context(undisturbed())
            asked = stack.enter_context(visitor(printed))
        else:
            asked = ["200"]
        try:
            run(words[1:])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    if file:
        file.write_text(printed.getvalue(), encoding="utf-8")
    code = code or int(asked != ["200"])
    if asked != ["200"]:
        errors.write(f"The server answered {asked}.")
    return Ended(code, printed.getvalue(), errors.getvalue())


@contextmanager
def typed(text: str) -> Iterator[None]:
    before, sys.stdin = sys.stdin, StringIO(text)
    try:
        yield
    finally:
        sys.stdin = before


@contextmanager
def visitor(printed: StringIO, seconds: float = 120) -> Iterator[list[str]]:
    """Waits for a server's address, asks whether it is well, and stops it as Ctrl-C would; yields what it answered."""
    answers: list[str] = []
    ended = threading.Event()

    def visit() -> None:
        until = time.monotonic() + seconds
        while not (address := re.search(r" at (http://\S+) \(API", printed.getvalue())):
            if ended.wait(0.02) or time.monotonic() > until:
                return
        try:
            answers.append(str(httpx.get(f"{address[1]}/healthz", timeout=seconds).status_code))
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=visit)
    thread.start()
    try:
        yield answers
    finally:
        ended.set()
        thread.join()


@contextmanager
def undisturbed() -> Iterator[None]:
    """A server takes its process for its own: put back what it changes of Python's settings."""
    root = logging.getLogger()
    handlers, level, ours = root.handlers[:], root.level, logging.getLogger("tertulia").level
    settings = {name: getattr(logging, name) for name in LOGGING}
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)
        for name, value in settings.items():
            setattr(logging, name, value)
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.getLogger("tertulia").setLevel(ours)
