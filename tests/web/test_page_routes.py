"""The page's API: every route, with realistic and hostile texts."""

import json
import re
from typing import Any

import httpx
import pytest

from tertulia.core.codec import dialogue_from_json
from tertulia.talk.worker import Worker
from tertulia.web.config import lazy_bots
from tertulia.web.page.encode import bot_out


def problem(answer: httpx.Response) -> dict[str, str]:
    error: dict[str, str] = answer.json()["error"]
    assert set(error) == {"message", "hint"}
    return error


def test_bots_and_personas_are_listed(page: Any) -> None:
    bots = {bot["id"]: bot for bot in page.http.get("/api/bots").json()}
    expected = {"id": "echo", "name": "echo", "summary": "Repeats what you say.", "streams": False, "evidence": False}
    assert bots["echo"] == expected
    assert bots["count"]["streams"] is True
    assert bots["count"]["name"] == "The Count"
    anna = {"id": "anna", "name": "Anna", "sentences": ["I like tea.", "I have two dogs."]}
    assert page.http.get("/api/personas").json() == [anna]


def test_the_health_check_lists_the_bots(page: Any) -> None:
    answer = page.http.get("/healthz").json()
    assert answer == {
        "status": "ok",
        "bots": ["echo", "inspect", "count", "nap", "broken"],
        "loading": [],
        "unhealthy": {},
    }


def test_a_conversation_from_start_to_end(page: Any) -> None:
    created = page.http.post("/api/conversations", json={"bot": "echo", "persona": ["I like\n tea. ", " "]})
    assert created.status_code == 201
    conversation = created.json()
    assert conversation["persona"] == ["I like tea."]
    assert (conversation["title"], conversation["turns"]) == ("", [])

    exchange = page.say(conversation["id"], "  Hello there!\n")
    assert exchange["user"]["text"] == exchange["bot"]["text"] == "Hello there!"
    assert (exchange["bot"]["status"], exchange["bot"]["bot"], exchange["bot"]["attempts"]) == ("done", "echo", 1)
    assert exchange["bot"]["seconds"] == 0.001
    assert exchange["user"]["seconds"] is None

    stored = page.get(conversation["id"])
    assert stored["turns"] == [exchange["user"], exchange["bot"]]
    assert stored["title"] == "Hello there!"
    assert page.http.get("/api/conversations").json() == [
        {"id": stored["id"], "title": "Hello there!", "bot": "echo", "updated": stored["updated"], "turns": 2}
    ]

    assert page.http.delete(f"/api/conversations/{stored['id']}").status_code == 204
    assert page.http.get("/api/conversations").json() == []
    assert page.http.get(f"/api/conversations/{stored['id']}").status_code == 404
    assert page.http.delete(f"/api/conversations/{stored['id']}").status_code == 404


def test_a_patch_changes_only_the_given_fields(page: Any) -> None:
    conversation = page.begin("echo", ["I like tea."])
    path = f"/api/conversations/{conversation}"
    changed = page.http.patch(path, json={"bot": "inspect"}).json()
    assert (changed["bot"], changed["persona"], changed["title"]) == ("inspect", ["I like tea."], "")
    received = json.loads(page.say(conversation, "hi")["bot"]["text"])
    assert received["persona"] == ["I like tea."]
    assert received["turns"] == [["user", "hi"]]

    changed = page.http.patch(path, json={"persona": None, "title": "  Tea \n time"}).json()
    assert (changed["bot"], changed["persona"], changed["title"]) == ("inspect", None, "Tea time")
    received = json.loads(page.say(conversation, "again")["bot"]["text"])
    assert received["persona"] is None
    assert [speaker for speaker, _ in received["turns"]] == ["user", "bot", "user"]
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
def test_invalid_changes_are_refused_and_change_nothing(page: Any, body: dict[str, Any]) -> None:
    conversation = page.begin()
    before = page.get(conversation)
    answer = page.http.patch(f"/api/conversations/{conversation}", json=body)
    assert answer.status_code == 422
    assert problem(answer)["message"]
    assert page.get(conversation) == before


def test_an_unknown_bot_gives_a_helpful_error(page: Any) -> None:
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
def test_invalid_ids_are_not_found(page: Any, id: str) -> None:  # noqa: A002
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
def test_texts_are_returned_unchanged(page: Any, text: str) -> None:
    conversation = page.begin()
    exchange = page.say(conversation, text)
    assert exchange["user"]["text"] == exchange["bot"]["text"] == text.strip()
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


def test_a_surrogate_in_an_error_message_causes_no_server_error(page: Any) -> None:
    raw = b'{"bot": "\\ud800"}'
    answer = page.http.post("/api/conversations", content=raw, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert "no bot called" in problem(answer)["message"]


@pytest.mark.parametrize("text", ["", "   \n\t ", "\x00\x00"])
def test_an_empty_message_is_refused(page: Any, text: str) -> None:
    conversation = page.begin()
    answer = page.post(conversation, text=text, key="k")
    assert answer.status_code == 422
    assert problem(answer) == {"message": "The message is empty.", "hint": "Type a message first."}
    assert page.get(conversation)["turns"] == []


def test_a_long_message_is_refused_with_the_limit(page: Any) -> None:
    conversation = page.begin()
    answer = page.post(conversation, text="y" * 100_000, key="k")
    assert answer.status_code == 413
    assert "100,000 characters, the limit is 16,000" in problem(answer)["message"]
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
def test_malformed_requests_are_refused(page: Any, body: bytes) -> None:
    conversation = page.begin()
    path = f"/api/conversations/{conversation}/messages"
    answer = page.http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert problem(answer)["message"]
    assert page.get(conversation)["turns"] == []


def test_a_stream_sends_the_message_then_the_pieces_then_the_end(page: Any) -> None:
    conversation = page.begin("count")
    events = list(page.stream(conversation, text="4 0.05", key="k"))
    names = [name for name, _ in events if name]  # a slow stream is kept alive by comments
    assert names[:2] == ["user", "start"]
    assert names[-1] == "done"
    assert set(names[2:-1]) == {"piece"}
    assert len(names) >= 5
    assert "".join(value["text"] for name, value in events if name in ("start", "piece")) == "1 2 3 4 "
    assert events[0][1]["text"] == "4 0.05"
    done = events[-1][1]
    assert (done["text"], done["status"], done["id"]) == ("1 2 3 4 ", "done", events[1][1]["id"])
    assert page.get(conversation)["turns"] == [events[0][1], done]


def test_an_idle_stream_is_kept_alive(page: Any) -> None:
    conversation = page.begin("nap")
    events = list(page.stream(conversation, text="0.8", key="k"))
    assert ("", "keep-alive") in events
    assert events[-1][1]["text"] == "Good morning."


@pytest.mark.parametrize("text", ["anything", "crash"])
def test_a_failed_reply_is_reported_and_the_message_kept(
    page: Any, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    conversation = page.begin("broken")
    answer = page.post(conversation, text=text, key="k")
    assert answer.status_code == 502
    events = list(page.stream(conversation, text=text, key="k2"))
    assert [name for name, _ in events] == ["user", "start", "error"]
    turns = page.get(conversation)["turns"]
    assert [(turn["speaker"], turn["status"]) for turn in turns] == [("user", "done"), ("bot", "failed")] * 2
    assert [turn["error"] for turn in turns] == [None, problem(answer)["message"], None, events[-1][1]["message"]]
    for turn in (turns[1], turns[3]):
        assert turn["error"] == f"The bot could not answer. Reference: {turn['id'][:6]}."
    details = {"anything": "The bot is out of order.", "crash": "The bot 'broken' failed (ZeroDivisionError)."}[text]
    logged = [record.getMessage() for record in caplog.records]
    for turn in (turns[1], turns[3]):
        assert any(f"Reference {turn['id'][:6]}, bot broken" in line and details in line for line in logged)


def test_a_reply_that_fails_midway_keeps_its_text_so_far(page: Any) -> None:
    conversation = page.begin("count")
    events = list(page.stream(conversation, text="9 0.02 3", key="k"))
    turn = page.get(conversation)["turns"][-1]
    assert events[-1] == ("error", {"message": turn["error"], "hint": "Try again, or choose another bot."})
    assert (turn["status"], turn["text"]) == ("failed", "1 2 ")


def test_a_conversation_can_be_exported(page: Any) -> None:
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
    assert set(meta) == {"id", "created", "bot", "status", "attempt"}
    assert (meta["bot"], meta["status"]) == ("echo", "done")

    text = page.http.get(path, params={"format": "txt"})
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    said = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "DATE", text.text)
    assert said == "You (DATE UTC): # <b>Tea?</b>\nYes & no\n\necho (DATE UTC): # <b>Tea?</b>\nYes & no\n"
    markdown = page.http.get(path, params={"format": "md"})
    assert markdown.headers["content-type"] == "text/markdown; charset=utf-8"
    said = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "DATE", markdown.text)
    assert "- I like tea.\n\n**You** (DATE UTC):\n\n> # <b>Tea?</b>\n> Yes & no\n\n**echo** (DATE UTC):" in said
    assert page.http.get(path).json() == answer.json()
    assert page.http.get(path, params={"format": "exe"}).status_code == 422


def test_a_visitor_can_erase_all_their_data(page: Any) -> None:
    page.say(page.begin(), "one")
    page.begin()
    before = page.http.cookies["tertulia"]
    answer = page.http.delete("/api/me").json()
    assert answer["erased"] == 2
    assert "Studies are not affected" in answer["note"]
    assert page.http.cookies["tertulia"] != before
    assert page.http.get("/api/conversations").json() == []
    page.http.cookies.clear()
    page.http.cookies.set("tertulia", before)
    assert page.http.get("/api/conversations").json() == []


def test_unknown_paths_and_methods_are_errors(page: Any) -> None:
    assert problem(page.http.get("/api/nothing"))["message"] == "Not Found."
    assert page.http.get("/api/nothing").status_code == 404
    assert page.http.put("/api/conversations").status_code == 405


def test_markdown_is_parsed_for_replies_only(page: Any) -> None:
    conversation = page.begin()
    exchange = page.say(conversation, "**Tea** <b>now</b>")
    assert exchange["user"]["markup"] is None
    assert exchange["bot"]["text"] == "**Tea** <b>now</b>"
    tree = [["p", {}, ["strong", {}, "Tea"], " <b>now</b>"]]
    assert exchange["bot"]["markup"] == page.get(conversation)["turns"][1]["markup"] == tree
    assert list(page.stream(conversation, text="*a*", key="k"))[-1][1]["markup"] == [["p", {}, ["em", {}, "a"]]]


def test_markdown_can_be_switched_off(serve: Any, visitor: Any, tmp_path: Any) -> None:
    with serve(tmp_path / "plain.db", markdown=False) as url:
        page = visitor(url)
        conversation = page.begin()
        assert page.say(conversation, "**Tea**")["bot"]["markup"] is None
        assert page.get(conversation)["turns"][1]["markup"] is None


def test_an_edited_message_replaces_what_followed_and_keeps_the_earlier_version(page: Any) -> None:
    conversation = page.begin("inspect")
    page.say(conversation, "one")
    first = page.say(conversation, "two")["user"]
    page.say(conversation, "three")
    path = f"/api/conversations/{conversation}"
    body = {"turn": first["id"], "text": " zwei ", "key": "edit"}
    edited = page.http.post(f"{path}/edit", json=body).json()
    received = json.loads(edited["bot"]["text"])["turns"]
    assert [text for speaker, text in received if speaker == "user"] == ["one", "zwei"]
    assert page.http.post(f"{path}/edit", json=body).json()["bot"]["id"] == edited["bot"]["id"]
    turns = page.get(conversation)["turns"]
    assert [turn["text"] for turn in turns if turn["speaker"] == "user"] == ["one", "zwei"]
    assert (turns[2]["attempt"], turns[2]["attempts"]) == (2, 2)
    versions = page.http.get(f"{path}/turns/{edited['user']['id']}/attempts").json()
    assert [(turn["text"], turn["attempt"]) for turn in versions] == [("two", 1), ("zwei", 2)]
    page.say(conversation, "four")
    assert len(page.get(conversation)["turns"]) == 6


@pytest.mark.parametrize("which", ["unknown", "reply", "replaced", "foreign"])
def test_only_a_current_message_can_be_edited(page: Any, which: str) -> None:
    conversation, other = page.begin(), page.begin()
    exchange = page.say(conversation, "one")
    path = f"/api/conversations/{conversation}/edit"
    page.http.post(path, json={"turn": exchange["user"]["id"], "text": "uno", "key": "edit"})
    turn = {
        "unknown": "0" * 32,
        "reply": page.get(conversation)["turns"][1]["id"],
        "replaced": exchange["user"]["id"],
        "foreign": page.say(other, "hi")["user"]["id"],
    }[which]
    before = page.get(conversation)
    assert page.http.post(path, json={"turn": turn, "text": "x", "key": which}).status_code == 404
    assert page.get(conversation)["turns"] == before["turns"]


def test_all_attempts_are_listed_and_one_can_be_chosen(page: Any) -> None:
    conversation = page.begin("inspect")
    first = page.say(conversation, "hi")["bot"]
    path = f"/api/conversations/{conversation}"
    for key in "ab":
        last = page.http.post(f"{path}/regenerate", json={"key": key}).json()["bot"]
    attempts = page.http.get(f"{path}/turns/{last['id']}/attempts").json()
    assert [(turn["attempt"], turn["attempts"]) for turn in attempts] == [(1, 3), (2, 3), (3, 3)]
    assert attempts[0]["text"] == first["text"] != last["text"]
    chosen = page.http.post(f"{path}/turns/{first['id']}/choose").json()
    assert page.get(conversation)["turns"][1] == chosen == attempts[0]
    again = page.http.post(f"{path}/regenerate", json={"key": "c"}).json()["bot"]
    assert again["attempt"] == 4
    page.say(conversation, "go on")
    assert page.http.post(f"{path}/turns/{first['id']}/choose").status_code == 409
    assert page.http.post(f"{path}/turns/{'0' * 32}/choose").status_code == 404


def test_conversations_are_searched_by_title_and_text(page: Any, url: str, visitor: Any) -> None:
    tea, boat = page.begin(), page.begin()
    page.say(tea, "I drink Green tea every day")
    page.say(boat, "My 100% wooden BOAT is green")
    page.http.patch(f"/api/conversations/{boat}", json={"title": "Harbour"})

    def search(text: str) -> list[tuple[str, str | None]]:
        hits = page.http.get("/api/search", params={"q": text}).json()
        return [(hit["title"], hit["excerpt"]) for hit in hits]

    assert [title for title, _ in search("green")] == ["Harbour", "I drink Green tea every day"]
    assert search("boat GREEN") == [("Harbour", "My 100% wooden BOAT is green")]
    assert search("harb") == [("Harbour", None)]
    assert search("100%") == [("Harbour", "My 100% wooden BOAT is green")]
    assert search("g_een") == search("  ") == search("green harbour tea boat") == []
    assert visitor(url).http.get("/api/search", params={"q": "green"}).json() == []
    assert page.http.get("/api/search", params={"q": "x" * 201}).status_code == 422


def test_a_reply_is_explained_only_where_the_server_says_so(page: Any, serve: Any, visitor: Any, tmp_path: Any) -> None:
    conversation = page.begin()
    turn = page.say(conversation, "hi")["bot"]["id"]
    assert page.http.get(f"/api/conversations/{conversation}/turns/{turn}/why").status_code == 404
    with serve(tmp_path / "explained.db", explain=True) as url:
        explained = visitor(url)
        conversation = explained.begin()
        exchange = explained.say(conversation, "hi")
        path = f"/api/conversations/{conversation}/turns"
        why = explained.http.get(f"{path}/{exchange['bot']['id']}/why").json()
        assert why["candidates"] == [{"text": "hi", "score": 0.5, "dropped": None, "source": None, "note": None}]
        assert (why["settings"], why["seed"], why["seconds"]) == ({"loud": False}, why["seed"], 0.001)
        assert isinstance(why["seed"], int)
        assert why["redraws"] == 2
        assert "spec" not in why
        assert explained.http.get(f"{path}/{exchange['user']['id']}/why").status_code == 404
        assert visitor(url).http.get(f"{path}/{exchange['bot']['id']}/why").status_code == 404


def test_given_names_come_before_a_bots_own() -> None:
    bots = {name: lazy.load() for name, lazy in lazy_bots(["Anna Lee=generic", "generic", "generic"]).items()}
    assert list(bots) == ["Anna Lee", "generic", "generic-2"]
    workers = [Worker(bot, name=name) for name, bot in bots.items()]
    assert [bot_out(worker)["name"] for worker in workers] == ["Anna Lee", "generic", "generic-2"]
    for worker in workers:
        worker.close()


def test_turns_and_conversations_come_in_pages(page: Any) -> None:
    conversation = page.begin()
    for number in range(5):
        page.say(conversation, f"message {number}")
    path = f"/api/conversations/{conversation}"
    last = page.http.get(path, params={"limit": 4}).json()
    assert [turn["text"] for turn in last["turns"]] == ["message 3", "message 3", "message 4", "message 4"]
    first = page.http.get(path, params={"limit": 10, "before": last["earlier"]}).json()
    assert [turn["text"] for turn in first["turns"]][::2] == ["message 0", "message 1", "message 2"]
    assert first["earlier"] is None
    assert page.get(conversation)["earlier"] is None
    ids = [page.begin() for _ in range(3)]
    listed = [row["id"] for row in page.http.get("/api/conversations").json()]
    assert listed == [*reversed(ids), conversation]
    newest = page.http.get("/api/conversations", params={"limit": 2}).json()
    older = page.http.get("/api/conversations", params={"limit": 2, "before": newest[-1]["id"]}).json()
    assert [row["id"] for row in (*newest, *older)] == listed
