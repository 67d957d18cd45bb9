"""What all parts of the study store share: rows as records, the study's lock, checks of who may do what, events.

Locks are always taken in the same order, so that transactions on PostgreSQL wait for each other instead of deadlocking:
the study, then a participant, then an assignment, then a conversation. Whoever adds labels locks the assignment only.
The study's lock is one that foreign keys ignore (FOR NO KEY UPDATE): rows that refer to the study can still be added.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, insert, select

from tertulia.core.dialogue import Json
from tertulia.store.database import Database
from tertulia.store.records import NotFound
from tertulia.store.schema import (
    assignment_conversations,
    assignments,
    participants,
    studies,
    study_events,
    study_units,
)
from tertulia.store.study_records import (
    WITHDRAWN,
    AssignmentEnded,
    AssignmentRecord,
    LeaseExpired,
    NotYours,
    ParticipantRecord,
    ParticipantWithdrawn,
    StudyNotOpen,
    StudyRecord,
    UnitCandidate,
    utc_now,
)
from tertulia.store.validation import check_id, check_names, json_value

Clock = Callable[[], datetime]
OWNER_PREFIX = "study:"
"""Of the owners of conversations that are held in studies."""

FULL_STUDY = select(studies).where(studies.c.id == bindparam("id"))
# Without the config: nearly every request reads whether the study is open, and decoding a config takes longer.
STUDY: Select[Any] = select(studies.c.id, studies.c.state).where(studies.c.id == bindparam("id"))
STUDY_LOCKED = STUDY.with_for_update(key_share=True)
PARTICIPANT = select(participants).where(participants.c.id == bindparam("id"))
PARTICIPANT_LOCKED = PARTICIPANT.with_for_update(key_share=True)
_ASSIGNMENT_FIELDS = [field.name for field in fields(AssignmentRecord) if field.name in assignments.c]
ASSIGNMENTS = select(*(assignments.c[name] for name in _ASSIGNMENT_FIELDS))
ASSIGNMENT = ASSIGNMENTS.where(assignments.c.id == bindparam("id"))
ASSIGNMENT_LOCKED = ASSIGNMENT.with_for_update(key_share=True)
_UNITS = select(study_units.c.id, study_units.c.bots, study_units.c.wanted)
_UNITS = _UNITS.where(study_units.c.study == bindparam("study")).order_by(study_units.c.position)
_CONVERSATIONS = (
    select(assignment_conversations.c.assignment, assignment_conversations.c.conversation)
    .where(assignment_conversations.c.assignment.in_(bindparam("assignments", expanding=True)))
    .order_by(assignment_conversations.c.assignment, assignment_conversations.c.side)
)


class StudyBase:
    """The database and the clock of a study store."""

    def __init__(self, database: Database, *, now: Clock = utc_now) -> None:
        self._database = database
        self._now = now
        self._units: dict[str, dict[str, UnitCandidate]] = {}

    def _units_of(self, connection: Connection, study: str, *, again: bool = False) -> dict[str, UnitCandidate]:
        """All units of a study by id, in their order, as if nobody had rated them.

        They are kept in memory, because they never change, and reading thousands of them for each lease took ten times
        as long as everything else. Some may be added; whoever misses one has them read again.
        """
        if again or study not in self._units:
            rows = connection.execute(_UNITS, {"study": study})
            self._units[study] = {row.id: UnitCandidate(row.id, tuple(row.bots), row.wanted, 0, 0) for row in rows}
        return self._units[study]


def new_id() -> str:
    """An id that nobody can guess."""
    return secrets.token_hex(16)


def token_digest(token: str) -> str:
    """What is stored of a token: who reads the database cannot use it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def study_owner(study: str) -> str:
    """The owner of a study's conversations in the conversation store: no visitor of the chat page has this name."""
    return OWNER_PREFIX + study


def is_study_owner(owner: str) -> bool:
    """Whether an owner of conversations is a study or one of its participants."""
    return owner.startswith(OWNER_PREFIX)


def study_row(connection: Connection, study: str, *, lock: bool = False, open_only: bool = False) -> Row[Any]:
    """The id and state of a study, locked where the transaction depends on what others do in the same study."""
    check_id(study, "study")
    row: Row[Any] | None = connection.execute(STUDY_LOCKED if lock else STUDY, {"id": study}).one_or_none()
    if row is None:
        raise NotFound("study")
    if open_only and row.state != "open":
        raise StudyNotOpen(row.state)
    return row


def full_study(connection: Connection, study: str) -> StudyRecord:
    """A study with its config."""
    check_id(study, "study")
    row = connection.execute(FULL_STUDY, {"id": study}).one_or_none()
    if row is None:
        raise NotFound("study")
    return study_record(row)


def study_record(row: Row[Any]) -> StudyRecord:
    """A study's row as a record."""
    return StudyRecord(row.id, row.name, row.config, row.digest, row.state, row.created)


def participant_row(connection: Connection, participant: str, *, lock: bool = False) -> Row[Any]:
    """The row of a participant who has not withdrawn."""
    check_id(participant, "participant")
    row = connection.execute(PARTICIPANT_LOCKED if lock else PARTICIPANT, {"id": participant}).one_or_none()
    if row is None:
        raise NotFound("participant")
    if row.step == WITHDRAWN:
        raise ParticipantWithdrawn
    return row


def participant_record(row: Row[Any]) -> ParticipantRecord:
    """A participant's row as a record."""
    return ParticipantRecord(*(row._mapping[field.name] for field in fields(ParticipantRecord)))


def assignment_row(
    connection: Connection, assignment: str, participant: str | None = None, *, lock: bool = False
) -> Row[Any]:
    """The row of an assignment, of this participant if one is given."""
    check_id(assignment, "assignment")
    row = connection.execute(ASSIGNMENT_LOCKED if lock else ASSIGNMENT, {"id": assignment}).one_or_none()
    if row is None:
        raise NotFound("assignment")
    if participant is not None and row.participant != participant:
        raise NotYours("assignment")
    return row


def check_live(connection: Connection, row: Row[Any], now: datetime) -> None:
    """Refuse an assignment that has ended or expired, or whose study is not open."""
    if row.state == "expired" or (row.state == "live" and row.expires <= now):
        raise LeaseExpired
    if row.state != "live":
        raise AssignmentEnded(row.state)
    study_row(connection, row.study, open_only=True)


def assignment_record(row: Row[Any], conversations: Iterable[str] = ()) -> AssignmentRecord:
    """An assignment's row as a record."""
    values = {name: row._mapping[name] for name in _ASSIGNMENT_FIELDS}
    values |= {"side_order": tuple(row.side_order), "conversations": tuple(conversations)}
    return AssignmentRecord(**values)


def full_assignment(connection: Connection, assignment: str) -> AssignmentRecord:
    """An assignment with its conversations."""
    row = assignment_row(connection, assignment)
    return assignment_record(row, conversations_of(connection, [assignment]).get(assignment, ()))


def conversations_of(connection: Connection, ids: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The conversations of assignments, by side."""
    by_assignment: dict[str, tuple[str, ...]] = {}
    for assignment, conversation in connection.execute(_CONVERSATIONS, {"assignments": list(ids)}):
        by_assignment[assignment] = (*by_assignment.get(assignment, ()), conversation)
    return by_assignment


def add_event(connection: Connection, now: datetime, study: str, who: str, what: str, detail: Json = None) -> None:
    """Record what somebody did, in the same transaction."""
    check_names(who=who, what=what)
    row = {"id": new_id(), "study": study, "created": now, "who": who, "what": what}
    connection.execute(insert(study_events), row | {"detail": json_value(detail, "detail")})
