"""Replies that are being generated. They belong to the server, not to a connection: if the client disconnects, the
reply is finished and stored all the same, and the same visitor can come back and follow the rest of it.

A message costs two transactions (`ConversationStore.start_say` and `.start_finish`) and two wake-ups of the event loop;
a streamed reply also has its text saved as it goes (`progress`). Its way is event loop, store, event loop, bot, store,
event loop: no thread waits for another one, because each switch costs more than the work. An instant bot is asked by
the thread of the store, inside of the one transaction that stores message and reply. Other calls of the store block,
and run on threads of their own. Pending replies are touched on the event loop only, and need no locks.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from tertulia.core.errors import BotError, StoreError, TertuliaError
from tertulia.core.reply import Ask, Reply
from tertulia.core.text import clean
from tertulia.store import Conversation, ConversationStore, NotFound, StoredExchange, StoredTurn
from tertulia.store.records import TurnEnd
from tertulia.talk.bot import Bot
from tertulia.talk.worker import Busy, Job, OnPiece, ReplyNow
from tertulia.web.asks import AskBuilder, reply_record
from tertulia.web.errors import log_failure, reference_of
from tertulia.web.pending import PendingReply
from tertulia.web.progress import ProgressSaver, RemoteReplies, on_loop, run_on

log = logging.getLogger(__name__)

RETRY_SECONDS = (0.1, 0.5, 2.0)
"""Pauses between attempts to store a finished reply."""
SHUTDOWN_REASON = "The server was shut down before this reply was finished."


class ReplyWorker(Protocol):
    """What generates replies: a bot's worker."""

    reply_now: ReplyNow | None
    """Replies at once, if the bot is quicker than a switch to its thread."""

    @property
    def bot(self) -> Bot:
        """The bot."""

    def check_room(self, count: int = 1, *, owner: str = ...) -> None:
        """Raise Busy if there is no room for so many more asks."""

    def submit(self, ask: Ask, on_piece: OnPiece | None = None, **options: Any) -> Job:
        """Put an ask into the queue."""


class StartedReply(NamedTuple):
    """The user's stored message, and the reply to it."""

    user: StoredTurn
    pending: PendingReply


class ReplyService:
    """Stores messages, lets bots reply to them, and lets clients follow and stop the replies."""

    def __init__(
        self,
        worker: Callable[[str], ReplyWorker],
        store: ConversationStore,
        threads: ThreadPoolExecutor,
        *,
        stop_seconds: float = 1.0,
    ) -> None:
        """`worker` gives the worker of a bot's public name; the store is called on `threads`.

        From now on until `close` the store's lease on its pending replies is renewed.
        """
        self._worker = worker
        self._store = store
        self._threads = threads
        self._stop_seconds = stop_seconds
        self._asks = AskBuilder()
        self._pending: dict[str, PendingReply] = {}
        self._saver = ProgressSaver(store, threads, self._on_ended_elsewhere)
        self._remote = RemoteReplies(store, threads)
        self._heartbeat = store.start_heartbeat()
        self._starting = 0
        self._closing = False

    async def say(self, conversation: str, owner: str, text: str, key: str) -> StartedReply:
        """Store a message and start the reply to it; a key that was used before attaches to the reply of then."""
        write = partial(self._store.start_say, conversation, owner, text, key=key)
        return await self._start(owner, lambda: on_loop(write(admit=self._admit, answer=self._answer_now)))

    async def regenerate(self, conversation: str, owner: str, key: str) -> StartedReply:
        """Start another reply in place of the last one."""
        write = partial(self._store.regenerate, conversation, owner, key=key, admit=self._admit)
        return await self._start(owner, lambda: run_on(self._threads, write))

    async def edit(self, conversation: str, owner: str, turn: str, text: str, key: str) -> StartedReply:
        """Store another version of an earlier message and start the reply to it."""
        write = partial(self._store.edit, conversation, owner, text, turn=turn, key=key, admit=self._admit)
        return await self._start(owner, lambda: run_on(self._threads, write))

    async def attach(self, conversation: str, owner: str) -> PendingReply:
        """The pending reply, or the last finished one."""
        return await self._attach_to(await self._last_reply(conversation, owner), owner)

    async def stop(self, conversation: str, owner: str) -> StoredTurn:
        """Stop generating in a conversation; returns the last reply as far as it got."""
        turn = await self._last_reply(conversation, owner)
        await self.stop_all(owner, conversation)
        if turn.status != "pending":
            return turn
        return await self._stop(await self._attach_to(turn, owner))

    async def stop_all(self, owner: str, conversation: str | None = None) -> None:
        """Stop an owner's pending replies (in one conversation), before they are undone or erased."""
        for pending in list(self._pending.values()):
            if pending.owner == owner and conversation in (None, pending.turn.conversation):
                await self._stop(pending)

    async def close(self, grace_seconds: float) -> None:
        """Start nothing more, let pending replies finish for a while, and store the rest as far as they got."""
        self._closing = True
        deadline = time.monotonic() + grace_seconds
        while (self._pending or self._starting) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        for pending in self._pending.values():
            pending.stop_reason = SHUTDOWN_REASON
        await asyncio.gather(*(self._stop(pending) for pending in list(self._pending.values())), return_exceptions=True)
        await self._remote.close()
        await run_on(self._threads, self._heartbeat.close)

    async def _start(self, owner: str, write: Callable[[], Awaitable[StoredExchange]]) -> StartedReply:
        self._starting += 1
        try:
            exchange = await write()
            return StartedReply(exchange.user, await self._submit(exchange, owner))
        finally:
            self._starting -= 1

    async def _submit(self, exchange: StoredExchange, owner: str) -> PendingReply:
        if not exchange.is_new:
            return await self._attach_to(exchange.bot, owner)
        if exchange.bot.status != "pending":  # stored together with the message
            ended = PendingReply(exchange.bot, owner, is_new=True)
            ended.finish(exchange.bot)
            return ended
        pending = self._pending[exchange.bot.id] = PendingReply(exchange.bot, owner)
        loop = asyncio.get_running_loop()
        try:
            worker = self._worker(exchange.bot.bot or exchange.conversation.bot)
            ask, on_piece = self._asks.ask_for(exchange), partial(self._on_piece, loop, pending)
            pending.job = worker.submit(ask, on_piece, admitted=True, owner=owner)
            pending.job.done.add_done_callback(partial(self._on_reply, loop, pending))
        except TertuliaError as error:
            failed: Future[Reply] = Future()
            failed.set_exception(error)
            self._on_reply(loop, pending, failed)
        return pending

    async def _attach_to(self, turn: StoredTurn, owner: str) -> PendingReply:
        """The reply of a turn: generated here, finished, or generated by another server."""
        if turn.status == "pending" and turn.id not in self._pending:
            await run_on(self._threads, self._store.stop_abandoned)  # if its server is gone, say so at once
        if pending := self._pending.get(turn.id):
            return pending
        if turn.status == "pending":
            return self._remote.follow(turn, owner)
        pending = PendingReply(turn, owner)
        pending.finish(turn)
        return pending

    async def _stop(self, pending: PendingReply) -> StoredTurn:
        """Cancel the job. A streaming bot gets a moment to say where it stopped; else what was shown is stored."""
        if pending.job is not None:
            pending.job.cancel()
            if pending.generated:
                result = asyncio.ensure_future(pending.result())
                await asyncio.wait([result], timeout=self._stop_seconds)
                result.cancel()
        if not pending.is_done:
            text = clean(pending.text) if pending.job is not None else None  # another server saves more than we know
            finish = partial(self._store.finish, pending.turn.id, text=text, status="stopped")
            self._on_stored(pending, await run_on(self._threads, finish, error=pending.stop_reason), None)
        if pending.final is None:
            assert pending.error is not None
            raise pending.error
        return pending.final

    async def _last_reply(self, conversation: str, owner: str) -> StoredTurn:
        turn = await run_on(self._threads, self._store.last_reply, conversation, owner)
        if turn is None:
            raise TertuliaError("The conversation has no messages yet.", hint="Send a message first.")
        return turn

    def _on_stored(self, pending: PendingReply, turn: StoredTurn | None, error: TertuliaError | None) -> None:
        self._pending.pop(pending.turn.id, None)
        pending.finish(turn, error)

    def _on_ended_elsewhere(self, pending: PendingReply, turn: StoredTurn | None) -> None:
        """Another server has stopped one of our replies, or its conversation was erased: generate no more of it."""
        if pending.job is not None:
            pending.job.cancel()
        self._on_stored(pending, turn, None if turn else NotFound("turn"))

    # On the bot's thread.

    def _on_piece(self, loop: asyncio.AbstractEventLoop, pending: PendingReply, text: str) -> None:
        loop.call_soon_threadsafe(self._saver.add, pending, clean(text))

    def _on_reply(self, loop: asyncio.AbstractEventLoop, pending: PendingReply, done: Future[Reply]) -> None:
        """Store the outcome. Whatever happens, those who wait for it must not wait forever."""
        if pending.is_done:  # it was stopped, and is stored already
            return
        outcome: _Outcome | None = None
        try:
            outcome = self._outcome(pending, done)
            stored = self._store.start_finish(pending.turn.id, **outcome.end._asdict())
        except Exception as error:
            self._threads.submit(self._on_not_stored, loop, pending, outcome, error)
        else:
            stored.add_done_callback(partial(self._on_finished, loop, pending, outcome))

    def _outcome(self, pending: PendingReply, done: Future[Reply]) -> "_Outcome":
        """What is to be stored of a reply, or of the error of the bot."""
        error = done.exception()
        if error is None:
            return _Outcome(_end_of(done.result(), pending.job.ask if pending.job else None, pending.stop_reason))
        if not isinstance(error, TertuliaError):
            error = BotError(f"The bot failed ({type(error).__name__}).")
        log_failure(error, reference_of(pending.turn.id), **self._describe(pending.turn))
        text = clean(pending.job.text) if pending.job else ""
        return _Outcome(TurnEnd(text, "failed", error=clean(error.message)), error)

    def _describe(self, turn: StoredTurn) -> dict[str, object]:
        """What the log says about a failed turn."""
        details: dict[str, object] = {"bot": turn.bot, "turn": turn.id}
        with suppress(TertuliaError):  # the bot may no longer be served
            details["spec"] = self._worker(turn.bot or "").bot.spec
        return details

    # On a thread of the store.

    def _admit(self, conversation: Conversation) -> None:
        """Refuse a message that nobody could answer."""
        if self._closing:
            raise Busy("The server is shutting down.", hint="Try again in a moment.")
        self._worker(conversation.bot).check_room(owner=conversation.owner)

    def _answer_now(self, exchange: StoredExchange) -> TurnEnd | None:
        """The reply of a bot that is quicker than a switch to its thread: stored together with the message."""
        try:
            reply_now = self._worker(exchange.bot.bot or exchange.conversation.bot).reply_now
            if reply_now is None:
                return None
            ask = self._asks.ask_for(exchange)
            reply = reply_now(ask)
            return None if reply is None else _end_of(reply, ask)
        except Exception:  # the message must be stored all the same
            log.exception("Could not reply at once")
            return None

    def _on_finished(
        self, loop: asyncio.AbstractEventLoop, pending: PendingReply, outcome: "_Outcome", stored: Future[StoredTurn]
    ) -> None:
        """The outcome is on disk, or could not be stored."""
        error = stored.exception()
        if error is None:
            self._tell(loop, pending, stored.result(), outcome.error)
        else:
            self._threads.submit(self._on_not_stored, loop, pending, outcome, error)

    def _on_not_stored(
        self,
        loop: asyncio.AbstractEventLoop,
        pending: PendingReply,
        outcome: "_Outcome | None",
        error: BaseException,
    ) -> None:
        """Try again if the database has refused, on a thread that may wait; then tell those who wait in any case."""
        turn: StoredTurn | None = None
        try:
            if outcome is None or not isinstance(error, StoreError):
                raise error
            turn, failure = _retry(partial(self._store.finish, pending.turn.id, **outcome.end._asdict())), outcome.error
        except TertuliaError as store_error:
            failure = store_error
        except Exception:
            log.exception("Could not store the outcome of a reply")
            failure = BotError("The reply could not be stored.", hint="Try again; the server's log has the details.")
        self._tell(loop, pending, turn, failure)

    def _tell(
        self,
        loop: asyncio.AbstractEventLoop,
        pending: PendingReply,
        turn: StoredTurn | None,
        error: TertuliaError | None,
    ) -> None:
        with suppress(RuntimeError):  # the loop is closed, and with it all connections
            loop.call_soon_threadsafe(self._on_stored, pending, turn, error)


class _Outcome(NamedTuple):
    """What is stored of a reply that has ended."""

    end: TurnEnd
    error: TertuliaError | None = None
    """The bot's error, if it failed."""


def _end_of(reply: Reply, ask: Ask | None, stop_reason: str | None = None) -> TurnEnd:
    """What is stored of a reply."""
    record = reply_record(reply, ask)
    if reply.finish == "cancelled":
        return TurnEnd(clean(reply.text), "stopped", record, stop_reason)
    return TurnEnd(clean(reply.text), "done", record)


def _retry(write: Callable[[], StoredTurn]) -> StoredTurn:
    """Try again after the database has refused: the reply exists nowhere else."""
    for pause in RETRY_SECONDS:
        time.sleep(pause)
        try:
            return write()
        except StoreError as error:
            refusal = error
    raise refusal
