import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import DataError, UsageError
from tertulia.core.reply import Ask, Candidate, Provenance, Reply
from tertulia.corpus.load import load_dialogues
from tertulia.corpus.write import save_dialogues
from tertulia.judge.replay import ORIGINAL, REPLAY, ReplayConfig, replay, replay_points, replayed_dialogues, run_replay
from tertulia.judge.replay_study import write_study
from tertulia.judge.runs import load_run, save_run


class Echo:
    """Says how many turns it saw, its seed and its persona."""

    summary = "Echoes."

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self.asks: list[Ask] = []

    def reply(self, asks: Sequence[Ask]) -> list[Reply]:
        self.asks += asks
        return [
            Reply(
                f"{self.spec} {len(ask.dialogue.turns)} {ask.seed} {'/'.join(ask.dialogue.personas)}",
                Provenance(self.spec, "f00d", seed=ask.seed),
                candidates=(Candidate("x", 0.5, source="thread 7"),),
            )
            for ask in asks
        ]


PERSONAS = {"A": Persona(("I sail.",)), "B": Persona(("I bake.",))}


def chat(name: str, turns: int = 6) -> Dialogue:
    """Self-play in which both have a provenance, but for the opener."""
    said = [Turn("A", "Hi!")]
    for i in range(1, turns):
        source = {"bot": f"bot-{'AB'[i % 2]}", "seed": 100 + i, "checkpoint": "c0ffee"}
        said.append(Turn("AB"[i % 2], f"{name} turn {i}", meta={"provenance": source}))
    return Dialogue(name, tuple(said), PERSONAS)


def config(**options: Any) -> ReplayConfig:
    return ReplayConfig(**{"conversations": ("x",), "bot": "generic", "out": Path("out"), **options})


def test_every_turn_of_the_bot_gets_a_reply_with_the_seed_of_the_original() -> None:
    settings = config(each=True)
    points = [point for i in range(40) for point in replay_points(chat(f"d{i}"), settings, i)]
    assert [point.unit for point in points[:3]] == ["d0#1", "d0#3", "d0#5"]
    bot = Echo("new")
    pairs = replay(points, bot, None, settings)
    assert [pair.original[0].text for pair in pairs[:3]] == ["d0 turn 1", "d0 turn 3", "d0 turn 5"]
    assert [pair.replay[0].text for pair in pairs[:3]] == ["new 1 101 B", "new 3 103 B", "new 5 105 B"]
    assert all(len(pair.replay) == 1 for pair in pairs)
    assert len(bot.asks) == 120  # more than one batch
    (candidate,) = pairs[0].replay[0].meta["candidates"]
    assert candidate == {"text": "x", "score": 0.5, "dropped": None, "source": "thread 7", "note": None}


def test_a_conversation_goes_on_with_a_simulated_partner() -> None:
    settings = config(from_turn=3, partner="p", turns=5)
    points = replay_points(chat("d"), settings)
    assert [point.position for point in points] == [3]  # turn 3 is A's; B's next one is turn 4
    bot, partner = Echo("new"), Echo("partner")
    (pair,) = replay(points, bot, partner, settings)
    assert [turn.speaker for turn in pair.replay] == ["B", "A", "B", "A", "B"]
    assert [turn.text for turn in pair.replay[:3]] == ["new 3 103 B", "partner 4 104 A", "new 5 105 B"]
    assert len({ask.seed for ask in bot.asks + partner.asks}) == 5  # also beyond the end of the original
    assert [turn.text for turn in pair.original] == ["d turn 3", "d turn 4", "d turn 5"]
    both = list(replayed_dialogues([pair]))
    assert [d.id for d in both] == ["d#3/original", "d#3/replay"]
    assert both[0].turns[:3] == both[1].turns[:3] == chat("d").turns[:3]
    assert both[1].meta["replay"] == {"dialogue": "d", "from_turn": 4, "speaker": "B", "side": REPLAY}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    file = tmp_path / "chats.jsonl"
    save_dialogues([chat(f"d{i}", turns=4 + i % 3) for i in range(5)], file)
    return file


def test_a_judged_run_compares_both_on_the_same_units(stored: Path, tmp_path: Path) -> None:
    replayed = run_replay(ReplayConfig(conversations=(str(stored),), bot="generic", each=True, out=tmp_path / "out"))
    run = replayed.run
    assert [subject.name for subject in run.subjects] == [ORIGINAL, REPLAY]
    assert run.subjects[0].spec == "bot-B"
    assert run.subjects[0].fingerprint == "c0ffee"
    words = {score.subject: score for score in run.scores if score.metric == "words per reply"}
    assert words[ORIGINAL].units == words[REPLAY].units
    assert set(words[ORIGINAL].values) == {3.0}
    compared = {c.metric: c for c in run.comparisons()}
    assert compared["words per reply"].estimate.n == len(replayed.pairs) == 11
    reply = next(item for item in run.items if item.subject == REPLAY)
    assert reply.content["provenance"]["seed"] == 101
    assert repr(save_run(run, tmp_path / "run")) == repr(load_run(tmp_path / "run"))  # nan is not equal to itself
    assert "known for 11 of 11" in run.notes[1]


def test_conversations_without_such_a_turn_are_counted_and_none_at_all_is_an_error(
    stored: Path, tmp_path: Path
) -> None:
    given = {"conversations": (str(stored),), "bot": "generic", "out": tmp_path / "out"}
    run = run_replay(ReplayConfig(**given, from_turn=5)).run
    assert run.details["points"] == 1
    assert run.notes[-1] == "Without such a turn: 4 conversations."
    with pytest.raises(DataError, match="can be replayed"):
        run_replay(ReplayConfig(**given, from_turn=50))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "where the other bot takes over"),
        ({"each": True, "from_turn": 2}, "where the other bot takes over"),
        ({"each": True, "partner": "generic"}, "single replies"),
        ({"from_turn": 2, "turns": 4}, "other side"),
        ({"each": True, "metrics": ("hits@1",)}, "metric of ranks"),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run_replay(config(**options))


def test_a_study_of_single_replies_and_one_of_continuations(stored: Path, tmp_path: Path) -> None:
    dialogues = list(load_dialogues(stored))
    for settings, preset in (
        (config(each=True), "pairwise-static"),
        (config(from_turn=2, partner="p"), "pairwise-chat"),
    ):
        points = [point for i, dialogue in enumerate(dialogues) for point in replay_points(dialogue, settings, i)]
        pairs = replay(points, Echo("new"), Echo("p") if settings.partner else None, settings)
        same = pairs[0]._replace(replay=pairs[0].original)
        file = tmp_path / f"{preset}.toml"
        written = write_study([same, *pairs[1:]], file)
        assert (written.pairs, written.left_out) == (len(pairs) - 1, 1)
        study = tomllib.loads(file.read_text(encoding="utf-8"))
        assert study["preset"] == preset
        lines = [json.loads(line) for line in (tmp_path / study["items"]).read_text(encoding="utf-8").splitlines()]
        if preset == "pairwise-static":
            assert set(lines[0]["responses"]) == {ORIGINAL, REPLAY}
            assert len(lines) == written.pairs
        else:
            assert [line["bot"] for line in lines[:2]] == [ORIGINAL, REPLAY]
            assert lines[0]["pair"] == lines[1]["pair"]
    with pytest.raises(DataError, match="the same everywhere"):
        write_study([same], tmp_path / "none.toml")
