"""`judge samples` on an untrained model: lists, scores that are the model's own, the sweep, the report."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tertulia.core.errors import DataError, UsageError
from tertulia.core.estimate import Estimate
from tertulia.judge.config import SamplesConfig
from tertulia.judge.paper_tables import paper_tables
from tertulia.judge.report import save_judged
from tertulia.judge.runs import JudgedRun
from tertulia.judge.samples import read_prompts, run_samples
from tertulia.models.generator import DialogueView
from tertulia.models.generators.seq2seq import Seq2Seq, Seq2SeqConfig
from tertulia.models.likelihood import log_likelihoods
from tertulia.models.tokenizer import WordTokenizer

WORDS = WordTokenizer("i like tea dogs and you do not".split())
PROMPTS = ("do you like tea", "i like dogs\tand tea\tyou do not")


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    torch.manual_seed(2)
    seq2seq = Seq2Seq.untrained(Seq2SeqConfig(dim=8, hidden=8, encoder=False), WORDS).eval()
    with torch.no_grad():
        seq2seq.embedding.bias.normal_(std=1.5)
        seq2seq.embedding.bias[2] = 3.0  # turns end soon
    return seq2seq


@pytest.fixture(scope="module")
def judged(model: Seq2Seq) -> JudgedRun:
    config = SamplesConfig(run="some", prompt=PROMPTS, sweep=True, sizes=(1, 5, 40), times=3, best=4)
    return run_samples(config, model=model)


def replies(run: JudgedRun, setting: str, prompt: str) -> list[dict[str, Any]]:
    return [dict(i.content) for i in run.items if i.setting == setting and i.content["prompt"] == prompt]


def test_samples_and_beams_come_best_first_with_the_models_own_scores(judged: JudgedRun, model: Seq2Seq) -> None:
    tables = paper_tables(judged, judged.estimates())
    for i, (turns, own) in enumerate(zip(PROMPTS, ((False,), (False, True, False)), strict=True)):
        prompt = turns.replace("\t", " / ")
        samples, beam = (replies(judged, setting, prompt) for setting in ("sample-and-rank", "beam search"))
        assert sum(reply["drawn"] for reply in samples) == 20
        assert 1 <= len(beam) <= 10
        for listed in (samples, beam):
            assert [one["score"] for one in listed] == sorted((one["score"] for one in listed), reverse=True)
            ended = [one for one in listed if one["finished"]]
            views = [DialogueView((*turns.split("\t"), one["reply"]), (*own, True)) for one in ended]
            assert [one["score"] for one in ended] == pytest.approx(log_likelihoods(model, views), abs=1e-4)
        assert tables[i].title == prompt
        assert len(tables[i].rows) == min(4, max(len(samples), len(beam)))
        assert tables[i].rows[0][0] == f"{samples[0]['score']:.2f}"
        assert str(tables[i].rows[0][3]).startswith(beam[0]["reply"])


def test_the_score_is_that_of_the_best_finished_reply(judged: JudgedRun) -> None:
    score = judged.score("some", "sample-and-rank", "log-probability per token")
    assert score is not None
    assert score.units == tuple(prompt.replace("\t", " / ") for prompt in PROMPTS)
    for unit, value in zip(score.units, score.values, strict=True):
        assert value == next(r["score"] for r in replies(judged, "sample-and-rank", unit) if r["finished"])


def test_more_samples_find_more_probable_replies(judged: JudgedRun) -> None:
    figures = judged.estimates()

    def sweep(metric: str) -> list[Estimate]:
        return [figures["some", f"best of {n}", metric] for n in (1, 5, 40)]

    one, few, many = sweep("log-probability per token")
    assert one.value < few.value <= many.value
    assert {e.n for e in (one, few, many, *sweep("words per reply"), *sweep("distinct replies"))} == {6}
    assert all(1 / 6 <= e.value <= 1 for e in sweep("distinct replies"))
    assert all(e.value > 0 for e in sweep("seconds per reply"))
    assert sweep("distinct replies")[2].value < sweep("distinct replies")[0].value  # the best of many are alike


def test_the_same_seed_gives_the_same_replies(model: Seq2Seq) -> None:
    first, again, other = (
        run_samples(SamplesConfig(run="some", prompt=("i like",), seed=seed), model=model) for seed in (1, 1, 2)
    )
    assert first.items == again.items
    assert replies(first, "sample-and-rank", "i like") != replies(other, "sample-and-rank", "i like")
    assert replies(first, "beam search", "i like") == replies(other, "beam search", "i like")


def test_a_persona_is_read(model: Seq2Seq) -> None:
    without, with_persona = (
        run_samples(SamplesConfig(run="some", prompt=("i like",), persona=persona), model=model)
        for persona in ((), ("i like dogs", "i do not like tea"))
    )
    first, second = (replies(run, "beam search", "i like")[0]["score"] for run in (without, with_persona))
    assert first != second


def test_the_report_has_tables_and_a_plot(judged: JudgedRun, tmp_path: Path) -> None:
    save_judged(judged, tmp_path / "report")
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["run"]["details"]["sweep"] == [1, 5, 40]
    assert [table["title"] for table in report["tables"]][2] == "Number of samples"
    assert "<svg" in (tmp_path / "report" / "sweep.svg").read_text()
    text = (tmp_path / "report" / "report.md").read_text()
    for part in ("do you like tea", "i like dogs / and tea / you do not", "Number of samples", "temperature 0.88"):
        assert part in text
    assert "Number of samples" in (tmp_path / "report" / "report.html").read_text()


def test_prompts_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("hi\n\n what's up ?\tnot much\n", encoding="utf-8")
    prompts = read_prompts(SamplesConfig(run="r", prompt="yes", prompts=file))
    assert prompts == [("yes",), ("hi",), ("what's up ?", "not much")]
    with pytest.raises(UsageError, match="no prompt"):
        read_prompts(SamplesConfig(run="r"))
    with pytest.raises(DataError, match="File not found"):
        read_prompts(SamplesConfig(run="r", prompts=tmp_path / "none.txt"))
