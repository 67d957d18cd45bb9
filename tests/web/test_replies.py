"""A reply belongs to the server: dropped connections, repeated keys, stop, regenerate, undo, restarts, load."""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest

from tertulia.core.errors import BotError
from tertulia.core.reply import Ask, Candidate, Provenance, Reply
from tertulia.store import ConversationStore, Database
from tertulia.talk.bot import Bot, BotTraits
from tertulia.web.app import create_app
from tertulia.web.server import running


class Held:
    """Replies when the test lets it."""

    spec = "held"
    summary = "Waits."

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        self.asked.set()
        assert self.go.wait(20)
        return [Reply("Good morning.", Provenance(self.spec)) for _ in asks]


def until(page: Any, conversation: str, name: str, **body: Any) -> Any:
    """Send a message, wait for an event, and drop the connection."""
    for event, value in page.stream(conversation, **body):
        if event == name:
            return value
    raise AssertionError(f"there was no {name!r}")


def last(page: Any, conversation: str) -> dict[str, Any]:
    turn: dict[str, Any] = page.get(conversation)["turns"][-1]
    return turn


def test_a_dropped_connection_loses_nothing(page: Any, eventually: Callable[..., None]) -> None:
    conversation = page.begin("count")
    until(page, conversation, "piece", text="6 0.05", key="k")
    eventually(lambda: last(page, conversation)["status"] == "done")
    assert last(page, conversation)["text"] == "1 2 3 4 5 6 "
    assert len(page.get(conversation)["turns"]) == 2


def test_the_same_key_reattaches_and_gives_the_full_reply(page: Any) -> None:
    conversation = page.begin("count")
    until(page, conversation, "piece", text="8 0.1", key="k")
    events = list(page.stream(conversation, text="8 0.1", key="k"))
    assert [name for name, _ in events[:2]] == ["user", "start"]
    assert events[1][1]["text"].startswith("1 ")  # the text so far
    assert "".join(value["text"] for name, value in events if name in ("start", "piece")) == "1 2 3 4 5 6 7 8 "
    assert events[-1][1]["text"] == "1 2 3 4 5 6 7 8 "
    again = page.post(conversation, text="8 0.1", key="k").json()
    assert again == {"user": events[0][1], "bot": events[-1][1]}
    assert len(page.get(conversation)["turns"]) == 2


def test_concurrent_requests_with_one_key_add_one_message(page: Any) -> None:
    conversation = page.begin("nap")

    def send(_: int) -> Any:
        return page.post(conversation, text="0.3", key="k").json()

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(send, range(6)))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["bot"]["text"] == "Good morning."
    assert len(page.get(conversation)["turns"]) == 2


def test_a_failed_reply_stays_failed_for_its_key(page: Any) -> None:
    conversation = page.begin("broken")
    first = page.post(conversation, text="x", key="k")
    again = page.post(conversation, text="x", key="k")
    assert (first.status_code, again.status_code) == (502, 502)
    assert first.json() == again.json()
    assert "could not answer" in again.json()["error"]["message"]
    assert len(page.get(conversation)["turns"]) == 2


def test_events_show_the_pending_reply_from_its_beginning(page: Any) -> None:
    conversation = page.begin("count")
    until(page, conversation, "piece", text="8 0.1", key="k")
    events = list(page.stream(conversation, "events"))
    assert events[0][0] == "start"
    assert "".join(value["text"] for name, value in events if name in ("start", "piece")) == "1 2 3 4 5 6 7 8 "
    assert events[-1][0] == "done"
    after = list(page.stream(conversation, "events"))
    assert after[-1] == events[-1]


def test_events_of_an_empty_conversation_are_a_conflict(page: Any) -> None:
    answer = page.http.get(f"/api/conversations/{page.begin()}/events")
    assert answer.status_code == 409
    assert answer.json()["error"]["hint"] == "Send a message first."


def test_several_clients_see_the_same_reply(page: Any) -> None:
    conversation = page.begin("count")
    until(page, conversation, "start", text="6 0.1", key="k")
    with ThreadPoolExecutor(4) as pool:
        watched = list(pool.map(lambda _: list(page.stream(conversation, "events")), range(4)))
    texts = ["".join(v["text"] for name, v in events if name in ("start", "piece")) for events in watched]
    assert texts == ["1 2 3 4 5 6 "] * 4


def test_stop_ends_a_stream(page: Any) -> None:
    conversation = page.begin("count")
    until(page, conversation, "piece", text="500 0.02", key="k")
    stopped = page.post(conversation, "stop").json()
    assert stopped["status"] == "stopped"
    assert stopped["text"].startswith("1 ")
    assert not stopped["text"].endswith("500 ")
    assert last(page, conversation) == stopped
    assert page.post(conversation, "stop").json() == stopped


def test_other_clients_see_the_stop(page: Any) -> None:
    conversation = page.begin("count")
    events = page.stream(conversation, text="500 0.02", key="k")
    assert [next(events)[0] for _ in range(3)] == ["user", "start", "piece"]
    stopped = page.post(conversation, "stop").json()
    rest = list(events)
    assert rest[-1] == ("done", stopped)


def test_stop_does_not_wait_for_a_bot_that_cannot_stop(page: Any, tmp_path: Path) -> None:
    conversation = page.begin("nap")
    until(page, conversation, "start", text=f"{tmp_path}/awake", key="k")
    stopped = page.post(conversation, "stop").json()  # the bot sleeps on
    assert (stopped["status"], stopped["text"]) == ("stopped", "")
    (tmp_path / "awake").touch()
    page.say(page.begin("nap"), "0.5")
    assert last(page, conversation) == stopped  # the late reply changes nothing


def test_stop_without_a_pending_reply_returns_the_last_one(page: Any) -> None:
    conversation = page.begin()
    assert page.post(conversation, "stop").status_code == 409
    exchange = page.say(conversation, "hi")
    assert page.post(conversation, "stop").json() == exchange["bot"]


def test_regenerate_replaces_the_last_reply(page: Any) -> None:
    conversation = page.begin("inspect")
    first = page.say(conversation, "hi")
    page.http.patch(f"/api/conversations/{conversation}", json={"bot": "echo"})
    again = page.post(conversation, "regenerate", key="again").json()
    assert again["user"] == first["user"]
    assert (again["bot"]["text"], again["bot"]["bot"], again["bot"]["attempts"]) == ("hi", "echo", 2)
    assert again["bot"]["id"] != first["bot"]["id"]
    assert page.get(conversation)["turns"] == [again["user"], again["bot"]]
    assert page.post(conversation, "regenerate", key="again").json() == again
    events = list(page.stream(conversation, "regenerate", key="third"))
    assert [name for name, _ in events] == ["start", "done"]
    assert events[-1][1]["attempts"] == 3


def test_another_attempt_has_another_seed_and_the_same_history(page: Any) -> None:
    conversation = page.begin("inspect")
    first = json.loads(page.say(conversation, "hi")["bot"]["text"])
    second = json.loads(page.post(conversation, "regenerate", key="again").json()["bot"]["text"])
    assert first["seed"] != second["seed"]
    assert {**first, "seed": 0} == {**second, "seed": 0}


def test_regenerate_needs_a_finished_last_reply(page: Any) -> None:
    conversation = page.begin("count")
    assert page.post(conversation, "regenerate", key="k").status_code == 409
    until(page, conversation, "start", text="50 0.02", key="k1")
    answer = page.post(conversation, "regenerate", key="k2")
    assert answer.status_code == 409
    assert "still being generated" in answer.json()["error"]["message"]
    page.post(conversation, "stop")
    assert page.post(conversation, "regenerate", key="k3").status_code == 200


def test_undo_removes_the_last_exchange(page: Any) -> None:
    conversation = page.begin()
    page.say(conversation, "one")
    kept = page.get(conversation)["turns"]
    page.say(conversation, "two")
    assert page.post(conversation, "undo").json()["turns"] == kept
    assert page.post(conversation, "undo").json()["turns"] == []
    assert page.post(conversation, "undo").status_code == 409


def test_undo_and_erase_stop_a_pending_reply(page: Any) -> None:
    conversation = page.begin("count")
    hours = "900000 0.02"
    until(page, conversation, "piece", text=hours, key="k")
    assert page.post(conversation, "undo").json()["turns"] == []
    until(page, conversation, "piece", text=hours, key="k2")
    assert page.http.delete(f"/api/conversations/{conversation}").status_code == 204
    conversation = page.begin("count")
    until(page, conversation, "piece", text=hours, key="k")
    assert page.http.delete("/api/me").json()["erased"] == 1
    assert page.say(page.begin("count"), "2 0")["bot"]["text"] == "1 2 "  # the bot is free again


def test_a_second_message_may_come_before_the_first_reply(page: Any) -> None:
    conversation = page.begin("nap")
    until(page, conversation, "start", text="0.5", key="k1")
    until(page, conversation, "start", text="0.1", key="k2")
    assert list(page.stream(conversation, "events"))[-1][1]["text"] == "Good morning."
    assert page.post(conversation, text="0.5", key="k1").json()["bot"]["text"] == "Good morning."
    turns = page.get(conversation)["turns"]
    assert [(turn["speaker"], turn["status"]) for turn in turns] == [("user", "done"), ("bot", "done")] * 2


def test_stopping_the_server_lets_replies_finish(serve: Any, visitor: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db") as url:
        page = visitor(url)
        conversation = page.begin("count")
        until(page, conversation, "piece", text="10 0.05", key="k")
    with serve(tmp_path / "chat.db") as url:
        again = visitor(url)
        again.http.cookies = page.http.cookies
        assert (last(again, conversation)["status"], last(again, conversation)["text"]) == (
            "done",
            "1 2 3 4 5 6 7 8 9 10 ",
        )


def test_a_reply_longer_than_the_grace_period_is_stored_as_far_as_it_got(
    serve: Any, visitor: Any, tmp_path: Path
) -> None:
    seen: list[Any] = []
    with serve(tmp_path / "chat.db", grace_seconds=0.3) as url:
        page = visitor(url)
        conversation = page.begin("count")
        begun = threading.Event()

        def watch() -> None:
            for event in page.stream(conversation, text="900000 0.05", key="k"):
                seen.append(event)
                begun.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        assert begun.wait(20)
    watcher.join(60)
    assert not watcher.is_alive()
    assert (seen[-1][0], seen[-1][1]["status"]) == ("done", "stopped")  # connected clients see the end
    with serve(tmp_path / "chat.db") as url:
        again = visitor(url)
        again.http.cookies = page.http.cookies
        assert last(again, conversation) == seen[-1][1]
        assert again.post(conversation, text="900000 0.05", key="k").json()["bot"] == seen[-1][1]
        again.http.patch(f"/api/conversations/{conversation}", json={"bot": "echo"})
        created = again.post(conversation, "regenerate", key="again").json()["bot"]
        assert (created["status"], created["text"], created["attempts"]) == ("done", "900000 0.05", 2)


def test_a_full_queue_refuses_before_anything_is_stored(serve: Any, visitor: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db", max_waiting=2, max_batch=1) as url:
        page = visitor(url)
        taken = [page.begin("count") for _ in range(3)]  # one is running, two wait
        for conversation in taken:
            until(page, conversation, "start", text="500 0.02", key="k")
        refused = page.begin("count")
        answer = page.post(refused, text="3 0", key="k")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "Too many" in answer.json()["error"]["message"]
        assert page.get(refused)["turns"] == []
        for conversation in taken:
            assert page.post(conversation, "stop").json()["status"] == "stopped"
        assert page.post(refused, text="3 0", key="k").json()["bot"]["text"] == "1 2 3 "


def test_many_concurrent_visitors_get_all_their_replies(serve: Any, visitor: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db", max_in_flight=0, messages_per_minute=0) as url:  # one cookie for all
        page = visitor(url)
        conversations = [page.begin(bot) for bot in ("echo", "count") * 10]

        def chat(conversation: str) -> list[str]:
            return [page.post(conversation, text=f"{n} 0", key=f"{n}").json()["bot"]["text"] for n in (1, 2, 3)]

        with ThreadPoolExecutor(20) as pool:
            texts = list(pool.map(chat, conversations))
        assert texts == [["1 0", "2 0", "3 0"], ["1 ", "1 2 ", "1 2 3 "]] * 10
        assert all(len(page.get(conversation)["turns"]) == 6 for conversation in conversations)


@pytest.mark.parametrize("stream", [True, False])
def test_one_slow_bot_does_not_slow_the_others(page: Any, stream: bool, tmp_path: Path) -> None:
    slow, quick = page.begin("nap"), page.begin("echo")
    until(page, slow, "start", text=f"{tmp_path}/awake", key="k")
    if stream:
        assert list(page.stream(quick, text="hi", key="k"))[-1][1]["text"] == "hi"
    else:
        page.say(quick, "hi")
    assert last(page, slow)["status"] == "pending"
    (tmp_path / "awake").touch()


@pytest.fixture
def two(serve: Any, visitor: Any, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """The same visitor at two servers that share a database."""
    with serve(tmp_path / "chat.db") as one, serve(tmp_path / "chat.db") as other:
        first, second = visitor(one), visitor(other)
        first.http.get("/api/conversations")
        second.http.cookies = first.http.cookies
        yield first, second


def test_a_reply_generated_by_another_server_can_be_followed(two: tuple[Any, Any]) -> None:
    first, second = two
    conversation = first.begin("count")
    until(first, conversation, "piece", text="10 0.05", key="k")
    assert list(second.stream(conversation, text="10 0.05", key="k"))[-1][1]["text"] == "1 2 3 4 5 6 7 8 9 10 "
    assert second.get(conversation) == first.get(conversation)


def test_a_reply_generated_by_another_server_can_be_stopped(two: tuple[Any, Any]) -> None:
    first, second = two
    conversation = first.begin("nap")
    events = first.stream(conversation, text="0.8", key="k")
    assert [next(events)[0] for _ in range(2)] == ["user", "start"]
    stopped = second.post(conversation, "stop").json()
    assert stopped["status"] == "stopped"
    assert list(events)[-1] == ("done", stopped)


def test_a_locked_database_delays_a_reply_but_does_not_lose_it(
    visitor: Any, tmp_path: Path, bots: Any, eventually: Any
) -> None:
    path = tmp_path / "chat.db"
    bots["held"] = held = Held()
    with Database.open(f"sqlite:///{path}", busy_seconds=0.1) as database, running(create_app(bots, database)) as url:
        page = visitor(url)
        conversation = page.begin("held")
        with sqlite3.connect(path, isolation_level=None) as other, ThreadPoolExecutor(1) as pool:
            answer = pool.submit(page.post, conversation, text="hi", key="k")
            assert held.asked.wait(20)
            other.execute("BEGIN IMMEDIATE")
            held.go.set()
            refused = visitor(url).http.post("/api/conversations", json={"bot": "nap"})
            assert refused.status_code == 503
            assert "cannot access its conversations at the moment" in refused.json()["error"]["message"]
            other.execute("COMMIT")
            assert answer.result(10).json()["bot"]["text"] == "Good morning."
        other.close()
        assert last(page, conversation)["status"] == "done"


def test_unusual_values_in_a_bots_record_do_not_lose_its_reply(visitor: Any, tmp_path: Path) -> None:
    class Odd:
        spec = "odd"
        summary = "Tells odd things."

        def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
            settings = {"path": tmp_path, "loud": numpy.bool_(True), 3: {1}, "bad": "a\0b\ud800"}
            scores = (numpy.float32(0.5), float("nan"))
            candidates = tuple(Candidate("x\0", score) for score in scores)  # type: ignore[arg-type]
            return [Reply("fi\0ne", Provenance("odd", settings=settings), candidates=candidates) for _ in asks]  # type: ignore[arg-type]

    class Wrong(Odd):
        def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
            return ["not a reply" for _ in asks]  # type: ignore[misc]

    odd = {"odd": Odd(), "wrong": Wrong()}
    with Database.open(f"sqlite:///{tmp_path / 'chat.db'}") as database, running(create_app(odd, database)) as url:
        page = visitor(url)
        conversation = page.begin("odd")
        assert page.say(conversation, "hi")["bot"]["text"] == "fine"
        store = ConversationStore(database)
        (record,) = (turn.reply for c in store.export(store.owners()[0]) for turn in c.turns if turn.speaker == "bot")
        expected = {"path": str(tmp_path), "loud": True, "3": [1], "bad": "ab?"}
        assert record is not None
        assert record["provenance"]["settings"] == expected
        assert [candidate["score"] for candidate in record["candidates"]] == [0.5, None]
        assert page.post(page.begin("wrong"), text="hi", key="k").status_code == 502


class Instant:
    """Replies at once with the number of turns, or fails."""

    spec = "instant"
    summary = "Counts turns."
    traits = BotTraits(instant=True)

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        if asks[0].last == "fail":
            raise BotError("No.")
        return [Reply(f"{len(ask.dialogue.turns)}", Provenance(self.spec, seed=ask.seed)) for ask in asks]


class Counting(Database):
    """Counts what is written without waiting for it."""

    submitted = 0

    def submit(self, work: Any, then: Any) -> Any:
        self.submitted += 1
        return super().submit(work, then)


def test_the_reply_of_an_instant_bot_costs_one_write(visitor: Any, tmp_path: Path, bots: dict[str, Bot]) -> None:
    with (
        Counting.open(f"sqlite:///{tmp_path / 'chat.db'}") as database,
        running(create_app({"instant": Instant(), "echo": bots["echo"]}, database)) as url,
    ):
        page = visitor(url)
        instant, echo = page.begin("instant"), page.begin("echo")
        before = database.submitted
        first = page.say(instant, "hello")
        assert (first["bot"]["text"], first["bot"]["status"], database.submitted - before) == ("1", "done", 1)
        assert page.say(echo, "hello")["bot"]["text"] == "hello"
        assert database.submitted - before == 3
        assert page.post(instant, text="hello", key="key-1").json() == first
        names = [name for name, _ in page.stream(instant, text="and now?", key="streamed")]
        assert names == ["user", "start", "done"]
        assert page.say(instant, "x" * 5_000)["bot"]["text"] == "5"
        assert page.post(instant, text="fail", key="failing").status_code == 502
        assert [turn["status"] for turn in page.get(instant)["turns"]] == ["done"] * 7 + ["failed"]
        shown = page.http.get("/metrics").text
    assert 'tertulia_replies_total{bot="instant",outcome="stop"} 3.0' in shown
    assert 'tertulia_replies_total{bot="instant",outcome="failed"} 1.0' in shown
