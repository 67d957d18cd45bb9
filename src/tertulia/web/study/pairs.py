"""Two participants who talk with each other: the waiting room, their messages, and what happens when one leaves.

Everything here blocks: call it on a thread. `live` tells both pages about it.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta

from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.store import ConversationStore, StoredTurn, StudyStore
from tertulia.store.pairing import PRESENT_SECONDS
from tertulia.store.study_records import AssignmentRecord, KeyReused, PairRecord, UnitCandidate
from tertulia.study.assignment import choose_unit
from tertulia.study.texts import text as interface_text
from tertulia.web.study.chats import is_pair
from tertulia.web.study.errors import WrongStep
from tertulia.web.study.rater import Rater
from tertulia.web.study.service import StudyService, sides_of
from tertulia.web.study.tasks import Task

PRESENCE_SECONDS = 5.0
"""How often a participant's presence is recorded."""
GONE_SECONDS = 60.0
"""Who has not been seen for this long has left for good."""
Tell = Callable[[str, str], None]
"""Called with a participant and the kind of news there are for them: turn, typing, matched or left."""


class Pairs:
    """Pairs of participants."""

    def __init__(self, service: StudyService, conversations: ConversationStore, tell: Tell) -> None:
        self._service = service
        self._store: StudyStore = service.store
        self._conversations = conversations
        self._tell = tell

    def join(self, rater: Rater) -> dict[str, Json]:
        """Wait for a partner, or show that one is still there."""
        work = self._service.require(rater, "waiting", "work")
        if work.live is not None or not rater.participant.data.get("waiting"):
            return self._service.state(rater)
        record = self._store.join_waiting(rater.study.id, rater.id, present_seconds=PRESENT_SECONDS)
        pair = record.pair or self._store.match(rater.study.id)
        if pair is not None and not self._lease(rater, pair):
            self._store.depart(pair.conversation, rater.id)
            return self._service.state(self._service.end(rater, "timed_out"))
        if pair is not None and any(member.participant == rater.id for member in pair.members):
            return self._service.state(self._service.again(rater))
        if self._service.now() - record.since >= timedelta(seconds=rater.config.wait_seconds):
            self._store.leave_waiting(rater.id)
            return self._service.state(self._service.end(rater, "timed_out"))
        return self._service.state(self._service.remember(rater, waiting_since=record.since.timestamp()))

    def _lease(self, rater: Rater, pair: PairRecord) -> tuple[AssignmentRecord, ...]:
        """Give both of a pair the same unit, in opposite roles."""
        config = rater.config

        def choose(candidates: list[UnitCandidate]) -> str | None:
            between_people = [unit for unit in candidates if is_pair(config, unit.bots)]
            return choose_unit(between_people, (), self._service.rng)

        orders: Sequence[Sequence[int]] = ((0, 1), (1, 0)) if sides_of(config) == 2 else ((0,), (0,))
        leased = self._store.lease_pair(
            rater.study.id, pair.conversation, choose, rater.lease_seconds, side_orders=orders
        )
        for member in pair.members:
            self._tell(member.participant, "matched")
        return leased

    def say(self, rater: Rater, task: Task, text: str, key: str) -> StoredTurn:
        """Say something to the partner."""
        assert task.chat is not None
        speaker, conversation = task.chat.speaker, task.assignment.conversations[0]
        lang, most = rater.language, task.chat.max_turns

        def admit(current: Sequence[StoredTurn]) -> None:
            if current and current[-1].speaker == speaker:
                raise WrongStep(interface_text("chat.waiting_for_reply", lang), hint="")
            if most is not None and len(current) >= most:
                raise WrongStep(interface_text("chat.ended", lang), hint="")

        try:
            turn = self._conversations.add_turn(conversation, speaker, text, key=key, admit=admit)
        except UsageError:  # the only one there is, since the text was cleaned and the key has been checked
            raise KeyReused from None
        self._tell_partner(rater, "turn")
        return turn

    def typing(self, rater: Rater) -> dict[str, Json]:
        """Let the partner know that one is writing."""
        self._service.require(rater, "work")
        self._tell_partner(rater, "typing")
        return {"ok": True}

    def leave(self, rater: Rater) -> dict[str, Json]:
        """Leave the waiting room or the partner; or a bot that does not answer, with the code of those left alone."""
        work = self._service.require(rater, "work", "waiting")
        if work.live is None:
            self._store.leave_waiting(rater.id)
            return self._service.state(self._service.remember(rater, waiting=False))
        task = self._service.task(rater)
        if task.chat is None or not (task.chat.is_pair or task.chat.last_failed):
            raise WrongStep("There is nobody to leave.")
        self._store.release(work.live.id, "left" if task.chat.is_pair else "no reply")
        if not task.chat.is_pair:
            return self._service.state(self._service.end(rater, "partner_left"))
        for conversation in work.live.conversations:
            self._store.depart(conversation, rater.id)
        self._tell_partner(rater, "left")
        return self._service.state(self._service.remember(self._service.again(rater), waiting=False))

    def withdraw(self, rater: Rater) -> dict[str, Json]:
        """Withdraw from the study; a partner is released."""
        state = self._service.withdraw(rater)
        self._tell_partner(rater, "left")
        return state

    def look(self, rater: Rater, task: Task) -> str:
        """Show that a participant is there; says whether their partner is: here, away or left."""
        if task.chat is None or not task.chat.is_pair:
            return "here"
        pair, now = rater.visit.live.pair, self._service.now()
        if pair is None or task.chat.partner_left:
            return "left"
        if pair.member(rater.id).seen < now - timedelta(seconds=PRESENCE_SECONDS):
            pair = self._store.mark_present(pair.conversation, rater.id)
        partner = pair.partner(rater.id)
        if partner.seen < now - timedelta(seconds=GONE_SECONDS):
            self._store.depart(pair.conversation, partner.participant)
            return "left"
        return "away" if partner.seen < now - timedelta(seconds=PRESENT_SECONDS) else "here"

    def _tell_partner(self, rater: Rater, news: str) -> None:
        """Tell the page of the partner, if there is one, that there is something new."""
        if (pair := rater.visit.live.pair) is not None:
            self._tell(pair.partner(rater.id).participant, news)
