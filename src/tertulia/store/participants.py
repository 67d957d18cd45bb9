"""The participants of studies: enrolment, consent, steps, completion, withdrawal. `StudyStore` is built on it."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, null, select, update

from tertulia.core.dialogue import Json
from tertulia.core.errors import TertuliaError, UsageError
from tertulia.store.records import NotFound
from tertulia.store.schema import (
    assignment_conversations,
    assignments,
    conversations,
    identities,
    labels,
    members,
    participant_tokens,
    participants,
    study_events,
    turns,
    waiting,
)
from tertulia.store.study_base import (
    PARTICIPANT,
    PARTICIPANT_LOCKED,
    StudyBase,
    add_event,
    new_id,
    participant_record,
    participant_row,
    study_row,
    token_digest,
)
from tertulia.store.study_records import (
    WITHDRAWN,
    IdentityRecord,
    ParticipantRecord,
    StudyFull,
    StudyNotOpen,
)
from tertulia.store.validation import check_id, check_names, json_value

_P = participants.c
_BY_TOKEN = select(participants).join(participant_tokens, participant_tokens.c.participant == _P.id)
_BY_TOKEN = _BY_TOKEN.where(participant_tokens.c.sha256 == bindparam("sha256"))
_NOT_COUNTED = ("screened_out", WITHDRAWN)
"""Participants in these steps leave their place to somebody else."""


class StudyParticipants(StudyBase):
    """What concerns one participant."""

    def enroll(
        self,
        study: str,
        source: str,
        external_id: str,
        meta: Mapping[str, Json] | None = None,
        *,
        limit: int | None = None,
        first_step: str = "consent",
    ) -> tuple[ParticipantRecord, str]:
        """Add a participant, or recognise one by source and external id; returns them with a new token.

        Earlier tokens stay valid. A study that is not open, or has `limit` participants (without those who withdrew or
        were screened out), takes nobody new, but those who have enrolled before can come back.
        """
        check_names(source=source, external_id=external_id, first_step=first_step)
        token, details = secrets.token_urlsafe(32), json_value(meta or {}, "meta")

        def add(connection: Connection) -> ParticipantRecord:
            now = self._now()
            state = study_row(connection, study, lock=True).state
            same = (identities.c.study == study, identities.c.source == source, identities.c.external_id == external_id)
            id_ = connection.scalar(select(identities.c.participant).where(*same))
            if id_ is None:
                if state != "open":
                    raise StudyNotOpen(state)
                if limit is not None and _count(connection, study) >= limit:
                    raise StudyFull(limit)
                id_ = new_id()
                row = {"id": id_, "study": study, "source": source, "step": first_step, "data": {}}
                connection.execute(insert(participants), row | {"created": now, "seen": now})
                identity = {"participant": id_, "study": study, "source": source, "external_id": external_id}
                connection.execute(insert(identities), identity | {"meta": details})
            values = {"sha256": token_digest(token), "participant": id_, "created": now}
            connection.execute(insert(participant_tokens), values)
            return participant_record(participant_row(connection, id_))

        return self._database.write(add), token

    def participant(self, token: str) -> ParticipantRecord:
        """The participant who has this token, also one who has withdrawn."""
        digest = token_digest(token)
        row = self._database.read(lambda c: c.execute(_BY_TOKEN, {"sha256": digest}).one_or_none())
        if row is None:
            raise NotFound("participant")
        return participant_record(row)

    def participant_by_id(self, participant: str) -> ParticipantRecord:
        """A participant by their pseudonym, also one who has withdrawn."""
        check_id(participant, "participant")
        row = self._database.read(lambda c: c.execute(PARTICIPANT, {"id": participant}).one_or_none())
        if row is None:
            raise NotFound("participant")
        return participant_record(row)

    def participants(self, study: str) -> list[ParticipantRecord]:
        """All participants of a study in the order of enrolment, for researchers."""
        query = select(participants).where(_P.study == study).order_by(_P.created, _P.id)
        return self._database.read(lambda c: [participant_record(row) for row in c.execute(query)])

    def identity(self, participant: str) -> IdentityRecord | None:
        """Who a participant is, unless that was erased. Personal data, so record an event when you show it."""
        columns = (identities.c[name] for name in ("participant", "source", "external_id", "meta"))
        query = select(*columns).where(identities.c.participant == participant)
        row = self._database.read(lambda c: c.execute(query).one_or_none())
        return None if row is None else IdentityRecord(*row)

    def consent(self, participant: str, version: str, language: str) -> ParticipantRecord:
        """Record that a participant agreed to a version of the consent text. The first time counts."""
        check_names(version=version, language=language)

        def agree(connection: Connection) -> ParticipantRecord:
            row = participant_row(connection, participant, lock=True)
            now = self._now()
            if row.consent_version != version:
                values = {"consent_version": version, "consented": now, "language": language, "seen": now}
                connection.execute(update(participants).where(_P.id == participant).values(values))
                add_event(connection, now, row.study, participant, "consent", {"version": version})
            return participant_record(participant_row(connection, participant))

        return self._database.write(agree)

    def set_step(self, participant: str, step: str, data: Mapping[str, Json] | None = None) -> ParticipantRecord:
        """Put a participant into a step of the study's flow; `data` replaces what the flow remembers, if given."""
        check_names(step=step)
        if step == WITHDRAWN:
            raise UsageError("A participant withdraws by `withdraw`, which also deletes their data.")
        values: dict[str, Any] = {"step": step}
        if data is not None:
            values["data"] = json_value(data, "data")

        def change(connection: Connection) -> ParticipantRecord:
            participant_row(connection, participant, lock=True)
            connection.execute(update(participants).where(_P.id == participant).values(seen=self._now(), **values))
            return participant_record(participant_row(connection, participant))

        return self._database.write(change)

    def touch(self, participant: str) -> None:
        """Note that the participant is still there."""
        statement = update(participants).where(_P.id == participant)
        self._database.write(lambda c: c.execute(statement.values(seen=self._now())).rowcount)

    def complete(self, participant: str, code: str, *, step: str = "done") -> ParticipantRecord:
        """End a participant's part with a completion code, which cannot be exchanged for another one later."""
        check_names(code=code, step=step)

        def end(connection: Connection) -> ParticipantRecord:
            row = participant_row(connection, participant, lock=True)
            if row.code is not None and row.code != code:
                raise TertuliaError("This participant has another completion code.", hint="Show them the first one.")
            if row.code is None:
                now = self._now()
                values = {"code": code, "step": step, "completed": now, "seen": now}
                connection.execute(update(participants).where(_P.id == participant).values(values))
                add_event(connection, now, row.study, participant, "completed", {"step": step})
            return participant_record(participant_row(connection, participant))

        return self._database.write(end)

    def withdraw(self, participant: str) -> tuple[str, ...]:
        """Delete everything a participant said, chose and is; their units are free for others again.

        A conversation with another participant is deleted as a whole, and so are the partner's labels of its turns.
        What stays is the pseudonym in the step "withdrawn" (so that the page can say so), and an event without content.
        Returns the ids of the deleted conversations. Withdrawing again changes nothing.
        """
        check_id(participant, "participant")

        def delete_all(connection: Connection) -> tuple[str, ...]:
            study = connection.scalar(select(_P.study).where(_P.id == participant))
            if study is None:
                raise NotFound("participant")
            study_row(connection, study, lock=True)
            if connection.execute(PARTICIPANT_LOCKED, {"id": participant}).one().step == WITHDRAWN:
                return ()
            conversation_ids = _conversations_of_participant(connection, participant)
            _delete_labels_of_partners(connection, conversation_ids)
            connection.execute(delete(assignments).where(assignments.c.participant == participant))
            connection.execute(delete(conversations).where(conversations.c.id.in_(conversation_ids)))
            connection.execute(delete(waiting).where(waiting.c.participant == participant))
            connection.execute(delete(identities).where(identities.c.participant == participant))
            erased = dict.fromkeys(("consent_version", "consented", "language", "code", "completed"), null())
            values = {"step": WITHDRAWN, "data": {}, **erased}
            connection.execute(update(participants).where(_P.id == participant).values(values))
            own = (study_events.c.study == study, study_events.c.who == participant)
            connection.execute(update(study_events).where(*own).values(detail=None))
            add_event(connection, self._now(), study, participant, WITHDRAWN)
            return tuple(conversation_ids)

        deleted = self._database.write(delete_all)
        self._database.purge_deleted()
        return deleted

    def erase_identity(self, participant: str) -> bool:
        """Forget who a participant is, and keep the rest. Returns whether there was something to forget."""

        def erase(connection: Connection) -> bool:
            row: Row[Any] = participant_row(connection, participant, lock=True)
            erased = connection.execute(delete(identities).where(identities.c.participant == participant)).rowcount
            if erased:
                add_event(connection, self._now(), row.study, participant, "identity erased")
            return bool(erased)

        erased = self._database.write(erase)
        self._database.purge_deleted()
        return erased


def _count(connection: Connection, study: str) -> int:
    query = select(func.count()).where(_P.study == study, _P.step.not_in(_NOT_COUNTED))
    return int(connection.execute(query).scalar_one())


def _conversations_of_participant(connection: Connection, participant: str) -> list[str]:
    link = assignment_conversations.c
    held = select(link.conversation).join(assignments, assignments.c.id == link.assignment)
    held = held.where(assignments.c.participant == participant)
    joined = select(members.c.conversation).where(members.c.participant == participant)
    return sorted(connection.scalars(held.union(joined)).all())


def _delete_labels_of_partners(connection: Connection, conversation_ids: Sequence[str]) -> None:
    """Labels of turns that are about to be deleted; the participant's own ones go with the assignments."""
    link = assignment_conversations.c
    targets = [
        f"turn:{id_}"
        for id_ in connection.scalars(select(turns.c.id).where(turns.c.conversation.in_(conversation_ids)))
    ]
    attached = select(link.assignment).where(link.conversation.in_(conversation_ids))
    connection.execute(delete(labels).where(labels.c.assignment.in_(attached), labels.c.target.in_(targets)))
