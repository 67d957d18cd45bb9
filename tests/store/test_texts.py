"""Texts and records of replies: stored exactly or refused clearly, and erased completely."""

import contextlib
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tertulia.core.dialogue import Persona
from tertulia.core.errors import UsageError
from tertulia.store import ConversationStore, Database

OWNER = "ada"
Rows = Callable[[str, str], list[tuple[Any, ...]]]

TEXTS = {
    "emoji": "👩\u200d👩\u200d👧 says 👋🏽 and 🇪🇸",
    "right to left": "שלום עולם \u200fمرحبا\u202e",
    "16k": "naïve façade – 茶 " * 1000,
    "16k emoji": "🙂" * 16_000,
    "white space": " \t leading and trailing \n\n",
    "quotes": """'; DROP TABLE turns; -- " \\ %s :name ?""",
    "empty": "",
    "private use and end of the planes": "\ue000\U0010ffff\ufffe",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_texts_are_stored_exactly(store: ConversationStore, conversation: str, text: str) -> None:
    exchange = store.say(conversation, OWNER, text, key="k", bot="tfidf")
    store.finish(exchange.bot.id, text=text, status="failed", error=text, reply={"note": text, text: 1})
    user, bot = store.get(conversation, OWNER).turns
    assert user.text == bot.text == bot.error == text
    assert bot.reply == {"note": text, text: 1}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(text=st.text(), reply=st.dictionaries(st.text(), json_values, max_size=3))
def test_any_text_is_stored_exactly_or_refused(store: ConversationStore, text: str, reply: dict[str, Any]) -> None:
    conversation = store.create(OWNER, "tfidf").id
    storable = "\0" not in text and not contains_nul(reply)
    with contextlib.nullcontext() if storable else pytest.raises(UsageError):
        exchange = store.say(conversation, OWNER, text, key="k", bot="tfidf")
        store.finish(exchange.bot.id, text=text, status="done", reply=reply)
        user, bot = store.get(conversation, OWNER).turns
        assert (user.text, bot.text, bot.reply) == (text, text, reply)


def contains_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any(contains_nul(part) for item in value.items() for part in item)
    return any(map(contains_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


@pytest.mark.parametrize("bad", ["a\0b", "half \ud83d"], ids=["NUL", "surrogate"])
def test_unstorable_text_is_refused_before_it_reaches_the_database(
    store: ConversationStore, conversation: str, bad: str
) -> None:
    exchange = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    for attempt in (
        lambda: store.say(conversation, OWNER, bad, key="k2", bot="tfidf"),
        lambda: store.say(conversation, OWNER, "fine", key=bad, bot="tfidf"),
        lambda: store.say(conversation, OWNER, "fine", key="k2", bot=bad),
        lambda: store.say(conversation, bad, "fine", key="k2", bot="tfidf"),
        lambda: store.finish(exchange.bot.id, text=bad, status="done"),
        lambda: store.finish(exchange.bot.id, text="", status="failed", error=bad),
        lambda: store.finish(exchange.bot.id, text="fine", status="done", reply={"candidates": [{"text": bad}]}),
        lambda: store.finish(exchange.bot.id, text="fine", status="done", reply={bad: 1}),
        lambda: store.create(OWNER, "tfidf", title=bad),
        lambda: store.create(OWNER, "tfidf", Persona((bad,))),
        lambda: store.update(conversation, OWNER, title=bad),
        lambda: store.update(conversation, OWNER, persona=Persona((bad,))),
    ):
        with pytest.raises(UsageError, match="cannot be stored") as caught:
            attempt()
        assert "clean" in caught.value.hint
    assert store.get(conversation, OWNER, history=True).turns == (exchange.user, exchange.bot)


@pytest.mark.parametrize("bad", ["", "x" * 201])
def test_names_that_are_empty_or_too_long_are_refused(store: ConversationStore, conversation: str, bad: str) -> None:
    with pytest.raises(UsageError, match="1 to 200 characters"):
        store.say(conversation, OWNER, "hello", key=bad, bot="tfidf")
    with pytest.raises(UsageError, match="1 to 200 characters"):
        store.create(bad, "tfidf")


def test_nan_and_infinity_become_null(store: ConversationStore, conversation: str) -> None:
    exchange = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    scores = {"score": float("nan"), "candidates": ({"score": float("-inf")}, {"score": -0.5})}
    ended = store.finish(exchange.bot.id, text="hi", status="done", reply=scores)
    assert ended.reply == {"score": None, "candidates": [{"score": None}, {"score": -0.5}]}
    assert store.get(conversation, OWNER).turns[1] == ended


def test_values_that_are_not_json_are_refused(store: ConversationStore, conversation: str) -> None:
    exchange = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    with pytest.raises(UsageError, match="datetime"):
        store.finish(exchange.bot.id, text="hi", status="done", reply={"when": datetime.now(UTC)})


SECRET = "the treasure lies under the old oak"


def fill(store: ConversationStore, owner: str) -> str:
    conversation = store.create(owner, "tfidf", Persona((SECRET,)), SECRET).id
    for number in range(5):
        exchange = store.say(conversation, owner, f"{SECRET} {number}", key=f"k{number}", bot="tfidf")
        store.finish(exchange.bot.id, text=SECRET, status="done", reply={"note": SECRET})
    exchange = store.regenerate(conversation, owner, key="again", bot="tfidf")
    store.finish(exchange.bot.id, text=SECRET, status="done")
    store.undo(conversation, owner)
    return conversation


def test_erasing_a_conversation_leaves_no_row(store: ConversationStore, url: str, rows: Rows) -> None:
    gone, kept = fill(store, OWNER), fill(store, OWNER)
    store.erase(gone, OWNER)
    assert {row[0] for row in rows(url, "SELECT id FROM conversations")} == {kept}
    assert {row[0] for row in rows(url, "SELECT conversation FROM turns")} == {kept}
    assert len(store.get(kept, OWNER, history=True).turns) == 11


def test_erasing_an_owner_leaves_none_of_their_rows(store: ConversationStore, url: str, rows: Rows) -> None:
    fill(store, OWNER), fill(store, OWNER), fill(store, "bob")
    assert store.erase_owner(OWNER) == 2
    assert store.erase_owner(OWNER) == 0
    assert store.summaries(OWNER) == []
    assert rows(url, "SELECT DISTINCT owner FROM conversations") == [("bob",)]
    assert rows(url, "SELECT count(*) FROM turns") == [(11,)]


def test_erased_text_is_gone_from_the_files(sqlite_url: str, tmp_path: Path) -> None:
    with Database.open(sqlite_url) as database:
        store = ConversationStore(database)
        fill(store, OWNER)
        assert any(SECRET.encode() in file.read_bytes() for file in tmp_path.glob("chat.db*"))
        store.erase_owner(OWNER)
        assert not any(SECRET.encode() in file.read_bytes() for file in tmp_path.glob("chat.db*"))


def test_a_reader_cannot_block_erasure(sqlite_url: str, tmp_path: Path) -> None:
    with (
        Database.open(sqlite_url) as database,
        contextlib.closing(sqlite3.connect(tmp_path / "chat.db")) as reader,
    ):
        store = ConversationStore(database)
        fill(store, OWNER)
        reader.execute("BEGIN")
        before = reader.execute("SELECT count(*) FROM turns").fetchone()
        started = time.monotonic()
        assert store.erase_owner(OWNER) == 1
        assert time.monotonic() - started < 5
        assert reader.execute("SELECT count(*) FROM turns").fetchone() == before == (11,)
        reader.rollback()
        assert reader.execute("SELECT count(*) FROM turns").fetchone() == (0,)
