"""Units of studies leased to participants. `StudyStore` is built on it.

The life of an assignment: live, then submitted, expired (the lease ended first) or released (given back). Live and
submitted ones count against the number of ratings that a unit wants. Leases of one study are given out under the
study's lock, one after the other, so that the count cannot be exceeded. An assignment leaves the state "live" only by a
change of its own row: whether a submission came in time is decided there, whatever the clocks of two servers say.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, bindparam, case, func, insert, or_, select, update

from tertulia.core.codec import persona_to_json
from tertulia.core.dialogue import Json, Persona
from tertulia.core.errors import UsageError
from tertulia.store.records import NotFound, StoredTurn
from tertulia.store.schema import IS_LIVE, assignment_conversations, assignments, conversations, members, study_units
from tertulia.store.statements import ADD_CONVERSATION, ADD_TURNS, turn_row
from tertulia.store.study_base import (
    StudyBase,
    assignment_record,
    assignment_row,
    check_live,
    conversations_of,
    full_assignment,
    new_id,
    participant_row,
    study_row,
)
from tertulia.store.study_records import AssignmentRecord, KeyReused, NotYours, UnitCandidate
from tertulia.store.validation import check_id, check_names, check_text, json_value

_A, _U = assignments.c, study_units.c
_UNIT_COUNT = select(func.count()).where(_U.study == bindparam("study"))
_RATED_BY = select(_A.unit).where(_A.participant == bindparam("participant"))
_IS_DONE = _A.state == "submitted"
# By unit, the number of submitted assignments and of live leases.
_TAKEN = (
    select(
        _A.unit,
        func.sum(case((_IS_DONE, 1), else_=0)).label("done"),
        func.sum(case((_IS_DONE, 0), else_=1)).label("live"),
    )
    .where(_A.study == bindparam("study"), or_(_IS_DONE, (_A.state == "live") & (_A.expires > bindparam("now"))))
    .group_by(_A.unit)
)
Choose = Callable[[list[UnitCandidate]], str | None]
"""Chooses one of the units that want ratings by its id, or none."""
SideOrder = Callable[[UnitCandidate], Sequence[int]]
"""The index of the bot to show on each side."""


class StudyAssignments(StudyBase):
    """Leasing units to participants. Methods that take a participant refuse assignments of anybody else."""

    def lease_unit(
        self,
        study: str,
        participant: str,
        choose: Choose,
        seconds: float,
        *,
        side_order: SideOrder | None = None,
    ) -> AssignmentRecord | None:
        """Give a unit to a participant for some time; None if `choose` takes none of those that want ratings.

        A participant who has a live assignment gets that one again. Nobody gets a unit twice. `choose` and `side_order`
        run inside the transaction: they must be quick, and must not use the database.
        """
        if seconds <= 0:
            raise UsageError(f"A lease must last longer than {seconds} seconds.")

        def lease(connection: Connection) -> AssignmentRecord | None:
            now = self._now()
            study_row(connection, study, lock=True, open_only=True)
            if participant_row(connection, participant).study != study:
                raise NotYours("participant")
            expired = update(assignments).where(_A.study == study, IS_LIVE, _A.expires <= now)
            connection.execute(expired.values(state="expired", ended=now))
            own = select(_A.id).where(_A.participant == participant, _A.state == "live")
            if (live := connection.scalar(own.order_by(_A.created.desc()).limit(1))) is not None:
                return full_assignment(connection, live)
            candidates = self._candidates(connection, study, now, new_to=participant)
            if (chosen := choose(list(candidates.values()))) is None:
                return None
            if chosen not in candidates:
                raise UsageError(f"Unit {chosen!r} is not among the candidates.", hint="Choose one of those given.")
            unit = candidates[chosen]
            order = list(side_order(unit) if side_order else range(len(unit.bots)))
            id_, expires = new_id(), now + timedelta(seconds=seconds)
            row: dict[str, Any] = {
                "id": id_,
                "study": study,
                "unit": chosen,
                "participant": participant,
                "state": "live",
            }
            row |= {"side_order": order, "created": now, "expires": expires}
            connection.execute(insert(assignments), row)
            return full_assignment(connection, id_)

        return self._database.write(lease)

    def assignment(self, assignment: str, participant: str | None = None) -> AssignmentRecord:
        """An assignment with its conversations; refused if a participant is given and it is not theirs."""

        def read(connection: Connection) -> AssignmentRecord:
            assignment_row(connection, assignment, participant)
            return full_assignment(connection, assignment)

        return self._database.read(read)

    def assignments_of(self, participant: str) -> list[AssignmentRecord]:
        """All assignments of a participant, the oldest first."""
        ids = select(_A.id).where(_A.participant == participant).order_by(_A.created, _A.id)
        return self._database.read(lambda c: [full_assignment(c, id_) for id_ in c.scalars(ids).all()])

    def lease_pair(
        self, study: str, conversation: str, choose: Choose, seconds: float, *, side_orders: Sequence[Sequence[int]]
    ) -> tuple[AssignmentRecord, ...]:
        """Give one unit to both members of a conversation, in the order of their roles; nothing if `choose` takes none.

        `choose` gets the units that are new to both and want two more ratings. Again, it returns the same assignments.
        """
        check_id(conversation, "conversation")

        def lease(connection: Connection) -> tuple[AssignmentRecord, ...]:
            now = self._now()
            study_row(connection, study, lock=True, open_only=True)
            link = assignment_conversations.c
            held = select(link.assignment).where(link.conversation == conversation)
            if ids := connection.scalars(held).all():
                return tuple(full_assignment(connection, id_) for id_ in ids)
            roles = select(members.c.participant).where(members.c.conversation == conversation).order_by(members.c.role)
            pair = connection.scalars(roles).all()
            expired = update(assignments).where(_A.study == study, IS_LIVE, _A.expires <= now)
            connection.execute(expired.values(state="expired", ended=now))
            new_to_both = [self._candidates(connection, study, now, new_to=one) for one in pair]
            common = [
                unit
                for unit in (new_to_both[0].values() if new_to_both else ())
                if all(unit.id in units for units in new_to_both) and unit.wanted - unit.done - unit.live >= len(pair)
            ]
            if (chosen := choose(common)) is None:
                return ()
            expires = now + timedelta(seconds=seconds)
            leased = []
            for participant, order in zip(pair, side_orders, strict=True):
                row: dict[str, Any] = {"id": new_id(), "study": study, "unit": chosen, "participant": participant}
                row |= {"state": "live", "side_order": list(order), "created": now, "expires": expires}
                connection.execute(insert(assignments), row)
                values = {"assignment": row["id"], "side": 0, "conversation": conversation}
                connection.execute(insert(assignment_conversations), values)
                leased.append(full_assignment(connection, row["id"]))
            return tuple(leased)

        return self._database.write(lease)

    def renew(self, assignment: str, seconds: float, *, participant: str | None = None) -> AssignmentRecord:
        """Let a live assignment last `seconds` from now, unless it lasts longer already."""

        def extend(connection: Connection) -> AssignmentRecord:
            row, now = assignment_row(connection, assignment, participant, lock=True), self._now()
            check_live(connection, row, now)
            expires = max(row.expires, now + timedelta(seconds=seconds))
            connection.execute(update(assignments).where(_A.id == assignment).values(expires=expires))
            return full_assignment(connection, assignment)

        return self._database.write(extend)

    def renew_own(self, assignment: str, participant: str, seconds: float) -> AssignmentRecord:
        """A participant's live assignment; it lasts for `seconds` from now on if less than half of that was left."""

        def read(connection: Connection) -> AssignmentRecord:
            row = assignment_row(connection, assignment, participant)
            check_live(connection, row, self._now())
            return _with_conversations(connection, row)

        record = self._database.read(read)
        short = record.expires < self._now() + timedelta(seconds=seconds / 2)
        return self.renew(assignment, seconds) if short else record

    def release(self, assignment: str, reason: str, *, participant: str | None = None) -> AssignmentRecord:
        """Give a unit back, for another participant. An assignment that has ended stays as it is."""
        check_text(reason, "reason")

        def give_back(connection: Connection) -> AssignmentRecord:
            if assignment_row(connection, assignment, participant, lock=True).state == "live":
                values = {"state": "released", "ended": self._now(), "reason": reason}
                connection.execute(update(assignments).where(_A.id == assignment).values(values))
            return full_assignment(connection, assignment)

        return self._database.write(give_back)

    def open_conversation(
        self,
        assignment: str,
        side: int,
        *,
        owner: str,
        bot: str,
        persona: Persona | None = None,
        opening: Sequence[tuple[str, str]] = (),
    ) -> AssignmentRecord:
        """Create the conversation of one side of an assignment, with (speaker, text) turns. Each side has one."""
        check_names(owner=owner, bot=bot)
        for speaker, text in opening:
            check_names(speaker=speaker)
            check_text(text, "opening")
        profile = json_value(None if persona is None else persona_to_json(persona), "persona")

        def create(connection: Connection) -> AssignmentRecord:
            row, now = assignment_row(connection, assignment, lock=True), self._now()
            link = assignment_conversations.c
            at = (link.assignment == assignment, link.side == side)
            if connection.scalar(select(link.conversation).where(*at)) is not None:
                return full_assignment(connection, assignment)
            check_live(connection, row, now)
            id_, count = new_id(), len(opening)
            head = {"id": id_, "owner": owner, "title": "", "bot": bot, "persona": profile, "evidence": None}
            head |= {"created": now, "updated": now, "next_position": count, "turn_count": count, "revision": 0}
            ADD_CONVERSATION.run(connection, head)
            turns = [
                turn_row(StoredTurn(new_id(), id_, position, speaker, text, now, "done"))
                for position, (speaker, text) in enumerate(opening)
            ]
            if turns:
                ADD_TURNS.run(connection, *turns)
            values = {"assignment": assignment, "side": side, "conversation": id_}
            connection.execute(insert(assignment_conversations), values)
            return full_assignment(connection, assignment)

        return self._database.write(create)

    def attach_conversation(
        self, assignment: str, conversation: str, *, side: int = 0, participant: str | None = None
    ) -> AssignmentRecord:
        """Record the conversation that is held for an assignment, or for one side of it. Each side has one."""
        check_id(conversation, "conversation")

        def attach(connection: Connection) -> AssignmentRecord:
            row = assignment_row(connection, assignment, participant, lock=True)
            link = assignment_conversations.c
            at = (link.assignment == assignment, link.side == side)
            attached = connection.scalar(select(link.conversation).where(*at))
            if attached is None:
                check_live(connection, row, self._now())
                if connection.scalar(select(conversations.c.id).where(conversations.c.id == conversation)) is None:
                    raise NotFound("conversation")
                values = {"assignment": assignment, "side": side, "conversation": conversation}
                connection.execute(insert(assignment_conversations), values)
            elif attached != conversation:
                raise KeyReused
            return full_assignment(connection, assignment)

        return self._database.write(attach)

    def submit(self, assignment: str, participant: str, summary: Mapping[str, Json] | None = None) -> AssignmentRecord:
        """End an assignment as done. The same submission again is fine, another summary is not."""
        value = json_value(summary, "summary")

        def end(connection: Connection) -> AssignmentRecord:
            row = assignment_row(connection, assignment, participant, lock=True)
            if row.state == "submitted" and row.summary == value:
                return full_assignment(connection, assignment)
            now = self._now()
            check_live(connection, row, now)
            values = {"state": "submitted", "ended": now, "summary": value}
            connection.execute(update(assignments).where(_A.id == assignment).values(values))
            return full_assignment(connection, assignment)

        return self._database.write(end)

    def _candidates(
        self, connection: Connection, study: str, now: datetime, *, new_to: str | None = None
    ) -> dict[str, UnitCandidate]:
        """The units of a study by id, in their order; with `new_to`, those that want ratings and are new to them."""
        candidates = dict(self._units_of(connection, study))
        if len(candidates) != connection.execute(_UNIT_COUNT, {"study": study}).scalar_one():
            candidates = dict(self._units_of(connection, study, again=True))
        for id_, done, live in connection.execute(_TAKEN, {"study": study, "now": now}):
            unit = candidates.get(id_)
            if unit is None:  # added a moment ago
                continue
            if new_to is None or done + live < unit.wanted:
                candidates[id_] = UnitCandidate(id_, unit.bots, unit.wanted, int(done), int(live))
            else:
                del candidates[id_]
        for id_ in connection.scalars(_RATED_BY, {"participant": new_to}) if new_to is not None else ():
            candidates.pop(id_, None)
        return candidates


def _with_conversations(connection: Connection, row: Row[Any]) -> AssignmentRecord:
    return assignment_record(row, conversations_of(connection, [row.id]).get(row.id, ()))
