"""What the store promises about conversations and turns, on both databases."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tertulia.core.dialogue import Persona
from tertulia.core.errors import StoreError, TertuliaError, UsageError
from tertulia.store import Conversation, NotFound, Said, Store, StoredTurn

OWNER, OTHER = "ada", "bob"


def exchange(store: Store, conversation: str, text: str, reply: str, *, key: str | None = None) -> Said:
    said = store.say(conversation, OWNER, text, key=key or text, bot="tfidf")
    store.finish(said.bot.id, text=reply, status="done")
    return said


def texts(conversation: Conversation) -> list[str]:
    return [turn.text for turn in conversation.turns]


def test_a_new_conversation_comes_back_as_it_was_made(store: Store) -> None:
    persona = Persona(("i love tea.", "i live by the sea."), revised=("tea is my drink.",), id="p1", name="Ada")
    made = store.create_conversation(OWNER, "tfidf", persona, "Tea")
    assert store.conversation(made.id, OWNER) == made
    assert made.persona == persona
    assert made.turns == ()
    assert made.created.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - made.created) < timedelta(minutes=1)


def test_an_id_can_be_chosen_once(store: Store) -> None:
    assert store.create_conversation(OWNER, "tfidf", id="mine").id == "mine"
    with pytest.raises(UsageError, match="already"):
        store.create_conversation(OTHER, "tfidf", id="mine")
    assert store.conversation("mine", OWNER).owner == OWNER


def test_say_adds_the_message_and_a_pending_reply(store: Store, conversation: str) -> None:
    said = store.say(conversation, OWNER, "hello", key="k1", bot="tfidf")
    assert said.fresh
    assert said.before == ()
    assert (said.user.speaker, said.user.text, said.user.status, said.user.bot) == ("user", "hello", "done", None)
    assert (said.bot.speaker, said.bot.text, said.bot.status, said.bot.bot) == ("bot", "", "pending", "tfidf")
    assert store.conversation(conversation, OWNER).turns == (said.user, said.bot)


def test_turns_stand_in_the_order_they_were_said(store: Store, conversation: str) -> None:
    for number in range(12):
        exchange(store, conversation, f"m{number}", f"r{number}")
    turns = store.conversation(conversation, OWNER).turns
    assert [turn.position for turn in turns] == list(range(24))
    assert [turn.text for turn in turns] == [f"{who}{number}" for number in range(12) for who in "mr"]


def test_say_gives_what_was_said_before(store: Store, conversation: str) -> None:
    exchange(store, conversation, "one", "two")
    said = store.say(conversation, OWNER, "three", key="k3", bot="tfidf")
    assert [turn.text for turn in said.before] == ["one", "two"]
    assert said.user.text == "three"


def test_a_repeated_key_adds_nothing_and_returns_the_same_turns(store: Store, conversation: str) -> None:
    exchange(store, conversation, "one", "two")
    first = store.say(conversation, OWNER, "three", key="k", bot="tfidf")
    ended = store.finish(first.bot.id, text="four", status="done", reply={"seconds": 0.5})
    again = store.say(conversation, OWNER, "three", key="k", bot="tfidf")
    assert again == Said(first.user, ended, False, first.before)
    assert len(store.conversation(conversation, OWNER).turns) == 4


def test_a_key_belongs_to_its_conversation(store: Store, conversation: str) -> None:
    other = store.create_conversation(OWNER, "tfidf").id
    assert store.say(conversation, OWNER, "here", key="k", bot="tfidf").fresh
    assert store.say(other, OWNER, "there", key="k", bot="tfidf").fresh


def test_a_repeated_key_finds_its_turns_after_regeneration_and_undo(store: Store, conversation: str) -> None:
    first = exchange(store, conversation, "one", "two", key="k")
    again = store.regenerate(conversation, OWNER, key="r", bot="tfidf")
    store.finish(again.bot.id, text="better", status="done")
    assert store.say(conversation, OWNER, "one", key="k", bot="tfidf").bot.id == first.bot.id
    store.undo(conversation, OWNER)
    said, repeated = (
        store.say(conversation, OWNER, "one", key="k", bot="tfidf"),
        store.regenerate(conversation, OWNER, key="r", bot="tfidf"),
    )
    assert (said.fresh, said.user.id, said.bot.id) == (False, first.user.id, first.bot.id)
    assert (repeated.fresh, repeated.user.id, repeated.bot.id) == (False, first.user.id, again.bot.id)
    assert store.conversation(conversation, OWNER).turns == ()


def test_the_title_is_the_first_message(store: Store, conversation: str) -> None:
    exchange(store, conversation, "  what a\n\nlovely   day " + "x" * 60, "yes")
    exchange(store, conversation, "second", "yes")
    title = store.conversation(conversation, OWNER).title
    assert title.startswith("what a lovely day xxx")
    assert len(title) == 60


def test_a_title_that_was_given_stays(store: Store) -> None:
    made = store.create_conversation(OWNER, "tfidf", title="Mine")
    exchange(store, made.id, "hello", "hi")
    assert store.conversation(made.id, OWNER).title == "Mine"


def test_finish_keeps_all_that_is_known_about_the_reply(store: Store, conversation: str) -> None:
    said = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    reply = {"score": 1.5, "candidates": [{"text": "hé", "dropped": None}], "provenance": {"seed": 2**70}, "ok": True}
    ended = store.finish(said.bot.id, text="hi", status="done", reply=reply)
    assert (ended.id, ended.text, ended.status, ended.reply) == (said.bot.id, "hi", "done", reply)
    assert store.conversation(conversation, OWNER).turns[1] == ended


@pytest.mark.parametrize(("status", "error"), [("stopped", None), ("failed", "The bot fell asleep.")])
def test_a_reply_may_end_badly(store: Store, conversation: str, status: str, error: str | None) -> None:
    said = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    store.finish(said.bot.id, text="I was ab", status=status, error=error)  # type: ignore[arg-type]
    turn = store.conversation(conversation, OWNER).turns[1]
    assert (turn.text, turn.status, turn.error) == ("I was ab", status, error)


def test_a_second_finish_is_ignored(store: Store, conversation: str) -> None:
    said = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    first = store.finish(said.bot.id, text="hi", status="done")
    assert store.finish(said.bot.id, text="HI!", status="failed", error="late") == first
    assert store.finish(said.user.id, text="rewritten", status="done") == said.user
    assert store.conversation(conversation, OWNER).turns == (said.user, first)


def test_finish_says_what_it_cannot_do(store: Store, conversation: str) -> None:
    said = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    with pytest.raises(UsageError, match="cannot end as 'pending'"):
        store.finish(said.bot.id, text="", status="pending")  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        store.finish("0" * 32, text="", status="done")


def test_regenerate_keeps_the_old_attempt(store: Store, conversation: str) -> None:
    exchange(store, conversation, "one", "two")
    first = exchange(store, conversation, "three", "four")
    said = store.regenerate(conversation, OWNER, key="again", bot="smollm2")
    new = store.finish(said.bot.id, text="4!", status="done")
    assert said.fresh
    assert said.user == first.user
    assert [turn.text for turn in said.before] == ["one", "two"]
    assert (new.position, new.attempt, new.replaces, new.bot) == (3, 2, first.bot.id, "smollm2")
    assert texts(store.conversation(conversation, OWNER)) == ["one", "two", "three", "4!"]
    history = store.conversation(conversation, OWNER, history=True)
    assert texts(history) == ["one", "two", "three", "four", "4!"]
    assert [turn.current for turn in history.turns] == [True, True, True, False, True]


def test_regenerate_is_idempotent_and_can_be_repeated(store: Store, conversation: str) -> None:
    exchange(store, conversation, "one", "two")
    for attempt in (2, 3):
        said = store.regenerate(conversation, OWNER, key=f"again{attempt}", bot="tfidf")
        ended = store.finish(said.bot.id, text=f"two, attempt {attempt}", status="done")
        repeated = store.regenerate(conversation, OWNER, key=f"again{attempt}", bot="tfidf")
        assert (repeated.fresh, repeated.user, repeated.bot) == (False, said.user, ended)
    assert [turn.attempt for turn in store.conversation(conversation, OWNER, history=True).turns] == [1, 1, 2, 3]


def test_only_an_ended_reply_at_the_end_can_be_regenerated(store: Store, conversation: str) -> None:
    with pytest.raises(TertuliaError, match="no reply"):
        store.regenerate(conversation, OWNER, key="a", bot="tfidf")
    said = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    with pytest.raises(TertuliaError, match="still being written"):
        store.regenerate(conversation, OWNER, key="b", bot="tfidf")
    store.finish(said.bot.id, text="", status="failed", error="no luck")
    assert store.regenerate(conversation, OWNER, key="c", bot="tfidf").fresh


def test_undo_takes_back_the_last_message_and_deletes_nothing(store: Store, conversation: str) -> None:
    exchange(store, conversation, "one", "two")
    exchange(store, conversation, "three", "four")
    assert texts(store.undo(conversation, OWNER)) == ["one", "two"]
    assert texts(store.conversation(conversation, OWNER, history=True)) == ["one", "two", "three", "four"]
    said = exchange(store, conversation, "five", "six")
    assert [turn.text for turn in said.before] == ["one", "two"]
    assert texts(store.conversation(conversation, OWNER)) == ["one", "two", "five", "six"]
    positions = [turn.position for turn in store.conversation(conversation, OWNER, history=True).turns]
    assert positions == [0, 1, 2, 3, 4, 5]


def test_undo_of_a_pending_reply_lets_it_end_in_the_history(store: Store, conversation: str) -> None:
    said = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    assert store.undo(conversation, OWNER).turns == ()
    ended = store.finish(said.bot.id, text="too late", status="done")
    assert (ended.text, ended.current) == ("too late", False)
    with pytest.raises(TertuliaError, match="nothing to take back"):
        store.undo(conversation, OWNER)


def test_updates_change_what_is_given_and_nothing_else(store: Store) -> None:
    made = store.create_conversation(OWNER, "tfidf", Persona(("i am old.",)), "Old")
    renamed = store.update_conversation(made.id, OWNER, title="New")
    assert (renamed.title, renamed.bot, renamed.persona) == ("New", "tfidf", made.persona)
    moved = store.update_conversation(made.id, OWNER, bot="smollm2", persona=Persona(("i am new.",)))
    assert (moved.title, moved.bot, moved.persona) == ("New", "smollm2", Persona(("i am new.",)))
    assert store.update_conversation(made.id, OWNER, persona=None).persona is None
    assert store.conversation(made.id, OWNER).persona is None
    assert store.update_conversation(made.id, OWNER) == store.conversation(made.id, OWNER)


def test_the_list_has_the_newest_first(store: Store) -> None:
    first, second, third = (store.create_conversation(OWNER, "tfidf", title=title).id for title in "abc")
    exchange(store, first, "hello", "hi")
    store.say(first, OWNER, "more", key="m", bot="tfidf")
    lines = store.conversations(OWNER)
    assert [(line.id, line.title, line.turns) for line in lines] == [(first, "a", 4), (third, "c", 0), (second, "b", 0)]
    assert [line.id for line in store.conversations(OWNER, limit=1)] == [first]
    assert store.conversations(OTHER) == []
    with pytest.raises(UsageError, match="limit"):
        store.conversations(OWNER, limit=-1)


def test_finish_counts_as_an_update(store: Store, conversation: str) -> None:
    said = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    before = store.conversation(conversation, OWNER).updated
    store.finish(said.bot.id, text="hi", status="done")
    after = store.conversation(conversation, OWNER).updated
    assert after > before
    store.finish(said.bot.id, text="hi", status="done")
    assert store.conversation(conversation, OWNER).updated == after


def test_another_owner_cannot_tell_a_conversation_from_none(store: Store, conversation: str) -> None:
    exchange(store, conversation, "secret", "reply")
    store_as_it_was = store.conversation(conversation, OWNER, history=True)
    for owner, id_ in ((OTHER, conversation), (OWNER, "0" * 32), (OWNER, "nul\0"), (OWNER, ""), (OWNER, "x" * 5000)):
        for attempt in (
            lambda o=owner, i=id_: store.conversation(i, o),
            lambda o=owner, i=id_: store.update_conversation(i, o, title="mine now"),
            lambda o=owner, i=id_: store.say(i, o, "hello", key="hello", bot="tfidf"),
            lambda o=owner, i=id_: store.say(i, o, "secret", key="secret", bot="tfidf"),
            lambda o=owner, i=id_: store.regenerate(i, o, key="x", bot="tfidf"),
            lambda o=owner, i=id_: store.undo(i, o),
            lambda o=owner, i=id_: store.erase_conversation(i, o),
        ):
            with pytest.raises(NotFound) as caught:
                attempt()
            assert caught.value.message == "There is no such conversation."
    assert store.conversation(conversation, OWNER, history=True) == store_as_it_was


def test_export_gives_every_conversation_of_the_owner(store: Store) -> None:
    made = [store.create_conversation(OWNER, "tfidf", title=title).id for title in "abc"]
    store.create_conversation(OTHER, "tfidf")
    exchange(store, made[1], "hello", "hi")
    store.undo(made[1], OWNER)
    assert [conversation.title for conversation in store.export(OWNER)] == ["a", "b", "c"]
    assert [len(conversation.turns) for conversation in store.export(OWNER)] == [0, 0, 0]
    assert [len(conversation.turns) for conversation in store.export(OWNER, history=True)] == [0, 2, 0]
    exported = store.export(OWNER)
    next(exported)
    store.erase_conversation(made[1], OWNER)
    assert [conversation.title for conversation in exported] == ["c"]


def test_a_closed_store_says_so(url: str) -> None:
    store = Store.open(url)
    conversation = store.create_conversation(OWNER, "tfidf").id
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.conversation(conversation, OWNER)
    with pytest.raises(StoreError, match="closed"):
        store.say(conversation, OWNER, "hello", key="k", bot="tfidf")


def test_the_values_are_frozen(store: Store, conversation: str) -> None:
    turn = store.say(conversation, OWNER, "hello", key="k", bot="tfidf").user
    with pytest.raises(AttributeError):
        turn.text = "rewritten"  # type: ignore[misc]
    assert isinstance(turn, StoredTurn)


def test_the_head_is_the_conversation_without_its_turns(store):
    made = store.create_conversation("ana", "tfidf", Persona(("I sail.",)))
    store.say(made.id, "ana", "hi", key="k", bot="tfidf")
    whole = store.conversation(made.id, "ana")
    assert len(whole.turns) == 2
    assert store.head(made.id, "ana") == replace(whole, turns=())
    with pytest.raises(NotFound):
        store.head(made.id, "ben")
