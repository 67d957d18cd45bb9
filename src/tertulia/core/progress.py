"""Progress reporting: long work reports its steps to a `Progress`, which may be a bar in a terminal, a log, or nothing.

`Pace` estimates the remaining time from the pace of the last minutes.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """Receives progress reports."""

    def step(self, title: str, total: int | None = None) -> None:
        """A new step begins and the previous one ends; `total` is in the unit that `advance` counts."""
        ...

    def advance(self, n: int = 1) -> None:
        """`n` more units of the step are done."""
        ...

    def note(self, text: str) -> None:
        """The current state of the step in words; replaces the previous note."""
        ...


class Silent:
    """Ignores all reports."""

    def step(self, title: str, total: int | None = None) -> None:
        """Nothing."""

    def advance(self, n: int = 1) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""


class Pace:
    """The progress of a step, and the remaining time at the pace of the last minutes.

    The first `advance` does not count for the pace: a resumed run reports its earlier progress with it.

    >>> now = iter([0.0, 10.0, 20.0, 20.0]).__next__
    >>> pace = Pace(100, clock=now)
    >>> pace.advance(50), pace.advance(10), pace.advance(10), pace.left()
    (None, None, None, 30.0)
    """

    WINDOW = 300.0
    """Seconds over which the pace is measured."""

    def __init__(self, total: int | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.done, self._clock = total, 0, clock
        self._points: deque[tuple[float, int]] = deque()
        """(time, done), at least a second apart."""

    def advance(self, n: int = 1) -> None:
        """`n` more units are done."""
        self.done += n
        now = self._clock()
        if not self._points or now - self._points[-1][0] >= 1:
            self._points.append((now, self.done))
            while len(self._points) > 2 and now - self._points[1][0] >= self.WINDOW:
                self._points.popleft()

    def left(self) -> float | None:
        """Remaining seconds; None if unknown."""
        if self.total is None or not self._points:
            return None
        start_time, start_done = self._points[0]
        advanced, seconds = self.done - start_done, self._clock() - start_time
        return max(0, self.total - self.done) * seconds / advanced if advanced > 0 and seconds > 0 else None


def duration(seconds: float) -> str:
    """A readable duration.

    >>> [duration(s) for s in (8, 100, 4000, 200_000)]
    ['8 s', '1:40 min', '1:06 h', '2 d 7 h']
    """
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60}:{total % 60:02d} min"
    if total < 86_400:
        return f"{total // 3600}:{total % 3600 // 60:02d} h"
    return f"{total // 86_400} d {total % 86_400 // 3600} h"
