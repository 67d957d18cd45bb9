"""Evidence over HTTP: stored, exported, given to bots, and replies checked against it without holding anything up."""

import asyncio
import json
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.errors import UnknownName
from tertulia.core.grounding import GroundingInput, GroundingVerdict, SentenceVerdict, Span
from tertulia.store import Database, StoredTurn
from tertulia.talk.bots.generic import GenericBot
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.grounding import GroundingService, verdict_out
from tertulia.web.page.schemas import ReplyEvidenceOut

WEB = Path(__file__).parents[2] / "src/tertulia/web"
PASSAGES = ["The Corvo lighthouse was built in 1887.", "It has three lamps."]


def begin(page: Any, evidence: list[str] | None) -> str:
    created = page.http.post("/api/conversations", json={"bot": "echo", "evidence": evidence})
    assert created.status_code == 201, created.text
    assert created.json()["evidence"] == (evidence or None)
    return str(created.json()["id"])


def evidence_of(page: Any, conversation: str, turn: dict[str, Any]) -> dict[str, Any]:
    answer = page.http.get(f"/api/conversations/{conversation}/turns/{turn['id']}/evidence")
    assert answer.status_code == 200, answer.text
    ReplyEvidenceOut.model_validate(answer.json(), strict=True)
    result: dict[str, Any] = answer.json()
    return result


def test_evidence_is_stored_with_the_conversation_and_with_each_reply(serve: Any, visitor: Any, tmp_path: Path) -> None:
    file = tmp_path / "chat.db"
    with serve(file) as url:
        page = visitor(url)
        conversation = begin(page, PASSAGES)
        first = page.say(conversation, "The lighthouse was built in 1887.")["bot"]
        changed = page.http.patch(f"/api/conversations/{conversation}", json={"evidence": ["Another text."]})
        assert changed.json()["evidence"] == ["Another text."]
        second = page.say(conversation, "hello")["bot"]
        assert page.http.patch(f"/api/conversations/{conversation}", json={"title": "x"}).json()["evidence"]
        cookies = dict(page.http.cookies)
    with serve(file) as url:  # after a restart
        page = visitor(url)
        page.http.cookies.update(cookies)
        page.keys = 10  # those below are taken
        assert page.get(conversation)["evidence"] == ["Another text."]
        assert [turn["evidence"] for turn in page.get(conversation)["turns"]] == [0, 2, 0, 1]
        given = evidence_of(page, conversation, first)
        assert given == {"passages": [{"text": t, "source": "", "score": None} for t in PASSAGES], "verdict": None}
        assert evidence_of(page, conversation, second)["passages"][0]["text"] == "Another text."
        exported = page.http.get(f"/api/conversations/{conversation}/export").json()
        assert [passage["text"] for passage in exported["evidence"]] == ["Another text."]
        assert [p["text"] for p in exported["turns"][1]["meta"]["evidence"]] == PASSAGES
        markdown = page.http.get(f"/api/conversations/{conversation}/export", params={"format": "md"}).text
        assert "Evidence:\n\n- Another text." in markdown
        removed = page.http.patch(f"/api/conversations/{conversation}", json={"evidence": None})
        assert removed.json()["evidence"] is None
        assert page.say(conversation, "hi")["bot"]["evidence"] == 0


def test_bots_are_asked_with_the_evidence(page: Any) -> None:
    created = page.http.post("/api/conversations", json={"bot": "inspect", "evidence": PASSAGES}).json()
    seen = json.loads(page.say(created["id"], "what do you see?")["bot"]["text"])
    assert seen["evidence"] == PASSAGES


@pytest.mark.parametrize(
    ("evidence", "words"),
    [(["x" * 10_001], "too long: 10,001 characters"), (["a"] * 21, "21 passages"), ([1], "string"), ("text", "list")],
)
def test_too_much_evidence_is_refused_in_clear_words(page: Any, evidence: Any, words: str) -> None:
    answer = page.http.post("/api/conversations", json={"bot": "echo", "evidence": evidence})
    assert answer.status_code == 422
    assert words in json.dumps(answer.json())


def test_sentences_are_checked_where_the_server_says_so(serve: Any, visitor: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "checked.db", grounding="overlap") as url:
        page, stranger = visitor(url), visitor(url)
        conversation = begin(page, PASSAGES)
        reply = page.say(conversation, "The lighthouse was built in 1887. 😀 In 1985!")["bot"]
        verdict = evidence_of(page, conversation, reply)["verdict"]
        assert [(s["label"], s["supported"]) for s in verdict["sentences"]][:1] == [("entailment", True)]
        last = verdict["sentences"][-1]
        assert (last["supported"], last["summary"]) == (False, "on topic, but the evidence does not support it")
        assert [part["text"] for part in last["parts"] if part["unsupported"]] == ["1985"]
        assert "".join(part["text"] for part in last["parts"]) == last["text"]
        assert evidence_of(page, conversation, reply)["verdict"] == verdict
        path = f"/api/conversations/{conversation}/turns"
        stranger.begin()
        assert stranger.http.get(f"{path}/{reply['id']}/evidence").status_code == 404
        user = page.get(conversation)["turns"][0]
        assert page.http.get(f"{path}/{user['id']}/evidence").status_code == 404
        plain = begin(page, None)
        assert evidence_of(page, plain, page.say(plain, "hi")["bot"]) == {"passages": [], "verdict": None}
        assert 'data-grounding="on"' in page.http.get("/").text


class Slow:
    """A classifier that waits until it may go on."""

    name = "folder/of/slow"

    def __init__(self) -> None:
        self.go, self.calls = threading.Event(), 0

    def probabilities(self, inputs: Sequence[GroundingInput], /) -> list[tuple[float, ...]]:
        self.calls += 1
        assert self.go.wait(20)
        return [(1.0, 0.0, 0.0, 0.0, 0.0) for _ in inputs]


def test_verdicts_are_computed_once_and_never_on_the_event_loop() -> None:
    record: dict[str, Any] = {"evidence": [{"text": "Red.", "source": "", "score": None}]}
    turn = StoredTurn("t", "c", 1, "bot", "It is red.", datetime.now(UTC), "done", "echo", record)
    slow = Slow()

    async def look() -> list[dict[str, Any]]:
        service = GroundingService("overlap")
        service._classifier = slow
        waiting = [asyncio.ensure_future(service.verdict(turn, "Which colour?")) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)
        waiting.pop().cancel()  # one visitor leaves: the others still get their verdict
        slow.go.set()
        verdicts = [await task for task in waiting]
        verdicts.append(await service.verdict(turn, "Which colour?"))
        service.close()
        return verdicts

    verdicts = asyncio.run(look())
    assert verdicts == [verdicts[0]] * 3
    assert (verdicts[0]["label"], verdicts[0]["classifier"], slow.calls) == ("entailment", "slow", 1)


def test_parts_are_cut_by_characters_and_not_by_code_units() -> None:
    text = "😀 In 1985, yes."
    row = (0.0, 1.0, 0.0, 0.0, 0.0)
    sentence = SentenceVerdict(Span(0, len(text)), "hallucination", row, (Span(5, 9), Span(11, 14)))
    (out,) = verdict_out(text, GroundingVerdict("hallucination", row, (sentence,)), "x")["sentences"]
    flags = [(part["text"], part["unsupported"]) for part in out["parts"]]
    assert flags == [("😀 In ", False), ("1985", True), (", ", False), ("yes", True), (".", False)]


def test_an_unknown_classifier_is_refused_when_the_server_starts(tmp_path: Path) -> None:
    with (
        Database.open(f"sqlite:///{tmp_path / 'chat.db'}") as database,
        pytest.raises(UnknownName, match="Did you mean 'overlap'"),
    ):
        create_app({"generic": GenericBot()}, database, config=ServeConfig(grounding="overlpa"))


def test_studies_show_no_verdicts() -> None:
    """Participants must not be told what a classifier thinks of what they rate."""
    files = [*(WEB / "study").rglob("*.py"), *(WEB / "static/study").glob("*.js"), WEB / "templates/study.html"]
    assert len(files) > 20
    assert [file.name for file in files if "verdict_out" in (text := file.read_text()) or "web.grounding" in text] == []
    assert [file.name for file in files if "grounding.js" in file.read_text()] == []
