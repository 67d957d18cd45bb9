"""Studies with people: units, participants, assignments, labels and pairs. Every method is one transaction.

    studies = StudyStore(database)
    study = studies.create("pilot", config, digest)
    studies.add_units(study.id, [("unit-1", ["bot"], {"context": []}, 5)])
    studies.set_state(study.id, "open", "ada")
    participant, token = studies.enroll(study.id, "prolific", "5f3a")
    assignment = studies.lease_unit(study.id, participant.id, choose, seconds=3600)
    studies.add_labels(assignment.id, participant.id, [("unit", "sensible", True)], key="1")
    studies.submit(assignment.id, participant.id)

Configs, payloads and values are JSON that the store does not interpret. It enforces states, leases and uniqueness, and
returns only when what it accepted is on disk. The parts are in `participants`, `assignments`, `labels`, `pairing`
and `visits`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, get_args

from sqlalchemy import Connection, Row, Select, bindparam, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.store.assignments import StudyAssignments
from tertulia.store.labels import StudyLabels
from tertulia.store.pairing import StudyPairing
from tertulia.store.participants import StudyParticipants
from tertulia.store.records import NotFound
from tertulia.store.schema import participants, studies, study_events, study_units
from tertulia.store.study_base import add_event, full_study, new_id, study_record, study_row
from tertulia.store.study_records import (
    FINAL_STEPS,
    Ratings,
    StudyEvent,
    StudyProgress,
    StudyRecord,
    StudyState,
    StudyUnitRecord,
    UnitCandidate,
)
from tertulia.store.validation import check_id, check_names, json_value
from tertulia.store.visits import StudyVisits

UNITS_PER_PAGE = 200
IDLE_SECONDS = 3600.0
"""Participants who were not seen for this long count as having dropped out."""
_UNIT_COLUMNS = [study_units.c[name] for name in ("id", "bots", "payload", "wanted")]
_UNIT = select(*_UNIT_COLUMNS).where(study_units.c.study == bindparam("study"), study_units.c.id == bindparam("id"))


class StudyStore(StudyParticipants, StudyAssignments, StudyLabels, StudyPairing, StudyVisits):
    """The studies in a database."""

    def create(self, name: str, config: Mapping[str, Json], digest: str, *, by: str = "operator") -> StudyRecord:
        """Add a study as a draft, without units."""
        check_names(name=name, digest=digest, by=by)
        id_, value = new_id(), json_value(config, "config")

        def add(connection: Connection) -> StudyRecord:
            now = self._now()
            row = {"id": id_, "name": name, "config": value, "digest": digest, "state": "draft", "created": now}
            try:
                connection.execute(insert(studies), row)
            except IntegrityError:
                raise UsageError(f"A study named {name!r} exists already.", hint="Choose another name.") from None
            add_event(connection, now, id_, by, "created", {"digest": digest})
            return full_study(connection, id_)

        return self._database.write(add)

    def add_units(self, study: str, units: Iterable[tuple[str, Sequence[str], Mapping[str, Json], int]]) -> int:
        """Add (id, bots, payload, wanted ratings) units; returns how many. All or none are added."""
        rows: list[dict[str, Any]] = []
        for id_, bots, payload, wanted in units:
            check_names(unit=id_)
            if wanted < 1:
                raise UsageError(f"Unit {id_!r} wants {wanted} ratings.", hint="A unit needs at least one.")
            row = {"study": study, "id": id_, "wanted": wanted, "bots": json_value(list(bots), "bots")}
            rows.append(row | {"payload": json_value(payload, "payload")})

        def add(connection: Connection) -> int:
            if study_row(connection, study, lock=True).state == "closed":
                raise UsageError("Units cannot be added to a closed study.", hint="Open it again first.")
            last = select(func.coalesce(func.max(study_units.c.position), -1)).where(study_units.c.study == study)
            start = connection.execute(last).scalar_one() + 1
            numbered = [row | {"position": position} for position, row in enumerate(rows, start)]
            try:
                if numbered:
                    connection.execute(insert(study_units), numbered)
            except IntegrityError:
                raise UsageError("Two units have the same id.", hint="Ids must be unique within a study.") from None
            return len(numbered)

        return self._database.write(add)

    def set_state(self, study: str, state: StudyState, by: str) -> StudyRecord:
        """Open or close a study. Closing it stops everything at once but withdrawals and completions."""
        if state not in get_args(StudyState):
            raise UsageError(f"A study cannot be {state!r}.", hint=f"Choose one of {', '.join(get_args(StudyState))}.")
        check_names(by=by)

        def change(connection: Connection) -> StudyRecord:
            if study_row(connection, study, lock=True).state != state:
                connection.execute(update(studies).where(studies.c.id == study).values(state=state))
                add_event(connection, self._now(), study, by, "state", {"state": state})
            return full_study(connection, study)

        return self._database.write(change)

    def get(self, study: str) -> StudyRecord:
        """A study by its id."""
        return self._database.read(lambda c: full_study(c, study))

    def state(self, study: str) -> StudyState:
        """Whether a study is a draft, open or closed. The rest of a study never changes."""
        state: StudyState = self._database.read(lambda c: study_row(c, study)).state
        return state

    def by_name(self, name: str) -> StudyRecord:
        """A study by its name."""
        check_id(name, "study")
        row = self._database.read(lambda c: c.execute(select(studies).where(studies.c.name == name)).one_or_none())
        if row is None:
            raise NotFound("study")
        return study_record(row)

    def list(self) -> Sequence[StudyRecord]:
        """All studies, the oldest first."""
        query = select(studies).order_by(studies.c.created, studies.c.id)
        return self._database.read(lambda c: [study_record(row) for row in c.execute(query)])

    def unit(self, study: str, unit: str) -> StudyUnitRecord:
        """A unit with its payload."""
        check_id(unit, "unit")
        row = self._database.read(lambda c: c.execute(_UNIT, {"study": study, "id": unit}).one_or_none())
        if row is None:
            raise NotFound("unit")
        return StudyUnitRecord(row.id, tuple(row.bots), row.payload, row.wanted)

    def units(self, study: str) -> Iterator[StudyUnitRecord]:
        """All units in their order, read page by page."""
        position = study_units.c.position
        query = select(*_UNIT_COLUMNS, position).where(study_units.c.study == study).order_by(position)
        last = -1
        while page := self._database.read(partial(_page, query.where(position > last).limit(UNITS_PER_PAGE))):
            yield from (StudyUnitRecord(row.id, tuple(row.bots), row.payload, row.wanted) for row in page)
            last = page[-1].position

    def progress(self, study: str, *, idle_seconds: float = IDLE_SECONDS) -> StudyProgress:
        """How many ratings there are by unit and by bot, and where the participants are or were last seen."""

        def read(connection: Connection) -> StudyProgress:
            study_row(connection, study)
            now = self._now()
            units = tuple(self._candidates(connection, study, now).values())
            steps = select(participants.c.step, func.count()).where(participants.c.study == study)
            idle = participants.c.seen < now - timedelta(seconds=idle_seconds)
            dropped = steps.where(idle, participants.c.step.not_in(FINAL_STEPS))
            by_step, dropped_out = (
                {row[0]: int(row[1]) for row in connection.execute(query.group_by(participants.c.step))}
                for query in (steps, dropped)
            )
            return StudyProgress(units, _ratings_by_bot(units), by_step, dropped_out)

        return self._database.read(read)

    def record_event(self, study: str, who: str, what: str, detail: Json = None) -> None:
        """Add to the study's log of who saw or changed what."""

        def record(connection: Connection) -> None:
            study_row(connection, study)
            add_event(connection, self._now(), study, who, what, detail)

        self._database.write(record)

    def events(self, study: str) -> Sequence[StudyEvent]:
        """The study's log, the oldest event first."""
        columns = (study_events.c[name] for name in ("id", "created", "who", "what", "detail"))
        query = select(*columns).where(study_events.c.study == study)
        query = query.order_by(study_events.c.created, study_events.c.id)
        return self._database.read(lambda c: [StudyEvent(*row) for row in c.execute(query)])


def _page(query: Select[Any], connection: Connection) -> Sequence[Row[Any]]:
    return connection.execute(query).all()


def _ratings_by_bot(units: Iterable[UnitCandidate]) -> dict[str, Ratings]:
    by_bot: dict[str, Ratings] = {}
    for unit in units:
        for bot in unit.bots:
            sums = by_bot.get(bot, Ratings(0, 0, 0))
            by_bot[bot] = Ratings(sums.wanted + unit.wanted, sums.done + unit.done, sums.live + unit.live)
    return by_bot
