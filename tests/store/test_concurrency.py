"""Many at once: users, threads and processes, on both databases."""

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

import pytest

from tertulia.core.errors import TertuliaError, UsageError
from tertulia.store import NotFound, Store

OWNER = "ada"
AtOnce = Callable[[Sequence[Callable[[], Any]]], list[Any]]
Python = Callable[..., subprocess.Popen[str]]


def chat(store: Store, owner: str, messages: int) -> str:
    conversation = store.create_conversation(owner, "tfidf").id
    for number in range(messages):
        said = store.say(conversation, owner, f"m{number} of {owner}", key=str(number), bot="tfidf")
        store.finish(said.bot.id, text=f"r{number} to {owner}", status="done", reply={"seconds": 0.1})
    return conversation


@pytest.mark.timeout(120)
def test_two_hundred_users_chat_at_once(store: Store) -> None:
    users = [f"user{number}" for number in range(200)]
    messages = 10 if store.url.startswith("sqlite") else 4
    with ThreadPoolExecutor(40) as pool:
        conversations = list(pool.map(chat, repeat(store), users, repeat(messages)))
    for user, conversation in zip(users, conversations, strict=True):
        turns = store.conversation(conversation, user).turns
        assert [turn.position for turn in turns] == list(range(2 * messages))
        assert [turn.text for turn in turns[::2]] == [f"m{number} of {user}" for number in range(messages)]
        assert [turn.text for turn in turns[1::2]] == [f"r{number} to {user}" for number in range(messages)]


def test_the_same_key_from_two_threads_makes_one_pair(store: Store, conversation: str, at_once: AtOnce) -> None:
    for number in range(15):
        key = f"k{number}"
        said = at_once([lambda k=key: store.say(conversation, OWNER, "hello", key=k, bot="tfidf")] * 4)
        assert sorted(one.fresh for one in said) == [False, False, False, True]
        assert len({(one.user.id, one.bot.id) for one in said}) == 1
    assert len(store.conversation(conversation, OWNER, history=True).turns) == 30


def test_messages_to_one_conversation_take_places_of_their_own(
    store: Store, conversation: str, at_once: AtOnce
) -> None:
    said = at_once([lambda n=n: store.say(conversation, OWNER, f"m{n}", key=f"k{n}", bot="b") for n in range(20)])
    assert all(one.fresh for one in said)
    turns = store.conversation(conversation, OWNER).turns
    assert [turn.position for turn in turns] == list(range(40))
    assert [turn.speaker for turn in turns] == ["user", "bot"] * 20
    for one in said:  # the reply stands right after its message, and everything before was seen
        assert one.bot.position == one.user.position + 1
        assert len(one.before) == one.user.position


def test_one_of_several_regenerations_wins(store: Store, conversation: str, at_once: AtOnce) -> None:
    said = store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    store.finish(said.bot.id, text="hi", status="done")
    outcomes = at_once([lambda n=n: store.regenerate(conversation, OWNER, key=f"r{n}", bot="b") for n in range(4)])
    errors = [outcome for outcome in outcomes if isinstance(outcome, TertuliaError)]
    assert len(errors) == 3
    assert all("still being written" in error.message for error in errors)
    assert len(store.conversation(conversation, OWNER, history=True).turns) == 3


def test_finish_undo_and_erase_do_not_deadlock(store: Store, at_once: AtOnce) -> None:
    for _ in range(10):
        conversation = store.create_conversation(OWNER, "tfidf").id
        said = [store.say(conversation, OWNER, "hello", key=f"k{n}", bot="tfidf") for n in range(3)]
        outcomes = at_once(
            [
                *(lambda turn=one.bot.id: store.finish(turn, text="hi", status="done") for one in said),
                *(lambda: store.undo(conversation, OWNER) for _ in range(2)),  # noqa: B023
                lambda: store.erase_conversation(conversation, OWNER),  # noqa: B023
            ]
        )
        assert [type(one) for one in outcomes if isinstance(one, Exception) and not isinstance(one, NotFound)] == []
    assert store.conversations(OWNER) == []


def test_one_failing_does_not_fail_the_others(store: Store, conversation: str, at_once: AtOnce) -> None:
    calls = [
        lambda n=n: store.say(conversation if n % 2 else "0" * 32, OWNER, f"m{n}", key=f"k{n}", bot="tfidf")
        for n in range(30)
    ]
    outcomes = at_once(calls)
    assert all(isinstance(outcome, NotFound) for outcome in outcomes[::2])
    assert {turn.text for turn in store.conversation(conversation, OWNER).turns[::2]} == {
        f"m{n}" for n in range(1, 30, 2)
    }


def test_an_id_is_given_to_one_of_many(store: Store, at_once: AtOnce) -> None:
    calls = [lambda n=n: store.create_conversation(OWNER, "tfidf", id=f"c{n % 5}") for n in range(15)]
    outcomes = at_once(calls)
    assert sum(isinstance(outcome, UsageError) for outcome in outcomes) == 10
    assert {line.id for line in store.conversations(OWNER)} == {f"c{n}" for n in range(5)}


def test_readers_see_whole_pairs_while_others_write(store: Store, conversation: str) -> None:
    ended = threading.Event()

    def write() -> None:
        for number in range(60):
            store.say(conversation, OWNER, "hello", key=str(number), bot="tfidf")
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while not ended.is_set():
        seen.append(len(store.conversation(conversation, OWNER).turns))
    writer.join()
    assert all(count % 2 == 0 for count in seen)
    assert seen == sorted(seen)
    assert len(store.conversation(conversation, OWNER).turns) == 120


CHATTER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from tertulia.store import Store

def chat(store, owner):
    conversation = store.create_conversation(owner, "tfidf").id
    print("begun\\n", end="", flush=True)  # in one piece, as two threads say it
    for number in range(40):
        said = store.say(conversation, owner, "hello", key=str(number), bot="tfidf")
        store.finish(said.bot.id, text="hi", status="done")

with Store.open(sys.argv[1]) as store, ThreadPoolExecutor(4) as pool:
    list(pool.map(chat, [store] * 4, ["bob"] * 4))
"""


def test_two_processes_write_to_one_database_at_once(store: Store, url: str, python: Python) -> None:
    other = python(CHATTER, url)
    assert other.stdout
    assert other.stdout.readline() == "begun\n"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(chat, repeat(store), ["ada"] * 4, repeat(40)))
    assert other.wait(60) == 0
    for owner in ("ada", "bob"):
        found = list(store.export(owner))
        assert [len(one.turns) for one in found] == [80] * 4
        assert {turn.status for one in found for turn in one.turns} == {"done"}


def test_a_new_database_may_be_opened_by_several_at_once(url: str, at_once: AtOnce) -> None:
    def open_and_use() -> str:
        with Store.open(url) as store:
            return store.create_conversation(OWNER, "tfidf").id

    made = at_once([open_and_use] * 6)
    with Store.open(url) as store:
        assert sorted(made) == sorted(line.id for line in store.conversations(OWNER))


def test_close_waits_for_what_was_begun(url: str) -> None:
    store = Store.open(url)
    conversation = store.create_conversation(OWNER, "tfidf").id
    outcomes: list[bool] = []

    def say(number: int) -> None:
        try:
            outcomes.append(store.say(conversation, OWNER, "hello", key=str(number), bot="tfidf").fresh)
        except TertuliaError:
            outcomes.append(False)

    threads = [threading.Thread(target=say, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    time.sleep(0.005)
    store.close()
    for thread in threads:
        thread.join(20)
    assert len(outcomes) == 20  # nobody is left waiting
    with Store.open(url) as again:
        assert len(again.conversation(conversation, OWNER).turns) == 2 * sum(outcomes)
