"""The conversations of an assignment: opening them, reading them, and what may happen next in them.

Participants own the conversations with bots ("study:PARTICIPANT"), one per side; two people who talk with each other
share one, which the study owns. `open_chats` blocks: call it on a thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from tertulia.core.dialogue import Json, Persona
from tertulia.store import StoredTurn, StudyStore
from tertulia.store.study_base import OWNER_PREFIX
from tertulia.store.study_records import AssignmentRecord, StudyUnitRecord, Visit
from tertulia.study.config import HUMAN, StudyConfig
from tertulia.study.localised import localise
from tertulia.study.questions import SIDES, Question
from tertulia.web.asks import BOT, USER
from tertulia.web.study.bots import conversation_bot

_UNANSWERED = ("failed", "stopped")
"""Replies that participants never see: the bot failed, or the server was stopped meanwhile."""
NOBODY = "nobody"
"""The speaker of a participant whose conversation was deleted."""


def participant_owner(participant: str) -> str:
    """The owner of a participant's conversations with bots: no visitor of the chat page has this name."""
    return OWNER_PREFIX + participant


def has_people(config: StudyConfig) -> bool:
    """Whether partners may be people. Then all partners answer by the same way, so that nobody can tell."""
    return any(bot.spec == HUMAN for bot in config.bots)


def is_pair(config: StudyConfig, bots: Sequence[str]) -> bool:
    """Whether a unit is a conversation between two people."""
    return any((bot := config.bot(name)) is not None and bot.spec == HUMAN for name in bots)


class ChatTurn(NamedTuple):
    """A turn as the participant sees it."""

    turn: StoredTurn
    side: str | None
    """A or B where there are two."""
    mine: bool
    pending: bool
    """Whether its text is not to be seen yet."""


@dataclass(frozen=True, slots=True)
class Chat:
    """The conversations of one assignment at one moment."""

    sides: tuple[tuple[StoredTurn, ...], ...]
    """Turns by side as shown, without the context that the unit came with."""
    speaker: str
    """Whose turns are the participant's own."""
    min_turns: int
    max_turns: int | None
    reply_seconds: float
    now: datetime
    finished: bool = False
    """The participant has ended it."""
    partner_left: bool = False

    @property
    def is_pair(self) -> bool:
        """Whether the partner is a person."""
        return self.speaker != USER

    @property
    def turns(self) -> list[ChatTurn]:
        """What the participant sees: with two sides, their own message once, then both replies."""
        names: Sequence[str | None] = SIDES if len(self.sides) > 1 else (None,)
        shown: list[ChatTurn] = []
        for rows in zip(*self.sides, strict=False):
            own = rows[0].speaker == self.speaker
            for side, turn in zip(names, rows[:1] if own else rows, strict=False):
                if turn.status not in _UNANSWERED:
                    shown.append(ChatTurn(turn, None if own else side, own, self.is_hidden(turn)))
        return shown

    def is_hidden(self, turn: StoredTurn) -> bool:
        """Whether a turn's text is still being generated, or held back so that all bots are equally fast."""
        if turn.status == "pending":
            return True
        return turn.bot is not None and self.now < turn.created + timedelta(seconds=self.reply_seconds)

    @property
    def last_failed(self) -> bool:
        """Whether the last message has to be sent again: no reply came, or it did not get to all sides."""
        return self._is_uneven or self._no_reply

    @property
    def _no_reply(self) -> bool:
        return any(turns and turns[-1].status in _UNANSWERED for turns in self.sides)

    @property
    def _is_uneven(self) -> bool:
        """The server failed between the messages to two sides."""
        return len({len(turns) for turns in self.sides}) > 1

    @property
    def longest(self) -> tuple[int, ...]:
        """The sides that have got the last message."""
        most = max(len(turns) for turns in self.sides)
        return tuple(i for i, turns in enumerate(self.sides) if len(turns) == most)

    @property
    def is_pending(self) -> bool:
        """Whether a reply is awaited."""
        return any(turns and self.is_hidden(turns[-1]) for turns in self.sides)

    @property
    def awaits_partner(self) -> bool:
        """Whether the last word is the participant's own, and the partner a person."""
        return self.is_pair and bool(self.sides[0]) and self.sides[0][-1].speaker == self.speaker

    @property
    def count(self) -> int:
        """Turns of both sides that count: a message to which a reply failed does not."""
        rows = zip(*self.sides, strict=False)
        settled = sum(all(turn.status == "done" for turn in row) for row in rows)
        return settled - int(self._no_reply and not self._is_uneven)

    @property
    def is_full(self) -> bool:
        """Whether another message would exceed the maximum."""
        return self.max_turns is not None and self.count + (1 if self.is_pair else 2) > self.max_turns

    @property
    def ended(self) -> bool:
        """Whether nothing more can be said."""
        return self.finished or self.partner_left or (self.is_full and not self.is_pending and not self.last_failed)

    @property
    def is_long_enough(self) -> bool:
        """Whether the minimum is reached and nothing is awaited."""
        return self.count >= self.min_turns and not self.is_pending and not self.last_failed

    def targets(self, question: Question) -> list[str]:
        """The turns that a question is about. Which of two replies is better is asked about the one shown as A."""
        return [
            f"turn:{shown.turn.id}"
            for shown in self.turns
            if not shown.mine and not shown.pending and (question.kind != "side" or shown.side in (None, SIDES[0]))
        ]


def missing_sides(config: StudyConfig, assignment: AssignmentRecord, unit: StudyUnitRecord) -> range:
    """The sides whose conversations have not been opened yet; two people have theirs from the start."""
    opened = config.sides if is_pair(config, unit.bots) else len(assignment.conversations)
    return range(opened, config.sides)


def open_chats(
    store: StudyStore, config: StudyConfig, assignment: AssignmentRecord, unit: StudyUnitRecord, lang: str
) -> None:
    """Create the conversations that are missing, with the context that the bot knows and its opening."""
    persona = Persona(tuple(unit.payload["persona"])) if config.persona == "bot" else None
    opening = _context(unit.payload)
    if config.opener is not None:
        opening.append((BOT, localise(config.opener, lang)))
    for side in missing_sides(config, assignment, unit):
        bot = config.bot(unit.bots[assignment.side_order[side] if config.sides == 2 else 0])
        assert bot is not None
        store.open_conversation(
            assignment.id,
            side,
            owner=participant_owner(assignment.participant),
            bot=conversation_bot(bot.spec),
            persona=persona,
            opening=opening,
        )


def chat_of(config: StudyConfig, visit: Visit, unit: StudyUnitRecord, now: datetime) -> Chat:
    """The conversations of the assignment at hand."""
    assignment, live = visit.work.live, visit.live
    assert assignment is not None
    speaker, partner_left = USER, False
    if is_pair(config, unit.bots) and live.pair is None:  # the partner withdrew: it was deleted
        speaker, partner_left = NOBODY, True
    elif live.pair is not None:
        speaker = live.pair.member(assignment.participant).role
        partner_left = any(member.departed for member in live.pair.members)
    skipped = len(unit.payload.get("context", ()))
    return Chat(
        sides=tuple(turns[skipped:] for turns in live.turns) or ((),),
        speaker=speaker,
        min_turns=unit.payload.get("min_turns", config.min_turns),
        max_turns=config.max_turns,
        reply_seconds=config.reply_seconds or 0.0,
        now=now,
        finished=visit.participant.data.get("finished") == assignment.id,
        partner_left=partner_left,
    )


def _context(payload: Mapping[str, Json]) -> list[tuple[str, str]]:
    """The turns before the chat: the bot is the one who speaks next, that is, not the last speaker."""
    turns = payload.get("context", ())
    last = turns[-1]["speaker"] if turns else None
    return [(USER if turn["speaker"] == last else BOT, turn["text"]) for turn in turns]
