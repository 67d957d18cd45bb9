"""Recipes of word-vector rankers: they learn, are deterministic, and resume exactly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tertulia.core.dialogue import Dialogue, Persona, Turn, exchanges
from tertulia.core.errors import ConfigError
from tertulia.core.progress import Silent
from tertulia.corpus.load import save_dialogues
from tertulia.models.checkpoint import read_manifest
from tertulia.models.rankers.base import CandidateSet, Query, Ranker
from tertulia.models.rankers.kv_memory import KEYS, VALUES, Hop, KVProfileMemory
from tertulia.models.registry import RANKERS
from tertulia.train.recipe import read_recipe
from tertulia.train.recipes.kv_memory import KVMemoryRecipe, measure_hops
from tertulia.train.recipes.rankers import WordVectorRecipe, build_word_vectors
from tertulia.train.record import read_record
from tertulia.train.registry import RECIPES
from tertulia.train.runs import TrainedModel
from tertulia.train.tasks.ranking import query_of, read_data

CONFIGS = Path(__file__).parents[2] / "configs"
NAMES = ["starspace", "profile-memory", "kv-memory"]
SMALL = {"model": {"dim": 16, "turns": 4}, "batch": 64, "epochs": 2, "max_dialogues": 30, "pool": False}
HOPS = {"breadths": (5, 20), "sharpnesses": (5.0,), "weights": (0.2, 0.5)}
FEW: dict[str, Any] = {"valid_dialogues": 12, **SMALL}


def config(name: str, out: Path, **more: Any) -> Any:
    hops = HOPS if name == "kv-memory" else {}
    return RECIPES.get(name).config.model_validate({"out": out} | FEW | hops | more)


def train(name: str, out: Path, progress: Any = None, **more: Any) -> TrainedModel:
    trained = RECIPES.get(name).train(config(name, out, **more), progress or Silent())
    assert isinstance(trained, TrainedModel)
    return trained


class StoppedError(Exception):
    pass


class Stops(Silent):
    """Interrupts a run after some updates."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.training = False

    def step(self, title: str, total: int | None = None) -> None:
        self.training = title == "Training"

    def advance(self, n: int = 1) -> None:
        self.left -= n if self.training else 0
        if self.left == 0:
            raise StoppedError


def test_a_query_says_who_spoke() -> None:
    """A partner who sends two messages in a row is one partner."""
    turns = (Turn("a", "hi"), Turn("b", "hello"), Turn("a", "well"), Turn("a", "tea ?"), Turn("b", "yes"))
    *_, last = exchanges(Dialogue("d", turns))
    assert query_of(last, "none").own == (False, True, False, False)
    assert query_of(last, "none", max_turns=2).own == (False, False)


def test_a_share_of_the_personas_is_trained_on_in_the_revised_wording(tmp_path: Path) -> None:
    data = {
        share: {
            s
            for pair in read_data(config("starspace", tmp_path, revised_share=share)).pairs
            for s in pair.query.persona
        }
        for share in (0.0, 0.5, 1.0)
    }
    assert not data[0.0] & data[1.0], "the sample's personas are all revised"
    assert data[0.5] & data[0.0]
    assert data[0.5] & data[1.0]


@pytest.mark.parametrize(("name", "persona"), [*((name, "own") for name in NAMES), ("starspace", "none")])
def test_it_memorises_fifty_dialogues(name: str, persona: str, tmp_path: Path) -> None:
    """Validated on its training data, it must rank nearly every reply first."""
    many = {"max_dialogues": 50, "valid_dialogues": 50, "valid_split": "train", "epochs": 8, "validate_every": 1000}
    shape = {"dim": 64, "turns": 4, "word_dropout": 0.1}
    trained = train(name, tmp_path, model=shape, learning_rate=0.02, persona=persona, **many)
    assert trained.record["valid"]["hits@1"] > 0.8
    model = RANKERS.get(name).load(tmp_path)
    assert isinstance(model, Ranker)
    assert np.isfinite(model.queries([Query(("hello",)), Query(("hello",), ("I keep bees.",))]).vectors).all()


def test_the_margin_loss_learns(tmp_path: Path) -> None:
    many = {"max_dialogues": 50, "valid_dialogues": 50, "valid_split": "train", "epochs": 8, "validate_every": 1000}
    trained = train("starspace", tmp_path, model={"dim": 64, "loss": "margin"}, learning_rate=0.02, **many)
    assert trained.record["valid"]["hits@1"] > 0.4, "chance is 0.05"


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_weights(name: str, tmp_path: Path) -> None:
    prints = {}
    for run, seed in (("one", 0), ("two", 0), ("other", 1)):
        train(name, tmp_path / run, seed=seed)
        prints[run] = read_manifest(tmp_path / run)
    assert prints["one"].fingerprint == prints["two"].fingerprint != prints["other"].fingerprint
    again = {file: prints["two"].files[file] for file in (KEYS, VALUES) if name == "kv-memory"}
    assert again.items() <= prints["one"].files.items()


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_ends_with_the_same_weights(name: str, tmp_path: Path) -> None:
    train(name, tmp_path / "complete")
    with pytest.raises(StoppedError):
        train(name, tmp_path / "interrupted", Stops(8), save_seconds=0)
    train(name, tmp_path / "interrupted", save_seconds=0, resume=True)
    complete, interrupted = (read_manifest(tmp_path / run) for run in ("complete", "interrupted"))
    assert complete.fingerprint == interrupted.fingerprint
    losses = [
        [x.get("loss") for x in read_record(tmp_path / run / "record.jsonl")] for run in ("complete", "interrupted")
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_folder_explains_itself(name: str, tmp_path: Path) -> None:
    trained = train(name, tmp_path, epochs=1)
    manifest = read_manifest(tmp_path)
    assert (manifest.bot, manifest.model) == (name, name)
    assert manifest.training == trained.figures()
    assert {"model.safetensors", "words.txt", "config.toml", "record.jsonl"} <= set(manifest.files)
    recipe, again = read_recipe(tmp_path / "config.toml")
    assert recipe is RECIPES.get(name)
    assert again == config(name, tmp_path, epochs=1)


def test_the_best_setting_of_the_hop_is_chosen(tmp_path: Path) -> None:
    record = train("kv-memory", tmp_path).record["hop"]
    model, settings = KVProfileMemory.load(tmp_path), config("kv-memory", tmp_path)
    assert isinstance(settings, KVMemoryRecipe)
    data = read_data(settings)
    measured = measure_hops(model, data.tasks, settings, Silent())
    assert len(measured) == 5
    assert record["hits@1"] == max(measured.values()) >= record["hits@1 without"] == measured[Hop(weight=0.0)]
    assert model.hop == Hop(record["breadth"], record["sharpness"], record["weight"])
    candidates = CandidateSet([task.candidates for task in data.tasks])
    for hop, share in measured.items():
        model.hop = hop
        queries = model.queries([query_of(task.exchange, "own") for task in data.tasks])
        scores = candidates.scores(model, queries, model.replies(candidates.texts))
        right = [int(np.argmax(row)) == task.truth for row, task in zip(scores, data.tasks, strict=True)]
        assert np.mean(right) == pytest.approx(share, abs=1.5 / len(right)), "up to a tie of rounded numbers"


def test_the_hop_retrieves_earlier_replies(tmp_path: Path) -> None:
    """Queries and replies occur in training, but share no words: only the memory connects them."""
    people = {"a": Persona(("I like tea.",)), "b": Persona(("I like rain.",))}
    made = [
        Dialogue(f"{i}", (Turn("a", f"ask{i % 50} please"), Turn("b", f"answer{i % 50} then")), people)
        for i in range(200)
    ]
    save_dialogues(made[:150], tmp_path / "train.jsonl")
    save_dialogues(made[150:], tmp_path / "valid.jsonl")
    options = {
        "data": str(tmp_path),
        "max_dialogues": None,
        "valid_dialogues": None,
        "batch": 50,
        "epochs": 1,
        "weights": (2.0,),
    }
    shape = {"dim": 32, "turns": 1, "min_count": 1}
    hop = train("kv-memory", tmp_path / "run", **options, learning_rate=1e-6, model=shape).record["hop"]
    assert hop["hits@1 without"] < 0.3 < 0.9 < hop["hits@1"]


def test_pretrained_word_vectors(tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("the" + " 0.5" * 12 + "\nyou" + " -0.5" * 12 + "\n", encoding="utf-8")
    settings = config("starspace", tmp_path, vectors=file)
    assert isinstance(settings, WordVectorRecipe)
    model = build_word_vectors(settings, read_data(settings).pairs)
    the, you = (model.output_vectors[model.vocabulary.index(word), :12].detach() for word in ("the", "you"))
    assert torch.equal(the, -you)
    with pytest.raises(ConfigError, match="have 12 numbers, more than dim = 10"):
        train("starspace", tmp_path / "run", vectors=file, model={"dim": 10})


@pytest.mark.parametrize(("file", "name"), list(zip(["starspace", "memory", "kv"], NAMES, strict=True)))
def test_the_configs_run_on_the_sample(file: str, name: str, tmp_path: Path) -> None:
    few = {"max_dialogues": 60, "valid_dialogues": 12, "pool": False, "max_steps": 1}
    recipe, settings = read_recipe(CONFIGS / f"personachat-{file}.toml", {"out": tmp_path, **few})
    assert (settings.data, settings.recipe, recipe) == ("sample", name, RECIPES.get(name))
    assert recipe.train(settings, Silent()).figures()["steps"] == 1
    assert RANKERS.get(name).load(tmp_path).config == settings.model  # type: ignore[attr-defined]
