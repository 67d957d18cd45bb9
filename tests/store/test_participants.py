"""Participants: who they are stays apart from what they did, and what they did can be deleted for good."""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import pytest

from tertulia.core.errors import TertuliaError, UsageError
from tertulia.store import ConversationStore, Database, NotFound, StudyStore
from tertulia.store.study_records import (
    AssignmentEnded,
    NotYours,
    ParticipantWithdrawn,
    StudyFull,
    StudyNotOpen,
    UnitCandidate,
)

AtOnce = Callable[[Sequence[Callable[[], Any]]], list[Any]]
Rows = Callable[[str, str], list[tuple[Any, ...]]]
MARKER = "quixotic-marker-text"


class Clock(Protocol):
    """A clock that tests set."""

    time: datetime

    def __call__(self) -> datetime: ...

    def advance(self, seconds: float) -> None: ...


def first(candidates: list[UnitCandidate]) -> str | None:
    return candidates[0].id if candidates else None


def enroll(studies: StudyStore, study: str, name: str = "p1") -> str:
    return studies.enroll(study, "prolific", name)[0].id


def test_the_same_identity_is_the_same_participant(studies: StudyStore, study: str, url: str, rows: Rows) -> None:
    participant, token = studies.enroll(study, "prolific", "5f3a", {"session": "s1"})
    again, second = studies.enroll(study, "prolific", "5f3a", {"session": "s2"})
    assert again == participant
    assert token != second
    assert studies.participant(token) == studies.participant(second) == participant
    assert studies.enroll(study, "mturk", "5f3a")[0].id != participant.id
    assert (participant.study, participant.source, participant.step, participant.data) == (
        study,
        "prolific",
        "consent",
        {},
    )
    stored = {value for (value,) in rows(url, "SELECT sha256 FROM participant_tokens")}
    assert len(stored) == 3
    assert not stored & {token, second}
    for forged in ("", "x", token[:-1], participant.id, "\udc80"):
        with pytest.raises(NotFound):
            studies.participant(forged)


def test_one_identity_from_several_threads_is_one_participant(studies: StudyStore, study: str, at_once: AtOnce) -> None:
    for name in ("a", "b", "c"):
        outcomes = at_once([lambda name=name: studies.enroll(study, "prolific", name)] * 6)
        assert len({participant.id for participant, _ in outcomes}) == 1
        assert len({token for _, token in outcomes}) == 6
    assert len(studies.participants(study)) == 3


def test_a_full_study_takes_nobody_new(studies: StudyStore, study: str, at_once: AtOnce) -> None:
    outcomes = at_once([lambda n=n: studies.enroll(study, "link", f"p{n}", limit=3) for n in range(8)])
    enrolled = [outcome[0] for outcome in outcomes if not isinstance(outcome, Exception)]
    assert len(enrolled) == 3
    assert sum(isinstance(outcome, StudyFull) for outcome in outcomes) == 5
    identity = studies.identity(enrolled[0].id)
    assert identity is not None
    assert studies.enroll(study, "link", identity.external_id, limit=3)[0] == enrolled[0]
    studies.set_step(enrolled[0].id, "screened_out")
    studies.withdraw(enrolled[1].id)
    for name in ("q1", "q2"):
        studies.enroll(study, "link", name, limit=3)
    with pytest.raises(StudyFull):
        studies.enroll(study, "link", "q3", limit=3)


def test_drafts_enroll_nobody(studies: StudyStore) -> None:
    with pytest.raises(StudyNotOpen, match="draft"):
        studies.enroll(studies.create("draft", {}, "d").id, "link", "p")


def test_consent_steps_and_completion_are_recorded(studies: StudyStore, study: str, clock: Clock) -> None:
    participant = enroll(studies, study)
    clock.advance(5)
    agreed = studies.consent(participant, "v1", "de")
    assert (agreed.consent_version, agreed.consented, agreed.language) == ("v1", clock.time, "de")
    clock.advance(5)
    assert studies.consent(participant, "v1", "es") == agreed  # the first time counts
    stepped = studies.set_step(participant, "training", {"attempts": 1})
    assert (stepped.step, stepped.data, stepped.seen) == ("training", {"attempts": 1}, clock.time)
    assert studies.set_step(participant, "work").data == {"attempts": 1}
    with pytest.raises(UsageError, match="withdraw"):
        studies.set_step(participant, "withdrawn")
    clock.advance(5)
    studies.touch(participant)
    assert studies.participants(study)[0].seen == clock.time
    done = studies.complete(participant, "CODE1")
    assert (done.step, done.code, done.completed) == ("done", "CODE1", clock.time)
    clock.advance(5)
    assert studies.complete(participant, "CODE1") == done
    with pytest.raises(TertuliaError, match="another completion code"):
        studies.complete(participant, "CODE2")
    assert [event.what for event in studies.events(study) if event.who == participant] == ["consent", "completed"]


def test_dropouts_are_counted_by_step(studies: StudyStore, study: str, clock: Clock) -> None:
    for name, step in (("p1", "training"), ("p2", "work"), ("p3", "done"), ("p4", "work")):
        studies.set_step(enroll(studies, study, name), step)
    clock.advance(3601)
    studies.touch(enroll(studies, study, "p4"))
    progress = studies.progress(study)
    assert progress.by_step == {"training": 1, "work": 2, "done": 1}
    assert progress.dropped_out == {"training": 1, "work": 1}


def test_identities_are_in_no_row_and_can_be_erased(studies: StudyStore, study: str, url: str, rows: Rows) -> None:
    participant = studies.enroll(study, "prolific", f"{MARKER}-pid", {"session": f"{MARKER}-sid"})[0].id
    assignment = studies.lease_unit(study, participant, first, 60)
    assert assignment is not None
    studies.add_labels(assignment.id, participant, [("unit", "q", 1)], key="1")
    studies.submit(assignment.id, participant)
    (row,) = studies.rows(study)
    assert row.participant == participant
    assert MARKER not in repr([asdict(row), studies.participants(study), studies.events(study)])
    assert len(rows(url, "SELECT * FROM identities")) == 1
    assert studies.erase_identity(participant)
    assert not studies.erase_identity(participant)
    assert studies.identity(participant) is None
    assert rows(url, "SELECT * FROM identities") == []
    assert list(studies.rows(study)) == [row]  # the ratings stay
    if url.startswith("sqlite"):
        assert_no_file_contains(url, MARKER)


def assert_no_file_contains(url: str, text: str) -> None:
    files = list(Path(url.removeprefix("sqlite:///")).parent.glob("chat.db*"))
    assert files
    assert [file.name for file in files if text.encode() in file.read_bytes()] == []


def work(studies: StudyStore, store: ConversationStore, study: str, participant: str, text: str) -> str:
    """Lease a unit, chat, label and submit; returns the conversation."""
    assignment = studies.lease_unit(study, participant, first, 60)
    assert assignment is not None
    owner = f"study:{study}"
    conversation = store.create(owner, "a", title=text).id
    studies.attach_conversation(assignment.id, conversation)
    exchange = store.say(conversation, owner, f"message {text}", key="k")
    turn = store.finish(exchange.bot.id, text=f"reply {text}", status="done", reply={"note": text})
    studies.add_labels(assignment.id, participant, [(f"turn:{turn.id}", "why", f"label {text}")], key="1")
    studies.submit(assignment.id, participant, {"comment": text})
    return conversation


def test_withdrawal_deletes_everything_and_frees_the_unit(
    studies: StudyStore, store: ConversationStore, study: str, url: str, rows: Rows
) -> None:
    participant, token = studies.enroll(study, "prolific", f"pid {MARKER}", {"session": MARKER})
    other = enroll(studies, study, "p2")
    studies.consent(participant.id, "v1", "en")
    studies.set_step(participant.id, "work", {"note": MARKER})
    studies.record_event(study, participant.id, "flagged", {"text": MARKER})
    conversation = work(studies, store, study, participant.id, MARKER)
    kept = work(studies, store, study, other, "kept")
    assert [unit.done for unit in studies.progress(study).units] == [2, 0, 0]
    assert studies.withdraw(participant.id) == (conversation,)
    assert studies.withdraw(participant.id) == ()

    assert [unit.done for unit in studies.progress(study).units] == [1, 0, 0]
    assert [row.participant for row in studies.rows(study)] == [other]
    with pytest.raises(NotFound):
        store.get(conversation, f"study:{study}")
    assert store.get(kept, f"study:{study}").turns[1].text == "reply kept"
    assert studies.participant(token).step == "withdrawn"
    assert studies.identity(participant.id) is None
    events = [(event.what, event.detail) for event in studies.events(study) if event.who == participant.id]
    assert sorted(events) == [("consent", None), ("flagged", None), ("withdrawn", None)]
    for query in ("identities", "labels", "assignments", "participants", "study_events", "turns", "conversations"):
        assert MARKER not in repr(rows(url, f"SELECT * FROM {query}"))
    if url.startswith("sqlite"):
        assert_no_file_contains(url, MARKER)
    third = enroll(studies, study, "p3")
    assignment = studies.lease_unit(study, third, first, 60)
    assert assignment is not None
    assert assignment.unit == "u0"


def test_the_marker_is_in_the_file_before_the_withdrawal(sqlite_url: str, tmp_path: Path) -> None:
    """The check for deleted text can fail."""
    with Database.open(sqlite_url) as database:
        studies, store = StudyStore(database), ConversationStore(database)
        study = studies.create("pilot", {}, "d").id
        studies.add_units(study, [("u", ["a"], {}, 1)])
        studies.set_state(study, "open", "ada")
        participant = enroll(studies, study)
        work(studies, store, study, participant, MARKER)
        with pytest.raises(AssertionError):
            assert_no_file_contains(sqlite_url, MARKER)
        studies.withdraw(participant)
        assert_no_file_contains(sqlite_url, MARKER)


def test_who_has_withdrawn_can_do_nothing_more(studies: StudyStore, study: str) -> None:
    participant = enroll(studies, study)
    assignment = studies.lease_unit(study, participant, first, 60)
    assert assignment is not None
    studies.withdraw(participant)
    refused: list[Callable[[], object]] = [
        lambda: studies.consent(participant, "v1", "en"),
        lambda: studies.set_step(participant, "work"),
        lambda: studies.lease_unit(study, participant, first, 60),
        lambda: studies.complete(participant, "CODE"),
        lambda: studies.join_waiting(study, participant),
        lambda: studies.erase_identity(participant),
    ]
    for call in refused:
        with pytest.raises(ParticipantWithdrawn):
            call()
    with pytest.raises(NotFound):
        studies.add_labels(assignment.id, participant, [("unit", "q", 1)], key="1")
    with pytest.raises(NotFound):
        studies.withdraw("0" * 32)
    assert enroll(studies, study) != participant  # nobody knows that it is the same person


def test_withdrawing_while_labelling_leaves_no_label(
    studies: StudyStore, study: str, at_once: AtOnce, url: str, rows: Rows
) -> None:
    for number in range(8):
        participant = enroll(studies, study, f"p{number}")
        assignment = studies.lease_unit(study, participant, first, 60)
        assert assignment is not None
        id_ = assignment.id
        outcomes = at_once(
            [
                lambda p=participant: studies.withdraw(p),
                *(
                    lambda k=k, p=participant, a=id_: studies.add_labels(a, p, [("unit", "q", k)], key=str(k))
                    for k in range(4)
                ),
                lambda p=participant, a=id_: studies.submit(a, p),
                lambda p=participant: studies.lease_unit(study, p, first, 60),
            ]
        )
        refused = (NotFound, ParticipantWithdrawn, AssignmentEnded)  # and no deadlock, which would be a StoreError
        assert [one for one in outcomes if isinstance(one, Exception) and not isinstance(one, refused)] == []
        assert outcomes[0] == ()
    assert rows(url, "SELECT * FROM labels") == rows(url, "SELECT * FROM assignments") == []


# Two people who talk with each other.


def test_the_two_who_waited_longest_are_paired(
    studies: StudyStore, store: ConversationStore, study: str, clock: Clock
) -> None:
    vanished, one, two, three = (enroll(studies, study, name) for name in ("p0", "p1", "p2", "p3"))
    studies.join_waiting(study, vanished)
    clock.advance(10)
    assert studies.match(study) is None  # alone
    since = studies.join_waiting(study, one, "u0").since
    clock.advance(10)
    studies.join_waiting(study, two)
    clock.advance(1)
    studies.join_waiting(study, three)
    assert studies.join_waiting(study, one, "u0").since == since
    pair = studies.match(study)
    assert pair is not None
    assert [(member.participant, member.role) for member in pair.members] == [(one, "A"), (two, "B")]
    assert pair.partner(one).participant == two
    assert studies.match(study) is None  # the one who has closed the page is not matched
    assert studies.join_waiting(study, one).pair == studies.pair_of(two) == pair
    assert (store.head(pair.conversation, pair.owner).bot, pair.member(one).unit) == ("human", "u0")
    clock.advance(1)
    assert studies.join_waiting(study, vanished).since == clock.time  # waits anew
    last = studies.match(study)
    assert last is not None
    assert [member.participant for member in last.members] == [three, vanished]


def test_waiting_can_be_left(studies: StudyStore, study: str) -> None:
    one, two = enroll(studies, study), enroll(studies, study, "p2")
    studies.join_waiting(study, one)
    studies.join_waiting(study, two)
    assert studies.leave_waiting(one)
    assert not studies.leave_waiting(one)
    assert studies.match(study) is None


def paired(studies: StudyStore, study: str) -> tuple[str, str, str]:
    one, two = enroll(studies, study, "left"), enroll(studies, study, "right")
    studies.join_waiting(study, one)
    studies.join_waiting(study, two)
    pair = studies.match(study)
    assert pair is not None
    return pair.members[0].participant, pair.members[1].participant, pair.conversation


def test_presence_and_departure_are_seen_by_the_partner(studies: StudyStore, study: str, clock: Clock) -> None:
    one, two, conversation = paired(studies, study)
    stranger = enroll(studies, study, "p9")
    clock.advance(30)
    pair = studies.mark_present(conversation, one)
    assert (pair.member(one).seen, pair.partner(one).seen < clock.time) == (clock.time, True)
    for call in (studies.mark_present, studies.depart, studies.pair):
        with pytest.raises(NotYours):
            call(conversation, stranger)
    with pytest.raises(NotYours):
        studies.pair("0" * 32)
    left = studies.depart(conversation, one)
    assert left.member(one).departed == clock.time
    assert studies.pair(conversation, two).partner(two).departed == clock.time
    assert studies.pair_of(two) is None
    assert studies.join_waiting(study, two).pair is None  # free for another partner


def test_people_write_turns_without_a_bot(studies: StudyStore, store: ConversationStore, study: str) -> None:
    one, two, conversation = paired(studies, study)
    pair = studies.pair(conversation, one)
    opened = store.add_turn(conversation, pair.member(one).role, "hello", key="1")
    assert store.add_turn(conversation, pair.member(one).role, "hello", key="1") == opened
    answered = store.add_turn(conversation, pair.member(two).role, "hi", key="1")  # keys are a speaker's own
    with pytest.raises(UsageError, match="another message"):
        store.add_turn(conversation, "A", "something else", key="1")
    with pytest.raises(NotFound):
        store.add_turn("0" * 32, "A", "hello", key="1")

    def refuse(turns: Sequence[Any]) -> None:
        assert [turn.text for turn in turns] == ["hello", "hi"]
        raise TertuliaError("It is not your turn.")

    with pytest.raises(TertuliaError, match="not your turn"):
        store.add_turn(conversation, "B", "more", key="2", admit=refuse)
    turns = store.get(conversation, pair.owner).turns
    assert turns == (opened, answered)
    assert [(turn.speaker, turn.text, turn.position, turn.status) for turn in turns] == [
        ("A", "hello", 0, "done"),
        ("B", "hi", 1, "done"),
    ]
    assert store.summaries(pair.owner)[0].turns == 2


def test_turns_of_two_people_at_once_get_distinct_positions(
    studies: StudyStore, store: ConversationStore, study: str, at_once: AtOnce
) -> None:
    _, _, conversation = paired(studies, study)
    calls = [lambda n=n: store.add_turn(conversation, "AB"[n % 2], f"m{n}", key=str(n // 4)) for n in (0, 1, 4, 5)]
    outcomes = at_once(calls * 3)
    assert len({turn.id for turn in outcomes}) == 4
    assert sorted({turn.position for turn in outcomes}) == [0, 1, 2, 3]


def test_withdrawal_deletes_the_conversation_with_the_partner(
    studies: StudyStore, store: ConversationStore, study: str, url: str
) -> None:
    one, two, conversation = paired(studies, study)
    turns = {role: store.add_turn(conversation, role, f"{MARKER} {role}", key="1") for role in "AB"}
    for participant, role in ((one, "B"), (two, "A")):
        assignment = studies.lease_unit(study, participant, first, 60)
        assert assignment is not None
        studies.attach_conversation(assignment.id, conversation)
        about = [(f"turn:{turns[role].id}", "q", MARKER), ("unit", "enjoyed", 4)]
        studies.add_labels(assignment.id, participant, about, key="1")
        studies.submit(assignment.id, participant)
    assert len(list(studies.rows(study))) == 4
    assert studies.withdraw(one) == (conversation,)
    (row,) = studies.rows(study)
    assert (row.participant, row.question, row.conversation) == (two, "enjoyed", None)
    assert studies.pair_of(two) is None
    if url.startswith("sqlite"):
        assert_no_file_contains(url, MARKER)


MATCHER = """
import sys, time
from tertulia.store import Database, StudyStore

with Database.open(sys.argv[1]) as database:
    studies = StudyStore(database)
    print("ready", flush=True)
    sys.stdin.readline()
    for participant in sys.argv[3:]:
        studies.join_waiting(sys.argv[2], participant)
        studies.match(sys.argv[2])
    while studies.match(sys.argv[2]):
        pass
"""


def test_two_processes_never_put_anybody_into_two_pairs(
    database: Database, url: str, rows: Rows, python: Callable[..., subprocess.Popen[str]]
) -> None:
    studies = StudyStore(database)
    study = studies.create("pairs", {}, "d").id
    studies.set_state(study, "open", "ada")
    people = [enroll(studies, study, f"p{n}") for n in range(40)]
    processes = [python(MATCHER, url, study, *people[start::2]) for start in (0, 1)]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait(60) for process in processes] == [0, 0]
    members = rows(url, "SELECT conversation, participant FROM members")
    assert sorted(participant for _, participant in members) == sorted(people)  # each exactly once
    assert len({conversation for conversation, _ in members}) == 20
