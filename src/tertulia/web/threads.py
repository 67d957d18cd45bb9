"""Work whose time grows with a stranger's text runs on a thread, so that the event loop can serve everybody else."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from fastapi.concurrency import run_in_threadpool

P = ParamSpec("P")
T = TypeVar("T")

SHORT = 2_000
"""Characters of a text that is handled at once: whatever it contains takes a millisecond, little more than a thread."""


async def on_thread(call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Call a function on a thread of the pool that sync handlers use, too."""
    return await run_in_threadpool(call, *args, **options)


async def on_thread_if_long(text: str, call: Callable[[str], T]) -> T:
    """Call a function with a text: on a thread if the text is long, else at once."""
    return call(text) if len(text) <= SHORT else await on_thread(call, text)
