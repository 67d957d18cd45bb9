"""What researchers read of studies, and the log of what they saw and changed.

The audit log has two tables: events of a study go with the study, and the rest (signing in, changes of accounts) is
kept apart. Who did it is `account_name(NAME)` for a researcher, a pseudonym for a participant, or "operator" for the
command line.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, insert, or_, select

from tertulia.core.dialogue import Json
from tertulia.store.database import Database
from tertulia.store.records import Conversation, NotFound
from tertulia.store.schema import account_events, assignments, conversations, identities, studies, study_events
from tertulia.store.statements import read_conversation
from tertulia.store.study_base import Clock, add_event, full_assignment, new_id, study_row
from tertulia.store.study_records import AssignmentRecord, StudyEvent, utc_now
from tertulia.store.validation import check_id, check_names, json_value

ENTRIES_PER_PAGE = 100
_A, _E, _S = assignments.c, study_events.c, account_events.c


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what, and when."""

    id: str
    created: datetime
    who: str
    what: str
    detail: Json
    study: str | None = None
    """The id of the study that it concerns."""
    study_name: str | None = None


class AssignmentTimes(NamedTuple):
    """An assignment without what it is about, for counts and times."""

    id: str
    unit: str
    participant: str
    state: str
    created: datetime
    ended: datetime | None


def account_name(name: str) -> str:
    """How a researcher's account appears in the log; no participant or operator is called that."""
    return f"account:{name}"


class AuditLog:
    """The log of all studies and accounts. Entries are never changed."""

    def __init__(self, database: Database, *, now: Clock = utc_now) -> None:
        self._database = database
        self._now = now

    def record(self, who: str, what: str, detail: Json = None, *, study: str | None = None) -> None:
        """Add an entry, to the log of a study if one is named."""
        check_names(who=who, what=what)
        value = json_value(detail, "detail")

        def add(connection: Connection) -> None:
            now = self._now()
            if study is not None:
                study_row(connection, study)
                add_event(connection, now, study, who, what, value)
            else:
                row = {"id": new_id(), "created": now, "who": who, "what": what, "detail": value}
                connection.execute(insert(account_events), row)

        self._database.write(add)

    def entries(self, *, limit: int = ENTRIES_PER_PAGE, before: str | None = None) -> list[AuditEntry]:
        """The newest entries first; with `before`, those that are older than the entry of this id."""
        in_studies = select(_E.id, _E.created, _E.who, _E.what, _E.detail, _E.study, studies.c.name)
        in_studies = in_studies.join(studies, studies.c.id == _E.study)
        others = select(_S.id, _S.created, _S.who, _S.what, _S.detail)

        def read(connection: Connection) -> list[AuditEntry]:
            entries: list[AuditEntry] = []
            start = _start(connection, before)
            for query, columns in ((in_studies, _E), (others, _S)):
                page = query if start is None else query.where(_older(columns, start))
                page = page.order_by(columns.created.desc(), columns.id.desc()).limit(limit)
                entries += [AuditEntry(*row) for row in connection.execute(page)]
            return sorted(entries, key=lambda entry: (entry.created, entry.id), reverse=True)[:limit]

        return self._database.read(read)


class StudyReview:
    """Reads what a researcher looks at. Whoever shows it to somebody records that in the audit log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def assignments(
        self, study: str, *, participant: str | None = None, before: str | None = None, limit: int = 100
    ) -> list[AssignmentRecord]:
        """The assignments of a study (of one participant), the newest first; with `before`, those older than that."""
        check_id(participant or "", "participant")
        check_id(before or "", "assignment")

        def read(connection: Connection) -> list[AssignmentRecord]:
            query = select(_A.id).where(_A.study == study).order_by(_A.created.desc(), _A.id.desc()).limit(limit)
            if participant is not None:
                query = query.where(_A.participant == participant)
            if before is not None:
                last = connection.execute(select(_A.created, _A.id).where(_A.id == before)).one_or_none()
                query = query.where(_older(_A, last)) if last else query
            return [full_assignment(connection, id_) for id_ in connection.scalars(query).all()]

        return self._database.read(read)

    def times(self, study: str) -> list[AssignmentTimes]:
        """All assignments of a study with their times, in the order in which they ended."""
        columns = (_A[name] for name in AssignmentTimes._fields)
        query = select(*columns).where(_A.study == study).order_by(_A.ended, _A.id)
        return self._database.read(lambda c: [AssignmentTimes(*row) for row in c.execute(query)])

    def conversations(self, assignment: str) -> tuple[Conversation, ...]:
        """The conversations of an assignment by side, with all turns, also replaced and undone ones."""
        check_id(assignment, "assignment")

        def read(connection: Connection) -> tuple[Conversation, ...]:
            ids = full_assignment(connection, assignment).conversations
            owners = select(conversations.c.id, conversations.c.owner).where(conversations.c.id.in_(ids))
            owner: Mapping[str, str] = {row.id: row.owner for row in connection.execute(owners)}
            return tuple(read_conversation(connection, id_, owner[id_], history=True) for id_ in ids)

        return self._database.read(read)

    def events(self, study: str, what: str) -> list[StudyEvent]:
        """The events of one kind, the oldest first."""
        columns = (_E[name] for name in ("id", "created", "who", "what", "detail"))
        query = select(*columns).where(_E.study == study, _E.what == what).order_by(_E.created, _E.id)
        return self._database.read(lambda c: [StudyEvent(*row) for row in c.execute(query)])

    def identity_digests(self, study: str) -> dict[str, set[str]]:
        """By participant, a hash of who they are elsewhere: equal ones show duplicates, and tell nothing else."""
        query = select(identities.c.participant, identities.c.external_id).where(identities.c.study == study)
        rows = self._database.read(lambda c: c.execute(query).all())
        return {participant: {hashlib.sha256(name.encode()).hexdigest()} for participant, name in rows}


def _start(connection: Connection, entry: str | None) -> Any:
    """The row (created, id) of the entry that a page of the log follows; None for the first page."""
    if entry is None:
        return None
    check_id(entry, "entry")
    for columns in (_E, _S):
        row = connection.execute(select(columns.created, columns.id).where(columns.id == entry)).one_or_none()
        if row is not None:
            return row
    raise NotFound("entry")


def _older(columns: Any, than: Any) -> ColumnElement[bool]:
    same_time = and_(columns.created == than.created, columns.id < than.id)
    return or_(columns.created < than.created, same_time)
