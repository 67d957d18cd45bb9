"""From a simulated study to a judge's agreement and prediction-powered figures, all through the command line."""

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.reply import Ask, Provenance, Reply
from tertulia.judge.runs import load_run
from tertulia.store import Database
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import running

Tertulia = Callable[..., Any]


class Coin:
    """Answers yes or no by a digest of what it reads; A to every choice."""

    spec = "coin"
    summary = "Judges by tossing a coin."

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [Reply(self._answer(ask.dialogue.turns[0].text), Provenance(self.spec)) for ask in asks]

    def _answer(self, prompt: str) -> str:
        if "Reply A:" in prompt or "Conversation A:" in prompt:
            return "A"
        return "yes" if zlib.crc32(prompt.encode()) % 3 else "no"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("serve") / "serve.db"
    config = ServeConfig(messages_per_minute=0, max_in_flight=0)
    with (
        Database.open(f"sqlite:///{file}") as database,
        running(create_app({"coin": Coin()}, database, config=config)) as url,
    ):
        yield f"openai:coin?base_url={url}/v1"


def item(number: int) -> str:
    turns = [{"speaker": "a", "text": f"Tell me about number {number}."}]
    responses = {"good": f"It is {number}, which I like.", "bad": f"I do not know {number}."}
    return json.dumps({"id": f"i{number}", "turns": turns, "responses": responses}) + "\n"


def simulated(tertulia: Tertulia, folder: Path, preset: str) -> Path:
    """A study of the first six items."""
    (folder / "items.jsonl").write_text("".join(map(item, range(6))))
    study = folder / "study.toml"
    study.write_text(
        f'preset = "{preset}"\ntitle = "T"\nlanguages = ["en"]\nitems = "items.jsonl"\nratings_per_unit = 2\n'
        'units_per_participant = 6\n[[bots]]\nname = "good"\n[[bots]]\nname = "bad"\n'
    )
    result = tertulia("study", "simulate", study, "--raters", 6, "--out", folder / "people", "--json")
    assert result.code == 0, result.err
    return folder / "people"


def test_a_part_by_people_and_the_whole_by_a_judge(tertulia: Tertulia, endpoint: str, tmp_path: Path) -> None:
    people = simulated(tertulia, tmp_path, "ssa-static")
    (tmp_path / "all.jsonl").write_text("".join(map(item, range(18))))
    call = ("judge", "llm", tmp_path / "all.jsonl", "--endpoint", endpoint, "--cache", tmp_path / "cache")
    dry = tertulia(*call, "--dry-run", "--json", "--price-in", 2)
    assert json.loads(dry.out)["calls"] == 2 * 36
    result = tertulia(*call, "--human", people, "--out", tmp_path / "judged")
    assert result.code == 0, result.err
    assert result.out.startswith("coin as a judge, compared with people on 12 of 36 units.")
    assert "Agreement with people" in result.out
    shown = tertulia("report", tmp_path / "judged").out
    assert shown.startswith("coin as a judge, compared with people")

    powered = tertulia("judge", "ppi", "--human", people, "--judge", tmp_path / "judged", "--json")
    assert powered.code == 0, powered.err
    figures = {(f["subject"], f["metric"]): f for f in json.loads(powered.out)["figures"]}
    ssa = figures["good", "SSA (prediction-powered)"]
    assert ssa["n"] == 18
    assert 0 <= ssa["low"] < ssa["value"] < ssa["high"] <= 1
    both = tertulia("report", tmp_path / "judged", people)
    assert both.code == 0, both.err


def test_votes_of_people_and_of_a_judge_who_always_takes_the_first(
    tertulia: Tertulia, endpoint: str, tmp_path: Path
) -> None:
    people = simulated(tertulia, tmp_path, "pairwise-static")
    call = ("judge", "llm", people, "--endpoint", endpoint, "--cache", tmp_path / "cache", "--question", "pairwise")
    result = tertulia(*call, "--human", people, "--json")
    assert result.code == 0, result.err
    figures = {(f["subject"], f["setting"], f["metric"]): f for f in json.loads(result.out)["figures"]}
    assert figures["good", "quality, against bad", "first position (judge)"]["value"] == 1.0
    assert figures["good", "quality, against bad", "order agreement (judge)"]["value"] == 0.0
    assert figures["good", "quality, against bad", "wins (judge)"]["value"] == 0.5
    assert figures["good", "wins: quality, against bad", "bias (judge)"]["n"] == 6


@pytest.mark.parametrize(
    ("preset", "question", "metric"),
    [("ssa-interactive", "ssa", "sensibleness (judge)"), ("arena", "better.toml", "wins (judge)")],
)
def test_chats_that_people_held_in_a_study_are_judged_up_to_what_they_labelled(
    tertulia: Tertulia, endpoint: str, tmp_path: Path, preset: str, question: str, metric: str
) -> None:
    text = tertulia("study", "new", preset).out.replace('spec = "tfidf"', 'spec = "generic"')
    for number in (100, 50, 30):
        text = text.replace(f"conversations_per_bot = {number}", "conversations_per_bot = 1")
    (tmp_path / "study.toml").write_text(text)
    people = tmp_path / "people"
    assert tertulia("study", "simulate", tmp_path / "study.toml", "--raters", 2, "--out", people).code == 0
    (tmp_path / "better.toml").write_text(
        '[[questions]]\nid = "better_reply"\nkind = "pairwise"\nabout = "conversation"\ntext = "Which is better?"'
    )
    asked = tmp_path / question if question.endswith("toml") else question
    call = ("judge", "llm", people, "--endpoint", endpoint, "--cache", tmp_path / "cache", "--question", asked)
    result = tertulia(*call, "--human", people, "--out", tmp_path / "judged", "--json")
    assert result.code == 0, result.err
    figures = [f for f in json.loads(result.out)["figures"] if f["metric"] == metric]
    assert figures
    run, judged = load_run(people), load_run(tmp_path / "judged")
    rated = {f"{item.content['unit']}/{item.content['target']}" for item in run.items if "target" in item.content}
    labelled = {item.content["study_item"] for item in judged.items}
    assert labelled >= {name for name in rated if "turn:" in name}
    contexts = {len(item.content.get("context", ())) for item in run.items}
    if question == "ssa":
        assert {0, 2, 4} <= contexts  # each turn of a bot with all that was said before it
    else:
        sides = [item.content["conversations"] for item in run.items]
        assert all(len(first["turns"]) == len(second["turns"]) for first, second in sides)
        assert all(first["turns"][-1]["speaker"] == first["judged"] for first, _ in sides)


def test_errors_say_what_to_do(tertulia: Tertulia, endpoint: str, tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_text(item(1))
    down = "openai:m?base_url=http://127.0.0.1:9/v1&retries=0"
    result = tertulia("judge", "llm", tmp_path / "all.jsonl", "--endpoint", down, "--cache", tmp_path / "cache")
    assert result.code == 1
    assert "cannot be reached" in result.stderr
    assert "the same command goes on from there" in result.stderr
    missing = tertulia("judge", "ppi", "--human", tmp_path / "none", "--judge", tmp_path / "none")
    assert missing.code == 2
    assert "Folder not found" in missing.stderr
