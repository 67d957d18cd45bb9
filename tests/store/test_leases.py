"""Pending replies belong to a server. When it dies they end with the text so far; as long as it lives they do not."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta, tzinfo
from typing import Any

import pytest

from tertulia.store import ConversationStore, Database, conversations, statements
from tertulia.store.leases import LEASE_SECONDS, Heartbeat, Leases, has_ended, process_name

OWNER = "ada"
Python = Callable[..., subprocess.Popen[str]]
Rows = Callable[[str, str], list[tuple[Any, ...]]]
ELSEWHERE = ""
"""The name of a process that nobody can look up, as on another machine."""


class Clock:
    """A monotonic clock that a test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Server:
    """A server on the database, with a clock of its own."""

    def __init__(self, database: Database, process: str = ELSEWHERE) -> None:
        self.clock = Clock()
        self.leases = Leases(database, clock=self.clock, process=process)
        self.store = ConversationStore(database, leases=self.leases)
        self.leases.renew()

    def sweep(self, seconds: float, *, step: float = 5.0) -> int:
        """Sweep at every step of this time; returns how many replies were abandoned."""
        ended = self.store.stop_abandoned()
        for _ in range(round(seconds / step)):
            self.clock.now += step
            ended += self.store.stop_abandoned()
        return ended


@pytest.fixture
def servers(url: str) -> Iterator[Callable[..., Server]]:
    with ExitStack() as stack:
        yield lambda **options: Server(stack.enter_context(Database.open(url)), **options)


def test_the_replies_of_a_dead_server_end_when_its_lease_expires(servers: Callable[..., Server]) -> None:
    dead, other = servers(), servers()
    conversation = dead.store.create(OWNER, "tfidf").id
    exchange = dead.store.say(conversation, OWNER, "hello", key="k")
    assert dead.store.save_progress({exchange.bot.id: "I was about to"}) == {}
    assert other.sweep(LEASE_SECONDS - 5) == 0
    assert other.store.get(conversation, OWNER).turns[1].status == "pending"
    assert other.sweep(5) == 1
    turn = other.store.get(conversation, OWNER).turns[1]
    assert (turn.status, turn.text) == ("stopped", "I was about to")
    assert turn.error == "The server stopped before this reply was finished."
    assert other.store.regenerate(conversation, OWNER, key="again").is_new


def test_a_server_that_is_alive_keeps_its_replies(servers: Callable[..., Server]) -> None:
    alive, other = servers(), servers()
    alive.store.say(alive.store.create(OWNER, "tfidf").id, OWNER, "hello", key="k")
    for _ in range(20):
        alive.leases.renew()
        assert other.sweep(10) == 0
        assert alive.sweep(10) == 0


class JumpingDatetime(datetime):
    jump = timedelta()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + cls.jump


@pytest.mark.parametrize("hours", [24, -24])
def test_a_clock_that_jumps_ends_no_reply(
    servers: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    alive, other = servers(), servers()
    conversation = alive.store.create(OWNER, "tfidf").id
    exchange = alive.store.say(conversation, OWNER, "hello", key="k")
    assert other.sweep(5) == 0
    monkeypatch.setattr(JumpingDatetime, "jump", timedelta(hours=hours))
    for module in (conversations, statements):
        monkeypatch.setattr(module, "datetime", JumpingDatetime)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600 * hours)
    assert other.sweep(5) == alive.sweep(5) == 0
    alive.leases.renew()
    assert other.sweep(10) == 0
    assert alive.store.finish(exchange.bot.id, text="hi", status="done").status == "done"
    assert other.store.get(conversation, OWNER).turns[1].text == "hi"


def test_a_suspended_observer_does_not_end_the_replies_of_others(servers: Callable[..., Server]) -> None:
    """Both machines were suspended, and the observer wakes up first."""
    alive, other = servers(), servers()
    alive.store.say(alive.store.create(OWNER, "tfidf").id, OWNER, "hello", key="k")
    assert other.sweep(5) == 0
    other.clock.now += 8 * 3600
    assert other.store.stop_abandoned() == 0
    alive.leases.renew()
    assert other.sweep(10) == 0


def test_a_server_without_a_lease_is_given_the_same_time(servers: Callable[..., Server]) -> None:
    """It may be about to get its first lease, or have lost it to somebody who took it for dead."""
    alive, other = servers(), servers()
    exchange = alive.store.say(alive.store.create(OWNER, "tfidf").id, OWNER, "hello", key="k")
    alive.leases.release()
    assert other.sweep(10) == 0
    alive.leases.renew()
    assert other.sweep(10) == 0
    alive.leases.release()
    assert other.sweep(15) == 1
    assert alive.store.finish(exchange.bot.id, text="hi", status="done").status == "done"


def test_a_server_taken_for_dead_goes_on_with_its_reply(servers: Callable[..., Server]) -> None:
    suspended, other = servers(), servers()
    conversation = suspended.store.create(OWNER, "tfidf").id
    exchange = suspended.store.say(conversation, OWNER, "hello", key="k")
    suspended.store.save_progress({exchange.bot.id: "well"})
    assert other.sweep(LEASE_SECONDS) == 1
    context = other.store.say(conversation, OWNER, "are you there?", key="k2").context
    assert [turn.text for turn in context] == ["hello", "well"]
    assert suspended.store.save_progress({exchange.bot.id: "well, yes"}) == {}
    suspended.leases.renew()
    turn = other.store.get(conversation, OWNER).turns[1]
    assert (turn.status, turn.text, turn.error) == ("pending", "well, yes", None)
    ended = suspended.store.finish(exchange.bot.id, text="well, yes!", status="done", reply={"seconds": 3})
    assert (ended.text, ended.status, ended.error, ended.reply) == ("well, yes!", "done", None, {"seconds": 3})
    assert suspended.store.finish(exchange.bot.id, text="again", status="done") == ended
    assert suspended.store.get(conversation, OWNER).turns[1] == ended
    context = other.store.say(conversation, OWNER, "good", key="k3").context
    assert [turn.text for turn in context if turn.text] == ["hello", "well, yes!", "are you there?"]


def test_a_late_reply_reaches_the_context_of_other_servers(servers: Callable[..., Server]) -> None:
    suspended, other = servers(), servers()
    conversation = suspended.store.create(OWNER, "tfidf").id
    exchange = suspended.store.say(conversation, OWNER, "hello", key="k")
    assert other.sweep(LEASE_SECONDS) == 1
    other.store.finish(other.store.say(conversation, OWNER, "hm", key="k2").bot.id, text="what?", status="done")
    suspended.store.finish(exchange.bot.id, text="late", status="done")
    context = other.store.say(conversation, OWNER, "well", key="k3").context
    assert [turn.text for turn in context] == ["hello", "late", "hm", "what?"]


CRASHER = """
import sys
from tertulia.store import ConversationStore, Database

store = ConversationStore(Database.open(sys.argv[1]))
store.start_heartbeat()
exchange = store.say(store.create("ada", "tfidf").id, "ada", "hello", key="k")
store.save_progress({exchange.bot.id: "I was ab"})
print("saved", flush=True)
sys.stdin.read()
"""


def test_a_process_of_this_machine_is_known_to_be_dead_at_once(
    url: str, python: Python, store: ConversationStore
) -> None:
    if not process_name():
        pytest.skip("only Linux tells")
    process = python(CRASHER, url)
    assert process.stdout
    assert process.stdout.readline() == "saved\n"
    assert store.stop_abandoned() == 0
    process.kill()
    process.wait()
    assert store.stop_abandoned() == 1
    (conversation,) = store.export(OWNER)
    assert (conversation.turns[1].status, conversation.turns[1].text) == ("stopped", "I was ab")


def test_only_processes_of_this_machine_can_be_known_to_have_ended() -> None:
    own = process_name()
    if not own:
        pytest.skip("only Linux tells")
    *machine, pid, started = own.split()
    assert not has_ended(own)
    assert has_ended(" ".join([*machine, pid, str(int(started) + 1)]))  # the number was reused
    assert has_ended(" ".join([*machine, str(2**22 + 1), started]))
    assert not has_ended(" ".join(["another-boot", machine[1], pid, str(int(started) + 1)]))
    assert not has_ended(" ".join([machine[0], "another-container", pid, str(int(started) + 1)]))
    assert not has_ended("")


def test_the_heartbeat_renews_the_lease_and_gives_it_up_at_the_end(url: str, rows: Rows) -> None:
    with Database.open(url) as database:
        heartbeat = Heartbeat(Leases(database), database, seconds=0.01)
        beats: set[int] = set()
        deadline = time.monotonic() + 10
        while len(beats) < 3 and time.monotonic() < deadline:
            beats |= {row[0] for row in rows(url, "SELECT beats FROM servers")}
        assert len(beats) >= 3
        heartbeat.close()
        assert rows(url, "SELECT * FROM servers") == []


def test_the_heartbeat_ends_with_the_database(url: str) -> None:
    database = Database.open(url)
    heartbeat = Heartbeat(Leases(database), database, seconds=0.01)
    database.close()
    heartbeat._thread.join(10)
    assert not heartbeat._thread.is_alive()


def test_dead_servers_are_forgotten(servers: Callable[..., Server], url: str, rows: Rows) -> None:
    _, other = servers(), servers()
    assert other.sweep(LEASE_SECONDS) == 0
    assert rows(url, "SELECT id FROM servers") == [(other.leases.server,)]
