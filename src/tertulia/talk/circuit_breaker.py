"""A circuit breaker: after several failures in a row, requests are refused at once instead of failing slowly.

Closed, it admits every request. After `threshold` failures in a row it opens: it admits nothing for a pause. Then it is
half-open: it admits one request, the probe. If the probe succeeds, the breaker closes; if it fails, the breaker opens
for twice as long, up to `max_pause`. Any success closes it, also of a request that was admitted before it opened.
"""

import threading
import time
from collections.abc import Callable
from typing import Literal

BreakerState = Literal["closed", "open", "half-open"]


class Permit:
    """A request that was admitted. Exactly one outcome counts: the first that is reported."""

    __slots__ = ("_breaker", "_settled", "is_probe")

    def __init__(self, breaker: "CircuitBreaker", *, is_probe: bool) -> None:
        self._breaker, self.is_probe = breaker, is_probe
        self._settled = False

    def succeed(self) -> None:
        """The endpoint works."""
        self._settle("success")

    def fail(self) -> None:
        """The endpoint failed, or took too long."""
        self._settle("failure")

    def release(self) -> None:
        """The request says nothing about the endpoint: it was cancelled, or will be repeated."""
        self._settle("none")

    def _settle(self, outcome: Literal["success", "failure", "none"]) -> None:
        if not self._settled:
            self._settled = True
            self._breaker._record(self, outcome)


class CircuitBreaker:
    """Counts failures in a row; thread-safe."""

    def __init__(
        self,
        *,
        threshold: int,
        pause: float,
        max_pause: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """With a threshold of 0 it never opens."""
        self.threshold, self.first_pause, self.max_pause = threshold, pause, max_pause
        self._clock = clock
        self._lock = threading.Lock()
        self._probe: Permit | None = None
        self._failures = 0
        self._pause = min(pause, max_pause)
        self._open_until: float | None = None

    @property
    def failures(self) -> int:
        """Failures since the last success."""
        return self._failures

    @property
    def state(self) -> BreakerState:
        """Half-open is the state in which a probe may be sent or is under way."""
        with self._lock:
            if self._open_until is None:
                return "closed"
            return "open" if self._clock() < self._open_until else "half-open"

    @property
    def retry_seconds(self) -> float:
        """Seconds until a request may be admitted; 0 if that is now."""
        with self._lock:
            return 0.0 if self._open_until is None else max(0.0, self._open_until - self._clock())

    def admit(self) -> Permit | None:
        """The permit for a request, whose outcome must be reported; None if it must not be sent."""
        with self._lock:
            if self._open_until is None:
                return Permit(self, is_probe=False)
            if self._clock() < self._open_until or self._probe is not None:
                return None
            self._probe = Permit(self, is_probe=True)
            return self._probe

    def _record(self, permit: Permit, outcome: Literal["success", "failure", "none"]) -> None:
        with self._lock:
            was_probe = permit is self._probe
            if was_probe:
                self._probe = None
            if outcome == "success":
                self._close()
            elif outcome == "failure":
                self._failures += 1
                if was_probe:
                    self._pause = min(self.max_pause, 2 * self._pause)
                    self._open_until = self._clock() + self._pause
                elif self._open_until is None and 0 < self.threshold <= self._failures:
                    self._open_until = self._clock() + self._pause

    def _close(self) -> None:
        self._failures = 0
        self._pause = min(self.first_pause, self.max_pause)
        self._open_until = None
