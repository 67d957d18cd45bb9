"""`judge perplexity` on untrained models of every architecture: tables, comparisons, replies, reports."""

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
from tertulia.judge.config import PerplexityConfig, PersonaSetting, RankSettings, planned
from tertulia.judge.paper_tables import PERPLEXITY_PLANS, paper_tables
from tertulia.judge.perplexity import run_perplexity, settings_of, target_speaker
from tertulia.judge.rank import judge_rank
from tertulia.judge.ranking_tasks import load_tasks
from tertulia.judge.replies import load_bot, short_names
from tertulia.judge.report import save_judged
from tertulia.judge.runs import JudgedRun
from tertulia.metrics.metric import ReplyExample
from tertulia.metrics.overlap import f1
from tertulia.metrics.registry import metric_named
from tertulia.metrics.significance import estimate
from tertulia.models.checkpoint import seal
from tertulia.models.loading import load_generator
from tertulia.models.registry import GENERATORS
from tertulia.models.tokenizer import WordTokenizer

GRU = {"dim": 8, "encoder": 8, "context": 8, "decoder": 8}
BLOCKS = {"d_model": 16, "heads": 2, "max_length": 256}
TINY: Mapping[str, dict[str, Any]] = {
    "seq2seq": {"dim": 8, "hidden": 8, "encoder": False},
    "generative-profile-memory": {"dim": 8, "hidden": 8},
    "hred": GRU,
    "vhred": {**GRU, "latent": 4},
    "vhcr": {**GRU, "latent": 4, "conversation": 4},
    "transformer": {**BLOCKS, "decoder_layers": 1},
    "evolved": {**BLOCKS, "decoder_blocks": 1},
}
WORDS = WordTokenizer.learn((t.text for d in sample.dialogues("train") for t in d.turns), size=300)


SCOPES = ("none", "own", "their", "both")
SETTINGS = ["none", *(f"{scope}, {wording}" for scope in SCOPES[1:] for wording in ("original", "revised"))]


def make_run(name: str, folder: Path, seed: int = 1) -> Path:
    """The folder of a training run, without the training."""
    torch.manual_seed(seed)
    kind = GENERATORS.get(name)
    model = kind.untrained(kind.config_type(**TINY[name]), WORDS)
    files = [*model.save(folder), WORDS.save(folder)]
    seal(folder, bot=name, model=name, files=sorted(set(files)), training={})
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("runs")
    return [str(make_run(name, folder / name)) for name in ("seq2seq", "generative-profile-memory")]


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(1)
    file = tmp_path_factory.mktemp("vectors") / "random.npz"
    np.savez(file, words=np.array(WORDS.words), vectors=rng.normal(size=(len(WORDS.words), 5)))
    return file


@pytest.fixture(scope="module")
def judged(runs: list[str], vectors: Path) -> JudgedRun:
    config = PerplexityConfig(
        runs=(runs[0], f"{runs[1]}?max_tokens=12"),
        limit=4,
        replies=6,
        ranked=12,
        vectors=vectors,
        table=("personachat", "selfplay"),
    )
    return run_perplexity(config)


NAMES = ("seq2seq", "generative-profile-memory")


def test_every_model_is_judged_in_every_setting(judged: JudgedRun) -> None:
    assert list(judged.settings) == SETTINGS
    assert [(s.name, s.kind) for s in judged.subjects] == [(name, name) for name in NAMES]
    assert all(subject.fingerprint for subject in judged.subjects)
    figures, cells = judged.estimates(), {(c["subject"], c["setting"]): c for c in judged.details["cells"]}
    assert list(cells) == [(name, setting) for name in NAMES for setting in SETTINGS]
    for (name, setting), cell in cells.items():
        assert cell["counts"]["dialogues"] == 4
        assert cell["counts"]["turns"] > 20
        assert cell["counts"]["unknown"] > 0
        assert cell["decoding"]["method"] == "greedy"
        ppl = figures[name, setting, "perplexity"]
        assert ppl.low <= ppl.value <= ppl.high
        assert ppl.n == 8  # four dialogues, each as either speaker sees it
        assert figures[name, setting, "hits@1"].n == 12
        replies = [i.content for i in judged.items if (i.subject, i.setting) == (name, setting)]
        assert figures[name, setting, "f1"].n == len(replies) == 6
        expected = np.mean([f1(content["reply"], content["reference"]) for content in replies])
        assert figures[name, setting, "f1"].value == pytest.approx(expected)
    assert {cells[NAMES[1], setting]["decoding"]["max_tokens"] for setting in SETTINGS} == {12}
    assert len({figures[NAMES[1], setting, "perplexity"].value for setting in SETTINGS}) == 7  # personas matter


def test_perplexities_are_compared_with_the_first_run(judged: JudgedRun) -> None:
    figures = judged.estimates()
    comparisons = [c for c in judged.comparisons() if c.metric == "perplexity"]
    assert [(c.subject, c.baseline, c.setting, c.kind) for c in comparisons] == [
        (NAMES[1], NAMES[0], setting, "ratio") for setting in SETTINGS
    ]
    for c in comparisons:
        ratio = figures[c.subject, c.setting, c.metric].value / figures[c.baseline, c.setting, c.metric].value
        assert c.estimate.value == pytest.approx(ratio)


def test_the_true_reply_is_ranked_as_judge_rank_ranks_it(judged: JudgedRun, runs: list[str]) -> None:
    config = RankSettings(limit=12, metrics=("hits@1",))
    setting = PersonaSetting("own", "revised")
    (score,) = judge_rank(load_bot(runs[0]).bot, load_tasks(config).tasks, config, setting=setting, subject=NAMES[0])
    assert judged.score(NAMES[0], "own, revised", "hits@1") == score


def test_the_tables_have_the_published_figures_beside_the_measured_ones(judged: JudgedRun) -> None:
    three, five, a1 = paper_tables(judged, judged.estimates())
    names = [*NAMES, "paper: Seq2Seq", "paper: Profile Memory"]
    assert [row[0] for row in three.rows] == names
    assert three.rows[3][1:] == ("38.08", ".092", "34.54", ".125", "38.21", ".108")
    assert len(three.head) == len(three.rows[0]) == 7
    assert [row[:2] for row in five.rows] == [(scope, name) for scope in SCOPES for name in names]
    assert five.rows[6][2:] == ("40.53", ".084", "", "40.65", ".082", "")
    published = {row[:2]: row[2:] for row in five.rows}
    assert published["their", "paper: Seq2Seq"][:2] == ("41.48", "")
    assert [published[scope, "paper: Profile Memory"][0] for scope in ("their", "both")] == ["36.42", "35.27"]
    assert {len(row) for row in five.rows} == {len(five.head)} == {8}
    assert any(".166 and .172" in note for note in five.notes)
    assert a1.head == ("", "ppl", "KL per word", "average", "extrema", "greedy")
    assert [row[2] for row in a1.rows] == [""] * 14  # no latent variables here
    assert all("[" in str(cell) for row in a1.rows for cell in (row[1], *row[3:]))


def test_the_report_is_complete(judged: JudgedRun, tmp_path: Path) -> None:
    folder = tmp_path / "in" / "report"
    save_judged(judged, folder)
    report = json.loads((folder / "report.json").read_text())
    first = report["figures"][0]
    assert (first["subject"], first["setting"], first["metric"], first["n"]) == (NAMES[0], "none", "perplexity", 8)
    assert report["run"]["details"]["cells"][1]["likelihood"] == "exact"
    assert len(report["tables"]) == 3
    assert "<svg" in (folder / "perplexity.svg").read_text()
    for name in ("report.html", "report.md"):
        text = " ".join((folder / name).read_text().split())
        for part in ("table 3", "layout of table 5", "layout of table A.1", "How it was measured", "seed 0"):
            assert part in text
    assert "![" in (folder / "report.md").read_text()


@pytest.mark.parametrize("name", TINY)
def test_every_architecture(name: str, tmp_path: Path) -> None:
    run = make_run(name, tmp_path / name)
    config = PerplexityConfig(runs=(str(run),), limit=2, replies=2, importance_samples=2, persona=("own",))
    judged = run_perplexity(config)
    assert judged.subjects[0].kind == name
    figures = {metric: e for (_, _, metric), e in judged.estimates().items()}
    assert 10 < figures["perplexity per token"].value < 5000
    (cell,) = judged.details["cells"]
    assert cell["likelihood"] == ("importance" if name in ("vhred", "vhcr") else "exact")
    assert ("KL" in figures) == any("importance sampling, 2 samples" in note for note in judged.notes)
    again = run_perplexity(config, models=[load_generator(run)[0]])
    assert again.scores == judged.scores


def test_reply_metrics_are_chosen_by_name(runs: list[str], vectors: Path) -> None:
    config = PerplexityConfig(runs=(runs[0],), limit=2, replies=4, vectors=vectors, persona=("none",))
    chosen = config.model_copy(update={"metrics": ("distinct-2", "embedding greedy", "words per reply")})
    judged = run_perplexity(chosen)
    assert judged.metric_names() == [
        "perplexity",
        "perplexity with spelling",
        "perplexity per token",
        *chosen.metrics,
    ]
    replies = [ReplyExample(item.content["reply"]) for item in judged.items if item.subject]
    metric = metric_named("distinct-2")
    units = [str(i) for i, _ in enumerate(replies)]
    expected = estimate(metric.score(replies, subject="", setting="", units=units, clusters=units), metric)
    assert judged.estimates()["seq2seq", "none", "distinct-2"] == expected
    for wrong, message in (
        ({"replies": 0, "metrics": ("f1",)}, "metric of generated replies"),
        ({"vectors": None, "metrics": ("embedding average",)}, "needs word_vectors"),
        ({"metrics": ("hits@1",)}, "metric of ranks"),
        ({"metrics": ("log-probability per token",)}, "needs logprobs"),
    ):
        with pytest.raises(UsageError, match=message):
            run_perplexity(config.model_copy(update=wrong))


def test_a_table_sets_what_it_needs_unless_given() -> None:
    personachat, selfplay = PERPLEXITY_PLANS["personachat"], PERPLEXITY_PLANS["selfplay"]
    config = planned(PerplexityConfig(runs=("r",), replies=3), [personachat])
    assert (config.persona, config.wording) == (SCOPES, ("original", "revised"))
    assert (config.replies, config.ranked) == (3, 500)
    assert planned(PerplexityConfig(runs=("r",)), [selfplay]).persona == ("none",)
    assert planned(PerplexityConfig(runs=("r",)), [selfplay, personachat]).persona == ("none",)
    assert planned(PerplexityConfig(runs=("r",)), []).replies == 0


def test_in_persona_chat_the_second_speaker_is_the_target() -> None:
    from tertulia.corpus.readers.personachat import decode

    chat = [decode({"id": "d", "utterances": ["hi", "hello"]})]
    assert target_speaker(PerplexityConfig(runs=("r",)), chat) == "second"
    assert target_speaker(PerplexityConfig(runs=("r",), speaker="all"), chat) is None
    assert target_speaker(PerplexityConfig(runs=("r",), speaker="first"), chat) == "first"
    assert target_speaker(PerplexityConfig(runs=("r",)), sample.dialogues("valid")) is None
    assert settings_of(PerplexityConfig(runs=("r",)), chat) == [PersonaSetting()]
    assert settings_of(PerplexityConfig(runs=("r",)), sample.dialogues("valid")) == [PersonaSetting("own")]


def test_decoding_is_greedy_by_default(runs: list[str]) -> None:
    assert load_bot(runs[0]).bot.decoding.method == "greedy"
    assert load_bot(runs[0]).bot.options.filters == "none"
    assert load_bot(runs[0], preset="meena-base").bot.decoding.temperature == 0.88
    assert load_bot(f"{runs[0]}?preset=meena-full", method="greedy").bot.decoding.method == "sample-and-rank"
    assert load_bot(f"{runs[0]}?filters=empty").bot.options.filters == "empty"
    assert short_names(["a/x?method=beam", "a/x"]) == ["a/x?method=beam", "a/x"]


def test_what_cannot_be_judged_is_an_error(runs: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the folder of a finished training run"):
        run_perplexity(PerplexityConfig(runs=("generic",)))
    with pytest.raises(ConfigError, match="method"):
        run_perplexity(PerplexityConfig(runs=(runs[0],), method="guess"))
    with pytest.raises(DataError, match="No turns to predict"):
        run_perplexity(PerplexityConfig(runs=(runs[0],), speaker="nobody"))


def test_personas_that_the_data_does_not_have(runs: list[str], tmp_path: Path) -> None:
    bare = tmp_path / "bare.jsonl"
    save_dialogues([d.__class__(d.id, d.turns) for d in sample.dialogues("valid")[:3]], bare)
    judged = run_perplexity(PerplexityConfig(runs=(runs[0],), data=str(bare), persona=("none", "own")))
    assert judged.estimates()["seq2seq", "own, original", "perplexity"].n == 0
    assert "persona own, original: the data has no such personas, n = 0." in judged.notes
