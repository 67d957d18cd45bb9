"""Progress of replies by way of the store: saved by the server that generates them, followed by all others.

Clients see a piece only when it has been saved, so that a crash takes back nothing that somebody has read. One
transaction saves the new text of all replies of this server. Saving takes a bounded share of the time: under load it
happens less often, and clients get larger pieces.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

from tertulia.core.errors import TertuliaError
from tertulia.store import ConversationStore, NotFound, StoredTurn
from tertulia.store.listener import TurnListener
from tertulia.web.pending import PendingReply

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

SAVE_SECONDS = (0.1, 0.5)
"""Minimum and maximum pause between two saves."""
PAUSE_PER_SAVE = 10
"""The pause is this many times as long as the save took."""
SHOW_AFTER_SECONDS = 1.0
"""Text that cannot be saved, because the database is locked or unreachable, is shown all the same after this time."""
WATCH_SECONDS = (0.2, 0.5)
"""How often to look at replies of other servers on SQLite, and on PostgreSQL, which also sends notifications."""

OnEnded = Callable[[PendingReply, StoredTurn | None], None]


def run_on(threads: ThreadPoolExecutor, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> Awaitable[T]:
    """Run a blocking call on a thread, without blocking the event loop."""
    return asyncio.get_running_loop().run_in_executor(threads, partial(call, *args, **options))


def on_loop(future: Future[T]) -> asyncio.Future[T]:
    """A future of the event loop that gets the outcome of one that another thread resolves.

    Unlike `asyncio.wrap_future`, it does not cancel the other one, and costs half as much.
    """
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[T] = loop.create_future()

    def copy() -> None:
        if waiter.done():
            return
        if (error := future.exception()) is None:
            waiter.set_result(future.result())
        else:
            waiter.set_exception(error)

    def wake(_: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(copy)

    future.add_done_callback(wake)
    return waiter


class ProgressSaver:
    """Saves the text of this server's replies while they are generated, and then shows it to clients."""

    def __init__(self, store: ConversationStore, threads: ThreadPoolExecutor, on_ended: OnEnded) -> None:
        """`on_ended` is called with replies that somebody else has ended: by their final turn, or by erasing it."""
        self._store = store
        self._threads = threads
        self._on_ended = on_ended
        self._unsaved: dict[str, PendingReply] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, pending: PendingReply, piece: str) -> None:
        """Add a piece to a reply; clients see it as soon as it is saved."""
        if pending.is_done:
            return
        pending.generated.append(piece)
        self._unsaved[pending.turn.id] = pending
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._unsaved:
            started = time.monotonic()
            await self._save()
            minimum, maximum = SAVE_SECONDS
            await asyncio.sleep(min(max(minimum, PAUSE_PER_SAVE * (time.monotonic() - started)), maximum))

    async def _save(self) -> None:
        replies = {id: reply for id, reply in self._unsaved.items() if not reply.is_done}  # noqa: A001
        self._unsaved.clear()
        if not replies:
            return
        lengths = {id: len(reply.generated) for id, reply in replies.items()}  # noqa: A001
        texts = {id: reply.text for id, reply in replies.items()}  # noqa: A001
        saving = asyncio.ensure_future(run_on(self._threads, self._store.save_progress, texts))
        while not (await asyncio.wait([saving], timeout=SHOW_AFTER_SECONDS))[0]:
            for reply in replies.values():
                reply.show()
        try:
            ended = saving.result()
        except TertuliaError as error:  # the end of the reply is stored with more patience
            log.warning("The text of %d replies could not be saved: %s", len(replies), error)
            ended = {}
        for id_, reply in replies.items():
            reply.show(lengths[id_])
            if id_ in ended:
                self._on_ended(reply, ended[id_])


class RemoteReplies:
    """Follows replies that other servers generate, by reading what they save."""

    def __init__(self, store: ConversationStore, threads: ThreadPoolExecutor) -> None:
        self._store = store
        self._threads = threads
        self._watched: dict[str, PendingReply] = {}
        self._news = asyncio.Event()
        self._listener: TurnListener | None = None
        self._task: asyncio.Task[None] | None = None

    def follow(self, turn: StoredTurn, owner: str) -> PendingReply:
        """The reply of a pending turn, which gets its text and its end from the store."""
        pending = self._watched.get(turn.id)
        if pending is None:
            pending = self._watched[turn.id] = PendingReply(turn, owner)
        if self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            if self._listener is None:
                self._listener = self._store.listen(lambda ids: self._on_notification(loop, ids))
            self._task = loop.create_task(self._run())
        return pending

    async def close(self) -> None:
        """Follow nothing more."""
        if self._task is not None:
            self._task.cancel()
        if self._listener is not None:
            await run_on(self._threads, self._listener.close)

    async def _run(self) -> None:
        seconds = WATCH_SECONDS[self._listener is not None]
        while self._watched:
            self._news.clear()
            ids = list(self._watched)
            try:
                self._update(ids, await run_on(self._threads, self._store.progress, ids))
            except TertuliaError as error:
                for id_ in ids:
                    self._watched.pop(id_).finish(None, error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), seconds)

    def _update(self, ids: Collection[str], turns: dict[str, StoredTurn]) -> None:
        for id_ in ids:
            pending, turn = self._watched[id_], turns.get(id_)
            if turn is None or turn.status != "pending":
                del self._watched[id_]
                pending.finish(turn, None if turn else NotFound("turn"))
            elif len(turn.text) > len(text := pending.text) and turn.text.startswith(text):
                pending.generated.append(turn.text[len(text) :])
                pending.show()

    def _on_notification(self, loop: asyncio.AbstractEventLoop, ids: set[str]) -> None:
        """On the listener's thread."""
        if not ids.isdisjoint(tuple(self._watched)):
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._news.set)
