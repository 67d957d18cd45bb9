import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tertulia.judge.runs import load_run

Tertulia = Callable[..., Any]


def test_conversations_of_self_play(tertulia: Tertulia, tmp_path: Path) -> None:
    chats, out = tmp_path / "chats.jsonl", tmp_path / "judged"
    assert tertulia("selfplay", "generic", "--out", chats, "-n", 4, "--turns", 6).code == 0
    options = ("--metric", "words per turn", "--metric", "loop", "--metric", "sentiment", "--out", out)
    result = tertulia("judge", "conversations", chats, *options, "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    figures = {figure["metric"]: figure for figure in report["figures"]}
    assert figures["words per turn"]["value"] == pytest.approx(1)  # "ok" to "ok"
    assert figures["loop"]["value"] == 1
    assert figures["sentiment"]["n"] == 4
    assert [subject.name for subject in load_run(out).subjects] == ["generic"]
    again = tertulia("report", out)
    assert again.code == 0
    assert "words per turn" in again.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("sample", "--metric", "lop"), "'loop'"),
        (("sample", "--metric", "turns", "--resource", "emotion=x"), "'emotions'"),
        (("sample", "--metric", "turns", "--speaker", "Nobody"), "No turn is by the speaker 'Nobody'"),
        (("nowhere.jsonl", "--metric", "turns"), "File not found"),
        (("sample", "--metric", "copied run of 3 turns"), "--training DATA"),
        (("sample", "--metric", "sentiment", "--resource", "emotions=hf:"), "Write hf:NAME_OR_FOLDER"),
        (("sample", "--metric", "sentiment", "--resource", "emotions=lexikon"), "'lexicon'"),
    ],
)
def test_mistakes_are_explained(tertulia: Tertulia, options: tuple[str, ...], message: str) -> None:
    result = tertulia("judge", "conversations", *options)
    assert result.code != 0
    assert message in result.stderr
