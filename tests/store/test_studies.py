"""Studies, units, leases and labels on both databases."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import pytest

from tertulia.core.errors import UsageError
from tertulia.store import ConversationStore, Database, NotFound, StudyStore, labels
from tertulia.store.study_records import (
    AssignmentEnded,
    AssignmentRecord,
    KeyReused,
    LeaseExpired,
    NotYours,
    Ratings,
    StudyNotOpen,
    UnitCandidate,
)

Rows = Callable[[str, str], list[tuple[Any, ...]]]


class Clock(Protocol):
    """A clock that tests set."""

    time: datetime

    def __call__(self) -> datetime: ...

    def advance(self, seconds: float) -> None: ...


def first(candidates: list[UnitCandidate]) -> str | None:
    return candidates[0].id if candidates else None


def enroll(studies: StudyStore, study: str, name: str = "p1") -> str:
    return studies.enroll(study, "prolific", name)[0].id


def lease(studies: StudyStore, study: str, participant: str, seconds: float = 60) -> AssignmentRecord:
    assignment = studies.lease_unit(study, participant, first, seconds)
    assert assignment is not None
    return assignment


def test_a_visit_reads_the_task_at_hand_with_all_that_was_said(studies: StudyStore, study: str) -> None:
    participant = studies.enroll(study, "link", "ada")[0].id
    empty = studies.visit(participant)
    assert (empty.state, empty.participant.id, empty.work.live, empty.live.turns) == ("open", participant, None, ())
    leased = studies.lease_unit(study, participant, lambda units: units[1].id, 600)
    assert leased is not None
    for side, opening in ((0, [("user", "So?"), ("bot", "Hi!")]), (1, [])):
        for _ in range(2):  # again, it changes nothing
            held = studies.open_conversation(leased.id, side, owner="study:x", bot="study:b", opening=opening)
    studies.add_labels(leased.id, participant, [("unit", "q", 1)], key="1")
    studies.add_labels(leased.id, participant, [("unit", "q", 2)], key="2")
    visit = studies.visit(participant, with_pair=True)
    assert visit.work.live == held
    assert len(set(held.conversations)) == 2
    assert [[(turn.position, turn.speaker, turn.text) for turn in turns] for turns in visit.live.turns] == [
        [(0, "user", "So?"), (1, "bot", "Hi!")],
        [],
    ]
    assert ([label.value for label in visit.live.labels], visit.live.pair) == ([2], None)
    studies.submit(leased.id, participant)
    done = studies.visit(participant)
    assert (done.work.submitted, done.work.bots, done.work.live, done.live.labels) == (1, ("b",), None, ())
    with pytest.raises(NotFound):
        studies.visit("nobody")


def test_studies_are_read_as_they_were_created(studies: StudyStore, study: str, clock: Clock) -> None:
    record = studies.get(study)
    assert (record.name, record.config, record.digest, record.state) == (
        "pilot",
        {"preset": "ssa-static"},
        "digest",
        "open",
    )
    assert record.created == clock.time
    assert studies.by_name("pilot") == record
    other = studies.create("other", {}, "d")
    assert other.state == "draft"
    assert {one.id for one in studies.list()} == {study, other.id}
    assert [(unit.id, unit.bots, unit.payload, unit.wanted) for unit in studies.units(study)] == [
        (f"u{n}", ("b" if n else "a",), {"context": [f"c{n}"]}, 2) for n in range(3)
    ]
    assert studies.unit(study, "u1").payload == {"context": ["c1"]}
    for missing in (lambda: studies.get("0" * 32), lambda: studies.by_name("no"), lambda: studies.unit(study, "u9")):
        with pytest.raises(NotFound):
            missing()


def test_units_are_read_page_by_page(studies: StudyStore) -> None:
    study = studies.create("large", {}, "d").id
    assert studies.add_units(study, [(f"u{n}", ["a"], {}, 1) for n in range(450)]) == 450
    studies.add_units(study, [("last", ["a"], {}, 1)])
    assert [unit.id for unit in studies.units(study)] == [*(f"u{n}" for n in range(450)), "last"]


def test_names_and_unit_ids_are_unique(studies: StudyStore, study: str) -> None:
    with pytest.raises(UsageError, match="exists already"):
        studies.create("pilot", {}, "d")
    with pytest.raises(UsageError, match="same id"):
        studies.add_units(study, [("new", ["a"], {}, 1), ("u0", ["a"], {}, 1)])
    with pytest.raises(UsageError, match="wants 0 ratings"):
        studies.add_units(study, [("new", ["a"], {}, 0)])
    assert len(list(studies.units(study))) == 3  # all or none


def test_a_participant_never_gets_a_unit_twice_and_a_unit_never_has_too_many_ratings(
    studies: StudyStore, study: str
) -> None:
    for name in ("p1", "p2", "p3"):
        participant, had = enroll(studies, study, name), []
        while assignment := studies.lease_unit(study, participant, first, 60):
            assert studies.lease_unit(study, participant, first, 60) == assignment  # one at a time
            studies.submit(assignment.id, participant, {"n": len(had)})
            had.append(assignment.unit)
        assert had == ([] if name == "p3" else ["u0", "u1", "u2"])
    progress = studies.progress(study)
    assert progress.total == Ratings(6, 6, 0)
    assert progress.by_bot == {"a": Ratings(2, 2, 0), "b": Ratings(4, 4, 0)}


def test_units_that_another_store_adds_are_leased(database: Database, studies: StudyStore, study: str) -> None:
    participant = enroll(studies, study)
    leased = lease(studies, study, participant)  # from now on this store has the units in memory
    StudyStore(database).add_units(study, [("new", ["c"], {}, 1)])
    studies.submit(leased.id, participant)
    added = studies.lease_unit(study, participant, lambda candidates: candidates[-1].id, 60)
    assert added is not None
    assert added.unit == "new"
    assert studies.progress(study).units[-1] == UnitCandidate("new", ("c",), 1, 0, 1)
    assert (studies.state(study), studies.set_state(study, "closed", "ada").state) == ("open", "closed")
    assert studies.state(study) == "closed"


def test_the_order_of_sides_is_recorded(studies: StudyStore, study: str) -> None:
    studies.add_units(study, [("pair", ["a", "b"], {}, 1)])
    participant = enroll(studies, study)
    assignment = studies.lease_unit(
        study, participant, lambda candidates: candidates[-1].id, 60, side_order=lambda unit: [1, 0][: len(unit.bots)]
    )
    assert assignment is not None
    assert (assignment.unit, assignment.side_order) == ("pair", (1, 0))
    assert studies.assignment(assignment.id, participant) == assignment


def test_candidates_tell_how_much_is_done(studies: StudyStore, study: str) -> None:
    one, two, three = (enroll(studies, study, name) for name in ("p1", "p2", "p3"))
    studies.submit(lease(studies, study, one).id, one)
    lease(studies, study, two)
    seen: list[UnitCandidate] = []

    def choose(candidates: list[UnitCandidate]) -> str:
        seen.extend(candidates)
        return "u2"

    studies.lease_unit(study, three, choose, 60)
    assert seen == [UnitCandidate("u1", ("b",), 2, 0, 0), UnitCandidate("u2", ("b",), 2, 0, 0)]  # u0 has all it wants
    assert [(unit.done, unit.live) for unit in studies.progress(study).units] == [(1, 1), (0, 0), (0, 1)]
    with pytest.raises(UsageError, match="not among the candidates"):
        studies.lease_unit(study, one, lambda _: "u0", 60)


def test_an_expired_lease_is_given_to_somebody_else(studies: StudyStore, study: str, clock: Clock) -> None:
    one, two, three = (enroll(studies, study, name) for name in ("p1", "p2", "p3"))
    expired = [lease(studies, study, who) for who in (one, two)]
    assert [each.unit for each in expired] == ["u0", "u0"]
    clock.advance(59)
    studies.renew(expired[1].id, 60)
    clock.advance(1)
    assert [unit.live for unit in studies.progress(study).units] == [1, 0, 0]
    with pytest.raises(LeaseExpired):
        studies.renew(expired[0].id, 60)
    with pytest.raises(LeaseExpired):
        studies.add_labels(expired[0].id, one, [("unit", "sensible", True)], key="1")
    with pytest.raises(LeaseExpired):
        studies.submit(expired[0].id, one)
    assert lease(studies, study, three).unit == "u0"
    assert studies.assignment(expired[0].id).state == "expired"
    assert studies.assignment(expired[1].id).state == "live"
    with pytest.raises(LeaseExpired):
        studies.submit(expired[0].id, one)
    assert lease(studies, study, one).unit == "u1"  # not the one they had
    assert [each.state for each in studies.assignments_of(one)] == ["expired", "live"]


def test_a_released_unit_is_given_to_somebody_else(studies: StudyStore, study: str) -> None:
    one, *others = (enroll(studies, study, name) for name in ("p1", "p2", "p3"))
    assignment = lease(studies, study, one)
    released = studies.release(assignment.id, "partner left")
    assert (released.state, released.reason) == ("released", "partner left")
    assert studies.release(assignment.id, "again") == released
    assert [lease(studies, study, who).unit for who in others] == ["u0", "u0"]
    with pytest.raises(AssignmentEnded, match="released"):
        studies.add_labels(assignment.id, one, [("unit", "sensible", True)], key="1")


def test_submitting_again_changes_nothing(studies: StudyStore, study: str, clock: Clock) -> None:
    participant = enroll(studies, study)
    assignment = lease(studies, study, participant)
    submitted = studies.submit(assignment.id, participant, {"seconds": 4.5})
    assert (submitted.state, submitted.ended, submitted.summary) == ("submitted", clock.time, {"seconds": 4.5})
    clock.advance(1000)
    studies.set_state(study, "closed", "ada")
    assert studies.submit(assignment.id, participant, {"seconds": 4.5}) == submitted
    with pytest.raises(AssignmentEnded, match="submitted"):
        studies.submit(assignment.id, participant, {"seconds": 5})
    with pytest.raises(AssignmentEnded, match="submitted"):
        studies.add_labels(assignment.id, participant, [("unit", "sensible", True)], key="1")


def test_labels_are_idempotent_by_key(studies: StudyStore, study: str, clock: Clock) -> None:
    participant = enroll(studies, study)
    assignment = lease(studies, study, participant).id
    batch = [("unit", "sensible", True), ("item:x", "why", {"text": "¡claro!", "n": [1, None]}), ("unit", "skip", None)]
    added = studies.add_labels(assignment, participant, batch, key="1", seconds=2.5)
    assert [(one.target, one.question, one.value) for one in added] == batch
    assert {(one.seconds, one.created, one.current, one.undone) for one in added} == {(2.5, clock.time, True, False)}
    clock.advance(10)
    assert studies.add_labels(assignment, participant, batch, key="1", seconds=9) == added
    for changed in (batch[:1], [("unit", "sensible", False), *batch[1:]], [*batch, ("unit", "more", 1)]):
        with pytest.raises(KeyReused):
            studies.add_labels(assignment, participant, changed, key="1")
    assert studies.labels_of(assignment, history=True) == added
    assert studies.add_labels(assignment, participant, [], key="2") == ()


def test_later_labels_supersede_and_nothing_is_overwritten(studies: StudyStore, study: str) -> None:
    participant = enroll(studies, study)
    assignment = lease(studies, study, participant).id

    def values(*, history: bool = False) -> list[tuple[Any, bool]]:
        return [(one.value, one.current) for one in studies.labels_of(assignment, history=history)]

    studies.add_labels(assignment, participant, [("unit", "q", 1), ("unit", "other", 0)], key="1")
    studies.add_labels(assignment, participant, [("unit", "q", 2)], key="2")
    assert values() == [(0, True), (2, True)]
    assert values(history=True) == [(1, False), (0, True), (2, True)]
    assert [one.value for one in studies.undo_labels(assignment, participant, "2")] == [1, 0]
    assert [one.value for one in studies.undo_labels(assignment, participant, "2")] == [1, 0]
    assert values(history=True) == [(1, True), (0, True), (2, False)]
    studies.add_labels(assignment, participant, [("unit", "q", 3)], key="3")
    studies.undo_labels(assignment, participant, "1")  # already superseded: the later one stays
    assert values(history=True) == [(1, False), (0, False), (2, False), (3, True)]
    studies.undo_labels(assignment, participant, "3")
    assert values() == []
    assert len(values(history=True)) == 4
    with pytest.raises(NotFound):
        studies.undo_labels(assignment, participant, "9")


def test_forged_and_foreign_ids_are_refused(studies: StudyStore, study: str) -> None:
    one, two = enroll(studies, study), enroll(studies, study, "p2")
    assignment = lease(studies, study, one).id
    calls: list[Callable[[str, str], object]] = [
        lambda a, p: studies.add_labels(a, p, [("unit", "q", 1)], key="1"),
        lambda a, p: studies.undo_labels(a, p, "1"),
        lambda a, p: studies.submit(a, p),
        lambda a, p: studies.assignment(a, p),
        lambda a, p: studies.renew(a, 60, participant=p),
        lambda a, p: studies.release(a, "left", participant=p),
        lambda a, p: studies.attach_conversation(a, "c", participant=p),
    ]
    for call in calls:
        with pytest.raises(NotYours):
            call(assignment, two)
        for forged in ("0" * 32, "x\0", "y" * 500):
            with pytest.raises(NotFound) as caught:
                call(forged, one)
            assert not isinstance(caught.value, NotYours)
    other = studies.create("other", {}, "d").id
    studies.set_state(other, "open", "ada")
    with pytest.raises(NotYours):  # enrolled in another study
        studies.lease_unit(other, one, first, 60)
    with pytest.raises(NotFound):
        studies.lease_unit(study, "0" * 32, first, 60)
    assert studies.labels_of(assignment) == ()


def test_a_study_that_is_not_open_takes_nothing(studies: StudyStore, study: str, clock: Clock) -> None:
    participant = enroll(studies, study)
    assignment = lease(studies, study, participant).id
    studies.add_labels(assignment, participant, [("unit", "q", 1)], key="1")
    clock.advance(1)
    studies.set_state(study, "closed", "ada")
    clock.advance(1)
    refused: list[Callable[[], object]] = [
        lambda: enroll(studies, study, "p2"),
        lambda: studies.lease_unit(study, participant, first, 60),
        lambda: studies.renew(assignment, 60),
        lambda: studies.add_labels(assignment, participant, [("unit", "q", 2)], key="2"),
        lambda: studies.undo_labels(assignment, participant, "1"),
        lambda: studies.submit(assignment, participant),
        lambda: studies.join_waiting(study, participant),
        lambda: studies.match(study),
    ]
    for call in refused:
        with pytest.raises(StudyNotOpen) as caught:
            call()
        assert caught.value.state == "closed"
    assert studies.add_labels(assignment, participant, [("unit", "q", 1)], key="1")  # acknowledged before
    assert enroll(studies, study) == participant  # comes back for the code
    studies.set_state(study, "open", "ada")
    studies.set_state(study, "open", "ada")
    assert studies.submit(assignment, participant).state == "submitted"
    states = [event.detail for event in studies.events(study) if event.what == "state"]
    assert states == [{"state": "open"}, {"state": "closed"}, {"state": "open"}]


def test_labels_of_turns_carry_their_text_and_reply(
    studies: StudyStore, study: str, store: ConversationStore, database: Database
) -> None:
    participant = enroll(studies, study)
    assignment = lease(studies, study, participant).id
    conversation = store.create(f"study:{study}", "a").id
    foreign = store.create("ada", "a").id
    exchanges = [
        store.say(one, owner, "hello", key="k") for one, owner in ((conversation, f"study:{study}"), (foreign, "ada"))
    ]
    for exchange in exchanges:
        store.finish(exchange.bot.id, text="hi there", status="done", reply={"seconds": 0.1, "spec": "tfidf"})
    with pytest.raises(NotFound, match="turn"):  # nothing is attached yet
        studies.add_labels(assignment, participant, [(f"turn:{exchanges[0].bot.id}", "q", 1)], key="0")
    attached = studies.attach_conversation(assignment, conversation)
    assert attached.conversations == (conversation,)
    assert studies.attach_conversation(assignment, conversation) == attached
    with pytest.raises(KeyReused):
        studies.attach_conversation(assignment, foreign)
    with pytest.raises(NotFound, match="turn"):  # of a conversation that is not this assignment's
        studies.add_labels(assignment, participant, [(f"turn:{exchanges[1].bot.id}", "q", 1)], key="0")
    target = f"turn:{exchanges[0].bot.id}"
    studies.add_labels(
        assignment, participant, [(target, "sensible", True), ("unit", "overall", 5)], key="1", seconds=3
    )
    assert list(studies.rows(study)) == []  # not submitted
    assert len(list(studies.rows(study, unfinished=True))) == 2
    studies.submit(assignment, participant)
    turn_row, unit_row = studies.rows(study)
    assert (turn_row.target, turn_row.value, turn_row.turn_text, turn_row.turn_bot) == (target, True, "hi there", "a")
    assert turn_row.reply == {"seconds": 0.1, "spec": "tfidf"}
    assert (turn_row.unit, turn_row.bots, turn_row.side_order, turn_row.seconds) == ("u0", ("a",), (0,), 3)
    assert (turn_row.participant, turn_row.assignment) == (participant, assignment)
    assert (unit_row.question, unit_row.turn_text, unit_row.conversation) == ("overall", None, conversation)


def test_rows_are_read_page_by_page(
    studies: StudyStore, study: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "ASSIGNMENTS_PER_PAGE", 4)
    expected = set()
    for name in ("p1", "p2"):
        participant = enroll(studies, study, name)
        while assignment := studies.lease_unit(study, participant, first, 60):
            for number in range(3):
                studies.add_labels(assignment.id, participant, [("unit", "q", number)], key=str(number))
                studies.add_labels(assignment.id, participant, [(f"item:{number}", "q", number)], key=f"i{number}")
            studies.submit(assignment.id, participant)
            expected |= {(assignment.id, "unit", 2), *((assignment.id, f"item:{n}", n) for n in range(3))}
    rows = list(studies.rows(study))
    assert len(rows) == len(expected) == 24
    assert {(row.assignment, row.target, row.value) for row in rows} == expected
    history = list(studies.rows(study, history=True))
    assert len(history) == 36
    assert sum(not row.current for row in history) == 12


def test_events_are_kept_in_order(studies: StudyStore, study: str, clock: Clock) -> None:
    clock.advance(1)
    studies.record_event(study, "ada", "viewed transcript", {"conversation": "c"})
    assert [(event.who, event.what) for event in studies.events(study)][-1] == ("ada", "viewed transcript")
    assert studies.events(study)[-1].detail == {"conversation": "c"}
    with pytest.raises(NotFound):
        studies.record_event("0" * 32, "ada", "viewed transcript")
