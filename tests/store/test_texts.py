"""Texts and what is known about replies: stored exactly, refused clearly, and erased wholly."""

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
from tertulia.store import Store

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
def test_texts_come_back_exactly(store: Store, conversation: str, text: str) -> None:
    said = store.say(conversation, OWNER, text, key="k", bot="tfidf")
    store.finish(said.bot.id, text=text, status="failed", error=text, reply={"note": text, text: 1})
    user, bot = store.conversation(conversation, OWNER).turns
    assert user.text == bot.text == bot.error == text
    assert bot.reply == {"note": text, text: 1}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(), reply=st.dictionaries(st.text(), json_values, max_size=3))
def test_any_text_is_stored_exactly_or_refused(store: Store, text: str, reply: dict[str, Any]) -> None:
    conversation = store.create_conversation(OWNER, "tfidf").id
    storable = "\0" not in text and not holds_nul(reply)
    with contextlib.nullcontext() if storable else pytest.raises(UsageError):
        said = store.say(conversation, OWNER, text, key="k", bot="tfidf")
        store.finish(said.bot.id, text=text, status="done", reply=reply)
        user, bot = store.conversation(conversation, OWNER).turns
        assert (user.text, bot.text, bot.reply) == (text, text, reply)


def holds_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any(holds_nul(part) for item in value.items() for part in item)
    return any(map(holds_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


@pytest.mark.parametrize("bad", ["a\0b", "half \ud83d"], ids=["NUL", "surrogate"])
def test_what_cannot_be_stored_is_refused_at_the_border(store: Store, conversation: str, bad: str) -> None:
    said = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    for attempt in (
        lambda: store.say(conversation, OWNER, bad, key="k2", bot="tfidf"),
        lambda: store.say(conversation, OWNER, "fine", key=bad, bot="tfidf"),
        lambda: store.say(conversation, OWNER, "fine", key="k2", bot=bad),
        lambda: store.say(conversation, bad, "fine", key="k2", bot="tfidf"),
        lambda: store.finish(said.bot.id, text=bad, status="done"),
        lambda: store.finish(said.bot.id, text="", status="failed", error=bad),
        lambda: store.finish(said.bot.id, text="fine", status="done", reply={"candidates": [{"text": bad}]}),
        lambda: store.finish(said.bot.id, text="fine", status="done", reply={bad: 1}),
        lambda: store.create_conversation(OWNER, "tfidf", title=bad),
        lambda: store.create_conversation(OWNER, "tfidf", Persona((bad,))),
        lambda: store.update_conversation(conversation, OWNER, title=bad),
        lambda: store.update_conversation(conversation, OWNER, persona=Persona((bad,))),
    ):
        with pytest.raises(UsageError, match="cannot be stored") as caught:
            attempt()
        assert "clean" in caught.value.hint
    assert store.conversation(conversation, OWNER, history=True).turns == (said.user, said.bot)


@pytest.mark.parametrize("bad", ["", "x" * 201])
def test_names_have_a_sensible_length(store: Store, conversation: str, bad: str) -> None:
    with pytest.raises(UsageError, match="1 to 200 characters"):
        store.say(conversation, OWNER, "hello", key=bad, bot="tfidf")
    with pytest.raises(UsageError, match="1 to 200 characters"):
        store.create_conversation(bad, "tfidf")


def test_no_reply_is_lost_over_a_number_that_is_none(store: Store, conversation: str) -> None:
    said = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    scores = {"score": float("nan"), "candidates": ({"score": float("-inf")}, {"score": -0.5})}
    ended = store.finish(said.bot.id, text="hi", status="done", reply=scores)
    assert ended.reply == {"score": None, "candidates": [{"score": None}, {"score": -0.5}]}
    assert store.conversation(conversation, OWNER).turns[1] == ended


def test_what_json_does_not_know_is_refused(store: Store, conversation: str) -> None:
    said = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    with pytest.raises(UsageError, match="datetime"):
        store.finish(said.bot.id, text="hi", status="done", reply={"when": datetime.now(UTC)})


SECRET = "the treasure lies under the old oak"


def fill(store: Store, owner: str) -> str:
    conversation = store.create_conversation(owner, "tfidf", Persona((SECRET,)), SECRET).id
    for number in range(5):
        said = store.say(conversation, owner, f"{SECRET} {number}", key=f"k{number}", bot="tfidf")
        store.finish(said.bot.id, text=SECRET, status="done", reply={"note": SECRET})
    said = store.regenerate(conversation, owner, key="again", bot="tfidf")
    store.finish(said.bot.id, text=SECRET, status="done")
    store.undo(conversation, owner)
    return conversation


def test_erasing_a_conversation_leaves_no_row(store: Store, url: str, rows: Rows) -> None:
    gone, kept = fill(store, OWNER), fill(store, OWNER)
    store.erase_conversation(gone, OWNER)
    assert {row[0] for row in rows(url, "SELECT id FROM conversations")} == {kept}
    assert {row[0] for row in rows(url, "SELECT conversation FROM turns")} == {kept}
    assert len(store.conversation(kept, OWNER, history=True).turns) == 11


def test_erasing_an_owner_leaves_no_row_of_theirs(store: Store, url: str, rows: Rows) -> None:
    fill(store, OWNER), fill(store, OWNER), fill(store, "bob")
    assert store.erase_owner(OWNER) == 2
    assert store.erase_owner(OWNER) == 0
    assert store.conversations(OWNER) == []
    assert rows(url, "SELECT DISTINCT owner FROM conversations") == [("bob",)]
    assert rows(url, "SELECT count(*) FROM turns") == [(11,)]


def test_erased_text_is_gone_from_the_files_too(sqlite_url: str, tmp_path: Path) -> None:
    with Store.open(sqlite_url) as store:
        fill(store, OWNER)
        assert any(SECRET.encode() in file.read_bytes() for file in tmp_path.glob("chat.db*"))
        store.erase_owner(OWNER)
        assert not any(SECRET.encode() in file.read_bytes() for file in tmp_path.glob("chat.db*"))


def test_a_reader_cannot_hold_up_an_erasure(sqlite_url: str, tmp_path: Path) -> None:
    with Store.open(sqlite_url) as store, contextlib.closing(sqlite3.connect(tmp_path / "chat.db")) as reader:
        fill(store, OWNER)
        reader.execute("BEGIN")
        before = reader.execute("SELECT count(*) FROM turns").fetchone()
        started = time.monotonic()
        assert store.erase_owner(OWNER) == 1
        assert time.monotonic() - started < 5
        assert reader.execute("SELECT count(*) FROM turns").fetchone() == before == (11,)
        reader.rollback()
        assert reader.execute("SELECT count(*) FROM turns").fetchone() == (0,)
