"""The live stream of a participant: a partner is found, writes, is away, or leaves; and the turns of the conversation.

News travel by `Notices`: between all servers on PostgreSQL, within this one on SQLite. They only say that there is
something to read. The stream also looks at the database every second, so a lost notice loses nothing, and it is the
heartbeat of the participant. Where partners may be people, bots answer by this stream as well.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from tertulia.store import Database, Notices
from tertulia.study.texts import text as interface_text
from tertulia.web.responses import KEEP_ALIVE, event
from tertulia.web.study.pairs import Pairs
from tertulia.web.study.rater import Rater
from tertulia.web.study.service import StudyService

LOOK_SECONDS = 1.0
"""How often to look without any news."""
TOPIC = "study-participant:"


class LiveHub:
    """Passes news about participants to their streams. The first use starts to listen to other servers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._notices: Notices | None = None
        self._inboxes: dict[str, set[LiveInbox]] = {}
        self._lock = threading.Lock()
        self.closed = False

    def tell(self, participant: str, news: str) -> None:
        """There is something new for a participant. Blocks."""
        self._listening().notify(TOPIC + participant, {"news": news})

    @contextmanager
    def inbox(self, participant: str) -> "Iterator[LiveInbox]":
        """The news for a participant while the block runs."""
        inbox = LiveInbox(asyncio.get_running_loop())
        with self._lock:
            self._inboxes.setdefault(participant, set()).add(inbox)
        try:
            yield inbox
        finally:
            with self._lock:
                self._inboxes[participant].discard(inbox)
                if not self._inboxes[participant]:
                    del self._inboxes[participant]

    def listen(self) -> None:
        """Start to listen, unless somebody has. Blocks."""
        self._listening()

    def close(self) -> None:
        """End all streams."""
        self.closed = True
        with self._lock:
            inboxes = [inbox for group in self._inboxes.values() for inbox in group]
            notices = self._notices
        for inbox in inboxes:
            inbox.put("closed")
        if notices is not None:
            notices.close()

    def _listening(self) -> Notices:
        with self._lock:
            if self._notices is None:
                self._notices = Notices(self._database)
                self._notices.subscribe(self._on_notice)
            return self._notices

    def _on_notice(self, topic: str, message: dict[str, Any]) -> None:
        """On a foreign thread."""
        if topic.startswith(TOPIC):
            with self._lock:
                inboxes = tuple(self._inboxes.get(topic.removeprefix(TOPIC), ()))
            for inbox in inboxes:
                inbox.put(str(message["news"]))


class LiveInbox:
    """News that a stream has not seen yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[str] = asyncio.Queue()

    def put(self, news: str) -> None:
        """From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, news)

    async def get(self, seconds: float) -> str | None:
        """The next news; None if there are none for a while."""
        try:
            return await asyncio.wait_for(self._queue.get(), seconds)
        except TimeoutError:
            return None


class LiveTurn(NamedTuple):
    """A turn that the participant may see."""

    id: str
    side: str | None
    mine: bool
    text: str


class LiveView(NamedTuple):
    """What a stream reports at one moment."""

    step: str
    assignment: str | None
    turns: tuple[LiveTurn, ...] = ()
    partner: str = "here"
    failed: bool = False


@dataclass(frozen=True, slots=True)
class LiveStreams:
    """The live streams of participants."""

    service: StudyService
    pairs: Pairs
    hub: LiveHub
    run: Callable[..., Awaitable[Any]]

    async def follow(self, rater: Rater, keep_alive_seconds: float) -> AsyncIterator[bytes]:
        """What happens, until the participant has another task or none: then the page asks for the state."""
        await self.run(self.hub.listen)
        with self.hub.inbox(rater.id) as inbox:
            before: LiveView = await self.run(self._look, rater)
            yield KEEP_ALIVE + _turn_events(before.turns)
            quiet = 0.0
            while True:
                news = await inbox.get(LOOK_SECONDS)
                if self.hub.closed:
                    return
                if news == "typing":
                    yield event("typing", {})
                    continue
                view: LiveView = await self.run(self._look, rater)
                changes = _changes(before, view, rater.language)
                ended = (view.step, view.assignment) != (before.step, before.assignment)
                quiet = 0.0 if changes else quiet + LOOK_SECONDS
                if changes or quiet >= keep_alive_seconds:
                    quiet = 0.0
                    yield changes or KEEP_ALIVE
                if ended:
                    return
                before = view

    def _look(self, rater: Rater) -> LiveView:
        with self.service.locked(rater) as rater:
            step = self.service.step(rater)
            if step == "waiting":
                step = str(self.pairs.join(rater)["step"])
                rater = self.service.again(rater)
            if step != "work" or rater.work.live is None:
                return LiveView(step, None)
            task = self.service.task(rater)
            partner, chat = self.pairs.look(rater, task), task.chat
            if partner == "left":
                rater = self.service.settle_pair(self.service.again(rater))
            if rater.participant.code is not None:
                return LiveView("partner_left", None, partner="left")
            shown = chat.turns if chat is not None else ()
            turns = tuple(LiveTurn(one.turn.id, one.side, one.mine, one.turn.text) for one in shown if not one.pending)
            failed = chat is not None and chat.last_failed
            return LiveView("work", task.assignment.id, turns, partner, failed)


def _turn_events(turns: tuple[LiveTurn, ...]) -> bytes:
    return b"".join(event("turn", turn._asdict()) for turn in turns)


def _changes(before: LiveView, view: LiveView, lang: str) -> bytes:
    """The events between two moments."""
    if view.step == "partner_left":
        return event("partner", {"state": "left"}) + event("released", {})
    if view.assignment != before.assignment:
        return event("matched" if view.assignment else "released", {})
    if view.step != before.step:
        return event("released", {})
    known = {turn.id for turn in before.turns}
    changes = _turn_events(tuple(turn for turn in view.turns if turn.id not in known))
    if view.partner != before.partner:
        changes += event("partner", {"state": "back" if view.partner == "here" else view.partner})
    if view.failed and not before.failed:
        changes += event("error", {"id": None, "side": None, "text": interface_text("error.bot", lang)})
    return changes
