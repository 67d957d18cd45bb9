"""Logs that Inspect AI itself reads and writes, in an environment of its own, which the first test installs."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.test_api_clients import OPENAI_3, install
from tests.judge.test_inspect_log import two_bots

from tertulia.judge.inspect_log import read_log, write_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

READ = """
import json, sys
from inspect_ai.log import list_eval_logs, read_eval_log, read_eval_log_sample_summaries, read_eval_log_samples

log = read_eval_log(sys.argv[1])
samples = list(read_eval_log_samples(sys.argv[1]))
print(json.dumps({
    "listed": len(list_eval_logs(sys.argv[2])),
    "summaries": [summary.id for summary in read_eval_log_sample_summaries(sys.argv[1])],
    "version": log.version,
    "status": log.status,
    "model": log.eval.model,
    "dataset": log.eval.dataset.samples,
    "scores": {score.name: score.metrics["value"].value for score in log.results.scores},
    "samples": [
        [sample.id, [m.role for m in sample.messages], sample.output.completion, sample.target,
         {name: score.as_float() for name, score in sample.scores.items()}]
        for sample in samples
    ],
}))
"""

EVAL = """
import json, sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes

outputs = [ModelOutput.from_content("mockllm/model", text) for text in ("good morning", "hm", "good night")]
for output in outputs:
    output.usage = ModelUsage(input_tokens=2, output_tokens=2)  # else a tokenizer is downloaded to count them
samples = [Sample(id=name, input=f"Say {name}!", target=name) for name in ("morning", "noon", "night")]
figures = {}
for format in ("eval", "json"):
    task = Task(dataset=samples, scorer=includes())
    model = get_model("mockllm/model", custom_outputs=list(outputs), memoize=False)
    log = eval(task, model=model, display="none", log_dir=sys.argv[1], log_format=format, max_connections=1)[0]
    figures[log.location] = log.results.scores[0].metrics["accuracy"].value
print(json.dumps(figures))
"""


def in_inspect(script: str, *arguments: Path) -> Any:
    """What a script prints as JSON on its last line."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    ran = subprocess.run(
        [install(OPENAI_3), "-c", script, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["log.eval", "2026-01-02T03-04-05_log.json"])  # what its viewer lists
def test_inspect_reads_our_logs(tmp_path: Path, name: str) -> None:
    run = two_bots()
    write_log(run, tmp_path / name)
    log = in_inspect(READ, tmp_path / name, tmp_path)
    assert (log["listed"], log["version"], log["status"], log["model"]) == (1, 2, "success", "a, b")
    figures = run.estimates()
    expected = {f"{metric}, {subject}, {setting}": e.value for (subject, setting, metric), e in figures.items()}
    assert log["scores"] == pytest.approx(expected)
    assert log["dataset"] == len(log["samples"]) == 10
    assert sorted(log["summaries"]) == sorted(sample[0] for sample in log["samples"])
    first = next(sample for sample in log["samples"] if sample[0] == "u1, b, own")
    assert first[1:] == [["user", "assistant"], "Ho", "Hello", {"f1": 0.0}]


def test_we_read_the_logs_of_inspect_in_both_formats(tmp_path: Path) -> None:
    figures = in_inspect(EVAL, tmp_path)
    assert sorted(Path(file).suffix for file in figures) == [".eval", ".json"]
    for file, accuracy in figures.items():
        run = read_log(Path(file.removeprefix("file://")))
        assert [subject.name for subject in run.subjects] == ["mockllm/model"]
        assert run.estimates()["mockllm/model", "", "includes"].value == pytest.approx(accuracy) == pytest.approx(2 / 3)
        replies = {item.unit: item.content["reply"] for item in run.items}
        assert set(replies) == {"morning", "noon", "night"}
        assert sorted(replies.values()) == ["good morning", "good night", "hm"]
