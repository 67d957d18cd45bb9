"""The page's API: every route, with the texts that people and machines really send."""

import json
from typing import Any

import httpx
import pytest

from tertulia.core.codec import dialogue_from_json


def problem(answer: httpx.Response) -> dict[str, str]:
    error: dict[str, str] = answer.json()["error"]
    assert set(error) == {"message", "hint"}
    return error


def test_bots_and_personas(page: Any) -> None:
    bots = {bot["id"]: bot for bot in page.http.get("/api/bots").json()}
    assert bots["echo"] == {"id": "echo", "name": "echo", "summary": "Repeats what you say.", "streams": False}
    assert bots["count"]["streams"] is True
    assert bots["count"]["name"] == "The Count"
    anna = {"id": "anna", "name": "Anna", "sentences": ["I like tea.", "I have two dogs."]}
    assert page.http.get("/api/personas").json() == [anna]


def test_the_server_shows_that_it_lives(page: Any) -> None:
    answer = page.http.get("/healthz").json()
    assert answer == {"status": "ok", "bots": ["echo", "heard", "count", "nap", "broken"]}


def test_a_conversation_from_beginning_to_end(page: Any) -> None:
    made = page.http.post("/api/conversations", json={"bot": "echo", "persona": ["I like\n tea. ", " "]})
    assert made.status_code == 201
    conversation = made.json()
    assert conversation["persona"] == ["I like tea."]
    assert (conversation["title"], conversation["turns"]) == ("", [])

    said = page.say(conversation["id"], "  Hello there!\n")
    assert said["user"]["text"] == said["bot"]["text"] == "Hello there!"
    assert (said["bot"]["status"], said["bot"]["bot"], said["bot"]["attempts"]) == ("done", "echo", 1)
    assert said["bot"]["seconds"] == 0.001
    assert said["user"]["seconds"] is None

    found = page.get(conversation["id"])
    assert found["turns"] == [said["user"], said["bot"]]
    assert found["title"] == "Hello there!"
    assert page.http.get("/api/conversations").json() == [
        {"id": found["id"], "title": "Hello there!", "bot": "echo", "updated": found["updated"], "turns": 2}
    ]

    assert page.http.delete(f"/api/conversations/{found['id']}").status_code == 204
    assert page.http.get("/api/conversations").json() == []
    assert page.http.get(f"/api/conversations/{found['id']}").status_code == 404
    assert page.http.delete(f"/api/conversations/{found['id']}").status_code == 404


def test_changing_a_conversation_changes_what_was_named(page: Any) -> None:
    conversation = page.begin("echo", ["I like tea."])
    path = f"/api/conversations/{conversation}"
    changed = page.http.patch(path, json={"bot": "heard"}).json()
    assert (changed["bot"], changed["persona"], changed["title"]) == ("heard", ["I like tea."], "")
    heard = json.loads(page.say(conversation, "hi")["bot"]["text"])
    assert heard["persona"] == ["I like tea."]
    assert heard["turns"] == [["user", "hi"]]

    changed = page.http.patch(path, json={"persona": None, "title": "  Tea \n time"}).json()
    assert (changed["bot"], changed["persona"], changed["title"]) == ("heard", None, "Tea time")
    heard = json.loads(page.say(conversation, "again")["bot"]["text"])
    assert heard["persona"] is None
    assert [speaker for speaker, _ in heard["turns"]] == ["user", "bot", "user"]
    assert page.http.patch(path, json={}).json()["title"] == "Tea time"


@pytest.mark.parametrize(
    "body",
    [
        {"bot": "nobody"},
        {"bot": 3},
        {"title": "   "},
        {"title": "x" * 201},
        {"persona": ["x" * 501]},
        {"persona": ["x"] * 31},
        {"owner": "me"},
    ],
)
def test_bad_changes_are_refused_and_change_nothing(page: Any, body: dict[str, Any]) -> None:
    conversation = page.begin()
    before = page.get(conversation)
    answer = page.http.patch(f"/api/conversations/{conversation}", json=body)
    assert answer.status_code == 422
    assert problem(answer)["message"]
    assert page.get(conversation) == before


def test_an_unknown_bot_is_an_error_that_helps(page: Any) -> None:
    answer = page.http.post("/api/conversations", json={"bot": "ecko"})
    assert answer.status_code == 422
    assert problem(answer) == {"message": "There is no bot called 'ecko'.", "hint": "Did you mean 'echo'?"}


def test_visitors_do_not_see_each_other(page: Any, url: str, visitor: Any) -> None:
    conversation = page.begin()
    page.say(conversation, "my secret")
    other = visitor(url)
    assert other.http.get("/api/conversations").json() == []
    path = f"/api/conversations/{conversation}"
    requests = [
        ("GET", path, None),
        ("PATCH", path, {"title": "mine now"}),
        ("DELETE", path, None),
        ("POST", f"{path}/messages", {"text": "hi", "key": "k"}),
        ("POST", f"{path}/regenerate", {"key": "k"}),
        ("POST", f"{path}/stop", None),
        ("POST", f"{path}/undo", None),
        ("GET", f"{path}/events", None),
        ("GET", f"{path}/export", None),
    ]
    answers = [other.http.request(method, where, json=body) for method, where, body in requests]
    assert [answer.status_code for answer in answers] == [404] * len(requests)
    unknown = other.http.get("/api/conversations/" + "0" * 32)
    assert answers[0].json() == unknown.json()
    assert len(page.get(conversation)["turns"]) == 2
    other.http.close()


@pytest.mark.parametrize("id", ["x", "0" * 32, "%00" * 32, "é" * 32, "0" * 5000, "'; drop table turns; --"])
def test_what_cannot_be_an_id_is_not_found(page: Any, id: str) -> None:  # noqa: A002
    assert page.http.get(f"/api/conversations/{id}").status_code == 404


@pytest.mark.parametrize(
    "text",
    [
        "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽",
        "שלום עולם، مرحبا بالعالم",
        "<script>alert(1)</script> & <b>bold</b>",
        "line one\nline two\n\n    indented",
        "data: x\n\nevent: done",
        "\u2028 and \u2029 too",
        "x" * 16_000,
    ],
)
def test_texts_come_back_as_they_went(page: Any, text: str) -> None:
    conversation = page.begin()
    said = page.say(conversation, text)
    assert said["user"]["text"] == said["bot"]["text"] == text.strip()
    events = list(page.stream(conversation, text=text, key="streamed"))
    assert [name for name, _ in events] == ["user", "start", "done"]
    assert events[-1][1]["text"] == text.strip()
    assert [turn["text"] for turn in page.get(conversation)["turns"]] == [text.strip()] * 4


def test_nul_bytes_and_lone_surrogates_are_removed(page: Any) -> None:
    conversation = page.begin()
    assert page.say(conversation, "a\x00b\x07c\r\nd")["bot"]["text"] == "abc\nd"
    raw = b'{"text": "x\\ud800y", "key": "surrogate", "stream": false}'
    path = f"/api/conversations/{conversation}/messages"
    answer = page.http.post(path, content=raw, headers={"Content-Type": "application/json"})
    assert answer.json()["bot"]["text"] == "x?y"


def test_a_surrogate_in_an_error_message_is_no_error_of_ours(page: Any) -> None:
    raw = b'{"bot": "\\ud800"}'
    answer = page.http.post("/api/conversations", content=raw, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert "no bot called" in problem(answer)["message"]


@pytest.mark.parametrize("text", ["", "   \n\t ", "\x00\x00"])
def test_an_empty_message_is_refused(page: Any, text: str) -> None:
    conversation = page.begin()
    answer = page.post(conversation, text=text, key="k")
    assert answer.status_code == 422
    assert problem(answer) == {"message": "The message is empty.", "hint": "Write something first."}
    assert page.get(conversation)["turns"] == []


def test_a_long_message_is_refused_with_the_limit(page: Any) -> None:
    conversation = page.begin()
    answer = page.post(conversation, text="y" * 100_000, key="k")
    assert answer.status_code == 413
    assert "100,000 characters, at most 16,000" in problem(answer)["message"]
    assert page.get(conversation)["turns"] == []


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"",
        b"[]",
        b"null",
        b'{"text": "hi"}',
        b'{"text": 1, "key": "k"}',
        b'{"text": "hi", "key": ""}',
        b'{"text": "hi", "key": "\\u0000"}',
        b'{"text": "hi", "key": "\\ud800"}',
        b'{"text": "hi", "key": "%s"}' % (b"k" * 101),
        b'{"text": "hi", "key": "k", "turns": []}',
        b'{"text": "hi", "key": "k", "stream": "yes"}',
        b"\xff\xfe",
        b"[" * 50_000,
    ],
)
def test_broken_requests_are_refused(page: Any, body: bytes) -> None:
    conversation = page.begin()
    path = f"/api/conversations/{conversation}/messages"
    answer = page.http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert problem(answer)["message"]
    assert page.get(conversation)["turns"] == []


def test_a_stream_tells_the_message_then_the_pieces_then_the_end(page: Any) -> None:
    conversation = page.begin("count")
    events = list(page.stream(conversation, text="4 0.05", key="k"))
    names = [name for name, _ in events]
    assert names[:2] == ["user", "start"]
    assert names[-1] == "done"
    assert set(names[2:-1]) == {"piece"}
    assert len(names) >= 5
    assert "".join(value["text"] for name, value in events if name in ("start", "piece")) == "1 2 3 4 "
    assert events[0][1]["text"] == "4 0.05"
    done = events[-1][1]
    assert (done["text"], done["status"], done["id"]) == ("1 2 3 4 ", "done", events[1][1]["id"])
    assert page.get(conversation)["turns"] == [events[0][1], done]


def test_a_silent_stream_is_kept_alive(page: Any) -> None:
    conversation = page.begin("nap")
    events = list(page.stream(conversation, text="0.8", key="k"))
    assert ("", "keep-alive") in events
    assert events[-1][1]["text"] == "Good morning."


@pytest.mark.parametrize("text", ["anything", "crash"])
def test_a_bot_that_fails_says_so_and_keeps_the_message(page: Any, text: str) -> None:
    conversation = page.begin("broken")
    answer = page.post(conversation, text=text, key="k")
    assert answer.status_code == 502
    expected = {"anything": "The bot is out of order.", "crash": "The bot 'broken' failed (ZeroDivisionError)."}[text]
    assert problem(answer)["message"] == expected
    events = list(page.stream(conversation, text=text, key="k2"))
    assert [name for name, _ in events] == ["user", "start", "error"]
    assert events[-1][1]["message"] == expected
    turns = page.get(conversation)["turns"]
    assert [(turn["speaker"], turn["status"], turn["error"]) for turn in turns] == [
        ("user", "done", None),
        ("bot", "failed", expected),
    ] * 2


def test_a_bot_that_fails_halfway_keeps_what_came(page: Any) -> None:
    conversation = page.begin("count")
    events = list(page.stream(conversation, text="9 0.02 3", key="k"))
    assert events[-1] == ("error", {"message": "I cannot count any further.", "hint": "Ask for less."})
    turn = page.get(conversation)["turns"][-1]
    assert (turn["status"], turn["text"]) == ("failed", "1 2 ")


def test_exports(page: Any) -> None:
    conversation = page.begin("echo", ["I like tea."])
    page.say(conversation, "# <b>Tea?</b>\nYes & no")
    path = f"/api/conversations/{conversation}/export"

    answer = page.http.get(path, params={"format": "json"})
    dialogue = dialogue_from_json(answer.json())
    assert answer.headers["content-disposition"].startswith('attachment; filename="tertulia-')
    assert [(turn.speaker, turn.text) for turn in dialogue.turns] == [
        ("user", "# <b>Tea?</b>\nYes & no"),
        ("bot", "# <b>Tea?</b>\nYes & no"),
    ]
    assert dialogue.personas["bot"].sentences == ("I like tea.",)
    meta = dialogue.turns[1].meta
    assert meta["provenance"]["bot"] == "echo"
    assert (meta["score"], meta["status"], meta["candidates"][0]["score"]) == (0.5, "done", 0.5)

    text = page.http.get(path, params={"format": "txt"})
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.text == "You: # <b>Tea?</b>\nYes & no\n\necho: # <b>Tea?</b>\nYes & no\n"
    markdown = page.http.get(path, params={"format": "md"})
    assert markdown.headers["content-type"] == "text/markdown; charset=utf-8"
    assert "- I like tea.\n\n**You:**\n\n> # <b>Tea?</b>\n> Yes & no\n\n**echo:**" in markdown.text
    assert page.http.get(path).json() == answer.json()
    assert page.http.get(path, params={"format": "exe"}).status_code == 422


def test_erasing_oneself(page: Any) -> None:
    page.say(page.begin(), "one")
    page.begin()
    before = page.http.cookies["tertulia"]
    assert page.http.delete("/api/me").json() == {"erased": 2}
    assert page.http.cookies["tertulia"] != before
    assert page.http.get("/api/conversations").json() == []
    page.http.cookies.clear()
    page.http.cookies.set("tertulia", before)
    assert page.http.get("/api/conversations").json() == []


def test_unknown_addresses_and_methods(page: Any) -> None:
    assert problem(page.http.get("/api/nothing"))["message"] == "Not Found."
    assert page.http.get("/api/nothing").status_code == 404
    assert page.http.put("/api/conversations").status_code == 405
