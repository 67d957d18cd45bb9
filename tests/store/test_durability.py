"""An acknowledged turn is never lost, and what a dead server leaves behind is tidied up without losing anything."""

import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text as sql

from tertulia.store import Store
from tertulia.store.database import make_engine, parse_url, transaction

OWNER = "ada"
Python = Callable[..., subprocess.Popen[str]]
Rows = Callable[[str, str], list[tuple[Any, ...]]]

TALKER = """
import itertools, sys, threading
from tertulia.store import Store

store = Store.open(sys.argv[1])
lock = threading.Lock()
def talk(conversation):
    for number in itertools.count():
        said = store.say(conversation, "ada", "hello", key=str(number), bot="tfidf")
        with lock:
            print("said", said.user.id, said.bot.id, flush=True)
        store.finish(said.bot.id, text="hi", status="done")
        with lock:
            print("done", said.user.id, said.bot.id, flush=True)
for _ in range(4):
    threading.Thread(target=talk, args=(store.create_conversation("ada", "tfidf").id,)).start()
"""


def test_every_acknowledged_turn_survives_kill_9(url: str, python: Python) -> None:
    process = python(TALKER, url)
    assert process.stdout
    lines = [process.stdout.readline() for _ in range(300)]
    process.kill()
    lines += process.stdout.readlines()  # what it had acknowledged by then
    assert process.wait() == -signal.SIGKILL
    acknowledged = [line.split() for line in lines if line.endswith("\n")]
    assert len(acknowledged) >= 300
    with Store.open(url) as store:
        turns = {turn.id: turn for conversation in store.export(OWNER) for turn in conversation.turns}
    assert {turn for _, *ids in acknowledged for turn in ids} <= turns.keys()
    finished = [turns[bot] for state, _, bot in acknowledged if state == "done"]
    assert len(finished) > 100
    assert all((turn.text, turn.status) == ("hi", "done") for turn in finished)
    assert len(turns) % 2 == 0


def test_a_commit_has_reached_the_disk(sqlite_url: str) -> None:
    Store.open(sqlite_url).close()
    engine = make_engine(parse_url(sqlite_url), busy_seconds=2.5)
    with transaction(engine, write=True) as connection:
        found = {name: connection.execute(sql(f"PRAGMA {name}")).scalar_one() for name in PRAGMAS}
    engine.dispose()
    assert found == PRAGMAS


PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1, "busy_timeout": 2500}

CRAMPED = """
import os, resource, sys
from tertulia.core.errors import StoreError
from tertulia.store import Store

with Store.open(sys.argv[1]) as store:
    conversation = store.create_conversation("ada", "tfidf").id
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    said, failed = [], 0
    for number in range(100):
        try:
            said.append(store.say(conversation, "ada", "x" * 16_000, key=str(number), bot="tfidf").user.id)
        except StoreError as error:
            failed += 1
            assert "is it full" in error.hint or "Make room" in error.hint, repr(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    said.append(store.say(conversation, "ada", "there is room again", key="after", bot="tfidf").user.id)
    print(failed, *said)
"""


def test_when_the_disk_is_full_it_says_so_and_loses_nothing(sqlite_url: str, python: Python) -> None:
    out, _ = python(CRAMPED, sqlite_url).communicate()
    failed, *said = out.split()
    assert int(failed) > 0
    assert len(said) > 1
    with Store.open(sqlite_url) as store:
        (conversation,) = store.export(OWNER)
        assert [turn.id for turn in conversation.turns[::2]] == said
        assert conversation.turns[-2].text == "there is room again"


def test_replies_of_a_dead_server_are_stopped(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as dead:
        conversation = dead.create_conversation(OWNER, "tfidf").id
        said = dead.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    with Store.open(sqlite_url) as store:
        turn = store.conversation(conversation, OWNER).turns[1]
        assert (turn.id, turn.status, turn.text) == (said.bot.id, "stopped", "")
        assert turn.error == "The server stopped before this reply was finished."
        assert store.regenerate(conversation, OWNER, key="again", bot="tfidf").fresh


def test_a_server_that_was_given_up_too_early_can_still_finish(sqlite_url: str) -> None:
    """Another program may open the file while a server is at work: its replies must not be lost for that."""
    with Store.open(sqlite_url) as server:
        conversation = server.create_conversation(OWNER, "tfidf").id
        said = server.say(conversation, OWNER, "hello", key="k", bot="tfidf")
        Store.open(sqlite_url).close()
        assert server.conversation(conversation, OWNER).turns[1].status == "stopped"
        ended = server.finish(said.bot.id, text="hi", status="done", reply={"seconds": 3})
        assert (ended.text, ended.status, ended.error, ended.reply) == ("hi", "done", None, {"seconds": 3})
        assert server.finish(said.bot.id, text="hi again", status="done") == ended
        assert server.conversation(conversation, OWNER).turns[1] == ended


def test_on_postgresql_the_replies_of_other_servers_have_an_hour(postgresql_url: str, rows: Rows) -> None:
    with Store.open(postgresql_url) as server:
        conversation = server.create_conversation(OWNER, "tfidf").id
        old, new = (server.say(conversation, OWNER, text, key=text, bot="tfidf").bot for text in ("old", "new"))
        past = datetime.now(UTC) - timedelta(minutes=61)
        rows(postgresql_url, f"UPDATE turns SET created = '{past.isoformat()}' WHERE id = '{old.id}'")
        with Store.open(postgresql_url) as other:
            found = {turn.id: turn.status for turn in other.conversation(conversation, OWNER).turns}
        assert (found[old.id], found[new.id]) == ("stopped", "pending")


def test_pending_replies_can_be_stopped_by_age(store: Store, conversation: str) -> None:
    store.say(conversation, OWNER, "hello", key="k", bot="tfidf")
    assert store.stop_pending(older_than=timedelta(minutes=5)) == 0
    assert store.stop_pending() == 1
    assert store.stop_pending() == 0
    assert store.conversation(conversation, OWNER).turns[1].status == "stopped"


@pytest.mark.parametrize("reads", [True, False], ids=["read", "write"])
def test_lost_connections_are_made_again(postgresql_url: str, rows: Rows, reads: bool) -> None:
    with Store.open(postgresql_url) as store:
        conversation = store.create_conversation(OWNER, "tfidf").id
        rows(postgresql_url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        if reads:
            assert store.conversation(conversation, OWNER).id == conversation
        else:
            assert store.say(conversation, OWNER, "hello", key="k", bot="tfidf").fresh
