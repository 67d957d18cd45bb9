"""What the conversation store guarantees, on both databases."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tertulia.core.dialogue import Persona
from tertulia.core.errors import StoreError, TertuliaError, UsageError
from tertulia.store import Conversation, ConversationStore, Database, NotFound, StoredExchange, StoredTurn
from tertulia.store.records import TurnEnd

OWNER, OTHER = "ada", "bob"


def complete_exchange(
    store: ConversationStore, conversation: str, text: str, reply: str, *, key: str | None = None
) -> StoredExchange:
    exchange = store.say(conversation, OWNER, text, key=key or text, bot="tfidf")
    store.finish(exchange.bot.id, text=reply, status="done")
    return exchange


def texts(conversation: Conversation) -> list[str]:
    return [turn.text for turn in conversation.turns]


def test_a_new_conversation_is_read_back_unchanged(store: ConversationStore) -> None:
    persona = Persona(("i love tea.", "i live by the sea."), revised=("tea is my drink.",), id="p1", name="Ada")
    created = store.create(OWNER, "tfidf", persona, "Tea")
    assert store.get(created.id, OWNER) == created
    assert created.persona == persona
    assert created.turns == ()
    assert created.created.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - created.created) < timedelta(minutes=1)


def test_an_id_can_be_chosen_once(store: ConversationStore) -> None:
    assert store.create(OWNER, "tfidf", id="mine").id == "mine"
    with pytest.raises(UsageError, match="exists already"):
        store.create(OTHER, "tfidf", id="mine")
    assert store.get("mine", OWNER).owner == OWNER


def test_say_adds_the_message_and_a_pending_reply(store: ConversationStore, conversation: str) -> None:
    exchange = store.say(conversation, OWNER, "hello", key="k1", bot="tfidf")
    assert exchange.is_new
    assert exchange.context == ()
    assert (exchange.user.speaker, exchange.user.text, exchange.user.status, exchange.user.bot) == (
        "user",
        "hello",
        "done",
        None,
    )
    assert (exchange.bot.speaker, exchange.bot.text, exchange.bot.status, exchange.bot.bot) == (
        "bot",
        "",
        "pending",
        "tfidf",
    )
    assert store.get(conversation, OWNER).turns == (exchange.user, exchange.bot)


def test_a_reply_that_is_known_at_once_is_stored_with_its_message(store: ConversationStore, conversation: str) -> None:
    asked: list[StoredExchange] = []

    def answer(exchange: StoredExchange) -> TurnEnd | None:
        asked.append(exchange)
        return TurnEnd("hi", "done", {"score": float("nan")}) if exchange.user.text != "later" else None

    first = store.start_say(conversation, OWNER, "hello", key="k1", answer=answer).result(10)
    assert (first.bot.text, first.bot.status, first.bot.reply) == ("hi", "done", {"score": None})
    assert (asked[0].bot.id, asked[0].bot.status) == (first.bot.id, "pending")
    assert store.get(conversation, OWNER).turns == (first.user, first.bot)
    again = store.start_say(conversation, OWNER, "hello", key="k1", answer=answer).result(10)
    assert again == replace(first, is_new=False)
    later = store.start_say(conversation, OWNER, "later", key="k2", answer=answer).result(10)
    assert later.bot.status == "pending"
    assert later.context == (first.user, replace(first.bot, reply=None))
    assert [exchange.user.text for exchange in asked] == ["hello", "later"]
    refused = store.start_say(conversation, OWNER, "no", key="k3", answer=lambda _: TurnEnd("\x00", "done"))
    with pytest.raises(UsageError, match="cannot be stored"):
        refused.result(10)
    assert texts(store.get(conversation, OWNER)) == ["hello", "hi", "later", ""]


def test_turns_are_in_order(store: ConversationStore, conversation: str) -> None:
    for number in range(12):
        complete_exchange(store, conversation, f"m{number}", f"r{number}")
    turns = store.get(conversation, OWNER).turns
    assert [turn.position for turn in turns] == list(range(24))
    assert [turn.text for turn in turns] == [f"{who}{number}" for number in range(12) for who in "mr"]


def test_say_returns_the_context(store: ConversationStore, conversation: str) -> None:
    complete_exchange(store, conversation, "one", "two")
    exchange = store.say(conversation, OWNER, "three", key="k3", bot="tfidf")
    assert [turn.text for turn in exchange.context] == ["one", "two"]
    assert exchange.user.text == "three"


def test_a_repeated_key_adds_nothing_and_returns_the_same_turns(store: ConversationStore, conversation: str) -> None:
    complete_exchange(store, conversation, "one", "two")
    first = store.say(conversation, OWNER, "three", key="k", bot="tfidf")
    ended = store.finish(first.bot.id, text="four", status="done", reply={"seconds": 0.5})
    again = store.say(conversation, OWNER, "three", key="k", bot="tfidf")
    assert again == StoredExchange(first.user, ended, False, first.conversation, first.context)
    assert len(store.get(conversation, OWNER).turns) == 4


def test_a_key_belongs_to_its_conversation(store: ConversationStore, conversation: str) -> None:
    other = store.create(OWNER, "tfidf").id
    assert store.say(conversation, OWNER, "here", key="k", bot="tfidf").is_new
    assert store.say(other, OWNER, "there", key="k", bot="tfidf").is_new


def test_a_repeated_key_finds_its_turns_after_regeneration_and_undo(
    store: ConversationStore, conversation: str
) -> None:
    first = complete_exchange(store, conversation, "one", "two", key="k")
    again = store.regenerate(conversation, OWNER, key="r", bot="tfidf")
    store.finish(again.bot.id, text="better", status="done")
    assert store.say(conversation, OWNER, "one", key="k", bot="tfidf").bot.id == first.bot.id
    store.undo(conversation, OWNER)
    exchange, repeated = (
        store.say(conversation, OWNER, "one", key="k", bot="tfidf"),
        store.regenerate(conversation, OWNER, key="r", bot="tfidf"),
    )
    assert (exchange.is_new, exchange.user.id, exchange.bot.id) == (False, first.user.id, first.bot.id)
    assert (repeated.is_new, repeated.user.id, repeated.bot.id) == (False, first.user.id, again.bot.id)
    assert store.get(conversation, OWNER).turns == ()


def test_the_title_comes_from_the_first_message(store: ConversationStore, conversation: str) -> None:
    complete_exchange(store, conversation, "  what a\n\nlovely   day " + "x" * 60, "yes")
    complete_exchange(store, conversation, "second", "yes")
    title = store.get(conversation, OWNER).title
    assert title.startswith("what a lovely day xxx")
    assert len(title) == 60


def test_an_explicit_title_is_kept(store: ConversationStore) -> None:
    created = store.create(OWNER, "tfidf", title="Mine")
    complete_exchange(store, created.id, "hello", "hi")
    assert store.get(created.id, OWNER).title == "Mine"


def test_finish_stores_the_record_of_the_reply(store: ConversationStore, conversation: str) -> None:
    exchange = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    reply = {"score": 1.5, "candidates": [{"text": "hé", "dropped": None}], "provenance": {"seed": 2**70}, "ok": True}
    ended = store.finish(exchange.bot.id, text="hi", status="done", reply=reply)
    assert (ended.id, ended.text, ended.status, ended.reply) == (exchange.bot.id, "hi", "done", reply)
    assert store.get(conversation, OWNER).turns[1] == ended


@pytest.mark.parametrize(("status", "error"), [("stopped", None), ("failed", "The bot fell asleep.")])
def test_a_reply_can_be_stopped_or_fail(
    store: ConversationStore, conversation: str, status: str, error: str | None
) -> None:
    exchange = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    store.finish(exchange.bot.id, text="I was ab", status=status, error=error)  # type: ignore[arg-type]
    turn = store.get(conversation, OWNER).turns[1]
    assert (turn.text, turn.status, turn.error) == ("I was ab", status, error)


def test_a_second_finish_is_ignored(store: ConversationStore, conversation: str) -> None:
    exchange = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    first = store.finish(exchange.bot.id, text="hi", status="done")
    assert store.finish(exchange.bot.id, text="HI!", status="failed", error="late") == first
    assert store.finish(exchange.user.id, text="rewritten", status="done") == exchange.user
    assert store.get(conversation, OWNER).turns == (exchange.user, first)


def test_finish_refuses_pending_and_unknown_turns(store: ConversationStore, conversation: str) -> None:
    exchange = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    with pytest.raises(UsageError, match="cannot end as 'pending'"):
        store.finish(exchange.bot.id, text="", status="pending")  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        store.finish("0" * 32, text="", status="done")


def test_regenerate_keeps_the_old_attempt(store: ConversationStore, conversation: str) -> None:
    complete_exchange(store, conversation, "one", "two")
    first = complete_exchange(store, conversation, "three", "four")
    exchange = store.regenerate(conversation, OWNER, key="again", bot="smollm2")
    new = store.finish(exchange.bot.id, text="4!", status="done")
    assert exchange.is_new
    assert exchange.user == first.user
    assert [turn.text for turn in exchange.context] == ["one", "two"]
    assert (new.position, new.attempt, new.replaces, new.bot) == (3, 2, first.bot.id, "smollm2")
    assert texts(store.get(conversation, OWNER)) == ["one", "two", "three", "4!"]
    history = store.get(conversation, OWNER, history=True)
    assert texts(history) == ["one", "two", "three", "four", "4!"]
    assert [turn.current for turn in history.turns] == [True, True, True, False, True]


def test_regenerate_is_idempotent_and_can_be_repeated(store: ConversationStore, conversation: str) -> None:
    complete_exchange(store, conversation, "one", "two")
    for attempt in (2, 3):
        exchange = store.regenerate(conversation, OWNER, key=f"again{attempt}", bot="tfidf")
        ended = store.finish(exchange.bot.id, text=f"two, attempt {attempt}", status="done")
        repeated = store.regenerate(conversation, OWNER, key=f"again{attempt}", bot="tfidf")
        assert (repeated.is_new, repeated.user, repeated.bot) == (False, exchange.user, ended)
    assert [turn.attempt for turn in store.get(conversation, OWNER, history=True).turns] == [1, 1, 2, 3]


def test_only_a_finished_last_reply_can_be_regenerated(store: ConversationStore, conversation: str) -> None:
    with pytest.raises(TertuliaError, match="no reply"):
        store.regenerate(conversation, OWNER, key="a", bot="tfidf")
    exchange = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    with pytest.raises(TertuliaError, match="still being generated"):
        store.regenerate(conversation, OWNER, key="b", bot="tfidf")
    store.finish(exchange.bot.id, text="", status="failed", error="no luck")
    assert store.regenerate(conversation, OWNER, key="c", bot="tfidf").is_new


def test_undo_removes_the_last_exchange_but_keeps_it_in_the_history(
    store: ConversationStore, conversation: str
) -> None:
    complete_exchange(store, conversation, "one", "two")
    complete_exchange(store, conversation, "three", "four")
    assert texts(store.undo(conversation, OWNER)) == ["one", "two"]
    assert texts(store.get(conversation, OWNER, history=True)) == ["one", "two", "three", "four"]
    exchange = complete_exchange(store, conversation, "five", "six")
    assert [turn.text for turn in exchange.context] == ["one", "two"]
    assert texts(store.get(conversation, OWNER)) == ["one", "two", "five", "six"]
    positions = [turn.position for turn in store.get(conversation, OWNER, history=True).turns]
    assert positions == [0, 1, 2, 3, 4, 5]


def test_an_undone_pending_reply_is_finished_in_the_history(store: ConversationStore, conversation: str) -> None:
    exchange = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    assert store.undo(conversation, OWNER).turns == ()
    ended = store.finish(exchange.bot.id, text="too late", status="done")
    assert (ended.text, ended.current) == ("too late", False)
    with pytest.raises(TertuliaError, match="nothing to undo"):
        store.undo(conversation, OWNER)


def test_updates_change_what_is_given_and_nothing_else(store: ConversationStore) -> None:
    created = store.create(OWNER, "tfidf", Persona(("i am old.",)), "Old")
    renamed = store.update(created.id, OWNER, title="New")
    assert (renamed.title, renamed.bot, renamed.persona) == ("New", "tfidf", created.persona)
    moved = store.update(created.id, OWNER, bot="smollm2", persona=Persona(("i am new.",)))
    assert (moved.title, moved.bot, moved.persona) == ("New", "smollm2", Persona(("i am new.",)))
    assert store.update(created.id, OWNER, persona=None).persona is None
    assert store.get(created.id, OWNER).persona is None
    assert store.update(created.id, OWNER) == store.get(created.id, OWNER)


def test_summaries_list_the_newest_first(store: ConversationStore) -> None:
    first, second, third = (store.create(OWNER, "tfidf", title=title).id for title in "abc")
    complete_exchange(store, first, "hello", "hi")
    store.say(first, OWNER, "more", key="m", bot="tfidf")
    lines = store.summaries(OWNER)
    assert [(line.id, line.title, line.turns) for line in lines] == [(first, "a", 4), (third, "c", 0), (second, "b", 0)]
    assert [line.id for line in store.summaries(OWNER, limit=1)] == [first]
    assert store.summaries(OTHER) == []
    with pytest.raises(UsageError, match="limit"):
        store.summaries(OWNER, limit=-1)


def test_finish_counts_as_an_update(store: ConversationStore, conversation: str) -> None:
    exchange = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    before = store.get(conversation, OWNER).updated
    store.finish(exchange.bot.id, text="hi", status="done")
    after = store.get(conversation, OWNER).updated
    assert after > before
    store.finish(exchange.bot.id, text="hi", status="done")
    assert store.get(conversation, OWNER).updated == after


def test_other_owners_conversations_look_like_missing_ones(store: ConversationStore, conversation: str) -> None:
    complete_exchange(store, conversation, "secret", "reply")
    unchanged = store.get(conversation, OWNER, history=True)
    for owner, id_ in ((OTHER, conversation), (OWNER, "0" * 32), (OWNER, "nul\0"), (OWNER, ""), (OWNER, "x" * 5000)):
        for attempt in (
            lambda o=owner, i=id_: store.get(i, o),
            lambda o=owner, i=id_: store.update(i, o, title="mine now"),
            lambda o=owner, i=id_: store.say(i, o, "hello", key="hello", bot="tfidf"),
            lambda o=owner, i=id_: store.say(i, o, "secret", key="secret", bot="tfidf"),
            lambda o=owner, i=id_: store.regenerate(i, o, key="x", bot="tfidf"),
            lambda o=owner, i=id_: store.undo(i, o),
            lambda o=owner, i=id_: store.erase(i, o),
        ):
            with pytest.raises(NotFound) as caught:
                attempt()
            assert caught.value.message == "There is no such conversation."
    assert store.get(conversation, OWNER, history=True) == unchanged


def test_export_gives_every_conversation_of_the_owner(store: ConversationStore) -> None:
    created = [store.create(OWNER, "tfidf", title=title).id for title in "abc"]
    store.create(OTHER, "tfidf")
    complete_exchange(store, created[1], "hello", "hi")
    store.undo(created[1], OWNER)
    assert [conversation.title for conversation in store.export(OWNER)] == ["a", "b", "c"]
    assert [len(conversation.turns) for conversation in store.export(OWNER)] == [0, 0, 0]
    assert [len(conversation.turns) for conversation in store.export(OWNER, history=True)] == [0, 2, 0]
    exported = store.export(OWNER)
    next(exported)
    store.erase(created[1], OWNER)
    assert [conversation.title for conversation in exported] == ["c"]


def test_a_closed_database_is_reported(url: str) -> None:
    database = Database.open(url)
    store = ConversationStore(database)
    conversation = store.create(OWNER, "tfidf").id
    database.close()
    database.close()
    with pytest.raises(StoreError, match="closed"):
        store.get(conversation, OWNER)
    with pytest.raises(StoreError, match="closed"):
        store.say(conversation, OWNER, "hello", key="k", bot="tfidf")


def test_records_are_frozen(store: ConversationStore, conversation: str) -> None:
    turn = store.say(conversation, OWNER, "hello", key="k", bot="tfidf").user
    with pytest.raises(AttributeError):
        turn.text = "rewritten"  # type: ignore[misc]
    assert isinstance(turn, StoredTurn)


def test_the_head_is_the_conversation_without_its_turns(store: ConversationStore) -> None:
    created = store.create("ana", "tfidf", Persona(("I sail.",)))
    store.say(created.id, "ana", "hi", key="k", bot="tfidf")
    complete = store.get(created.id, "ana")
    assert len(complete.turns) == 2
    assert store.head(created.id, "ana") == replace(complete, turns=())
    with pytest.raises(NotFound):
        store.head(created.id, "ben")
