"""Chats with bots: labels while chatting, two bots side by side, failures, resuming, and blinding."""

import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web.conftest import events_of
from tests.web.study.conftest import Lab, Rater, answers, chat_toml, lab_at, ok

from tertulia.web.config import lazy_bots
from tertulia.web.study.chats import participant_owner
from tertulia.web.study.opening import open_study


def label_turns(rater: Rater) -> dict[str, Any]:
    """Answer what is asked about each turn so far."""
    task: dict[str, Any] = rater.state()["task"]
    if labels := answers(task, "turn"):
        ok(rater.label(task["assignment"], *labels))
    return rater.state()["task"]


def hold_chat(rater: Rater, task: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Chat for some rounds and label every reply."""
    label_turns(rater)
    for i in range(rounds):
        ok(rater.say(task["assignment"], f"Message {i}"))
        task = label_turns(rater)
    return task


@pytest.mark.parametrize("preset", ["ssa-interactive", "interactive-likert", "persona-chat", "arena"])
def test_a_chat_from_the_link_to_the_code(lab: Lab, preset: str) -> None:
    specs = ("one", "two") if preset == "arena" else ("one",)
    settings = {"units_per_participant": 1, "min_turns": 4, "max_turns": 8}
    items = {"items": "items.jsonl"} if preset == "persona-chat" else {}
    study = lab.open(chat_toml(preset, *specs, **settings, **items), "persona-chat" if items else None)
    rater = lab.rater(study)
    task = rater.begin()
    assert not task["chat"]["can_finish"]
    task = hold_chat(rater, task, 2)
    assert task["chat"]["can_finish"], task["chat"]
    task = rater.act("finish", assignment=task["assignment"])["task"]
    assert task["chat"]["ended"]
    assert not task["chat"]["can_say"]
    if labels := answers(task, "unit", "side"):
        ok(rater.label(task["assignment"], *labels))
    state = rater.act("submit", assignment=task["assignment"], key="s")
    assert state["step"] == "done"
    assert state["code"] == study.config["completion"]["done"]
    turns = [row for row in lab.store.rows(study.id) if row.target.startswith("turn:")]
    assert all(row.turn_text for row in turns)


def test_bots_that_differ_in_an_option_only_are_two_bots(tmp_path: Path, eventually: Callable[..., None]) -> None:
    """Also from a bot that the server offers: its own specification does not name its options."""
    served = lazy_bots(["generic?to_questions=Served."])
    with lab_at(f"sqlite:///{tmp_path / 'study.db'}", served) as lab:
        toml = chat_toml("arena", "generic", "generic?to_questions=Other.")
        rater = lab.rater(open_study(lab.store, toml, "two.toml", [], {}, random.Random(0)))
        rater.begin()
        eventually(lambda: rater.act("next")["task"] is not None)
        chat = ok(rater.say(rater.state()["task"]["assignment"], "Why?"))["chat"]
        assert {turn["text"] for turn in chat["turns"] if not turn["mine"]} == {"I don't know.", "Other."}


def test_a_request_reads_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """And writes once; what a request has changed in between is read again."""
    rater = lab.rater(lab.open(chat_toml("interactive-likert", "one", min_turns=2, units_per_participant=3)))
    rater.begin()
    counts: Counter[str] = Counter()

    def counted(kind: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def count(*work: Any) -> Any:
            counts[kind] += 1
            return run(*work)

        return count

    for name, kind in {"read": "read", "write": "write", "submit": "write"}.items():
        monkeypatch.setattr(lab.database, name, counted(kind, getattr(lab.database, name)))

    def taken(request: Callable[[], Any]) -> tuple[int, int]:
        counts.clear()
        request()
        return counts["read"], counts["write"]

    assignment = rater.state()["task"]["assignment"]
    assert taken(rater.state) == (1, 0)
    assert taken(lambda: rater.stream(assignment, "Hello!")) == (1, 2)  # the message, and the reply
    labels = answers(rater.state()["task"], "turn")
    assert taken(lambda: ok(rater.label(assignment, *labels))) == (1, 1)
    assert taken(lambda: rater.act("finish", assignment=assignment)) == (1, 1)
    ok(rater.label(assignment, *answers(rater.state()["task"], "unit")))
    assert taken(lambda: rater.act("submit", assignment=assignment, key="s")) == (2, 1)
    assert taken(lambda: rater.act("next")) == (3, 2)  # a unit that is new to the server, a lease, its conversation


def test_a_reply_comes_in_equal_pieces_as_plain_text_and_is_stored_as_shown(lab: Lab) -> None:
    study = lab.open(chat_toml("interactive-likert", "moody"))
    rater = lab.rater(study)
    assignment = rater.begin()["assignment"]
    events = rater.stream(assignment, "word " * 10)
    names = [name for name, _ in events]
    assert names == ["user", "start", "piece", "piece", "piece", "piece", "done"]
    text = "".join(data["text"] for name, data in events if name == "piece")
    assert text == events[-1][1]["text"]
    assert "*" not in text
    shown = rater.state()["task"]["chat"]["turns"][-1]
    assert (shown["id"], shown["text"]) == (events[-1][1]["id"], text)
    ok(rater.label(assignment, (f"turn:{shown['id']}", "vote", "up")))
    row = next(iter(lab.store.rows(study.id, unfinished=True)))
    assert row.turn_text == text
    assert row.reply is not None
    assert row.reply["provenance"]["bot"] == "moody"


def test_two_bots_answer_side_by_side(lab: Lab) -> None:
    study = lab.open(chat_toml("arena", "one", "two"))
    rater = lab.rater(study)
    task = rater.begin()
    events = rater.stream(task["assignment"], "Hello, you two!")
    assert [(name, data["side"]) for name, data in events] == [
        ("user", None),
        ("start", "A"),
        ("start", "B"),
        ("piece", "A"),
        ("piece", "B"),
        ("done", "A"),
        ("done", "B"),
    ]
    shown = {data["side"]: data["text"] for name, data in events if name == "done"}
    order = lab.store.work_of(_participant(lab, rater)).live
    assert order is not None
    bots = ["I like the sea.", "You like tea .."]
    assert shown == {"A": bots[order.side_order[0]], "B": bots[order.side_order[1]]}
    turns = rater.state()["task"]["chat"]["turns"]
    assert [(turn["mine"], turn["side"]) for turn in turns] == [(True, None), (False, "A"), (False, "B")]


def test_a_message_whose_reply_failed_can_be_sent_again(lab: Lab) -> None:
    study = lab.open(chat_toml("arena", "moody", "one"))
    rater = lab.rater(study)
    assignment = rater.begin()["assignment"]
    events = rater.stream(assignment, "fail")
    assert events[-1][0] == "error"
    assert [name for name, _ in events].count("piece") == 0
    chat = rater.state()["task"]["chat"]
    assert chat["failed"]
    assert chat["turns_done"] == 0
    assert rater.say(assignment, "fail").status_code == 502
    chat = ok(rater.say(assignment, "Hello!"))["chat"]
    assert not chat["failed"]
    assert chat["turns"][0]["text"] == "Hello!"
    assert len(chat["turns"]) == 3


def test_who_gets_no_reply_may_leave_with_a_code(lab: Lab) -> None:
    study = lab.open(chat_toml("interactive-likert", "moody"))
    rater = lab.rater(study)
    assert rater.say(rater.begin()["assignment"], "fail").status_code == 502
    state = rater.act("leave")
    assert (state["step"], state["code"]) == ("partner_left", study.config["completion"]["partner_left"])


def test_a_bot_gets_its_persona_and_the_context(lab: Lab) -> None:
    study = lab.open(chat_toml("persona-chat", "inspect", items="items.jsonl"), "persona-chat")
    rater = lab.rater(study)
    task = rater.begin()
    chat = ok(rater.say(task["assignment"], "Who are you?"))["chat"]
    received = json.loads(chat["turns"][-1]["text"])
    unit = lab.store.work_of(_participant(lab, rater)).live
    assert unit is not None
    assert received["persona"] == lab.store.unit(study.id, unit.unit).payload["persona"]
    assert received["turns"] == [["user", "Who are you?"]]


def test_a_reply_is_held_back_until_its_moment_on_every_device(lab: Lab, eventually: Callable[..., None]) -> None:
    """An hour: whoever looks before sees nothing of a reply that is there already."""
    study = lab.open(chat_toml("interactive-likert", "one", reply_seconds=3600))
    rater = lab.rater(study)
    assignment = rater.begin()["assignment"]
    body = {"assignment": assignment, "text": "Hello!", "key": "k"}
    with rater.http.stream("POST", f"/api/study/{rater.study}/say", json=body) as answer:
        names = [name for name, _ in itertools.islice(events_of(answer.iter_lines()), 2)]
    assert names == ["user", "start"]
    owner = participant_owner(_participant(lab, rater))
    conversation = lab.conversations.summaries(owner)[0].id
    eventually(lambda: lab.conversations.turns(conversation, owner)[-1].text == "I like the sea.")
    turns = rater.state()["task"]["chat"]["turns"]
    assert [(turn["text"], turn["pending"]) for turn in turns] == [("Hello!", False), ("", True)]


def test_a_reply_can_be_followed_after_a_reload(lab: Lab) -> None:
    study = lab.open(chat_toml("interactive-likert", "one"))
    rater = lab.rater(study)
    assignment = rater.begin()["assignment"]
    done = rater.stream(assignment, "Hello!")[-1]
    with rater.http.stream("GET", f"/api/study/{rater.study}/events", params={"assignment": assignment}) as answer:
        assert list(events_of(answer.iter_lines()))[-1] == done


def _participant(lab: Lab, rater: Rater) -> str:
    return lab.studies.service.rater(rater.study, rater.token).id


def test_withdrawal_deletes_the_conversations(lab: Lab) -> None:
    study = lab.open(chat_toml("arena", "one", "two"))
    rater = lab.rater(study)
    ok(rater.say(rater.begin()["assignment"], "My secret."))
    owner = participant_owner(_participant(lab, rater))
    conversations = lab.conversations
    assert len(conversations.summaries(owner)) == 2
    rater.act("withdraw", confirm=True)
    assert not conversations.summaries(owner)


RANDOM = re.compile("[0-9a-f]{32}")
UNRELATED = {"date", "x-request-id"}


def traffic(lab: Lab, study: Any, name: str) -> list[tuple[dict[str, str], bytes]]:
    """Headers and bodies of all responses to one participant, from the link to the code."""
    rater = lab.rater(study, enters=False)
    seen: list[tuple[dict[str, str], bytes]] = []

    def record(response: httpx.Response) -> None:
        body = response.read()
        headers = {key: RANDOM.sub("ID", value) for key, value in response.headers.items() if key not in UNRELATED}
        headers["set-cookie"] = re.sub(r"=[^;]+;", "=;", headers.get("set-cookie", ""), count=1)
        seen.append((headers, body))

    rater.http.event_hooks["response"] = [record]
    rater.enter(PROLIFIC_PID=name)
    task = rater.begin()
    for i in range(2):
        rater.stream(task["assignment"], f"Message {i}")
        state = rater.state()["task"]
        ok(rater.label(task["assignment"], *answers(state, "turn")))
    rater.act("finish", assignment=task["assignment"])
    ok(rater.label(task["assignment"], *answers(task, "unit")))
    rater.act("submit", assignment=task["assignment"], key="s")
    rater.act("withdraw", confirm=True)
    return seen


def test_the_traffic_of_two_bots_is_equal_but_for_their_texts(lab: Lab) -> None:
    """Both bots' texts have the same length, so that even the lengths must agree."""
    settings = {"units_per_participant": 1, "min_turns": 4, "conversations_per_bot": 1}
    toml = chat_toml("interactive-likert", "SPEC", **settings) + CODES
    texts = {"one": b"I like the sea.", "two": b"You like tea .."}
    seen = {}
    for spec, text in texts.items():
        study = lab.open(toml.replace("SPEC", spec))
        seen[spec] = [(headers, mask(body, text)) for headers, body in traffic(lab, study, "the-worker")]
    assert len(seen["one"]) == len(seen["two"]) > 10
    for one, two in zip(seen["one"], seen["two"], strict=True):
        assert one == two
    everything = b"".join(body for _, body in seen["one"])
    assert everything.count(b"BOT TEXT") >= 6
    assert not [word for word in (b"bot-0", b'"one"', b"study:", b"checkpoint", b'"spec"') if word in everything]


def mask(body: bytes, text: bytes) -> bytes:
    """The body without the bot's text, random ids and the time that is left."""
    masked = RANDOM.sub("ID", body.decode().replace(text.decode(), "BOT TEXT"))
    return re.sub('"expires_seconds":[0-9]+', "", masked).encode()


CODES = """
[completion]
done = "DONE"
screened_out = "OUT"
partner_left = "LEFT"
timed_out = "LATE"
"""
