"""Giving memory back to the system. Workers keep freed memory for their next task, which is what makes them fast; but
pieces of many sizes leave gaps that nothing fits into, and over hundreds of tasks a worker would grow to twice its
size.
"""

import ctypes
import os
import sys
from functools import lru_cache

ENOUGH = 272 << 20
"""Resident bytes up to which a worker may keep what it has freed."""


def give_back(*, above: int = ENOUGH) -> None:
    """Let the system have all freed pages again, where the process holds more than so many bytes.

    Only glibc keeps pages in that way and has a call to release them; with any other allocator this does nothing.
    """
    trim = _trim()
    if trim is not None and resident() > above:
        trim(0)


def resident() -> int:
    """Bytes of this process that are in memory (Linux only; 0 elsewhere)."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - read after every task
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _trim() -> "ctypes._NamedFuncPointer | None":
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
