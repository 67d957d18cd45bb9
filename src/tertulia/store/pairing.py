"""Participants who talk with each other: the waiting room, pairs, presence. `StudyStore` is built on it.

Whoever waits repeats `join_waiting` every few seconds. That is the heartbeat, and the answer says whether there is a
partner. `match` runs under the study's lock, so that nobody ends up in two pairs, however many servers call it.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from tertulia.store.schema import conversations, members, waiting
from tertulia.store.study_base import StudyBase, add_event, new_id, participant_row, study_owner, study_row
from tertulia.store.study_records import HUMAN, MemberRecord, NotYours, PairRecord, WaitingRecord
from tertulia.store.validation import check_id, check_names

PRESENT_SECONDS = 15.0
"""Who has not been seen for this long has closed the page, or lost the connection."""
ROLES = ("A", "B")
"""The speakers of a conversation between two people."""

_M, _W = members.c, waiting.c


class StudyPairing(StudyBase):
    """The waiting room of a study, and the pairs that come out of it."""

    def join_waiting(
        self, study: str, participant: str, unit: str | None = None, *, present_seconds: float = PRESENT_SECONDS
    ) -> WaitingRecord:
        """Enter the waiting room, or show that one is still there. In a pair that neither has left, it is returned.

        Who was away for longer than `present_seconds` starts to wait anew.
        """
        check_names(unit=unit)

        def join(connection: Connection) -> WaitingRecord:
            study_row(connection, study, lock=True, open_only=True)
            if participant_row(connection, participant).study != study:
                raise NotYours("participant")
            now = self._now()
            pair = _current_pair(connection, participant)
            if pair is not None:
                return WaitingRecord(participant, pair.member(participant).unit, pair.created, pair)
            row = connection.execute(select(waiting).where(_W.participant == participant)).one_or_none()
            since = row.since if row and row.seen > now - timedelta(seconds=present_seconds) else now
            connection.execute(delete(waiting).where(_W.participant == participant))
            values = {"participant": participant, "study": study, "unit": unit, "since": since, "seen": now}
            connection.execute(insert(waiting), values)
            return WaitingRecord(participant, unit, since)

        return self._database.write(join)

    def leave_waiting(self, participant: str) -> bool:
        """Leave the waiting room; returns whether the participant was in it. A pair is left by `depart`."""
        statement = delete(waiting).where(_W.participant == participant)
        return bool(self._database.write(lambda c: c.execute(statement).rowcount))

    def match(self, study: str, *, present_seconds: float = PRESENT_SECONDS) -> PairRecord | None:
        """Pair the two who have waited longest, of those who are still there; None if there are no two.

        Creates their conversation; each of them is the speaker of a role in it.
        """

        def pair_up(connection: Connection) -> PairRecord | None:
            study_row(connection, study, lock=True, open_only=True)
            now = self._now()
            present = (_W.study == study, _W.seen > now - timedelta(seconds=present_seconds))
            longest = select(waiting).where(*present).order_by(_W.since, _W.participant).limit(2)
            rows = connection.execute(longest).all()
            return _create_pair(connection, study, now, rows) if len(rows) == 2 else None

        return self._database.write(pair_up)

    def pair(self, conversation: str, participant: str | None = None) -> PairRecord:
        """The members of a conversation; refused if a participant is given who is not one of them."""
        check_id(conversation, "conversation")
        pair = self._database.read(lambda c: read_pair(c, conversation))
        if pair is None or (participant is not None and participant not in {one.participant for one in pair.members}):
            raise NotYours("conversation")
        return pair

    def pair_of(self, participant: str) -> PairRecord | None:
        """The pair a participant is in, as long as neither has left it."""
        return self._database.read(lambda c: _current_pair(c, participant))

    def mark_present(self, conversation: str, participant: str) -> PairRecord:
        """Show that a member is still there; returns the pair, whose members say when each was last seen."""

        def see(connection: Connection) -> PairRecord:
            own = (_M.conversation == conversation, _M.participant == participant)
            updated = connection.execute(update(members).where(*own).values(seen=self._now())).rowcount
            pair = read_pair(connection, conversation)
            if not updated or pair is None:
                raise NotYours("conversation")
            return pair

        check_id(conversation, "conversation")
        return self._database.write(see)

    def depart(self, conversation: str, participant: str) -> PairRecord:
        """Leave a conversation for good, which ends the pair."""

        def leave(connection: Connection) -> PairRecord:
            own = (_M.conversation == conversation, _M.participant == participant)
            now = self._now()
            connection.execute(update(members).where(*own, _M.departed.is_(None)).values(departed=now))
            pair = read_pair(connection, conversation)
            if pair is None:
                raise NotYours("conversation")
            pair.member(participant)
            return pair

        check_id(conversation, "conversation")
        return self._database.write(leave)


def _create_pair(connection: Connection, study: str, now: datetime, rows: Sequence[Row[Any]]) -> PairRecord:
    conversation = new_id()
    head = {"id": conversation, "owner": study_owner(study), "title": "", "bot": HUMAN, "next_position": 0}
    connection.execute(insert(conversations), head | {"created": now, "updated": now})
    connection.execute(
        insert(members),
        [
            {"conversation": conversation, "participant": row.participant, "role": role, "unit": row.unit}
            | {"joined": now, "seen": row.seen}
            for row, role in zip(rows, ROLES, strict=True)
        ],
    )
    connection.execute(delete(waiting).where(_W.participant.in_([row.participant for row in rows])))
    for row, other in pairwise([*rows, rows[0]]):
        detail = {"conversation": conversation, "partner": other.participant}
        add_event(connection, now, study, row.participant, "paired", detail)
    pair = read_pair(connection, conversation)
    assert pair is not None
    return pair


def read_pair(connection: Connection, conversation: str) -> PairRecord | None:
    """The members of a conversation; None if it is none between people."""
    head = connection.execute(select(conversations).where(conversations.c.id == conversation)).one_or_none()
    columns = (_M.participant, _M.role, _M.unit, _M.seen, _M.departed)
    query = select(*columns).where(_M.conversation == conversation).order_by(_M.role)
    rows = connection.execute(query).all()
    if head is None or not rows:
        return None
    return PairRecord(conversation, head.owner, tuple(MemberRecord(*row) for row in rows), head.created)


def _current_pair(connection: Connection, participant: str) -> PairRecord | None:
    query = select(_M.conversation).where(_M.participant == participant, _M.departed.is_(None))
    for conversation in connection.scalars(query.order_by(_M.joined.desc())).all():
        pair = read_pair(connection, conversation)
        if pair is not None and len(pair.members) == len(ROLES) and not any(one.departed for one in pair.members):
            return pair
    return None
