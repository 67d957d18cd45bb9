"""Replies in the making. They belong to the server, not to a connection: whoever asked may hang up, the reply is
finished and stored all the same, and the same visitor can come back and watch the rest of it.

A message costs two transactions (`Store.say`, `Store.finish`) and two wake-ups of the event loop. The store is
synchronous and called on threads of its own; replies in the making are touched on the event loop alone, without locks.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Literal, ParamSpec, TypeVar

from tertulia.core.errors import BotError, StoreError, TertuliaError, UnknownName
from tertulia.core.reply import Reply
from tertulia.core.text import clean
from tertulia.store import Conversation, NotFound, Said, Store, StoredTurn
from tertulia.talk.bot import Bot
from tertulia.talk.worker import Busy, Worker
from tertulia.web.encode import ask_of, reply_to_json
from tertulia.web.making import Attached, Making
from tertulia.web.settings import WebSettings

log = logging.getLogger(__name__)

Ending = Literal["done", "stopped"]
P = ParamSpec("P")
T = TypeVar("T")

POLL_SECONDS = 0.5
"""How often to look for the end of a reply that another server makes."""
RETRY_SECONDS = (0.1, 0.5, 2.0)
"""Pauses before trying again to store a finished reply that the database did not take."""


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
        self._asking = 0
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
        return await self._ask(conversation, owner, partial(self.store.say, text=text, key=key))

    async def regenerate(self, conversation: str, owner: str, key: str) -> Attached:
        """Begin another reply in place of the last one."""
        return await self._ask(conversation, owner, partial(self.store.regenerate, key=key))

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
        while (self._makings or self._asking) and time.monotonic() < deadline:
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

    async def _ask(self, conversation: str, owner: str, write: Callable[..., Said]) -> Attached:
        self._asking += 1
        try:
            head, said = await self.run(self._write, conversation, owner, write)
            return Attached(self._begin(head, said, owner), said.user)
        finally:
            self._asking -= 1

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
                conversation = making.turn.conversation
                found = await self.run(self.store.conversation, conversation, making.owner, history=True)
                turn = next((turn for turn in found.turns if turn.id == making.turn.id), None)
                if turn is None or turn.status != "pending":
                    making.end(turn, None if turn else NotFound("turn"))
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
        head = self.store.head(conversation, owner)
        if self._closing:
            raise Busy("The server is about to stop.", hint="Try again in a moment.")
        self.worker(head.bot).check_room()
        return head, write(conversation, owner, bot=head.bot)

    def _finish(self, loop: asyncio.AbstractEventLoop, making: Making, done: Future[Reply]) -> None:
        """Store the end of a reply, and tell those who watch it; whatever happens, they must not wait for ever."""
        ended: StoredTurn | None = None
        error: TertuliaError | None = None
        try:
            ended, error = self._keep(making, done)
        except TertuliaError as trouble:
            error = trouble
        except Exception:
            log.exception("The end of a reply could not be stored")
            error = BotError("The reply could not be stored.", hint="Try again; the server's log has the details.")
        with suppress(RuntimeError):  # the loop is gone: so are those who watched
            loop.call_soon_threadsafe(self._ended, making, ended, error)

    def _keep(self, making: Making, done: Future[Reply]) -> tuple[StoredTurn, TertuliaError | None]:
        """The turn as it ended, and what the bot failed with."""
        error = done.exception()
        if error is None:
            reply = done.result()
            status: Ending = "stopped" if reply.finish == "cancelled" else "done"
            end = partial(self.store.finish, making.turn.id, text=clean(reply.text), status=status)
            return self._patiently(partial(end, reply=reply_to_json(reply))), None
        known = error if isinstance(error, TertuliaError) else BotError(f"The bot failed ({type(error).__name__}).")
        text = clean(making.job.text) if making.job else ""
        fail = partial(self.store.finish, making.turn.id, text=text, status="failed", error=clean(known.message))
        return self._patiently(fail), known

    def _patiently(self, write: Callable[[], StoredTurn]) -> StoredTurn:
        """Try again when the database does not take it; the reply exists only here."""
        for pause in RETRY_SECONDS:
            try:
                return write()
            except StoreError:
                time.sleep(pause)
        return write()

    # On the event loop.

    def _ended(self, making: Making, turn: StoredTurn | None, error: TertuliaError | None) -> None:
        self._makings.pop(making.turn.id, None)
        making.end(turn, error)
