"""One bot and many who wait for it: asks from everywhere are answered in batches by the bot's own thread.

Whatever waits when the bot becomes free is its next batch (at most `max_batch`); nothing is held back to fill one, so
a lone ask is as fast as the bot. A job belongs to nobody's connection: who submitted it may go away, and it is finished
all the same unless somebody cancels it. Two extras a bot may have: `max_batch`, the most it takes at once, and
`parallel`, how many calls of it may run at the same time (a remote endpoint takes many; without it, one).
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from tertulia.core.errors import BotError, TertuliaError
from tertulia.core.reply import Ask, Reply
from tertulia.talk.bot import Bot, StreamingBot

log = logging.getLogger(__name__)

OnPiece = Callable[[str], None]
"""Called on the bot's thread with each piece of a reply; must return at once."""


class Busy(BotError):  # noqa: N818 - reads better than BusyError where it is raised
    """Too many asks wait for this bot already, or it is about to stop; trying again later helps."""


class Cancelled(BotError):  # noqa: N818
    """The ask was cancelled before the bot came to it."""


class Job:
    """A reply in the making: `done` is its future, `text` what has been written of it so far."""

    __slots__ = ("_cancelled", "_on_piece", "_parts", "ask", "done")

    def __init__(self, ask: Ask, on_piece: OnPiece | None = None) -> None:
        self.ask = ask
        self.done: Future[Reply] = Future()
        self._on_piece = on_piece
        self._parts: list[str] = []
        self._cancelled = False

    @property
    def text(self) -> str:
        """What a streaming bot has written so far; empty until the end for the others."""
        return "".join(self._parts)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the reply any more."""
        return self._cancelled

    def cancel(self) -> None:
        """Ask the bot to stop: a waiting job is dropped, a streaming reply ends where it is, any other is finished."""
        self._cancelled = True

    def result(self, timeout: float | None = None) -> Reply:
        """Wait for the reply; a bot that failed raises its BotError here."""
        return self.done.result(timeout)

    def _wrote(self, text: str) -> None:
        self._parts.append(text)
        if self._on_piece is not None:
            try:
                self._on_piece(text)
            except Exception:  # a listener's trouble must not end the batch of all the others
                log.exception("A listener of a reply failed")
                self._on_piece = None


class Worker:
    """Answers the asks for one bot, in batches, on threads of its own."""

    def __init__(self, bot: Bot, *, name: str = "", max_batch: int = 16, max_waiting: int = 1024) -> None:
        self.bot = bot
        self.name = name or bot.spec
        self.streams = isinstance(bot, StreamingBot)
        self.max_batch = max(1, min(max_batch, getattr(bot, "max_batch", max_batch)))
        self.max_waiting = max_waiting
        self._waiting: deque[Job] = deque()
        self._running: set[Job] = set()
        self._change = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"bot {self.name} {i}", daemon=True)
            for i in range(max(1, getattr(bot, "parallel", 1)))
        ]
        for thread in self._threads:
            thread.start()

    def check_room(self, asks: int = 1) -> None:
        """Raise Busy if so many more asks would not be taken: lets a caller refuse before it writes anything down."""
        self._check_open()
        if len(self._waiting) + asks > self.max_waiting:
            raise Busy(f"Too many wait for the bot {self.name!r} already.", hint="Try again in a moment.")

    def submit(self, ask: Ask, on_piece: OnPiece | None = None, *, admitted: bool = False) -> Job:
        """Put an ask into the queue; raises Busy when that is full or closed.

        One whose caller checked the room and has promised a reply since is `admitted`, even if others came in between.
        """
        job = Job(ask, on_piece)
        with self._change:
            if admitted:
                self._check_open()
            else:
                self.check_room()
            self._waiting.append(job)
            self._change.notify()
        return job

    def close(self, wait: float = 0.0) -> None:
        """Take no more asks, let those taken finish for so many seconds, then cancel what is left."""
        deadline = time.monotonic() + wait
        with self._change:
            self._closed = True
            self._change.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._change:
            for job in (*self._waiting, *self._running):
                job.cancel()

    def _check_open(self) -> None:
        if self._closed:
            raise Busy(f"The bot {self.name!r} is stopping.", hint="Try again in a moment.")

    def _run(self) -> None:
        while batch := self._collect():
            try:
                self._answer(batch)
            finally:
                with self._change:
                    self._running.difference_update(batch)

    def _collect(self) -> list[Job]:
        """The next batch, or nothing once closed and empty. Jobs cancelled while they waited end here."""
        while True:
            with self._change:
                while not self._waiting and not self._closed:
                    self._change.wait()
                taken = [self._waiting.popleft() for _ in range(min(self.max_batch, len(self._waiting)))]
                batch = [job for job in taken if not job.cancelled]
                self._running.update(batch)
            for job in taken:
                if job not in self._running:
                    job.done.set_exception(Cancelled("The reply was cancelled before the bot began it."))
            if batch or not taken:
                return batch

    def _answer(self, batch: Sequence[Job]) -> None:
        """Answer a batch; whatever the bot does, every job of it ends."""
        try:
            if isinstance(self.bot, StreamingBot):
                self._stream(self.bot, batch)
            else:
                self._reply(batch)
        except TertuliaError as error:
            self._fail(batch, error)
        except (Exception, SystemExit) as error:
            log.exception("The bot %r failed on a batch of %d", self.name, len(batch))
            self._separate(batch, error)

    def _reply(self, batch: Sequence[Job]) -> None:
        replies = self.bot.reply([job.ask for job in batch])
        if len(replies) != len(batch):
            raise BotError(f"The bot {self.name!r} gave {len(replies)} replies to {len(batch)} asks.")
        for job, reply in zip(batch, replies, strict=True):
            job.done.set_result(reply)

    def _stream(self, bot: StreamingBot, batch: Sequence[Job]) -> None:
        for piece in bot.stream([job.ask for job in batch], alive=lambda i: not batch[i].cancelled):
            job = batch[piece.index]
            if piece.text:
                job._wrote(piece.text)
            if piece.reply is not None:
                job.done.set_result(piece.reply)
        self._fail(batch, BotError(f"The bot {self.name!r} stopped in the middle of its reply."))

    def _separate(self, batch: Sequence[Job], error: BaseException) -> None:
        """After a crash, ask again one by one: one ask the bot cannot bear must not cost the others their replies."""
        begun = [job for job in batch if job.text or len(batch) == 1]
        self._fail(begun, BotError(f"The bot {self.name!r} failed ({type(error).__name__})."))
        for job in batch:
            if not job.done.done():
                self._answer([job])

    def _fail(self, batch: Sequence[Job], error: TertuliaError) -> None:
        """End the jobs that have not ended yet, each with an error of its own: raising one changes its traceback."""
        for job in batch:
            if not job.done.done():
                job.done.set_exception(BotError(error.message, hint=error.hint))
