"""Long conversations and long lists: pages, and a cost per message that does not grow."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import CursorResult, Engine, event

from tertulia.core.errors import UsageError
from tertulia.store import ConversationStore, Database, NotFound
from tertulia.store.context_cache import ContextCache
from tertulia.store.engine import driver
from tertulia.store.prepared import Prepared

OWNER = "ada"


def exchange(store: ConversationStore, conversation: str, number: int) -> None:
    added = store.say(conversation, OWNER, f"m{number}", key=f"k{number}")
    store.finish(added.bot.id, text=f"r{number}", status="done", reply={"seconds": 0.1})


@dataclass
class Cost:
    statements: int = 0
    rows: int = 0


@contextmanager
def counting(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cost]:
    """Count the statements, those that go to SQLite's driver directly too, and the rows that they return."""
    cost = Cost()
    is_sqlite = engine.dialect.name == "sqlite"
    prepared_rows, prepared_run = Prepared.rows, Prepared.run

    def count(*_: Any) -> None:
        cost.statements += 1

    fetch = CursorResult._fetchall_impl

    def count_rows(result: Any) -> Any:
        rows = fetch(result)
        cost.rows += len(rows)
        return rows

    def count_prepared_rows(*args: Any) -> Any:
        rows = prepared_rows(*args)
        cost.statements += is_sqlite
        cost.rows += len(rows) if is_sqlite else 0
        return rows

    def count_prepared_run(*args: Any) -> None:
        prepared_run(*args)
        cost.statements += is_sqlite

    with monkeypatch.context() as patch:
        patch.setattr(Prepared, "rows", count_prepared_rows)
        patch.setattr(Prepared, "run", count_prepared_run)
        patch.setattr(CursorResult, "_fetchall_impl", count_rows)
        event.listen(engine, "before_cursor_execute", count)
        yield cost
        event.remove(engine, "before_cursor_execute", count)


def test_the_cost_of_a_message_does_not_grow_with_its_conversation(
    store: ConversationStore, database: Database, conversation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = []
    for number in range(300):
        with counting(database.engine, monkeypatch) as cost:
            exchange(store, conversation, number)
        costs.append((cost.statements, cost.rows))
    assert costs[1] == costs[150] == costs[299]
    assert costs[299][0] <= 6
    # The conversation, the reply to the previous message, and the finished turn; all before these is cached.
    assert costs[299][1] == 3
    assert len(store.say(conversation, OWNER, "last", key="last").context) == 600


def test_the_work_of_sqlite_does_not_grow_either(sqlite_url: str) -> None:
    """Fixed rows and statements are not enough: a statement may look through a conversation to find its few rows."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    costs = []
    with Database.open(sqlite_url) as database:
        store = ConversationStore(database)
        conversation = store.create(OWNER, "tfidf").id
        database.write(lambda connection: driver(connection).set_progress_handler(count, 1))
        for number in range(80):
            steps = 0
            exchange(store, conversation, number)
            costs.append(steps)
    assert costs[1] > 0
    assert costs[79] <= 1.1 * costs[1]


def test_regenerating_costs_the_same_in_a_long_conversation(
    store: ConversationStore, database: Database, conversation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        exchange(store, conversation, number)
    for attempt in range(3):
        with counting(database.engine, monkeypatch) as cost:
            again = store.regenerate(conversation, OWNER, key=f"again{attempt}")
        assert cost.rows <= 3  # the conversation, the reply, and its latest attempt
        assert [turn.text for turn in again.context] == [f"{who}{n}" for n in range(49) for who in "mr"]
        store.finish(again.bot.id, text=f"better{attempt}", status="done")
    with counting(database.engine, monkeypatch) as cost:
        context = store.say(conversation, OWNER, "thanks", key="thanks").context
    assert cost.rows <= 2
    assert context[-1].text == "better2"


def test_the_context_is_right_whoever_changed_the_conversation(url: str) -> None:
    with Database.open(url) as one, Database.open(url) as two:
        first, second = ConversationStore(one), ConversationStore(two)
        conversation = first.create(OWNER, "tfidf").id

        def check() -> None:
            expected = [turn.text for turn in first.get(conversation, OWNER).turns]
            for store in (first, second):
                said = store.say(conversation, OWNER, f"{len(expected)}", key=f"{store} {len(expected)}")
                assert [turn.text for turn in said.context] == expected
                store.finish(said.bot.id, text="ok", status="done")
                expected += [said.user.text, "ok"]

        check()
        exchange(second, conversation, 1)
        check()
        second.undo(conversation, OWNER)
        check()
        again = second.regenerate(conversation, OWNER, key="again")
        second.finish(again.bot.id, text="better", status="done")
        check()
        pending = second.say(conversation, OWNER, "wait", key="wait")
        assert first.say(conversation, OWNER, "well?", key="well").context[-1].status == "pending"
        second.finish(pending.bot.id, text="sorry", status="done")
        check()
        for _ in range(4):
            first.undo(conversation, OWNER)
        check()


def test_an_erased_conversation_is_not_remembered_by_its_id(store: ConversationStore) -> None:
    for _ in range(2):
        store.create(OWNER, "tfidf", id="mine")
        exchange(store, "mine", 1)
        assert len(store.say("mine", OWNER, "hello", key="k").context) == 2
        store.erase("mine", OWNER)
    store.create(OWNER, "tfidf", id="mine")
    assert store.erase_owner(OWNER) == 1


def test_the_cache_drops_what_was_used_least_recently(store: ConversationStore, database: Database) -> None:
    store._contexts = ContextCache(max_characters=3000)
    conversations = [store.create(OWNER, "tfidf").id for _ in range(4)]
    for number in range(3):
        for conversation in conversations:
            exchange(store, conversation, number)
    assert 0 < store._contexts._characters <= 3000
    for conversation in conversations:
        assert [turn.text for turn in store.say(conversation, OWNER, "now", key="now").context] == [
            "m0",
            "r0",
            "m1",
            "r1",
            "m2",
            "r2",
        ]
    store._contexts.forget(*conversations)
    assert store._contexts._characters == 0


def test_turns_come_in_pages_from_the_end(store: ConversationStore, conversation: str) -> None:
    for number in range(5):
        exchange(store, conversation, number)
    store.undo(conversation, OWNER)
    everything = store.get(conversation, OWNER).turns
    assert store.turns(conversation, OWNER) == everything
    last = store.turns(conversation, OWNER, limit=3)
    assert last == everything[-3:]
    earlier = store.turns(conversation, OWNER, limit=3, before=last[0].position)
    assert earlier + last == everything[-6:]
    assert store.turns(conversation, OWNER, limit=9, before=2) == everything[:2]
    assert store.turns(conversation, OWNER, before=0) == store.turns(conversation, OWNER, before=-5) == ()
    assert store.turns(conversation, OWNER, before=10**30) == everything
    assert store.last_reply(conversation, OWNER) == everything[-1]
    for wrong in (lambda: store.turns(conversation, "bob"), lambda: store.last_reply(conversation, "bob")):
        with pytest.raises(NotFound):
            wrong()
    with pytest.raises(UsageError, match="limit"):
        store.turns(conversation, OWNER, limit=-1)


def test_an_empty_conversation_has_no_last_reply(store: ConversationStore, conversation: str) -> None:
    assert store.last_reply(conversation, OWNER) is None
    assert store.turns(conversation, OWNER) == ()


def test_summaries_come_in_pages(store: ConversationStore) -> None:
    created = [store.create(OWNER, "tfidf", title=str(number)).id for number in range(7)]
    store.create("bob", "tfidf")
    pages, before = [], None
    while page := store.summaries(OWNER, limit=3, before=before):
        pages.append([line.id for line in page])
        before = page[-1].id
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [id_ for page in pages for id_ in page] == created[::-1]
    with pytest.raises(NotFound):
        store.summaries("bob", before=created[0])
    with pytest.raises(NotFound):
        store.summaries(OWNER, before="0" * 32)


def test_conversations_updated_at_the_same_moment_are_all_listed(
    store: ConversationStore, url: str, rows: Callable[[str, str], Any]
) -> None:
    created = {store.create(OWNER, "tfidf").id for _ in range(5)}
    rows(url, "UPDATE conversations SET updated = '2026-05-04 12:30:00.000000+00:00'")
    listed, before = [], None
    while page := store.summaries(OWNER, limit=2, before=before):
        listed += [line.id for line in page]
        before = page[-1].id
    assert (len(listed), set(listed)) == (5, created)


def test_summaries_count_the_current_turns(store: ConversationStore, conversation: str) -> None:
    for number in range(3):
        exchange(store, conversation, number)
    store.regenerate(conversation, OWNER, key="again")
    store.say(conversation, OWNER, "m2", key="k2")  # a repeated key
    assert store.summaries(OWNER)[0].turns == 6
    store.undo(conversation, OWNER)
    assert store.summaries(OWNER)[0].turns == 4 == len(store.get(conversation, OWNER).turns)
