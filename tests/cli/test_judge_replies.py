"""`judge replies` on the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tertulia.judge.runs import load_run

Tertulia = Callable[..., Any]
METRICS = ("--metric", "f1", "--metric", "distinct-2", "--metric", "words per reply")


def test_bots_for_people_and_as_json(tertulia: Tertulia, tmp_path: Path) -> None:
    given = ("judge", "replies", "generic", "tfidf", "--replies", 6, *METRICS)
    result = tertulia(*given, "--out", tmp_path / "run")
    assert result.code == 0
    text = " ".join(result.out.split())
    for part in ("generic", "tfidf", "6 replies in contexts drawn from sample, split valid", "Compared with generic"):
        assert part in text
    run = load_run(tmp_path / "run")
    assert run.verb == "replies"
    assert run.about["data"]["path"] == "sample"
    report = json.loads(tertulia(*given, "--json").out)
    assert {figure["metric"]: figure["n"] for figure in report["figures"]}["f1"] == 6


def test_given_replies(tertulia: Tertulia, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"context": ["hi"], "reply": "hello you", "reference": "hello"}\nbroken\n', encoding="utf-8")
    result = tertulia("judge", "replies", "--given", file, *METRICS, "--out", tmp_path / "run", "--json")
    assert result.code == 0
    figures = {figure["metric"]: figure["value"] for figure in json.loads(result.out)["figures"]}
    assert figures["words per reply"] == 2
    assert "line 2: not valid JSON" in result.stderr
    assert load_run(tmp_path / "run").about["data"]["path"] == str(file)
    persona = ("--metric", "contradicts persona", "--resource", "entailment=nowhere")
    wrong = tertulia("judge", "replies", "--given", file, *persona)
    assert wrong.code == 2
    assert "hf:NAME_OR_FOLDER" in wrong.stderr
