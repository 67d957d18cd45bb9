"""A reply belongs to the server: dropped connections, repeated keys, stop, regenerate, undo, restarts, crowds."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest


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


def test_the_same_key_attaches_again_and_gives_the_whole_reply(page: Any) -> None:
    conversation = page.begin("count")
    until(page, conversation, "piece", text="8 0.1", key="k")
    events = list(page.stream(conversation, text="8 0.1", key="k"))
    assert [name for name, _ in events[:2]] == ["user", "start"]
    assert events[1][1]["text"].startswith("1 ")  # what was written before
    assert "".join(value["text"] for name, value in events if name in ("start", "piece")) == "1 2 3 4 5 6 7 8 "
    assert events[-1][1]["text"] == "1 2 3 4 5 6 7 8 "
    again = page.post(conversation, text="8 0.1", key="k").json()
    assert again == {"user": events[0][1], "bot": events[-1][1]}
    assert len(page.get(conversation)["turns"]) == 2


def test_the_same_key_sent_many_times_at_once_says_it_once(page: Any) -> None:
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
    assert again.json()["error"]["message"] == "The bot is out of order."
    assert len(page.get(conversation)["turns"]) == 2


def test_events_show_the_reply_in_the_making_from_its_beginning(page: Any) -> None:
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


def test_several_watchers_see_the_same(page: Any) -> None:
    conversation = page.begin("count")
    until(page, conversation, "start", text="6 0.1", key="k")
    with ThreadPoolExecutor(4) as pool:
        watched = list(pool.map(lambda _: list(page.stream(conversation, "events")), range(4)))
    texts = ["".join(v["text"] for name, v in events if name in ("start", "piece")) for events in watched]
    assert texts == ["1 2 3 4 5 6 "] * 4


def test_stop_ends_a_stream_where_it_is(page: Any) -> None:
    conversation = page.begin("count")
    until(page, conversation, "piece", text="500 0.02", key="k")
    began = time.monotonic()
    stopped = page.post(conversation, "stop").json()
    assert time.monotonic() - began < 2
    assert stopped["status"] == "stopped"
    assert stopped["text"].startswith("1 ")
    assert not stopped["text"].endswith("500 ")
    assert last(page, conversation) == stopped
    assert page.post(conversation, "stop").json() == stopped


def test_a_watcher_sees_the_stop(page: Any) -> None:
    conversation = page.begin("count")
    events = page.stream(conversation, text="500 0.02", key="k")
    assert [next(events)[0] for _ in range(3)] == ["user", "start", "piece"]
    stopped = page.post(conversation, "stop").json()
    rest = list(events)
    assert rest[-1] == ("done", stopped)


def test_stop_does_not_wait_for_a_bot_that_cannot_stop(page: Any) -> None:
    conversation = page.begin("nap")
    until(page, conversation, "start", text="1.5", key="k")
    began = time.monotonic()
    stopped = page.post(conversation, "stop").json()
    assert time.monotonic() - began < 1
    assert (stopped["status"], stopped["text"]) == ("stopped", "")
    time.sleep(1.6)
    assert last(page, conversation) == stopped  # the late reply changes nothing


def test_stop_with_nothing_to_stop(page: Any) -> None:
    conversation = page.begin()
    assert page.post(conversation, "stop").status_code == 409
    said = page.say(conversation, "hi")
    assert page.post(conversation, "stop").json() == said["bot"]


def test_regenerate_replaces_the_last_reply(page: Any) -> None:
    conversation = page.begin("heard")
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
    import json

    conversation = page.begin("heard")
    first = json.loads(page.say(conversation, "hi")["bot"]["text"])
    second = json.loads(page.post(conversation, "regenerate", key="again").json()["bot"]["text"])
    assert first["seed"] != second["seed"]
    assert {**first, "seed": 0} == {**second, "seed": 0}


def test_regenerate_refuses_what_cannot_be(page: Any) -> None:
    conversation = page.begin("count")
    assert page.post(conversation, "regenerate", key="k").status_code == 409
    until(page, conversation, "start", text="50 0.02", key="k1")
    answer = page.post(conversation, "regenerate", key="k2")
    assert answer.status_code == 409
    assert "still being written" in answer.json()["error"]["message"]
    page.post(conversation, "stop")
    assert page.post(conversation, "regenerate", key="k3").status_code == 200


def test_undo_takes_back_the_last_exchange(page: Any) -> None:
    conversation = page.begin()
    page.say(conversation, "one")
    kept = page.get(conversation)["turns"]
    page.say(conversation, "two")
    assert page.post(conversation, "undo").json()["turns"] == kept
    assert page.post(conversation, "undo").json()["turns"] == []
    assert page.post(conversation, "undo").status_code == 409


def test_undo_and_erase_end_a_reply_in_the_making(page: Any) -> None:
    conversation = page.begin("count")
    until(page, conversation, "piece", text="500 0.02", key="k")
    assert page.post(conversation, "undo").json()["turns"] == []
    until(page, conversation, "piece", text="500 0.02", key="k2")
    assert page.http.delete(f"/api/conversations/{conversation}").status_code == 204
    conversation = page.begin("count")
    until(page, conversation, "piece", text="500 0.02", key="k")
    assert page.http.delete("/api/me").json() == {"erased": 1}
    # the bot is free again at once, or this would wait for three times ten seconds
    began = time.monotonic()
    page.say(page.begin("count"), "2 0")
    assert time.monotonic() - began < 3


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


def test_a_reply_too_long_for_the_servers_end_is_stored_as_far_as_it_came(
    serve: Any, visitor: Any, tmp_path: Path
) -> None:
    seen: list[Any] = []
    with serve(tmp_path / "chat.db", grace_seconds=0.3) as url:
        page = visitor(url)
        conversation = page.begin("count")
        begun = threading.Event()

        def watch() -> None:
            for event in page.stream(conversation, text="200 0.05", key="k"):
                seen.append(event)
                begun.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        assert begun.wait(5)
        began = time.monotonic()
    watcher.join(5)
    assert time.monotonic() - began < 4
    assert (seen[-1][0], seen[-1][1]["status"]) == ("done", "stopped")  # whoever watched has seen the end
    with serve(tmp_path / "chat.db") as url:
        again = visitor(url)
        again.http.cookies = page.http.cookies
        assert last(again, conversation) == seen[-1][1]
        assert again.post(conversation, text="200 0.05", key="k").json()["bot"] == seen[-1][1]
        again.http.patch(f"/api/conversations/{conversation}", json={"bot": "echo"})
        made = again.post(conversation, "regenerate", key="again").json()["bot"]
        assert (made["status"], made["text"], made["attempts"]) == ("done", "200 0.05", 2)


def test_a_crowd_gets_every_reply_and_the_rest_are_told_to_come_back(serve: Any, visitor: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db", max_waiting=2, max_batch=1) as url:
        pages = [visitor(url) for _ in range(12)]
        conversations = [page.begin("count") for page in pages]

        def send(i: int) -> httpx.Response:
            answer: httpx.Response = pages[i].post(conversations[i], text="3 0.05", key="k")
            return answer

        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(send, range(12)))
        codes = [answer.status_code for answer in answers]
        assert set(codes) == {200, 503}
        for page, conversation, answer in zip(pages, conversations, answers, strict=True):
            if answer.status_code == 503:
                assert answer.headers["retry-after"] == "1"
                assert "Too many" in answer.json()["error"]["message"]
            assert page.post(conversation, text="3 0.05", key="k").status_code in (200, 503)
            turns = page.get(conversation)["turns"]
            assert turns == [] or turns[-1]["status"] in ("done", "failed")


@pytest.mark.parametrize("stream", [True, False])
def test_one_slow_bot_does_not_slow_the_others(page: Any, stream: bool) -> None:
    slow, quick = page.begin("nap"), page.begin("echo")
    until(page, slow, "start", text="2", key="k")
    began = time.monotonic()
    if stream:
        assert list(page.stream(quick, text="hi", key="k"))[-1][1]["text"] == "hi"
    else:
        page.say(quick, "hi")
    assert time.monotonic() - began < 1
    page.post(slow, "stop")
