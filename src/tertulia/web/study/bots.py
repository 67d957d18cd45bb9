"""The bots that participants talk with: one worker per specification, loaded in the background, shared by all studies.

A bot that the server offers anyway is used, rather than loaded twice, if its specification is the same to the last
option: `generic` and `generic?to_questions=Why?` are two bots. Participants never get anything but finished,
plain text: pieces, Markdown and errors would tell bots apart.
"""

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Literal

from tertulia.core.reply import Ask, Reply
from tertulia.store.validation import NAME_LENGTH
from tertulia.study.blinding import plain
from tertulia.talk.bot import Bot
from tertulia.talk.spec import make_bot
from tertulia.talk.worker import Busy, Job, OnPiece, ReplyNow, Worker
from tertulia.web.replies import ReplyWorker

log = logging.getLogger(__name__)

PREFIX = "study:"
"""Of the names that these bots have in conversations; no bot of the page can be called so."""
BotState = Literal["ready", "loading", "failed"]


def conversation_bot(spec: str) -> str:
    """The name of a bot in conversations; no longer than the store allows."""
    name = PREFIX + spec
    return name if len(name) <= NAME_LENGTH else PREFIX + hashlib.sha256(spec.encode()).hexdigest()


class ShownJob(Job):
    """A job whose reply is the text as participants see it, which is also what is stored."""

    __slots__ = ("_job",)

    def __init__(self, job: Job) -> None:
        super().__init__(job.ask, None, job.owner)
        self._job = job
        job.done.add_done_callback(self._settle)

    def cancel(self) -> None:
        """Cancel the bot's job."""
        super().cancel()
        self._job.cancel()

    def _settle(self, done: Future[Reply]) -> None:
        error = done.exception()
        if error is not None:
            self.done.set_exception(error)
            return
        reply = done.result()
        shown = plain(reply.text)
        note = reply.note if shown == reply.text else f"{reply.note or ''} Markdown was removed.".strip()
        self.done.set_result(replace(reply, text=shown, note=note))


class StudyWorker:
    """A worker that gives plain text in one piece, whatever the bot."""

    reply_now: ReplyNow | None = None
    """Not even an instant bot: what participants are shown is made of a job's reply."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def bot(self) -> Bot:
        """The bot."""
        return self._worker.bot

    def check_room(self, asks: int = 1, *, owner: str = "") -> None:
        """Raise Busy if there is no room for so many more asks."""
        self._worker.check_room(asks, owner=owner)

    def submit(self, ask: Ask, on_piece: OnPiece | None = None, **options: Any) -> Job:
        """Put an ask into the queue; no piece of its reply is passed on."""
        return ShownJob(self._worker.submit(ask, None, **options))


class StudyBots:
    """Workers by specification."""

    def __init__(
        self,
        served: Callable[[], Mapping[str, Worker]],
        new_worker: Callable[[str, Bot], Worker],
        load: Callable[[str], Bot] = make_bot,
    ) -> None:
        """`served` gives the workers of the bots that the server offers anyway, by specification with options."""
        self._served = served
        self._new_worker = new_worker
        self._load_bot = load
        self._own: dict[str, Worker] = {}
        self._failed: set[str] = set()
        self._loading: set[str] = set()
        self._lock = threading.Lock()
        self._closed = False

    def load(self, specs: Iterable[str]) -> None:
        """Start to load what is neither there nor being loaded."""
        with self._lock:
            missing = [spec for spec in dict.fromkeys(specs) if self._state(spec) is None and not self._closed]
            self._loading.update(missing)
        if missing:
            threading.Thread(target=self._load, args=(missing,), name="load study bots", daemon=True).start()

    def state(self, spec: str) -> BotState:
        """Whether a bot can reply; one that nobody has loaded yet is loading from now on."""
        with self._lock:
            known = self._state(spec)
        if known is None:
            self.load([spec])
        return known or "loading"

    def worker(self, name: str) -> ReplyWorker | None:
        """The worker of a bot by its name in conversations; None if it is no bot of a study."""
        if not name.startswith(PREFIX):
            return None
        workers = {conversation_bot(spec): worker for spec, worker in {**self._own, **self._served()}.items()}
        if name not in workers:
            raise Busy("The bot is not ready.", hint="Try again in a moment.")
        return StudyWorker(workers[name])

    def close(self) -> None:
        """End the workers."""
        with self._lock:
            self._closed = True
        for worker in self._own.values():
            worker.close()

    def _state(self, spec: str) -> BotState | None:
        if spec in self._own or spec in self._served():
            return "ready"
        if spec in self._failed:
            return "failed"
        return "loading" if spec in self._loading else None

    def _load(self, specs: Iterable[str]) -> None:
        """On a thread of its own."""
        for spec in specs:
            try:
                worker = self._new_worker(conversation_bot(spec), self._load_bot(spec))
            except Exception:
                log.exception("The bot %r of a study could not be loaded", spec)
                with self._lock:
                    self._failed.add(spec)
                continue
            with self._lock:
                self._loading.discard(spec)
                if self._closed:
                    worker.close()
                    return
                self._own = {**self._own, spec: worker}
