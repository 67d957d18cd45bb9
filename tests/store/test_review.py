"""What researchers read, and the audit log."""

from typing import Any

import pytest

from tertulia.store import ConversationStore, Database, NotFound, StudyStore
from tertulia.store.review import AuditLog, StudyReview, account_name
from tertulia.store.study_base import study_owner


def test_the_log_joins_studies_and_accounts_newest_first_in_pages(database: Database, study: str, clock: Any) -> None:
    log = AuditLog(database, now=clock)
    for n in range(6):
        clock.advance(1)
        log.record(account_name("ada"), f"act {n}", {"n": n}, study=study if n % 2 else None)
    first = log.entries(limit=4)
    assert [entry.what for entry in first] == ["act 5", "act 4", "act 3", "act 2"]
    assert [entry.study_name for entry in first] == ["pilot", None, "pilot", None]
    rest = log.entries(limit=100, before=first[-1].id)
    assert [entry.what for entry in rest[:2]] == ["act 1", "act 0"]
    assert {entry.what for entry in rest[2:]} == {"created", "state"}  # at the same time, before all others
    assert rest[1].detail == {"n": 0}
    with pytest.raises(NotFound):
        log.entries(before="nowhere")


def test_assignments_are_listed_newest_first_with_their_times(
    database: Database, studies: StudyStore, study: str, clock: Any
) -> None:
    review = StudyReview(database)
    ids = []
    for person in ("ann", "bob"):
        participant, _ = studies.enroll(study, "link", person)
        leased = studies.lease_unit(study, participant.id, lambda units: units[0].id, 600)
        assert leased is not None
        clock.advance(30)
        studies.submit(leased.id, participant.id)
        ids.append((leased.id, participant.id))
    assert [one.id for one in review.assignments(study)] == [ids[1][0], ids[0][0]]
    assert [one.id for one in review.assignments(study, before=ids[1][0])] == [ids[0][0]]
    assert [one.id for one in review.assignments(study, participant=ids[0][1])] == [ids[0][0]]
    times = review.times(study)
    assert [(one.id, (one.ended - one.created).total_seconds()) for one in times if one.ended] == [
        (ids[0][0], 30),
        (ids[1][0], 30),
    ]
    digests = review.identity_digests(study)
    assert set(digests) == {ids[0][1], ids[1][1]}
    assert "ann" not in str(digests)


def test_the_conversations_of_an_assignment_have_their_history(
    database: Database, studies: StudyStore, study: str
) -> None:
    participant, _ = studies.enroll(study, "link", "ann")
    leased = studies.lease_unit(study, participant.id, lambda units: units[0].id, 600)
    assert leased is not None
    store = ConversationStore(database)
    conversation = store.create(study_owner(study), "a").id
    studies.attach_conversation(leased.id, conversation)
    store.add_turn(conversation, "bot", "Hi!", key="1")
    (read,) = StudyReview(database).conversations(leased.id)
    assert [turn.text for turn in read.turns] == ["Hi!"]
    with pytest.raises(NotFound):
        StudyReview(database).conversations("nothing")
