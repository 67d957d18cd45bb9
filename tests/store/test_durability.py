"""An acknowledged turn is never lost."""

import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text as sql

from tertulia.store import ConversationStore, Database
from tertulia.store.engine import make_engine, parse_url, transaction

OWNER = "ada"
Python = Callable[..., subprocess.Popen[str]]
Rows = Callable[[str, str], list[tuple[Any, ...]]]

TALKER = """
import itertools, sys, threading
from tertulia.store import ConversationStore, Database

store = ConversationStore(Database.open(sys.argv[1]))
lock = threading.Lock()
def talk(conversation):
    for number in itertools.count():
        exchange = store.say(conversation, "ada", "hello", key=str(number), bot="tfidf")
        with lock:
            print("said", exchange.user.id, exchange.bot.id, flush=True)
        store.finish(exchange.bot.id, text="hi", status="done")
        with lock:
            print("done", exchange.user.id, exchange.bot.id, flush=True)
for _ in range(4):
    threading.Thread(target=talk, args=(store.create("ada", "tfidf").id,)).start()
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
    with Database.open(url) as database:
        store = ConversationStore(database)
        turns = {turn.id: turn for conversation in store.export(OWNER) for turn in conversation.turns}
    assert {turn for _, *ids in acknowledged for turn in ids} <= turns.keys()
    finished = [turns[bot] for state, _, bot in acknowledged if state == "done"]
    assert len(finished) > 100
    assert all((turn.text, turn.status) == ("hi", "done") for turn in finished)
    assert len(turns) % 2 == 0


def test_sqlite_is_configured_for_durability(sqlite_url: str) -> None:
    Database.open(sqlite_url).close()
    engine = make_engine(parse_url(sqlite_url), busy_seconds=2.5)
    with transaction(engine, write=True) as connection:
        settings = {name: connection.execute(sql(f"PRAGMA {name}")).scalar_one() for name in PRAGMAS}
    engine.dispose()
    assert settings == PRAGMAS


PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1, "busy_timeout": 2500}

CRAMPED = """
import os, resource, sys
from tertulia.core.errors import StoreError
from tertulia.store import ConversationStore, Database

with Database.open(sys.argv[1]) as database:
    store = ConversationStore(database)
    conversation = store.create("ada", "tfidf").id
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    stored, failed = [], 0
    for number in range(100):
        try:
            stored.append(store.say(conversation, "ada", "x" * 16_000, key=str(number), bot="tfidf").user.id)
        except StoreError as error:
            failed += 1
            assert "is it full" in error.hint or "Free some disk space" in error.hint, repr(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    stored.append(store.say(conversation, "ada", "there is space again", key="after", bot="tfidf").user.id)
    print(failed, *stored)
"""


def test_a_full_disk_is_reported_and_loses_nothing(sqlite_url: str, python: Python) -> None:
    out, _ = python(CRAMPED, sqlite_url).communicate()
    failed, *stored = out.split()
    assert int(failed) > 0
    assert len(stored) > 1
    with Database.open(sqlite_url) as database:
        store = ConversationStore(database)
        (conversation,) = store.export(OWNER)
        assert [turn.id for turn in conversation.turns[::2]] == stored
        assert conversation.turns[-2].text == "there is space again"


@pytest.mark.parametrize("reads", [True, False], ids=["read", "write"])
def test_lost_connections_are_reestablished(postgresql_url: str, rows: Rows, reads: bool) -> None:
    with Database.open(postgresql_url) as database:
        store = ConversationStore(database)
        conversation = store.create(OWNER, "tfidf").id
        rows(postgresql_url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        if reads:
            assert store.get(conversation, OWNER).id == conversation
        else:
            assert store.say(conversation, OWNER, "hello", key="k", bot="tfidf").is_new
