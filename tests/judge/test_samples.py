"""`judge samples` on an untrained model: lists, scores that are the model's own, the sweep, the report."""

import json
from pathlib import Path

import pytest
import torch

from tertulia.core.errors import DataError, UsageError
from tertulia.judge.samples import SamplesConfig, prompts_of
from tertulia.judge.samples_run import SamplesOutcome, run_samples, write_samples_report
from tertulia.models.generator import Talk
from tertulia.models.seq2seq import Seq2Seq, Seq2SeqConfig
from tertulia.models.tokenizer import WordTokenizer
from tertulia.models.writers import log_likelihoods

WORDS = WordTokenizer("i like tea dogs and you do not".split())
PROMPTS = ("do you like tea", "i like dogs\tand tea\tyou do not")


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    torch.manual_seed(2)
    made = Seq2Seq.untrained(Seq2SeqConfig(dim=8, hidden=8, encoder=False), WORDS).eval()
    with torch.no_grad():
        made.words.bias.normal_(std=1.5)
        made.words.bias[2] = 3.0  # turns end soon
    return made


@pytest.fixture(scope="module")
def outcome(model: Seq2Seq) -> SamplesOutcome:
    config = SamplesConfig(run="some", prompt=PROMPTS, sweep=True, sizes=(1, 5, 40), times=3, best=4)
    return run_samples(config, model=model)


def test_samples_and_beams_come_best_first_with_the_models_own_scores(outcome: SamplesOutcome, model: Seq2Seq) -> None:
    assert [answers.prompt for answers in outcome.answers] == [tuple(p.split("\t")) for p in PROMPTS]
    for answers, own in zip(outcome.answers, ((False,), (False, True, False)), strict=True):
        assert sum(one.drawn for one in answers.samples) == 20
        assert 1 <= len(answers.beam) <= 10
        for found in (answers.samples, answers.beam):
            assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
            ended = [one for one in found if one.finished]
            talks = [Talk((*answers.prompt, one.text), (*own, True)) for one in ended]
            assert [one.score for one in ended] == pytest.approx(log_likelihoods(model, talks), abs=1e-4)
        rows = answers.rows(4)
        assert len(rows) == min(4, max(len(answers.samples), len(answers.beam)))
        assert rows[0][0] == f"{answers.samples[0].score:.2f}"
        assert rows[0][3] == str(answers.beam[0])


def test_more_samples_find_more_probable_turns(outcome: SamplesOutcome) -> None:
    one, few, many = outcome.sweep
    assert [p.samples for p in outcome.sweep] == [1, 5, 40]
    assert one.score.value < few.score.value <= many.score.value
    for point in outcome.sweep:
        assert point.score.n == point.words.n == point.distinct.n == 6
        assert 1 / 6 <= point.distinct.value <= 1
        assert point.seconds > 0
    assert many.distinct.value < one.distinct.value  # the best of many are much the same


def test_the_same_seed_says_the_same(model: Seq2Seq) -> None:
    first, again, other = (
        run_samples(SamplesConfig(run="some", prompt="i like", seed=seed), model=model).answers for seed in (1, 1, 2)
    )
    assert first == again
    assert first[0].samples != other[0].samples
    assert first[0].beam == other[0].beam  # nothing is drawn in a search


def test_a_persona_is_read(model: Seq2Seq) -> None:
    bare, known = (
        run_samples(SamplesConfig(run="some", prompt="i like", persona=persona), model=model).answers[0].beam[0].score
        for persona in ((), ("i like dogs", "i do not like tea"))
    )
    assert bare != known


def test_the_report_has_tables_and_picture(outcome: SamplesOutcome, tmp_path: Path) -> None:
    write_samples_report(outcome, tmp_path / "report")
    told = json.loads((tmp_path / "report" / "samples.json").read_text())
    assert told["prompts"][0]["samples"][0]["score"] == outcome.answers[0].samples[0].score
    assert [point["samples"] for point in told["sweep"]] == [1, 5, 40]
    assert "<svg" in (tmp_path / "report" / "sweep.svg").read_text()
    text = (tmp_path / "report" / "report.md").read_text()
    for part in ("do you like tea", "i like dogs / and tea / you do not", "How many samples", "temperature 0.88"):
        assert part in text
    assert "How many samples" in (tmp_path / "report" / "report.html").read_text()


def test_prompts_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("hi\n\n what's up ?\tnot much\n", encoding="utf-8")
    found = prompts_of(SamplesConfig(run="r", prompt="yes", prompts=file))
    assert found == [("yes",), ("hi",), ("what's up ?", "not much")]
    with pytest.raises(UsageError, match="no prompt"):
        prompts_of(SamplesConfig(run="r"))
    with pytest.raises(DataError, match="cannot be read"):
        prompts_of(SamplesConfig(run="r", prompts=tmp_path / "none.txt"))
