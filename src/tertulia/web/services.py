"""What handlers use: the bots' workers, the conversations of a visitor, the reply service, limits and metrics."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

from starlette.requests import Request

from tertulia.core.dialogue import Evidence, Persona
from tertulia.core.errors import TertuliaError, UnknownName
from tertulia.core.reply import Ask, Reply
from tertulia.store import UNSET, Conversation, ConversationStore, ConversationSummary, Database, StoredTurn
from tertulia.store.records import ConversationPage, NotFound, SearchHit, Unset
from tertulia.store.timed import TimedDatabase
from tertulia.store.usage import StoredUsage, usage_of
from tertulia.talk.bot import Bot
from tertulia.talk.evidence import DocumentsBot
from tertulia.talk.worker import Busy, Job, OnPiece, Worker
from tertulia.web.config import LazyBot, ServeConfig
from tertulia.web.grounding import GroundingService
from tertulia.web.limits import Limiter, Limits, current_admission
from tertulia.web.metrics import Metrics
from tertulia.web.progress import on_loop
from tertulia.web.replies import ReplyService, ReplyWorker

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

FIRST_BOT_SECONDS = 10.0
"""How long a list of bots waits for the first bot that is ready."""


def has_key(config: ServeConfig, request: Request) -> bool:
    """Whether a request has an API key, or none is needed."""
    return not config.is_protected or request.scope.get("state", {}).get("key") is not None


class BotNotReady(Busy):
    """The bot is still loading, or could not be loaded."""


class ObservedWorker(Worker):
    """A worker that reports its jobs to the metrics, and counts them for the client that asked."""

    def __init__(self, bot: Bot, *, name: str, metrics: Metrics, config: ServeConfig) -> None:
        self._metrics = metrics
        name = name or bot.spec
        self._in_flight_gauge, self._queue_gauge = metrics.in_flight.labels(name), metrics.queue.labels(name)
        self._in_flight = 0
        self._lock = threading.Lock()
        super().__init__(
            bot,
            name=name,
            max_batch=config.max_batch,
            max_waiting=config.max_waiting,
            stall_after=config.stall_seconds,
        )

    @property
    def in_flight(self) -> int:
        """Jobs that wait or are being answered."""
        return self._in_flight

    @property
    def queue_length(self) -> int:
        """Jobs that wait for the bot."""
        return len(self._waiting)

    def submit(self, ask: Ask, on_piece: OnPiece | None = None, **options: Any) -> Job:
        """Put an ask into the queue, and count it as in flight until it ends."""
        job = super().submit(ask, on_piece, **options)
        admission = current_admission.get()
        with self._lock:
            self._in_flight += 1
        self._in_flight_gauge.inc()
        self._queue_gauge.set(self.queue_length)
        release = admission.hold() if admission is not None else None
        job.done.add_done_callback(partial(self._on_done, time.monotonic(), release))
        return job

    def _reply_now(self, ask: Ask) -> Reply | None:
        """The reply of an instant bot, counted like all others."""
        started = time.monotonic()
        reply = super()._reply_now(ask)
        if reply is not None:
            self._metrics.on_reply(self.name, time.monotonic() - started, reply)
        return reply

    def _on_done(self, started: float, release: Callable[[], None] | None, done: Future[Reply]) -> None:
        with self._lock:
            self._in_flight -= 1
        if release is not None:
            release()
        self._in_flight_gauge.dec()
        self._queue_gauge.set(self.queue_length)
        self._metrics.on_reply(self.name, time.monotonic() - started, None if done.exception() else done.result())


class Services:
    """All services of one app. Whoever opened the database closes it, after these are closed."""

    def __init__(
        self,
        bots: Mapping[str, Bot | LazyBot],
        database: Database,
        config: ServeConfig,
        personas: Sequence[Persona] = (),
        *,
        stops_abandoned: bool = True,
        may_inspect: Callable[[Request], bool] | None = None,
    ) -> None:
        """Bots that are lazy load on a thread of their own, one after the other.

        `stops_abandoned` is for the first server on a database: replies that are still pending belong to nobody.
        `may_inspect` says who sees the state of the bots and the metrics; by default, whoever has the API key.
        """
        self.config = config
        self.personas = tuple(personas)
        self.may_inspect = may_inspect or partial(has_key, config)
        self.metrics = Metrics()
        self.limiter = Limiter(
            Limits(
                messages_per_minute=config.messages_per_minute,
                max_in_flight=config.max_in_flight,
                max_in_flight_shared=max(config.max_in_flight, config.max_waiting // 2) if config.max_in_flight else 0,
                max_conversations=config.max_conversations,
                max_stored_bytes=config.max_stored_bytes,
                address_factor=config.address_factor,
            )
        )
        self.bots = tuple(bots)
        """Names of all bots, in order."""
        self.load_errors: dict[str, Exception] = {}
        """Why bots could not be loaded."""
        self.workers: dict[str, ObservedWorker] = {}
        """Workers of the bots that are ready, in order."""
        self.specs = {name: bot.spec for name, bot in bots.items() if bot.spec}
        """Specifications by name: those that bots are made from, with options, or a ready bot's own."""
        self.hidden_workers: Callable[[str], ReplyWorker | None] = lambda bot: None
        """Workers of bots that the page and /v1 do not offer, by the name that their conversations have."""
        self.on_close: list[Callable[[], None]] = []
        """Called at the end, on a thread."""
        self.grounding = GroundingService(config.grounding) if config.grounding else None
        """Checks replies against their evidence, if the server does that."""
        self._closing = False
        self._database = database
        if isinstance(database, TimedDatabase):
            database.on_commit = self.metrics.commit_seconds.observe
        self._store = ConversationStore(database)
        if stops_abandoned:
            self._store.stop_abandoned()
        # The store is synchronous, so it is called on threads of its own.
        self._threads = ThreadPoolExecutor(config.store_threads, thread_name_prefix="store")
        self.replies = ReplyService(self._any_worker, self._store, self._threads, stop_seconds=config.stop_seconds)
        lazy = {name: bot for name, bot in bots.items() if isinstance(bot, LazyBot)}
        for name, bot in bots.items():
            self.metrics.bots_ready.labels(name).set(0)
            if not isinstance(bot, LazyBot):
                self._add_worker(name, bot)
        if lazy:
            threading.Thread(target=self._load, args=(lazy,), name="load bots", daemon=True).start()

    def worker(self, bot: str) -> ObservedWorker:
        """The worker of a bot; an unknown name raises an error that suggests similar ones."""
        try:
            return self.workers[bot]
        except KeyError:
            if bot not in self.bots:
                raise UnknownName("bot", bot, self.bots) from None
        if bot in self.load_errors:
            raise BotNotReady(f"The bot {bot!r} is not available.", hint="Choose another one.")
        raise BotNotReady(f"The bot {bot!r} is still loading.", hint="Try again in a moment.")

    def _any_worker(self, bot: str) -> ReplyWorker:
        return self.hidden_workers(bot) or self.worker(bot)

    def workers_by_spec(self) -> dict[str, Worker]:
        """Workers of the bots that are ready, by specification with options."""
        return {self.specs[name]: worker for name, worker in self.workers.items() if name in self.specs}

    def new_worker(self, name: str, bot: Bot) -> ObservedWorker:
        """A worker with the server's limits and metrics."""
        return ObservedWorker(bot, name=name, metrics=self.metrics, config=self.config)

    @property
    def database(self) -> Database:
        """The database of all stores."""
        return self._database

    @property
    def conversation_store(self) -> ConversationStore:
        """All conversations; it blocks, so call it by `on_store_thread`."""
        return self._store

    def on_store_thread(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> Awaitable[T]:
        """Call something that blocks on a thread of the store."""
        return asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args, **options))

    @property
    def loading(self) -> list[str]:
        """Names of the bots that are not ready yet."""
        return [name for name in self.bots if name not in self.workers and name not in self.load_errors]

    @property
    def fatal_error(self) -> Exception | None:
        """Why there is nothing to serve, once all bots have failed to load."""
        return next(iter(self.load_errors.values())) if len(self.load_errors) == len(self.bots) else None

    async def first_bot(self) -> None:
        """Wait until a bot is ready, at most for a while: a page that lists none is of no use."""
        deadline = time.monotonic() + FIRST_BOT_SECONDS
        while not self.workers and self.loading and time.monotonic() < deadline:
            await asyncio.sleep(0.05)

    def conversations_of(self, owner: str) -> "OwnedConversations":
        """The conversations of one owner."""
        return OwnedConversations(self._store, self._threads, owner)

    async def usage_of(self, owner: str) -> StoredUsage:
        """What a visitor has stored."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, usage_of, self._database, owner)

    def on_limit(self, limit: str) -> None:
        """Count a refusal."""
        self.metrics.limits_hit.labels(limit).inc()

    @property
    def requires_key(self) -> bool:
        """Whether /v1 requires an API key."""
        return self.config.is_protected

    async def close(self) -> None:
        """Finish or stop pending replies, then end all threads. Further calls return at once."""
        if self._closing:
            return
        self._closing = True
        await self.replies.close(self.config.grace_seconds)
        for worker in self.workers.values():
            worker.close()
        if self.grounding is not None:
            self.grounding.close()
        for close in self.on_close:
            await self.on_store_thread(close)
        self._threads.shutdown(wait=False)

    def _add_worker(self, name: str, bot: Bot) -> None:
        workers = {**self.workers, name: self.new_worker(name, bot)}
        self.workers = {known: workers[known] for known in self.bots if known in workers}
        self.metrics.bots_ready.labels(name).set(1)

    def _load(self, bots: Mapping[str, LazyBot]) -> None:
        """On a thread of its own."""
        for name, bot in bots.items():
            start = time.monotonic()
            try:
                loaded = bot.load()
            except TertuliaError as error:
                log.error("The bot %r could not be loaded: %s", name, error)
                self.load_errors[name] = error
            except Exception as error:
                log.exception("The bot %r could not be loaded", name)
                self.load_errors[name] = error
            else:
                if self._closing:
                    return
                self._add_worker(name, loaded)
                if isinstance(loaded, DocumentsBot) and loaded.index.remark:
                    log.warning("The documents of the bot %r: %s", name, loaded.index.remark)
                log.info("The bot %r is ready after %.1f s", name, time.monotonic() - start)


class AnsweredMessage(NamedTuple):
    """A reply and the text that it answers."""

    message: str
    reply: StoredTurn


class OwnedConversations:
    """One owner's conversations: the store's methods, run on a thread of the store."""

    def __init__(self, store: ConversationStore, threads: ThreadPoolExecutor, owner: str) -> None:
        self._store = store
        self._threads = threads
        self.owner = owner

    async def summaries(self, *, limit: int, before: str | None = None) -> list[ConversationSummary]:
        """The conversations, the most recently updated first: the first ones, or those that follow `before`."""
        return await self._run(self._store.summaries, self.owner, limit=limit, before=before)

    async def create(self, bot: str, persona: Persona | None, evidence: Sequence[Evidence] = ()) -> Conversation:
        """Add a conversation without turns."""
        if evidence:  # it may be long, and is encoded first
            return await self._run(self._store.create, self.owner, bot, persona, evidence=evidence)
        return await on_loop(self._store.start_create(self.owner, bot, persona))

    async def get(self, id: str) -> Conversation:  # noqa: A002 - an id is called id everywhere
        """A conversation with its current turns."""
        return await self._run(self._store.get, id, self.owner)

    async def update(
        self,
        id: str,  # noqa: A002
        *,
        bot: str | None = None,
        persona: Persona | Unset | None = UNSET,
        title: str | None = None,
        evidence: Sequence[Evidence] | None = None,
    ) -> Conversation:
        """Change what is given."""
        changes = partial(self._store.update, bot=bot, persona=persona, title=title, evidence=evidence)
        return await self._run(changes, id, self.owner)

    async def undo(self, id: str) -> Conversation:  # noqa: A002
        """Remove the last message and what follows it."""
        return await self._run(self._store.undo, id, self.owner)

    async def erase(self, id: str) -> None:  # noqa: A002
        """Delete a conversation for good."""
        await self._run(self._store.erase, id, self.owner)

    async def erase_all(self) -> int:
        """Delete all conversations for good; returns how many there were."""
        return await self._run(self._store.erase_owner, self.owner)

    async def attempts(self, id: str, turn: str) -> list[StoredTurn]:  # noqa: A002
        """All attempts at a reply, or all versions of a message, the oldest first."""
        return await self._run(self._store.attempts, id, self.owner, turn)

    async def reply(self, id: str, turn: str) -> "AnsweredMessage":  # noqa: A002
        """A reply, whichever attempt it is, and the current message before it."""
        return await self._run(self._reply, id, turn)

    def _reply(self, id: str, turn: str) -> "AnsweredMessage":  # noqa: A002
        attempts = self._store.attempts(id, self.owner, turn)
        reply = next((each for each in attempts if each.id == turn), None)
        if reply is None or reply.speaker != "bot":
            raise NotFound("reply")
        before = self._store.turns(id, self.owner, limit=1, before=reply.position)
        return AnsweredMessage(before[-1].text if before else "", reply)

    async def page(
        self,
        id: str,  # noqa: A002
        encode: Callable[[ConversationPage], T],
        *,
        limit: int,
        before: int | None = None,
    ) -> T:
        """A conversation with its last turns: of all, or of those at positions below `before`.

        It is encoded on the same thread, which saves a switch to another one.
        """
        return await self._run(lambda: encode(self._store.page(id, self.owner, limit=limit, before=before)))

    async def choose(self, id: str, turn: str) -> StoredTurn:  # noqa: A002
        """Make another attempt at the last reply the current one."""
        return await self._run(self._store.choose, id, self.owner, turn)

    async def search(self, words: Sequence[str]) -> list[SearchHit]:
        """The conversations that contain all these words."""
        return await self._run(self._store.search, self.owner, words)

    def _run(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args, **options))
