"""One reply on its way, as those who watch it see it: what was written, more of it, and its end.

It keeps all pieces and wakes whoever waits, instead of a queue for each watcher: anybody can come later and still see
all of it, a slow watcher costs nothing, and one who goes away leaves nothing behind.
"""

import asyncio
from dataclasses import dataclass

from tertulia.core.errors import BotError, TertuliaError
from tertulia.store import StoredTurn
from tertulia.talk.worker import Job


class Making:
    """One reply on its way, or already there; only touched on the event loop."""

    __slots__ = ("_waiters", "ended", "error", "job", "owner", "parts", "turn")

    def __init__(self, turn: StoredTurn, owner: str) -> None:
        self.turn = turn
        self.owner = owner
        self.job: Job | None = None
        self.parts: list[str] = []
        self.ended: StoredTurn | None = None
        self.error: TertuliaError | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.ended is not None or self.error is not None

    def wrote(self, text: str) -> None:
        """Some more text came."""
        self.parts.append(text)
        self._wake()

    def end(self, turn: StoredTurn | None, error: TertuliaError | None = None) -> None:
        """Nothing more will come; the first end counts."""
        if self.over:
            return
        if turn is not None and turn.status == "failed" and error is None:
            error = BotError(turn.error or "The bot failed.", hint="Try again, or choose another bot.")
        self.ended, self.error = turn, error
        self._wake()

    def changed(self) -> asyncio.Future[None]:
        """Done as soon as there is more to see. Not a coroutine: what comes between looking and waiting must count."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    async def over_or_raise(self) -> StoredTurn:
        """The turn as it ended; raises what the bot failed with."""
        while not self.over:
            await self.changed()
        if self.error is not None:
            raise self.error
        assert self.ended is not None
        return self.ended

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()


@dataclass(frozen=True, slots=True)
class Attached:
    """A reply in the making, and the message it answers."""

    making: Making
    user: StoredTurn
