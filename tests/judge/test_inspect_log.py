import json
import math
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.errors import DataError, UsageError
from tertulia.core.score import Score
from tertulia.judge.inspect_log import read_log, write_log
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject
from tertulia.metrics.metric import MetricInfo


def two_bots() -> JudgedRun:
    """Means, missing values, a weighted metric, shared texts and a subject's own."""
    scores = []
    for bot, values in (("a", (1.0, math.nan, 0.5)), ("b", (0.0, 0.25, 1.0))):
        scores.append(Score(bot, "own", "f1", ("u1", "u2", "u3"), values, ("d1", "d1", "d2")))
        scores.append(Score(bot, "own", "perplexity", ("d1", "d2"), (9.0, 7.5), ("d1", "d2"), (3.0, 2.0)))
    return JudgedRun(
        verb="perplexity",
        config={"seed": 3, "data": "x"},
        subjects=(Subject("a", "runs/a", "transformer", "f00d"), Subject("b")),
        settings=("own",),
        scores=tuple(scores),
        metrics={"f1": MetricInfo("f1", "reply"), "perplexity": MetricInfo("perplexity", "dialogue", "perplexity")},
        items=(
            JudgedItem("u1", {"context": ["Hi"], "reply": "Yo", "reference": "Hello"}, "a", "own"),
            JudgedItem("u1", {"context": ["Hi"], "reply": "Ho", "reference": "Hello"}, "b", "own"),
            JudgedItem("u3", {"context": ["Bye"], "reference": "Bye!"}),
        ),
        notes=("a note",),
        details={"words": 5},
        about={"command": "tertulia judge perplexity", "created": "2026-01-02T03:04:05+00:00", "versions": {"x": "1"}},
    )


def same(one: JudgedRun, other: JudgedRun) -> bool:
    return repr(one) == repr(other)  # nan is not equal to itself


def test_a_run_reads_back_as_it_was_written(tmp_path: Path) -> None:
    run = two_bots()
    write_log(run, tmp_path / "logs" / "log.eval")
    assert same(read_log(tmp_path / "logs" / "log.eval"), run)
    write_log(run, tmp_path / "log.json")
    again = read_log(tmp_path / "log.json")
    assert same(again, run)
    assert again.estimates()["a", "own", "perplexity"].value == pytest.approx(math.exp(16.5 / 5))
    log = json.loads((tmp_path / "log.json").read_text())
    sample = next(s for s in log["samples"] if s["metadata"]["subject"] == "b" and s["metadata"]["unit"] == "u1")
    assert [(m["role"], m["content"]) for m in sample["messages"]] == [("user", "Hi"), ("assistant", "Ho")]
    assert sample["target"] == "Hello"
    assert sample["scores"]["f1"]["value"] == 0.0
    assert len({sample["id"] for sample in log["samples"]}) == len(log["samples"]) == 10


def foreign() -> dict[str, Any]:
    """A log as another framework's run leaves it: grades, several values, epochs."""
    samples = [
        {
            "id": name,
            "epoch": epoch,
            "input": [{"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}],
            "target": ["4", "four"],
            "output": {"choices": [{"message": {"role": "assistant", "content": "4"}, "stop_reason": "stop"}]},
            "scores": {"match": {"value": grade}, "rubric": {"value": {"style": 3, "tone": None}}},
        }
        for name, epoch, grade in ((1, 1, "C"), (1, 2, "I"), (2, 1, "P"), (2, 2, "C"))
    ]
    spec = {"task": "sums", "model": "openai/x", "created": "2026-01-01T00:00:00Z", "dataset": {"name": "d"}}
    return {"version": 2, "status": "success", "eval": spec | {"config": {}}, "samples": samples}


def check_foreign(run: JudgedRun) -> None:
    assert [subject.name for subject in run.subjects] == ["openai/x"]
    match, style = run.scores
    assert (match.metric, style.metric) == ("match", "rubric/style")
    assert match.values == (1.0, 0.0, 0.5, 1.0)
    assert match.clusters == ("1", "1", "2", "2")  # epochs of one sample are not independent
    assert run.estimates()["openai/x", "", "match"].value == pytest.approx(0.625)
    assert run.items[0].content["reply"] == "4"
    assert run.items[0].content["reference"] == "4 / four"
    assert run.items[0].content["context"] == [{"speaker": "user", "text": "2 + 2?"}]
    assert run.notes == ("rubric/tone: values that are no numbers are left out.",)


def test_logs_of_others_in_both_formats(tmp_path: Path) -> None:
    log = foreign()
    (tmp_path / "log.json").write_text(json.dumps(log))
    check_foreign(read_log(tmp_path / "log.json"))
    with zipfile.ZipFile(tmp_path / "log.eval", "w") as archive:
        archive.writestr("header.json", json.dumps({k: v for k, v in log.items() if k != "samples"}))
        for sample in log["samples"]:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
    check_foreign(read_log(tmp_path / "log.eval"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"eval": {}}', '{"eval": {"model": "m", "task": "t"}}', "\x00"])
def test_what_is_no_log_is_an_error_with_a_hint(tmp_path: Path, text: str) -> None:
    for name in ("log.json", "log.eval"):
        (tmp_path / name).write_text(text)
        with pytest.raises(DataError) as caught:
            read_log(tmp_path / name)
        assert caught.value.hint
    with pytest.raises(DataError, match="not found"):
        read_log(tmp_path / "nowhere.json")
    with pytest.raises(UsageError, match=r"end in \.eval or \.json"):
        write_log(two_bots(), tmp_path / "log.txt")
