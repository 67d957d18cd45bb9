"""Replies in the making. They belong to the server, not to a connection: whoever asked may hang up, the reply is
finished and stored all the same, and the same visitor can come back and watch the rest of it.

A message costs two transactions (`Store.say`, `Store.finish`) and two wake-ups of the event loop. The store is
synchronous and called on a few threads of its own; `Making` is touched on the event loop alone, so it needs no locks.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal, ParamSpec, TypeVar

from tertulia.core.errors import BotError, StoreError, TertuliaError, UnknownName
from tertulia.core.reply import Reply
from tertulia.core.text import clean
from tertulia.store import Conversation, NotFound, Said, Store, StoredTurn
from tertulia.talk.bot import Bot
from tertulia.talk.worker import Busy, Job, Worker
from tertulia.web.encode import ask_of, reply_to_json
from tertulia.web.settings import WebSettings

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

POLL_SECONDS = 0.5
"""How often to look for the end of a reply that another server makes."""
RETRY_SECONDS = (0.1, 0.5, 2.0)
"""Pauses before trying again to store a finished reply that the database did not take."""


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


class Desk:
    """Where messages come in and replies go out: the bots' workers, the store's threads, the replies in the making."""

    def __init__(self, bots: Mapping[str, Bot], store: Store, settings: WebSettings) -> None:
        self.store = store
        self.settings = settings
        self.workers = {
            name: Worker(bot, name=name, max_batch=settings.max_batch, max_waiting=settings.max_waiting)
            for name, bot in bots.items()
        }
        self._threads = ThreadPoolExecutor(settings.store_threads, thread_name_prefix="store")
        self._makings: dict[str, Making] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    def worker(self, bot: str) -> Worker:
        """The worker of a bot; an unknown one raises with the near names."""
        try:
            return self.workers[bot]
        except KeyError:
            raise UnknownName("bot", bot, self.workers) from None

    def run(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> Awaitable[T]:
        """Run a call of the store on one of its threads."""
        return asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args, **options))

    async def say(self, conversation: str, owner: str, text: str, key: str) -> Attached:
        """Store a message and begin the reply to it; a key used before attaches to the reply it began then."""
        head, said = await self.run(self._write, conversation, owner, partial(self.store.say, text=text, key=key))
        return Attached(self._begin(head, said, owner), said.user)

    async def regenerate(self, conversation: str, owner: str, key: str) -> Attached:
        """Begin another reply in place of the last one."""
        head, said = await self.run(self._write, conversation, owner, partial(self.store.regenerate, key=key))
        return Attached(self._begin(head, said, owner), said.user)

    async def attach(self, conversation: str, owner: str) -> Making:
        """The reply in the making, or the last one made."""
        return self._making_of(await self._last_reply(conversation, owner), owner)

    async def stop(self, conversation: str, owner: str) -> StoredTurn:
        """End what is being made in a conversation where it is; the last reply as it ended."""
        turn = await self._last_reply(conversation, owner)
        await self.stop_all(owner, conversation)
        if turn.status != "pending":
            return turn
        return await self._stop(self._making_of(turn, owner))

    async def stop_all(self, owner: str, conversation: str | None = None) -> None:
        """End what is being made for an owner (in one conversation), before it is taken back or erased."""
        for making in list(self._makings.values()):
            if making.owner == owner and conversation in (None, making.turn.conversation):
                await self._stop(making)

    async def close(self, grace: float | None = None) -> None:
        """Begin nothing more, let replies in the making finish for a while, and store the rest as they are."""
        if self._closing:
            return
        self._closing = True
        deadline = time.monotonic() + (self.settings.grace_seconds if grace is None else grace)
        while self._makings and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        await asyncio.gather(*(self._stop(making) for making in list(self._makings.values())), return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        for worker in self.workers.values():
            worker.close()
        self._threads.shutdown(wait=False)

    async def _last_reply(self, conversation: str, owner: str) -> StoredTurn:
        found = await self.run(self.store.conversation, conversation, owner)
        for turn in reversed(found.turns):
            if turn.speaker == "bot":
                return turn
        raise TertuliaError("Nobody has said anything in this conversation yet.", hint="Send a message first.")

    def _begin(self, head: Conversation, said: Said, owner: str) -> Making:
        if not said.fresh:
            return self._making_of(said.bot, owner)
        making = self._makings[said.bot.id] = Making(said.bot, owner)
        loop = asyncio.get_running_loop()
        try:
            worker = self.worker(said.bot.bot or head.bot)
            making.job = worker.submit(ask_of(head, said), partial(self._wrote, loop, making), admitted=True)
            making.job.done.add_done_callback(partial(self._answered, loop, making))
        except TertuliaError as error:
            failed: Future[Reply] = Future()
            failed.set_exception(error)
            self._answered(loop, making, failed)
        return making

    def _making_of(self, turn: StoredTurn, owner: str) -> Making:
        """What is known of a reply: it is being made here, has ended, or is being made by another server."""
        making = self._makings.get(turn.id)
        if making is None:
            making = Making(turn, owner)
            if turn.status == "pending":
                task = asyncio.get_running_loop().create_task(self._poll(making))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                making.parts = [turn.text]
                making.end(turn)
        return making

    async def _poll(self, making: Making) -> None:
        """Watch a reply that is made elsewhere, or that ended between two looks."""
        try:
            while not making.over:
                turn = await self._last_reply(making.turn.conversation, making.owner)
                if turn.id != making.turn.id or turn.status != "pending":
                    making.end(turn)
                else:
                    await asyncio.sleep(POLL_SECONDS)
        except TertuliaError as error:
            making.end(None, error)

    async def _stop(self, making: Making) -> StoredTurn:
        """Tell the bot, wait a moment for one that streams to say where it stopped, else store what was shown."""
        job = making.job
        if job is not None:
            job.cancel()
            if making.parts:
                waiting = asyncio.ensure_future(making.over_or_raise())
                await asyncio.wait([waiting], timeout=self.settings.stop_seconds)
                waiting.cancel()
        if not making.over:
            text = clean("".join(making.parts))
            self._ended(making, await self.run(self.store.finish, making.turn.id, text=text, status="stopped"), None)
        if making.ended is None:
            assert making.error is not None
            raise making.error
        return making.ended

    # On the bot's thread.

    def _wrote(self, loop: asyncio.AbstractEventLoop, making: Making, text: str) -> None:
        loop.call_soon_threadsafe(making.wrote, clean(text))

    def _answered(self, loop: asyncio.AbstractEventLoop, making: Making, done: Future[Reply]) -> None:
        if not making.over:  # else it was stopped, and is stored already
            self._threads.submit(self._finish, loop, making, done)

    # On a thread of the store.

    def _write(self, conversation: str, owner: str, write: Callable[..., Said]) -> tuple[Conversation, Said]:
        """Write down a message, unless nobody could answer it."""
        head = self.store.conversation(conversation, owner)
        if self._closing:
            raise Busy("The server is about to stop.", hint="Try again in a moment.")
        self.worker(head.bot).check_room()
        return head, write(conversation, owner, bot=head.bot)

    def _finish(self, loop: asyncio.AbstractEventLoop, making: Making, done: Future[Reply]) -> None:
        error = done.exception()
        if error is None:
            reply = done.result()
            status: Literal["done", "stopped"] = "stopped" if reply.finish == "cancelled" else "done"
            store = partial(self.store.finish, making.turn.id, text=clean(reply.text), status=status)
            self._keep(loop, making, partial(store, reply=reply_to_json(reply)), None)
        else:
            known = error if isinstance(error, TertuliaError) else BotError(f"The bot failed ({type(error).__name__}).")
            text = clean(making.job.text) if making.job else ""
            store = partial(self.store.finish, making.turn.id, text=text, status="failed", error=clean(known.message))
            self._keep(loop, making, store, known)

    def _keep(
        self,
        loop: asyncio.AbstractEventLoop,
        making: Making,
        store: Callable[[], StoredTurn],
        error: TertuliaError | None,
    ) -> None:
        """Store the end of a reply, patiently, and tell those who watch it."""
        ended: StoredTurn | None = None
        for pause in (*RETRY_SECONDS, None):
            try:
                ended = store()
                break
            except NotFound:  # erased while it was made
                error = error or NotFound("conversation")
                break
            except StoreError as trouble:
                error = trouble
                if pause is not None:
                    time.sleep(pause)
        loop.call_soon_threadsafe(self._ended, making, ended, error)

    # On the event loop.

    def _ended(self, making: Making, turn: StoredTurn | None, error: TertuliaError | None) -> None:
        self._makings.pop(making.turn.id, None)
        making.end(turn, error)
