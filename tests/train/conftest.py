"""Shared by the tests of several recipes: an interrupted run."""

from collections.abc import Callable

import pytest

from tertulia.core.progress import Progress, Silent


class _Stops(Silent):
    def __init__(self, at: int) -> None:
        self.left = at

    def advance(self, n: int = 1) -> None:
        self.left -= n
        if self.left <= 0:
            raise KeyboardInterrupt


@pytest.fixture
def stops() -> Callable[[int], Progress]:
    """Makes a progress listener that interrupts after some updates, as Ctrl-C would."""
    return _Stops
