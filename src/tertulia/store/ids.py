"""Ids of conversations and turns: random, and cheap to make.

Each call of the operating system's random source gives up the interpreter's lock, so one call serves many ids.
"""

import os
from collections import deque

DIGITS = 32
"""Hexadecimal digits of an id."""
_AT_ONCE = 256
_unused: deque[str] = deque()
os.register_at_fork(after_in_child=_unused.clear)  # or parent and child would hand out the same ids


def new_id() -> str:
    """An id that no one has had before, and no one can guess. Thread-safe."""
    while True:
        try:
            return _unused.pop()
        except IndexError:
            digits = os.urandom(_AT_ONCE * DIGITS // 2).hex()
            _unused.extend(digits[start : start + DIGITS] for start in range(0, len(digits), DIGITS))
