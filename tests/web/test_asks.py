"""From stored turns to the ask for a bot, and from its reply to what is stored."""

import math
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tertulia.core.dialogue import Persona, Turn
from tertulia.core.reply import Candidate, Provenance, Reply
from tertulia.core.text import clean
from tertulia.store import ConversationStore, Database, StoredExchange
from tertulia.store.records import TurnEnd
from tertulia.web import asks
from tertulia.web.asks import AskBuilder, reply_record

OWNER = "ada"


class Kind(StrEnum):
    ODD = "odd"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ConversationStore]:
    with Database.open(f"sqlite:///{tmp_path / 'chat.db'}") as database:
        yield ConversationStore(database)


def expected(exchange: StoredExchange) -> tuple[Turn, ...]:
    shown = [turn for turn in (*exchange.context, exchange.user) if turn.status in ("done", "stopped") and turn.text]
    return tuple(Turn(turn.speaker, turn.text) for turn in shown)


def test_an_ask_has_the_dialogue_and_the_persona(store: ConversationStore) -> None:
    conversation = store.create(OWNER, "tfidf", Persona(("I sail.",))).id
    exchange = store.say(conversation, OWNER, "hello", key="k")
    ask = AskBuilder().ask_for(exchange)
    assert ask.dialogue.turns == (Turn("user", "hello"),)
    assert ask.dialogue.personas == {"bot": Persona(("I sail.",))}
    assert (ask.speaker, ask.attempt) == ("bot", 1)


@pytest.mark.parametrize("score", [0.5, float("nan"), np.float32(0.5), np.float64(0.5)])
@pytest.mark.parametrize("text", ["plain", 'a "quoted"\ttext', "café", "cafe\u0301", "a\x00b\x1b", "\ud800"])
@pytest.mark.parametrize("is_instant", [True, False])
def test_what_is_stored_of_a_reply_is_json_and_the_turn_that_comes_back_has_the_same(
    store: ConversationStore, score: Any, text: str, is_instant: bool
) -> None:
    settings: Any = {"stop": ("a", text), "kind": Kind.ODD, "words": [np.int64(3)] if score == 0.5 else []}
    candidates = (Candidate(text, score, None, "d1#2"), Candidate("other", None, "too long"))
    reply = Reply("fine", Provenance("odd", settings=settings), score=score, candidates=candidates, seconds=0.25)
    end = TurnEnd("fine", "done", reply_record(reply))
    conversation = store.create(OWNER, "odd").id
    if is_instant:
        returned = store.start_say(conversation, OWNER, "hi", key="k", answer=lambda _: end).result(10).bot
    else:
        returned = store.finish(store.say(conversation, OWNER, "hi", key="k").bot.id, **end._asdict())
    stored: Any = store.get(conversation, OWNER).turns[-1].reply
    assert returned.reply == stored
    number, cleaned = None if math.isnan(score) else 0.5, clean(text)
    assert stored["score"] == number
    assert stored["candidates"] == [
        {"text": cleaned, "score": number, "dropped": None, "source": "d1#2", "note": None},
        {"text": "other", "score": None, "dropped": "too long", "source": None, "note": None},
    ]
    words = [3] if score == 0.5 else []
    assert stored["provenance"]["settings"] == {"stop": ["a", cleaned], "kind": "odd", "words": words}
    assert (stored["seconds"], type(stored["seconds"])) == (0.25, float)


def test_asks_are_right_whatever_happens_to_the_conversation(store: ConversationStore) -> None:
    conversation, builder, keys = store.create(OWNER, "tfidf").id, AskBuilder(), iter(range(100))

    def say(text: str, *, status: str = "done", reply: str = "ok") -> None:
        exchange = store.say(conversation, OWNER, text, key=str(next(keys)))
        assert builder.ask_for(exchange).dialogue.turns == expected(exchange)
        store.finish(exchange.bot.id, text=reply, status=status)  # type: ignore[arg-type]

    say("one")
    say("two", status="failed", reply="half a rep")
    say("three", status="stopped", reply="half a")
    say("four", status="stopped", reply="")
    again = store.regenerate(conversation, OWNER, key="again")
    assert builder.ask_for(again).dialogue.turns == expected(again)
    say("while it is pending")
    store.finish(again.bot.id, text="better", status="done")
    say("five")
    store.undo(conversation, OWNER)
    store.undo(conversation, OWNER)
    say("six")
    say("seven")


def test_each_turn_of_a_long_conversation_is_converted_once(
    store: ConversationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted: list[int] = []
    convert = asks._readable
    monkeypatch.setattr(asks, "_readable", lambda turns: converted.append(len(turns)) or convert(turns))
    conversation, builder = store.create(OWNER, "tfidf").id, AskBuilder()
    for number in range(50):
        exchange = store.say(conversation, OWNER, f"m{number}", key=str(number))
        assert len(builder.ask_for(exchange).dialogue.turns) == 2 * number + 1
        store.finish(exchange.bot.id, text="ok", status="done")
    assert max(converted) == 2


def test_what_is_kept_is_bounded(store: ConversationStore) -> None:
    builder = AskBuilder(max_characters=2000)
    conversations = [store.create(OWNER, "tfidf").id for _ in range(3)]
    for number in range(3):
        for conversation in conversations:
            exchange = store.say(conversation, OWNER, f"m{number}", key=str(number))
            assert builder.ask_for(exchange).dialogue.turns == expected(exchange)
            store.finish(exchange.bot.id, text="ok", status="done")
    assert 0 < builder._characters <= 2000
