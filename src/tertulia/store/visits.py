"""A participant at one moment, read in one transaction. `StudyStore` is built on it.

Every request of a participant starts with it: who they are, whether the study is open, what they have done and are
doing, and what was said and answered in the task at hand. Five statements in one transaction; when each of these was a
transaction of its own, they took most of the time of a request, and could contradict each other.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Row, bindparam, null, select

from tertulia.store.labels import current_labels
from tertulia.store.pairing import read_pair
from tertulia.store.records import NotFound, StoredTurn
from tertulia.store.schema import assignment_conversations, assignments, participants, studies, turns
from tertulia.store.statements import turn_record
from tertulia.store.study_base import ASSIGNMENTS, StudyBase, assignment_record, participant_record
from tertulia.store.study_records import AssignmentRecord, LiveWork, ParticipantWork, Visit
from tertulia.store.validation import check_id

_A, _P, _T, _LINK = assignments.c, participants.c, turns.c, assignment_conversations.c
_PARTICIPANT = select(participants, studies.c.state.label("study_state")).join(studies, studies.c.id == _P.study)
_PARTICIPANT = _PARTICIPANT.where(_P.id == bindparam("participant"))
_OWN = _A.participant == bindparam("participant")
_HAD = select(_A.unit, _A.state).where(_OWN).order_by(_A.created.desc(), _A.id)
# The row once for each of its conversations, or once if there are none.
_LIVE = (
    ASSIGNMENTS.add_columns(_LINK.conversation)
    .outerjoin(assignment_conversations, _LINK.assignment == _A.id)
    .where(_OWN, _A.state == "live", _A.expires > bindparam("now"))
    .order_by(_A.created.desc(), _A.id, _LINK.side)
)
# Without a bot's record of its reply, which is by far the largest column and not for participants.
_TURN_COLUMNS = [null() if field.name == "reply" else _T[field.name] for field in fields(StoredTurn)]
_TURNS = (
    select(*_TURN_COLUMNS)
    .where(_T.conversation.in_(bindparam("conversations", expanding=True)), _T.current)
    .order_by(_T.position)
)


class StudyVisits(StudyBase):
    """Reading all about one participant."""

    def visit(self, participant: str, *, with_pair: bool = False) -> Visit:
        """A participant, also one who has withdrawn; the partner they talk with, if asked for."""
        check_id(participant, "participant")

        def read(connection: Connection) -> Visit:
            row = connection.execute(_PARTICIPANT, {"participant": participant}).one_or_none()
            if row is None:
                raise NotFound("participant")
            work = self._work(connection, row.study, participant)
            live = _read_live(connection, work.live, with_pair=with_pair) if work.live is not None else LiveWork()
            return Visit(row.study_state, participant_record(row), work, live)

        return self._database.read(read)

    def work_of(self, participant: str) -> ParticipantWork:
        """What a participant has done, and the assignment they are at."""
        return self.visit(participant).work

    def _work(self, connection: Connection, study: str, participant: str) -> ParticipantWork:
        had = connection.execute(_HAD, {"participant": participant}).all()
        live: AssignmentRecord | None = None
        if any(row.state == "live" for row in had):
            rows = connection.execute(_LIVE, {"participant": participant, "now": self._now()}).all()
            live = _assignment(rows) if rows else None
        units = self._units_of(connection, study) if had else {}
        if any(row.unit not in units for row in had):  # added after these were read
            units = self._units_of(connection, study, again=True)
        return ParticipantWork(
            submitted=sum(row.state == "submitted" for row in had),
            bots=tuple(bot for row in had for bot in units[row.unit].bots),
            live=live,
        )


def _assignment(rows: Sequence[Row[Any]]) -> AssignmentRecord:
    first = rows[0]
    own = (row.conversation for row in rows if row.id == first.id and row.conversation is not None)
    return assignment_record(first, own)


def _read_live(connection: Connection, live: AssignmentRecord, *, with_pair: bool) -> LiveWork:
    by_conversation: dict[str, list[StoredTurn]] = {id_: [] for id_ in live.conversations}
    if live.conversations:
        for row in connection.execute(_TURNS, {"conversations": list(live.conversations)}):
            turn = turn_record(row)
            by_conversation[turn.conversation].append(turn)
    return LiveWork(
        labels=current_labels(connection, live.id),
        turns=tuple(tuple(by_conversation[id_]) for id_ in live.conversations),
        pair=read_pair(connection, live.conversations[0]) if with_pair and live.conversations else None,
    )
