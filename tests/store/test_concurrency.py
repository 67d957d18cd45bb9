"""Concurrent users, threads and processes, on both databases."""

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

import pytest

from tertulia.core.errors import TertuliaError, UsageError
from tertulia.store import ConversationStore, Database, NotFound

OWNER = "ada"
AtOnce = Callable[[Sequence[Callable[[], Any]]], list[Any]]
Python = Callable[..., subprocess.Popen[str]]


def chat(store: ConversationStore, owner: str, messages: int) -> str:
    conversation = store.create(owner, "tfidf").id
    for number in range(messages):
        exchange = store.say(conversation, owner, f"m{number} of {owner}", key=str(number), bot="tfidf")
        store.finish(exchange.bot.id, text=f"r{number} to {owner}", status="done", reply={"seconds": 0.1})
    return conversation


@pytest.mark.timeout(120)
def test_two_hundred_users_chat_concurrently(store: ConversationStore, database: Database) -> None:
    users = [f"user{number}" for number in range(200)]
    messages = 10 if database.url.startswith("sqlite") else 4
    with ThreadPoolExecutor(40) as pool:
        conversations = list(pool.map(chat, repeat(store), users, repeat(messages)))
    for user, conversation in zip(users, conversations, strict=True):
        turns = store.get(conversation, user).turns
        assert [turn.position for turn in turns] == list(range(2 * messages))
        assert [turn.text for turn in turns[::2]] == [f"m{number} of {user}" for number in range(messages)]
        assert [turn.text for turn in turns[1::2]] == [f"r{number} to {user}" for number in range(messages)]


def test_the_same_key_from_several_threads_adds_one_exchange(
    store: ConversationStore, conversation: str, at_once: AtOnce
) -> None:
    for number in range(15):
        key = f"k{number}"
        exchanges = at_once([lambda k=key: store.say(conversation, OWNER, "hello", key=k, bot="tfidf")] * 4)
        assert sorted(one.is_new for one in exchanges) == [False, False, False, True]
        assert len({(one.user.id, one.bot.id) for one in exchanges}) == 1
    assert len(store.get(conversation, OWNER, history=True).turns) == 30


def test_concurrent_messages_to_one_conversation_get_distinct_positions(
    store: ConversationStore, conversation: str, at_once: AtOnce
) -> None:
    exchanges = at_once([lambda n=n: store.say(conversation, OWNER, f"m{n}", key=f"k{n}", bot="b") for n in range(20)])
    assert all(one.is_new for one in exchanges)
    turns = store.get(conversation, OWNER).turns
    assert [turn.position for turn in turns] == list(range(40))
    assert [turn.speaker for turn in turns] == ["user", "bot"] * 20
    for one in exchanges:  # the reply follows its message directly, and its context is complete
        assert one.bot.position == one.user.position + 1
        assert len(one.context) == one.user.position


def test_one_of_several_regenerations_wins(store: ConversationStore, conversation: str, at_once: AtOnce) -> None:
    exchange = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    store.finish(exchange.bot.id, text="hi", status="done")
    outcomes = at_once([lambda n=n: store.regenerate(conversation, OWNER, key=f"r{n}", bot="b") for n in range(4)])
    errors = [outcome for outcome in outcomes if isinstance(outcome, TertuliaError)]
    assert len(errors) == 3
    assert all("still being generated" in error.message for error in errors)
    assert len(store.get(conversation, OWNER, history=True).turns) == 3


def test_finish_undo_and_erase_do_not_deadlock(store: ConversationStore, at_once: AtOnce) -> None:
    for _ in range(10):
        conversation = store.create(OWNER, "tfidf").id
        exchanges = [store.say(conversation, OWNER, "hello", key=f"k{n}", bot="tfidf") for n in range(3)]
        outcomes = at_once(
            [
                *(lambda turn=one.bot.id: store.finish(turn, text="hi", status="done") for one in exchanges),
                *(lambda: store.undo(conversation, OWNER) for _ in range(2)),  # noqa: B023
                lambda: store.erase(conversation, OWNER),  # noqa: B023
            ]
        )
        assert [type(one) for one in outcomes if isinstance(one, Exception) and not isinstance(one, NotFound)] == []
    assert store.summaries(OWNER) == []


def test_one_failure_does_not_affect_concurrent_writes(
    store: ConversationStore, conversation: str, at_once: AtOnce
) -> None:
    calls = [
        lambda n=n: store.say(conversation if n % 2 else "0" * 32, OWNER, f"m{n}", key=f"k{n}", bot="tfidf")
        for n in range(30)
    ]
    outcomes = at_once(calls)
    assert all(isinstance(outcome, NotFound) for outcome in outcomes[::2])
    assert {turn.text for turn in store.get(conversation, OWNER).turns[::2]} == {f"m{n}" for n in range(1, 30, 2)}


def test_only_one_of_several_threads_gets_an_id(store: ConversationStore, at_once: AtOnce) -> None:
    calls = [lambda n=n: store.create(OWNER, "tfidf", id=f"c{n % 5}") for n in range(15)]
    outcomes = at_once(calls)
    assert sum(isinstance(outcome, UsageError) for outcome in outcomes) == 10
    assert {line.id for line in store.summaries(OWNER)} == {f"c{n}" for n in range(5)}


def test_readers_see_complete_exchanges_while_others_write(store: ConversationStore, conversation: str) -> None:
    ended = threading.Event()

    def write() -> None:
        for number in range(60):
            store.say(conversation, OWNER, "hello", key=str(number), bot="tfidf")
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while not ended.is_set():
        seen.append(len(store.get(conversation, OWNER).turns))
    writer.join()
    assert all(count % 2 == 0 for count in seen)
    assert seen == sorted(seen)
    assert len(store.get(conversation, OWNER).turns) == 120


CHATTER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from tertulia.store import ConversationStore, Database

def chat(store, owner):
    conversation = store.create(owner, "tfidf").id
    print("started\\n", end="", flush=True)  # in one piece, because several threads print it
    for number in range(40):
        exchange = store.say(conversation, owner, "hello", key=str(number), bot="tfidf")
        store.finish(exchange.bot.id, text="hi", status="done")

with Database.open(sys.argv[1]) as database, ThreadPoolExecutor(4) as pool:
    store = ConversationStore(database)
    list(pool.map(chat, [store] * 4, ["bob"] * 4))
"""


def test_two_processes_write_to_one_database_concurrently(store: ConversationStore, url: str, python: Python) -> None:
    other = python(CHATTER, url)
    assert other.stdout
    assert other.stdout.readline() == "started\n"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(chat, repeat(store), ["ada"] * 4, repeat(40)))
    assert other.wait(60) == 0
    for owner in ("ada", "bob"):
        exported = list(store.export(owner))
        assert [len(one.turns) for one in exported] == [80] * 4
        assert {turn.status for one in exported for turn in one.turns} == {"done"}


def test_a_new_database_can_be_opened_concurrently(url: str, at_once: AtOnce) -> None:
    def open_and_use() -> str:
        with Database.open(url) as database:
            store = ConversationStore(database)
            return store.create(OWNER, "tfidf").id

    created = at_once([open_and_use] * 6)
    with Database.open(url) as database:
        store = ConversationStore(database)
        assert sorted(created) == sorted(line.id for line in store.summaries(OWNER))


def test_close_waits_for_running_calls(url: str) -> None:
    database = Database.open(url)
    store = ConversationStore(database)
    conversation = store.create(OWNER, "tfidf").id
    outcomes: list[bool] = []

    def say(number: int) -> None:
        try:
            outcomes.append(store.say(conversation, OWNER, "hello", key=str(number), bot="tfidf").is_new)
        except TertuliaError:
            outcomes.append(False)

    threads = [threading.Thread(target=say, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    time.sleep(0.005)
    database.close()
    for thread in threads:
        thread.join(20)
    assert len(outcomes) == 20  # no caller is left waiting
    with Database.open(url) as again_database:
        again = ConversationStore(again_database)
        assert len(again.get(conversation, OWNER).turns) == 2 * sum(outcomes)
