"""Asks from many callers are queued fairly and passed to one bot in batches, on the worker's own threads.

A bot with sessions (`ContinuousBot`) is batched continuously: a reply that ends frees its place at once, and the next
ask joins the running batch at the next step. For other bots batching is dynamic: when the bot becomes free, everything
in the queue is its next batch (at most `max_batch`). The worker never waits to fill a batch, so a single ask is as fast
as the bot. A bot's traits (see `tertulia.talk.bot`) limit the batch size and say how many calls may run in parallel.

Asks have owners (visitors, API keys), each with a queue of their own, and batches are filled from them in turn. No
owner can take all places of a bot that works on several asks at once: the last quarter of them is for owners who have
nothing running. So asks that a bot never answers do not block other owners.

A job is independent of the connection that submitted it: it is finished even if the caller has gone, unless somebody
cancels it.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Literal

from tertulia.core.errors import BotError, ConfigError, TertuliaError
from tertulia.core.reply import Ask, Piece, Reply
from tertulia.talk.bot import Bot, BotHealth, BotWithHealth, ContinuousBot, ReplySession, StreamingBot, traits_of
from tertulia.talk.fair_queue import FairQueue

log = logging.getLogger(__name__)

OnPiece = Callable[[str], None]
"""Called on the worker's thread with each piece of a reply; must return immediately."""
ReplyNow = Callable[[Ask], Reply | None]
"""Replies on the caller's thread; None if the ask has to be submitted."""
WorkerState = Literal["idle", "busy", "stalled", "closed"]
INSTANT_CHARACTERS = 500
"""How long a message and the personas may be together if an instant bot is asked at once: few are longer. The worst
strings of this length take `generic` a quarter of a millisecond, and `tfidf` two thirds of one."""
NOBODY = ""
"""The owner of asks without an owner: they share one queue, which has no limit of its own."""


class Busy(BotError):  # noqa: N818 - reads better than BusyError where it is raised
    """The bot's queue is full, or the bot is shutting down; trying again later helps."""

    def __init__(self, message: str, *, hint: str = "", retry_after: float = 1.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after
        """Seconds after which it makes sense to try again."""


class TooManyPending(Busy):
    """One owner has too many asks waiting or running; others can still submit theirs."""


class Cancelled(BotError):  # noqa: N818
    """The ask was cancelled before the bot started on it."""


class Job:
    """A queued or running ask: `done` is the future of its reply, `text` what has been generated so far."""

    __slots__ = ("_cancelled", "_length", "_on_piece", "_parts", "_position", "ask", "done", "owner", "started")

    def __init__(self, ask: Ask, on_piece: OnPiece | None = None, owner: str = NOBODY) -> None:
        self.ask = ask
        self.owner = owner
        self.done: Future[Reply] = Future()
        self.started = 0.0
        self._on_piece = on_piece
        self._parts: list[str] = []
        self._length = 0  # of the text
        self._position = 0  # where in the text the next piece belongs; before its end while a reply is repeated
        self._cancelled = False

    @property
    def text(self) -> str:
        """What a streaming bot has generated so far; always empty for other bots."""
        return "".join(self._parts)

    @property
    def cancelled(self) -> bool:
        """Whether the reply is no longer wanted."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop: a queued job is dropped, a streaming reply ends where it is, any other reply is finished."""
        self._cancelled = True

    def result(self, timeout: float | None = None) -> Reply:
        """Wait for the reply; raises BotError if the bot failed."""
        return self.done.result(timeout)

    def _repeat(self) -> None:
        """The bot is asked again: the same text comes once more, and is not passed on a second time."""
        self._position = 0

    def _add_piece(self, text: str) -> None:
        if self._position < self._length:
            shown = self.text[self._position : self._position + len(text)]
            if not text.startswith(shown):
                raise BotError("The bot failed, and gave another reply when it was asked again.", hint="Try again.")
            self._position += len(shown)
            text = text[len(shown) :]
        if not text:
            return
        self._parts.append(text)
        self._length += len(text)
        self._position = self._length
        if self._on_piece is not None:
            try:
                self._on_piece(text)
            except Exception:  # a failing listener must not end the batch of all other jobs
                log.exception("The on_piece callback of a reply failed")
                self._on_piece = None


class Worker:
    """Passes asks to one bot, in batches, on threads of its own."""

    def __init__(
        self,
        bot: Bot,
        *,
        name: str = "",
        max_batch: int = 16,
        max_waiting: int = 1024,
        max_per_owner: int | None = 64,
        stall_after: float = 120.0,
    ) -> None:
        """At most `max_waiting` asks wait, and at most `max_per_owner` asks of one owner wait or run.

        A bot that has work but makes no progress for `stall_after` seconds is reported as stalled.
        """
        self.bot = bot
        self.name = name or bot.spec
        traits = traits_of(bot)
        self.display_name = traits.display_name or self.name
        # Checking for a protocol takes longer than a quick bot's reply, so it is done once.
        self._continuous = bot if isinstance(bot, ContinuousBot) else None
        self._streaming = bot if isinstance(bot, StreamingBot) else None
        self.streams = self._continuous is not None or self._streaming is not None
        self.max_batch = max(1, min(max_batch, traits.max_batch or max_batch))
        self.max_waiting, self.max_per_owner = max_waiting, max_per_owner
        self.reply_now: ReplyNow | None = self._reply_now if traits.instant else None
        """Asks an instant bot on the caller's thread; None for all others."""
        self.stall_after = float("inf") if traits.uses_terminal else stall_after  # people may take their time
        threads = max(1, traits.parallel)
        self._places = threads * self.max_batch
        # A bot that is given one batch at a time has no places that could be kept free.
        self._reserved = max(1, self._places // 4) if threads > 1 or self._continuous is not None else 0
        self._waiting: FairQueue[Job] = FairQueue()
        self._running: set[Job] = set()
        self._running_of: Counter[str] = Counter()
        self._seconds = 1.0  # moving average of how long a reply takes
        self._progress: list[float | None] = [None] * threads  # when each thread's bot last did something; None: idle
        self._change = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, args=(i,), name=f"bot {self.name} {i}", daemon=True)
            for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Asks in the queue."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Asks that the bot is working on."""
        return len(self._running)

    @property
    def stalled_seconds(self) -> float:
        """For how long no thread has made progress, if all of them have work; else 0."""
        busy = [moment for moment in self._progress if moment is not None]
        return max(0.0, time.monotonic() - max(busy)) if len(busy) == len(self._progress) else 0.0

    @property
    def state(self) -> WorkerState:
        """Whether the worker is idle, busy, stalled (its bot hangs), or closed."""
        if self._closed:
            return "closed"
        if self.stalled_seconds > self.stall_after:
            return "stalled"
        return "busy" if self._running or len(self._waiting) else "idle"

    def health(self) -> BotHealth:
        """The state of bot and worker."""
        if self.state == "stalled":
            detail = f"The bot has made no progress for {self.stalled_seconds:.0f} seconds."
            return BotHealth(False, "stalled", detail, self.stall_after)
        return self.bot.health() if isinstance(self.bot, BotWithHealth) else BotHealth()

    def check_room(self, asks: int = 1, *, owner: str = NOBODY) -> None:
        """Raise Busy if the queue has no room for this many more asks, so that a caller can refuse them early."""
        self._check_open()
        retry_after = min(60.0, max(1.0, self._seconds))
        if len(self._waiting) + asks > self.max_waiting:
            raise Busy(
                f"Too many requests are waiting for the bot {self.name!r}.",
                hint="Try again in a moment.",
                retry_after=retry_after,
            )
        pending = self._waiting.waiting(owner) + self._running_of[owner]
        if owner != NOBODY and self.max_per_owner is not None and pending + asks > self.max_per_owner:
            raise TooManyPending(
                f"You have {pending} requests waiting for the bot {self.name!r}; {self.max_per_owner} is the limit.",
                hint=f"Wait for a reply, or try again in {retry_after:.0f} seconds.",
                retry_after=retry_after,
            )

    def submit(self, ask: Ask, on_piece: OnPiece | None = None, *, admitted: bool = False, owner: str = NOBODY) -> Job:
        """Put an ask into its owner's queue; raises Busy if the queue is full or closed.

        An `admitted` ask is accepted even if the queue has filled up since its caller called `check_room`.
        """
        job = Job(ask, on_piece, owner)
        with self._change:
            if admitted:
                self._check_open()
            else:
                self.check_room(owner=owner)
            self._waiting.put(owner, job)
            self._change.notify()
        return job

    def _reply_now(self, ask: Ask) -> Reply | None:
        """The reply to a short text. After a failure the ask is to be submitted: the queue can deal with it."""
        if self._closed or _length(ask) > INSTANT_CHARACTERS:
            return None
        try:
            (reply,) = self.bot.reply([ask])
        except (Exception, SystemExit):
            log.exception("The bot %r failed, and is asked again", self.name)
            return None
        return reply

    def close(self, wait: float = 0.0) -> None:
        """Accept no more asks, give the accepted ones `wait` seconds to finish, then cancel the rest."""
        deadline = time.monotonic() + wait
        with self._change:
            self._closed = True
            self._change.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._change:
            for job in (*self._waiting, *self._running):
                job.cancel()
            self._change.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise Busy(f"The bot {self.name!r} is shutting down.", hint="Try again in a moment.", retry_after=5.0)

    def _run(self, thread: int) -> None:
        while batch := self._collect(self.max_batch):
            self._mark_progress(thread)
            try:
                if self._continuous is not None:
                    self._run_session(self._continuous, batch, thread)
                else:
                    self._run_batch(batch, thread)
            finally:
                self._progress[thread] = None

    def _mark_progress(self, thread: int) -> None:
        self._progress[thread] = time.monotonic()

    # The queue.

    def _collect(self, limit: int) -> list[Job]:
        """The next batch; waits for asks. Nothing once the queue is closed and empty."""
        while True:
            with self._change:
                while not (jobs := self._pop(limit)) and not (self._closed and not len(self._waiting)):
                    self._change.wait()
            if (batch := self._start(jobs)) or not jobs:
                return batch

    def _pop(self, limit: int) -> list[Job]:
        """Up to `limit` jobs, from the owners in turn; cancelled ones need no place."""
        jobs: list[Job] = []
        free = limit
        while free > 0 and (job := self._waiting.pop(self._may_start)) is not None:
            jobs.append(job)
            if not job.cancelled:
                free -= 1
                job.started = time.monotonic()
                self._running.add(job)
                self._running_of[job.owner] += 1
        return jobs

    def _may_start(self, owner: str) -> bool:
        """The last places are for owners who have nothing running."""
        free = self._places - len(self._running)
        return owner == NOBODY or not self._running_of[owner] or free > self._reserved

    def _start(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs without those that were cancelled in the queue, which end here."""
        for job in jobs:
            if job.started:
                job.done.add_done_callback(lambda _, job=job: self._release(job))  # type: ignore[misc]
            else:
                job.done.set_exception(Cancelled("The reply was cancelled before the bot started on it."))
        return [job for job in jobs if job.started]

    def _release(self, job: Job) -> None:
        """A job has ended: its place is free."""
        with self._change:
            self._running.discard(job)
            self._running_of[job.owner] -= 1
            if not self._running_of[job.owner]:
                del self._running_of[job.owner]
            self._seconds += 0.2 * (time.monotonic() - job.started - self._seconds)
            self._change.notify_all()

    # Bots with sessions.

    def _run_session(self, bot: ContinuousBot, jobs: Sequence[Job], thread: int) -> None:
        """Drive a session until it has no asks left; asks join it whenever a place is free."""
        running: dict[int, Job] = {}
        count = 0
        try:
            session = bot.open_session()
            while True:
                for job in jobs:
                    if self._add(session, count, job):
                        running[count] = job
                    count += 1
                if not running:
                    return
                self._step(session, running, thread)
                with self._change:
                    jobs = self._pop(self.max_batch - len(running))
                jobs = self._start(jobs)
        except (Exception, SystemExit) as error:
            waiting = [job for job in dict.fromkeys((*running.values(), *jobs)) if not job.done.done()]
            log.exception("The bot %r failed in a session of %d", self.name, len(waiting))
            self._repeat_separately(bot, waiting, error, thread)

    def _add(self, session: ReplySession, index: int, job: Job) -> bool:
        """Pass an ask to the session; if the ask itself is wrong, it alone fails."""
        try:
            session.add(index, job.ask)
        except TertuliaError as error:
            self._fail([job], error)
        except Exception as error:
            log.exception("The bot %r failed on an ask", self.name)
            self._fail([job], self._crash(error))
        return not job.done.done()

    def _step(self, session: ReplySession, running: dict[int, Job], thread: int) -> None:
        for index, job in running.items():
            if job.cancelled:
                session.cancel(index)
        for piece in session.step():
            self._deliver(running[piece.index], piece)
            if piece.reply is not None:
                del running[piece.index]
        self._mark_progress(thread)

    def _repeat_separately(self, bot: ContinuousBot, jobs: Sequence[Job], error: BaseException, thread: int) -> None:
        """After a crash, ask again one by one: a bad ask costs the others nothing but time.

        As the same ask gives the same reply, replies that were half shown go on where they were.
        """
        if len(jobs) == 1:
            self._fail(jobs, error if isinstance(error, TertuliaError) else self._crash(error))
            return
        for job in jobs:
            job._repeat()
            try:
                session = bot.open_session()
                running = {0: job} if self._add(session, 0, job) else {}
                while running:
                    self._step(session, running, thread)
            except TertuliaError as again:
                self._fail([job], again)
            except (Exception, SystemExit) as again:
                log.exception("The bot %r failed on an ask", self.name)
                self._fail([job], self._crash(again))

    # Other bots.

    def _run_batch(self, batch: Sequence[Job], thread: int) -> None:
        """Run a batch; whatever the bot does, every job of it ends."""
        try:
            if self._streaming is not None:
                self._stream(self._streaming, batch, thread)
            else:
                self._reply(batch)
        except TertuliaError as error:
            self._fail(batch, error)
        except (Exception, SystemExit) as error:
            log.exception("The bot %r failed on a batch of %d", self.name, len(batch))
            self._retry_separately(batch, error, thread)

    def _reply(self, batch: Sequence[Job]) -> None:
        replies = self.bot.reply([job.ask for job in batch])
        if len(replies) != len(batch):
            raise BotError(f"The bot {self.name!r} returned {len(replies)} replies to {len(batch)} asks.")
        for job, reply in zip(batch, replies, strict=True):
            job.done.set_result(reply)

    def _stream(self, bot: StreamingBot, batch: Sequence[Job], thread: int) -> None:
        for piece in bot.stream([job.ask for job in batch], alive=lambda i: not batch[i].cancelled):
            self._mark_progress(thread)
            self._deliver(batch[piece.index], piece)
        self._fail(batch, BotError(f"The bot {self.name!r} stopped in the middle of its reply."))

    def _retry_separately(self, batch: Sequence[Job], error: BaseException, thread: int) -> None:
        """After a crash, retry the asks one by one, so that one bad ask does not cost the others their replies."""
        started = [job for job in batch if job.text or len(batch) == 1]
        self._fail(started, self._crash(error))
        for job in batch:
            if not job.done.done():
                self._run_batch([job], thread)

    # The ends of jobs.

    @staticmethod
    def _deliver(job: Job, piece: Piece) -> None:
        if piece.text:
            job._add_piece(piece.text)
        if piece.reply is not None:
            job.done.set_result(piece.reply)

    def _crash(self, error: BaseException) -> BotError:
        return BotError(f"The bot {self.name!r} failed ({type(error).__name__}).")

    def _fail(self, batch: Sequence[Job], error: TertuliaError) -> None:
        """End the jobs that have not ended yet, each with its own error object: raising one changes its traceback."""
        kind = ConfigError if isinstance(error, ConfigError) else BotError  # options of the reply: the caller's mistake
        for job in batch:
            if not job.done.done():
                job.done.set_exception(kind(error.message, hint=error.hint))


def _length(ask: Ask) -> int:
    """Characters of the message and the personas."""
    personas = ask.dialogue.personas.values()
    return len(ask.last) + sum(len(sentence) for persona in personas for sentence in persona.sentences)
