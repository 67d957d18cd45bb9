from collections import defaultdict
from itertools import pairwise

import pytest

from tertulia import sample


def test_splits_cover_the_corpus() -> None:
    assert {d.id for s in sample.SPLITS for d in sample.dialogues(s)} == {d.id for d in sample.dialogues()}
    assert sum(len(sample.dialogues(s)) for s in sample.SPLITS) == len(sample.dialogues())
    assert sum(len(sample.personas(s)) for s in sample.SPLITS) == len(sample.personas())


@pytest.mark.parametrize("split", sample.SPLITS)
def test_dialogues_are_complete(split: sample.Split) -> None:
    people = {p.id: p for p in sample.personas(split)}
    for dialogue in sample.dialogues(split):
        assert set(dialogue.personas) == set(dialogue.speakers) == {"a", "b"}, dialogue.id
        assert all(people[p.id] == p for p in dialogue.personas.values()), dialogue.id
        assert all(a.speaker != b.speaker for a, b in pairwise(dialogue.turns)), dialogue.id
        assert 8 <= len(dialogue.turns) <= 16, dialogue.id
        assert all(t.text.strip() for t in dialogue.turns), dialogue.id


def test_dialogue_ids_are_unique() -> None:
    ids = [d.id for d in sample.dialogues()]
    assert len(ids) == len(set(ids)) >= 60


def test_the_forum_has_branching_threads() -> None:
    threads = defaultdict(list)
    for message in sample.messages():
        threads[message.thread].append(message)
    branching = [
        name for name, replies in threads.items() if len({m.parent for m in replies if m.parent}) < len(replies) - 1
    ]
    assert len(branching) >= 40


def test_chat_lines_answer_earlier_lines() -> None:
    days = sample.room()
    if not days:
        pytest.skip("the sample has no room")
    assert sum(len(day.lines) for day in days) >= 200
    for day in days:
        assert len(day.answers) == len(day.lines)
        assert all(0 <= earlier <= later for later, earlier in enumerate(day.answers)), day.day
        assert any(earlier < later for later, earlier in enumerate(day.answers)), day.day


def test_grounded_replies_have_evidence_and_all_labels() -> None:
    exchanges = sample.grounded()
    assert len(exchanges) >= 60
    assert {e.label for e in exchanges} == set(sample.LABELS)
    for exchange in exchanges:
        (evidence,), (previous,) = exchange.evidence, exchange.context
        assert evidence.text
        assert evidence.source
        assert previous.text
        assert exchange.response.text
