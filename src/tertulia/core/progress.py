"""How long work tells how far it is, without knowing who listens: a bar in a terminal, a log, or nobody.

Who listens can tell from the pace of the last minutes how long it will still take.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """Hears of steps and of what is done within them."""

    def step(self, title: str, total: int | None = None) -> None:
        """A new step begins (and the one before it is over); total is in the unit that `advance` counts."""
        ...

    def advance(self, n: int = 1) -> None:
        """So much more of the step is done."""
        ...

    def note(self, text: str) -> None:
        """Something worth saying about the step, as it stands; what was said before no longer holds."""
        ...


class Silent:
    """Nobody listens."""

    def step(self, title: str, total: int | None = None) -> None:
        """Nothing."""

    def advance(self, n: int = 1) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""


class Pace:
    """How far a step is, and how long the rest will take at the pace of the last minutes.

    What is done when the first `advance` comes back counts as having been there: a run that goes on begins with it.

    >>> now = iter([0.0, 10.0, 20.0, 20.0]).__next__
    >>> pace = Pace(100, clock=now)
    >>> pace.advance(50), pace.advance(10), pace.advance(10), pace.left()
    (None, None, None, 30.0)
    """

    WINDOW = 300.0
    """Seconds that are looked back."""

    def __init__(self, total: int | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.done, self._clock = total, 0, clock
        self._marks: deque[tuple[float, int]] = deque()
        """(time, done), a second apart at least."""

    def advance(self, n: int = 1) -> None:
        """So much more is done."""
        self.done += n
        now = self._clock()
        if not self._marks or now - self._marks[-1][0] >= 1:
            self._marks.append((now, self.done))
            while len(self._marks) > 2 and now - self._marks[1][0] >= self.WINDOW:
                self._marks.popleft()

    def left(self) -> float | None:
        """Seconds; None where that cannot be told yet, or at all."""
        if self.total is None or not self._marks:
            return None
        began, before = self._marks[0]
        made, seconds = self.done - before, self._clock() - began
        return max(0, self.total - self.done) * seconds / made if made > 0 and seconds > 0 else None


def duration(seconds: float) -> str:
    """A length of time as one says it.

    >>> [duration(s) for s in (8, 100, 4000, 200_000)]
    ['8 s', '1:40 min', '1:06 h', '2 d 7 h']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    if whole < 86_400:
        return f"{whole // 3600}:{whole % 3600 // 60:02d} h"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
