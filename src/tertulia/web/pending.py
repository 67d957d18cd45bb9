"""A reply that is being generated, as those see it who wait for it."""

import asyncio

from tertulia.core.errors import BotError, TertuliaError
from tertulia.store import StoredTurn
from tertulia.talk.worker import Job


class PendingReply:
    """One reply and its progress; touched on the event loop only.

    It keeps all pieces and wakes whoever waits, instead of a queue per listener: a client that connects later still
    sees everything, a slow one costs nothing, and one that disconnects leaves nothing behind.
    """

    __slots__ = ("_waiters", "error", "final", "generated", "job", "owner", "pieces", "stop_reason", "turn")

    def __init__(self, turn: StoredTurn, owner: str, *, is_new: bool = False) -> None:
        """Of a turn that is new, nobody has seen a piece yet, even if it has a text."""
        self.turn = turn
        self.owner = owner
        self.job: Job | None = None
        """None for a reply that another server generates, and for one that has ended."""
        self.generated: list[str] = [turn.text] if turn.text and not is_new else []
        self.pieces: list[str] = list(self.generated)
        """What clients may see: the pieces that have been saved, so that no crash takes back what somebody has read."""
        self.stop_reason: str | None = None
        """Why it is being stopped, if the user did not stop it."""
        self.final: StoredTurn | None = None
        self.error: TertuliaError | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def is_done(self) -> bool:
        """Whether it has ended, with a final turn or an error."""
        return self.final is not None or self.error is not None

    @property
    def text(self) -> str:
        """All that has been generated so far."""
        return "".join(self.generated)

    def show(self, pieces: int | None = None) -> None:
        """Let clients see so many of the generated pieces, or all."""
        before = len(self.pieces)
        self.pieces += self.generated[before:pieces]
        if len(self.pieces) > before:
            self._wake()

    def finish(self, turn: StoredTurn | None, error: TertuliaError | None = None) -> None:
        """End it; only the first call has an effect."""
        if self.is_done:
            return
        if turn is not None and turn.status == "failed" and error is None:
            error = BotError(turn.error or "The bot failed.", hint="Try again, or choose another bot.")
        self.show()
        self.final, self.error = turn, error
        self._wake()

    def changed(self) -> asyncio.Future[None]:
        """Resolves at the next change. Not a coroutine: it must also count changes before it is awaited."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    async def result(self) -> StoredTurn:
        """Wait for the final turn; raises the bot's error."""
        while not self.is_done:
            await self.changed()
        if self.error is not None:
            raise self.error
        assert self.final is not None
        return self.final

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
