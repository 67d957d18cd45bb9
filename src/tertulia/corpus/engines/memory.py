"""Returning memory to the system.

Workers keep freed memory for their next task, which makes them fast; but blocks of many sizes fragment the heap, and
over hundreds of tasks a worker would grow to twice its size.
"""

import ctypes
import os
import sys
from functools import lru_cache

KEEP_BYTES = 272 << 20
"""Resident bytes up to which a worker may keep freed memory."""


def release_memory(*, above: int = KEEP_BYTES) -> None:
    """Return all freed pages to the system if the process holds more than `above` bytes.

    Only glibc keeps pages in this way and has a call to release them; with any other allocator this does nothing.
    """
    trim = _trim()
    if trim is not None and resident_bytes() > above:
        trim(0)


def resident_bytes() -> int:
    """Resident memory of this process (Linux only; 0 elsewhere)."""
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
