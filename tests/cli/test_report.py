import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.corpus.load import load_dialogues, save_dialogues

Tertulia = Callable[..., Any]


@pytest.fixture
def run(tertulia: Tertulia, tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    assert tertulia("judge", "rank", "generic", "--limit", 20, "--out", folder).code == 0
    return folder


def test_formats_and_files(tertulia: Tertulia, run: Path, tmp_path: Path) -> None:
    printed = tertulia("report", run, "--format", "md").out
    assert printed.startswith("# How often bots find the true reply")
    assert "tertulia judge rank generic --limit 20" in printed
    page = tertulia("report", run, "--format", "html", "--out", tmp_path / "page.html").out
    assert page.startswith("<!doctype html>")
    assert page == (tmp_path / "page.html").read_text(encoding="utf-8")
    identity = json.loads(tertulia("report", run, "--format", "json").out)["identity"]
    assert identity["command"].startswith("tertulia judge rank generic")
    assert identity["data"]["path"] == "sample"
    assert identity["data"]["split"] == "valid"
    assert len(identity["data"]["digest"]) >= 16
    wrong = tertulia("report", run, "--format", "pdf")
    assert wrong.code == 2
    assert "Traceback" not in wrong.err


def test_a_log_of_inspect_is_a_run(tertulia: Tertulia, run: Path, tmp_path: Path) -> None:
    figures = json.loads(tertulia("report", run, "--json", "--inspect", tmp_path / "log.json").out)["figures"]
    assert json.loads(tertulia("report", tmp_path / "log.json", "--json").out)["figures"] == figures
    assert tertulia("report", run, run, "--inspect", tmp_path / "log.json").code == 2
    (tmp_path / "log.json").write_text("{}")
    damaged = tertulia("report", tmp_path / "log.json")
    assert damaged.code == 1
    assert "no log of Inspect AI" in damaged.err


@pytest.mark.parametrize(
    ("options", "preset"),
    [
        (("--each",), "pairwise-static"),
        (("--from-turn", 2, "--partner", "generic", "--turns", 3), "pairwise-chat"),
    ],
)
def test_a_replay_and_its_study(tertulia: Tertulia, tmp_path: Path, options: tuple[Any, ...], preset: str) -> None:
    chats = tmp_path / "chats.jsonl"
    said = ("Hello!", "Hi, who are you?", "Nobody.", "Oh, I see.")
    turns = tuple(Turn(("user", "bot")[i % 2], text) for i, text in enumerate(said))
    save_dialogues([Dialogue(f"d{i}", turns) for i in range(3)], chats)
    out, study = tmp_path / "out", tmp_path / "blind.toml"
    result = tertulia("judge", "replay", chats, "--bot", "generic", *options, "--out", out, "--study", study)
    assert result.code == 0, result.err
    assert "Compared with original" in result.out
    both = list(load_dialogues(out / "dialogues.jsonl"))
    assert len(both) == (12 if preset == "pairwise-static" else 6)
    assert both[0].turns[:1] == both[1].turns[:1] == turns[:1]
    assert both[1].turns[1].meta["provenance"]["bot"] == "generic"
    checked = tertulia("study", "check", study)
    assert checked.code == 0, checked.err
    assert preset in checked.out
    units = next(line for line in checked.out.splitlines() if line.startswith("units"))
    assert units.split()[-1] == ("6" if preset == "pairwise-static" else "3")
    assert tertulia("report", out).code == 0


def test_a_replay_that_cannot_be_is_an_error_that_says_what_to_do(tertulia: Tertulia, tmp_path: Path) -> None:
    result = tertulia("judge", "replay", "sample", "--bot", "generic", "--out", tmp_path / "out")
    assert result.code == 2
    assert "--each" in result.err
    missing = tertulia(
        "judge", "replay", tmp_path / "none.jsonl", "--bot", "generic", "--each", "--out", tmp_path / "o"
    )
    assert missing.code == 2
    assert "Traceback" not in missing.err
