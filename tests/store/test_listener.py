"""Servers learn of each other's progress: by notifications on PostgreSQL, by looking on SQLite."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tertulia.core.errors import UsageError
from tertulia.store import ConversationStore, Database, Notices, listener
from tertulia.store.listener import IDS_PER_NOTIFICATION

OWNER = "ada"
Rows = Callable[[str, str], list[tuple[Any, ...]]]


class RecordedTurns:
    """Collects notifications."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.change = threading.Condition()

    def __call__(self, ids: set[str]) -> None:
        with self.change:
            self.ids |= ids
            self.change.notify_all()

    def wait_for(self, *ids: str) -> bool:
        with self.change:
            return self.change.wait_for(lambda: self.ids >= set(ids), 20)


def wait_for_listener(url: str, rows: Rows, *, count: int = 1) -> None:
    query = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'"
    deadline = time.monotonic() + 20
    while len(rows(url, query)) < count:
        assert time.monotonic() < deadline, "nobody listens"


def test_progress_is_read_by_other_servers(url: str) -> None:
    with Database.open(url) as one, Database.open(url) as two:
        writer, reader = ConversationStore(one), ConversationStore(two)
        exchange = writer.say(writer.create(OWNER, "tfidf").id, OWNER, "hello", key="k")
        for text in ("I", "I am"):
            assert writer.save_progress({exchange.bot.id: text}) == {}
            turn = reader.progress([exchange.bot.id, "0" * 32])[exchange.bot.id]
            assert (turn.status, turn.text) == ("pending", text)
        stopped = reader.finish(exchange.bot.id, text=None, status="stopped")
        assert (stopped.status, stopped.text) == ("stopped", "I am")
        assert writer.save_progress({exchange.bot.id: "I am not"}) == {exchange.bot.id: stopped}
        reader.erase_owner(OWNER)
        assert writer.save_progress({exchange.bot.id: "I am not"}) == {exchange.bot.id: None}


def test_sqlite_has_no_notifications(sqlite_url: str) -> None:
    with Database.open(sqlite_url) as database:
        assert ConversationStore(database).listen(lambda _: None) is None


def test_postgresql_notifies_of_progress(postgresql_url: str, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "RETRY_SECONDS", 0.05)
    with Database.open(postgresql_url) as one, Database.open(postgresql_url) as two:
        writer, recorded = ConversationStore(one), RecordedTurns()
        listener_ = ConversationStore(two).listen(recorded)
        assert listener_ is not None
        conversation = writer.create(OWNER, "tfidf").id

        def save(number: int) -> list[str]:
            replies = [writer.say(conversation, OWNER, "m", key=f"{number} {n}").bot.id for n in range(3)]
            wait_for_listener(postgresql_url, rows)
            writer.save_progress(dict.fromkeys(replies, "hi"))
            return replies

        assert recorded.wait_for(*save(1))
        rows(postgresql_url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
        assert recorded.wait_for(*save(2))  # it has connected again
        listener_.close()


def test_many_replies_fit_into_several_notifications(postgresql_url: str, rows: Rows) -> None:
    with Database.open(postgresql_url) as database:
        store, recorded = ConversationStore(database), RecordedTurns()
        listener_ = store.listen(recorded)
        assert listener_ is not None
        wait_for_listener(postgresql_url, rows)
        unknown = [f"{number:032}" for number in range(IDS_PER_NOTIFICATION + 50)]
        assert store.save_progress(dict.fromkeys(unknown, "hi")) == dict.fromkeys(unknown)
        assert recorded.wait_for(*unknown)
        listener_.close()


def fail(_topic: str, _message: dict[str, Any]) -> None:
    raise RuntimeError("a subscriber's bug")


def test_notices_reach_all_subscribers(url: str, rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
    """On PostgreSQL also those of another server; on SQLite those of the same process."""
    with Database.open(url) as one, Database.open(url) as two:
        sender = Notices(one)
        receiver = sender if one.is_sqlite else Notices(two)
        recorded: list[tuple[str, dict[str, Any]]] = []
        change = threading.Condition()

        def record(topic: str, message: dict[str, Any]) -> None:
            with change:
                recorded.append((topic, message))
                change.notify_all()

        receiver.subscribe(fail)
        unsubscribe = receiver.subscribe(record)
        if not one.is_sqlite:
            wait_for_listener(url, rows, count=2)
        sender.notify("c1", {"kind": "typing", "role": "Ä"})
        sender.notify("c2", {"kind": "turn", "id": "t"})
        with change:
            assert change.wait_for(lambda: len(recorded) == 2, 20)
        assert recorded == [("c1", {"kind": "typing", "role": "Ä"}), ("c2", {"kind": "turn", "id": "t"})]
        assert "A subscriber failed" in caplog.text
        unsubscribe()
        with pytest.raises(UsageError, match="too long"):
            sender.notify("c1", {"text": "x" * 8_000})
        for notices in {sender, receiver}:
            notices.close()
