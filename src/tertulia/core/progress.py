"""How long work tells how far it is, without knowing who listens: a bar in a terminal, a log, or nobody."""

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
        """Something worth saying about the step."""
        ...


class Silent:
    """Nobody listens."""

    def step(self, title: str, total: int | None = None) -> None:
        """Nothing."""

    def advance(self, n: int = 1) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""
