"""All of `judge perplexity` on untrained models of every kind: tables, ratios, replies, reports."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tertulia import sample
from tertulia.core.errors import ConfigError, DataError, UsageError
from tertulia.corpus.load import save_dialogues
from tertulia.judge.perplexity import TOKEN, WORD, PerplexityConfig, planned, settings_of, speaker_of
from tertulia.judge.perplexity_bots import judged, short_names
from tertulia.judge.perplexity_report import write_perplexity_report
from tertulia.judge.perplexity_run import PerplexityOutcome, run_perplexity
from tertulia.judge.rank import RankSettings, Setting, judge_rank
from tertulia.judge.rank_tasks import load_tasks
from tertulia.metrics.overlap import f1
from tertulia.models.checkpoint import seal
from tertulia.models.tokenizer import WordTokenizer
from tertulia.models.writers import WRITERS, load_writer

GRU = {"dim": 8, "encoder": 8, "context": 8, "decoder": 8}
BLOCKS = {"d_model": 16, "heads": 2, "longest": 256}
TINY: Mapping[str, dict[str, Any]] = {
    "seq2seq": {"dim": 8, "hidden": 8, "encoder": False},
    "profile-memory-writer": {"dim": 8, "hidden": 8},
    "hred": GRU,
    "vhred": {**GRU, "latent": 4},
    "vhcr": {**GRU, "latent": 4, "conversation": 4},
    "transformer": {**BLOCKS, "decoder_layers": 1},
    "evolved": {**BLOCKS, "decoder_blocks": 1},
}
WORDS = WordTokenizer.learn((t.text for d in sample.dialogues("train") for t in d.turns), size=300)


WHOSE = ("none", "own", "their", "both")
SETTINGS = ["none", *(f"{whose}, {wording}" for whose in WHOSE[1:] for wording in ("original", "revised"))]


def make_run(name: str, folder: Path, seed: int = 1) -> Path:
    """What training would leave, had it not begun."""
    torch.manual_seed(seed)
    kind = WRITERS.get(name)
    model = kind.untrained(kind.config_type(**TINY[name]), WORDS)
    files = [*model.save(folder), WORDS.save(folder)]
    seal(folder, bot=name, model=name, files=sorted(set(files)), training={})
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("runs")
    return [str(make_run(name, folder / name)) for name in ("seq2seq", "profile-memory-writer")]


@pytest.fixture(scope="module")
def outcome(runs: list[str], tmp_path_factory: pytest.TempPathFactory) -> PerplexityOutcome:
    rng = np.random.default_rng(1)
    vectors = tmp_path_factory.mktemp("vectors") / "some.npz"
    np.savez(vectors, words=np.array(WORDS.words), vectors=rng.normal(size=(len(WORDS.words), 5)))
    config = PerplexityConfig(
        runs=(runs[0], f"{runs[1]}?max_tokens=12"),
        limit=4,
        replies=6,
        ranked=12,
        vectors=vectors,
        table=("personachat", "selfplay"),
    )
    return run_perplexity(config)


def test_every_run_in_every_setting(outcome: PerplexityOutcome) -> None:
    assert [str(s) for s in outcome.settings] == SETTINGS
    assert [[v.run for v in row] for row in outcome.verdicts] == [["seq2seq"] * 7, ["profile-memory-writer"] * 7]
    for verdict in outcome.rows:
        assert verdict.counts.dialogues == 4
        assert verdict.counts.turns == verdict.figures[WORD].n > 20
        assert verdict.figures[WORD].low <= verdict.figures[WORD].value <= verdict.figures[WORD].high
        assert verdict.figures["hits@1"].n == 12
        assert verdict.figures["F1"].n == len(verdict.said) == 6
        assert verdict.figures["F1"].value == pytest.approx(np.mean([f1(s.reply, s.reference) for s in verdict.said]))
        assert verdict.decoding["method"] == "greedy"
        assert verdict.counts.unknown > 0
    assert {v.decoding["max_tokens"] for v in outcome.verdicts[1]} == {12}
    perplexities = {v.figures[WORD].value for v in outcome.verdicts[1]}
    assert len(perplexities) == 7  # what is shown matters


def test_other_runs_are_multiples_of_the_first(outcome: PerplexityOutcome) -> None:
    for ratio, first, other in zip(outcome.ratios, *outcome.verdicts, strict=True):
        assert (ratio.run, ratio.than, ratio.setting) == ("profile-memory-writer", "seq2seq", other.setting)
        assert ratio.times.value == pytest.approx(other.figures[WORD].value / first.figures[WORD].value)


def test_the_true_reply_is_ranked_as_judge_rank_does_it(outcome: PerplexityOutcome, runs: list[str]) -> None:
    config = RankSettings(limit=12, metrics=("hits@1",))
    bot = judged(runs[0]).bot
    found = judge_rank(bot, load_tasks(config).tasks, config, setting=Setting("own", "revised"))
    assert outcome.verdicts[0][2].figures["hits@1"] == found.figures["hits@1"]


def test_the_tables_have_the_papers_rows_beside_ours(outcome: PerplexityOutcome) -> None:
    three, five, a1 = outcome.tables
    names = ["seq2seq", "profile-memory-writer", "paper: Seq2Seq", "paper: Profile Memory"]
    assert [row[0] for row in three.rows] == names
    assert three.rows[3][1:] == ("38.08", ".092", "34.54", ".125", "38.21", ".108")
    assert len(three.head) == len(three.rows[0]) == 7
    assert [row[:2] for row in five.rows] == [(whose, name) for whose in WHOSE for name in names]
    assert five.rows[6][2:] == ("40.53", ".084", "", "40.65", ".082", "")
    assert {len(row) for row in five.rows} == {len(five.head)} == {8}
    assert any(".166 and .172" in note for note in five.notes)
    assert a1.head == ("", "ppl", "KL", "average", "extrema", "greedy")
    assert [row[2] for row in a1.rows] == [""] * 14  # nothing latent here
    assert all("[" in cell for row in a1.rows for cell in (row[1], *row[3:]))


def test_the_report_tells_everything(outcome: PerplexityOutcome, tmp_path: Path) -> None:
    write_perplexity_report(outcome, tmp_path / "in" / "report")
    folder = tmp_path / "in" / "report"
    told = json.loads((folder / "figures.json").read_text())
    assert told["runs"][1]["perplexity"]["n"] == outcome.rows[1].counts.turns
    assert told["runs"][1]["likelihood"] == "exact"
    assert [table["title"] for table in told["tables"]] == [table.title for table in outcome.tables]
    replies = [json.loads(line) for line in (folder / "replies.jsonl").read_text().splitlines()]
    assert len(replies) == 84
    assert "<svg" in (folder / "perplexity.svg").read_text()
    for name in ("report.html", "report.md"):
        text = " ".join((folder / name).read_text().split())
        for part in ("table 3", "layout of table 5", "layout of table A.1", "How it was measured", "seed 0"):
            assert part in text
    assert "![" in (folder / "report.md").read_text()


@pytest.mark.parametrize("name", TINY)
def test_every_model_that_writes(name: str, tmp_path: Path) -> None:
    run = make_run(name, tmp_path / name)
    config = PerplexityConfig(runs=(str(run),), limit=2, replies=2, importance_samples=2, persona=("own",))
    found = run_perplexity(config)
    (verdict,) = found.rows
    assert verdict.model == name
    assert 10 < verdict.figures[TOKEN].value < 5000
    assert verdict.kind == ("importance" if name in ("vhred", "vhcr") else "exact")
    assert ("KL" in verdict.figures) == any("importance sampling, 2 samples" in note for note in found.notes)
    again = run_perplexity(config, models=[load_writer(run)[0]])
    assert again.rows[0].figures == verdict.figures


def test_what_a_table_needs_is_planned_unless_given() -> None:
    config = planned(PerplexityConfig(runs=("r",), table=("personachat",), replies=3))
    assert (config.persona, config.wording) == (WHOSE, ("original", "revised"))
    assert (config.replies, config.ranked) == (3, 500)
    assert planned(PerplexityConfig(runs=("r",), table=("selfplay",))).persona == ("none",)
    assert planned(PerplexityConfig(runs=("r",))).replies == 0


def test_in_persona_chat_the_second_speaker_counts() -> None:
    from tertulia.corpus.readers.personachat import decode

    chat = [decode({"id": "d", "utterances": ["hi", "hello"]})]
    assert speaker_of(PerplexityConfig(runs=("r",)), chat) == "second"
    assert speaker_of(PerplexityConfig(runs=("r",), speaker="all"), chat) is None
    assert speaker_of(PerplexityConfig(runs=("r",), speaker="first"), chat) == "first"
    assert speaker_of(PerplexityConfig(runs=("r",)), sample.dialogues("valid")) is None
    assert settings_of(PerplexityConfig(runs=("r",)), chat) == [Setting()]
    assert settings_of(PerplexityConfig(runs=("r",)), sample.dialogues("valid")) == [Setting("own")]


def test_how_to_write_is_greedy_unless_said(runs: list[str]) -> None:
    assert judged(runs[0]).bot.decoding.method == "greedy"
    assert judged(runs[0]).bot.options.filters == "none"
    assert judged(runs[0], preset="meena-base").bot.decoding.temperature == 0.88
    assert judged(f"{runs[0]}?preset=meena-full", method="greedy").bot.decoding.method == "sample-and-rank"
    assert judged(f"{runs[0]}?filters=empty").bot.options.filters == "empty"
    assert short_names(["a/x?method=beam", "a/x"]) == ["a/x?method=beam", "a/x"]


def test_what_cannot_be_judged_is_said(runs: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the folder of a finished training run"):
        run_perplexity(PerplexityConfig(runs=("generic",)))
    with pytest.raises(ConfigError, match="method"):
        run_perplexity(PerplexityConfig(runs=(runs[0],), method="guess"))
    with pytest.raises(DataError, match="no turn to judge by"):
        run_perplexity(PerplexityConfig(runs=(runs[0],), speaker="nobody"))
    bare = tmp_path / "bare.jsonl"
    save_dialogues([d.__class__(d.id, d.turns) for d in sample.dialogues("valid")[:3]], bare)
    found = run_perplexity(PerplexityConfig(runs=(runs[0],), data=str(bare), split="", persona=("none", "own")))
    assert found.rows[1].figures[WORD].n == 0
    assert "persona own, original: the data has no such personas, n = 0." in found.notes
