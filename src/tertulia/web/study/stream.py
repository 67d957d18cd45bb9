"""Messages to bots, and their replies as events.

All bots look alike on the wire. A reply is sent when it is complete (with two sides: when both are; with
`reply_seconds`: not before that moment), in pieces of equal length at an equal pace, whatever pieces the bot made. An
event holds an id, a side and a text, and the texts of errors are all the same.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from tertulia.core.dialogue import Json
from tertulia.core.errors import BotError, TertuliaError
from tertulia.core.text import clean
from tertulia.store import ConversationStore, StoredTurn
from tertulia.store.study_base import study_owner
from tertulia.store.study_records import KeyReused
from tertulia.study.questions import SIDES, AnswerError
from tertulia.study.texts import text as interface_text
from tertulia.study.writing import check_text
from tertulia.web.asks import BOT
from tertulia.web.pending import PendingReply
from tertulia.web.replies import ReplyService
from tertulia.web.responses import KEEP_ALIVE, event
from tertulia.web.study.chats import has_people, participant_owner
from tertulia.web.study.errors import MessageTooLong, NoReply, WrongStep
from tertulia.web.study.pairs import Pairs
from tertulia.web.study.rater import Rater
from tertulia.web.study.service import StudyService
from tertulia.web.study.tasks import Task

PIECE_CHARACTERS = 16
MAX_PIECES = 60
"""A long reply comes in larger pieces."""
PIECE_SECONDS = 0.03


Visit = Callable[[], Rater]
"""Reads the participant whose request it is. Blocks."""


class SentMessage(NamedTuple):
    """A stored message and the replies to it, by side."""

    rater: Rater
    user: StoredTurn
    replies: tuple[PendingReply, ...]


@dataclass(frozen=True, slots=True)
class ChatReplies:
    """Lets the bots of an assignment reply."""

    service: StudyService
    conversations: ConversationStore
    replies: ReplyService
    pairs: Pairs
    run: Callable[..., Awaitable[Any]]
    """Calls something that blocks on a thread."""
    max_message: int
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """One message of a task at a time."""

    async def say(self, visit: Visit, assignment: str, text: str, key: str) -> SentMessage:
        """Store a message for all sides and start the replies; the same key again attaches to the same replies."""
        text = clean(text)
        if len(text) > self.max_message:
            raise MessageTooLong
        async with self._locks.setdefault(assignment, asyncio.Lock()):
            return await self._say(visit, assignment, text, key)

    async def _say(self, visit: Visit, assignment: str, text: str, key: str) -> SentMessage:
        rater, task = await self.run(self._prepare, visit, assignment, text, key)
        assert task.chat is not None
        if task.chat.is_pair:
            return SentMessage(rater, await self.run(self.pairs.say, rater, task, text, key), ())
        owner = participant_owner(rater.id)
        started = []
        try:
            for conversation in task.assignment.conversations:
                started.append(await self.replies.say(conversation, owner, text, key))
        except BotError:
            raise NoReply from None
        if any(one.user.text != text for one in started):
            raise KeyReused
        # Where partners may be people, all replies come by the live stream.
        replies = () if has_people(rater.config) else tuple(one.pending for one in started)
        return SentMessage(rater, started[0].user, replies)

    def _prepare(self, visit: Visit, assignment: str, text: str, key: str) -> tuple[Rater, Task]:
        """Refuse a message that cannot be sent now; a message whose reply failed is taken back for another one.

        The store recognises a message that was sent before. Only what would be refused, or taken back, is looked up.
        """
        rater = visit()
        task = self.service.live_task(rater, assignment)
        if task.chat is None:
            raise WrongStep("There is nobody to talk with in this task.")
        problem = _refusal(rater, task, text)
        if (problem is not None or task.chat.last_failed) and self._was_sent(task, rater, key):
            return rater, task
        if problem is not None:
            raise problem
        if task.chat.last_failed:
            for side in task.chat.longest:
                self.conversations.undo(task.assignment.conversations[side], participant_owner(rater.id))
        return rater, task

    def _was_sent(self, task: Task, rater: Rater, key: str) -> bool:
        assert task.chat is not None
        owner = participant_owner(rater.id)
        if task.chat.is_pair:
            owner, key = study_owner(rater.study.id), f"{task.chat.speaker}:{key}"
        return any(self.conversations.has_key(one, owner, key) for one in task.assignment.conversations)

    async def attach(self, rater: Rater, assignment: str) -> tuple[PendingReply, ...]:
        """The pending replies of an assignment, or the last finished ones."""
        task = await self.run(self.service.live_task, rater, assignment)
        if task.chat is None or has_people(rater.config):
            raise WrongStep("There are no replies to follow in this task.")
        owner = participant_owner(rater.id)
        return tuple([await self.replies.attach(one, owner) for one in task.assignment.conversations])

    async def result(self, assignment: str, sent: SentMessage) -> dict[str, Json]:
        """The chat when all replies are there."""
        if not await _all_done(sent.replies):
            raise NoReply
        await asyncio.sleep(_hold_back(sent.rater, sent.replies))
        return {"chat": await self.run(self._chat_now, sent.rater, assignment)}

    def _chat_now(self, rater: Rater, assignment: str) -> Json:
        task = self.service.live_task(self.service.again(rater), assignment)
        return task.out(rater.language)["task"]["chat"]

    async def follow(
        self, rater: Rater, replies: Sequence[PendingReply], keep_alive_seconds: float, opening: bytes = b""
    ) -> AsyncIterator[bytes]:
        """The replies as events."""
        if not replies:
            yield opening
            return
        sides: Sequence[str | None] = SIDES if len(replies) > 1 else (None,)
        heads = [{"id": one.turn.id, "side": side} for one, side in zip(replies, sides, strict=False)]
        yield opening + b"".join(event("start", {**head, "text": ""}) for head in heads)
        done = asyncio.ensure_future(_all_done(replies))
        try:
            while not (await asyncio.wait([done], timeout=keep_alive_seconds))[0]:
                yield KEEP_ALIVE
            is_fine = done.result()
        finally:
            done.cancel()
        held_until = time.monotonic() + _hold_back(rater, replies)
        while (left := held_until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, keep_alive_seconds))
            if held_until > time.monotonic():
                yield KEEP_ALIVE
        if not is_fine:
            yield event("error", {"id": None, "side": None, "text": interface_text("error.bot", rater.language)})
            return
        async for chunk in _pieces(heads, [one.final.text for one in replies if one.final is not None]):
            yield chunk


def _refusal(rater: Rater, task: Task, text: str) -> WrongStep | AnswerError | None:
    """Why a message cannot be sent: its text, or that it is out of turn."""
    chat, lang = task.chat, rater.language
    assert chat is not None
    if problem := check_text(rater.config, text, task.own_persona, lang):
        return AnswerError("message", problem)
    if chat.ended:
        return WrongStep(interface_text("chat.ended", lang), hint="")
    if chat.is_pending or chat.awaits_partner:
        return WrongStep(interface_text("chat.waiting_for_reply", lang), hint="")
    if not chat.last_failed and task.unanswered_turn(lang) is not None:
        return WrongStep(interface_text("chat.label_first", lang), hint="")
    return None


def user_event(turn: StoredTurn) -> bytes:
    """The participant's stored message."""
    return event("user", {"id": turn.id, "side": None, "text": turn.text})


async def _all_done(replies: Sequence[PendingReply]) -> bool:
    """Wait for all replies; whether all of them are fine."""
    results = await asyncio.gather(*(one.result() for one in replies), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, TertuliaError):
            raise result
    return all(isinstance(result, StoredTurn) and result.status == "done" for result in results)


def _hold_back(rater: Rater, replies: Sequence[PendingReply]) -> float:
    """Seconds until replies may be shown."""
    if rater.config.reply_seconds is None or not replies:
        return 0.0
    created = max(one.turn.created for one in replies if one.turn.speaker == BOT)
    return max(0.0, created.timestamp() + rater.config.reply_seconds - time.time())


async def _pieces(heads: Sequence[dict[str, str | None]], texts: Sequence[str]) -> AsyncIterator[bytes]:
    """The texts piece by piece, the sides in turn, then their ends."""
    size = max(PIECE_CHARACTERS, -(-max(map(len, texts)) // MAX_PIECES))
    for start in range(0, max(map(len, texts)), size):
        pieces = [(head, text[start : start + size]) for head, text in zip(heads, texts, strict=True)]
        yield b"".join(event("piece", {**head, "text": piece}) for head, piece in pieces if piece)
        await asyncio.sleep(PIECE_SECONDS)
    ends = zip(heads, texts, strict=True)
    yield b"".join(event("done", {**head, "text": text}) for head, text in ends)
