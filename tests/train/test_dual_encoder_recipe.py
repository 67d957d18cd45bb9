"""The recipe of the dual encoder: it learns, is deterministic, and saves a complete model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tertulia.core.config import validate
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import ConfigError
from tertulia.core.progress import Silent
from tertulia.corpus.load import save_dialogues
from tertulia.models.checkpoint import read_manifest
from tertulia.models.rankers.base import Query
from tertulia.models.rankers.dual_encoder import DualEncoder
from tertulia.train.recipe import read_recipe
from tertulia.train.recipes.dual_encoder import RECIPE, DualEncoderRecipe
from tertulia.train.record import read_record
from tertulia.train.registry import RECIPES
from tertulia.train.runs import TrainedModel

CONFIGS = Path(__file__).parents[2] / "configs"
SHAPE = {"hidden": 16, "dim": 12}
SMALL = {"batch": 16, "epochs": 2, "max_dialogues": 25, "valid_dialogues": 12, "pool": False}
TOPICS = {
    "disk": ("how do i mount my disk ?", "try sudo mount first", "the disk says busy"),
    "sound": ("my sound is mute", "open alsamixer", "still no sound at all"),
    "screen": ("the screen stays black", "edit xorg and restart", "black screen again"),
    "network": ("wifi drops all day", "run iwconfig", "wifi is down once more"),
}


def config(out: Path, *, model: Any = None, **more: Any) -> DualEncoderRecipe:
    return DualEncoderRecipe.model_validate({"out": out, "model": SHAPE | (model or {})} | SMALL | more)


def fit(settings: DualEncoderRecipe) -> TrainedModel:
    return RECIPE.train(settings, Silent())


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dialogues about four topics, which differ in their words alone."""
    folder = tmp_path_factory.mktemp("topics")
    made = [
        Dialogue(f"{topic}{n}", tuple(Turn("ab"[i % 2], f"{text} {topic}{n % 7}") for i, text in enumerate(said)))
        for n in range(40)
        for topic, said in TOPICS.items()
    ]
    save_dialogues(made[:120], folder / "train.jsonl")
    save_dialogues(made[120:], folder / "valid.jsonl")
    return folder


@pytest.mark.parametrize(("cell", "loss"), [("lstm", "softmax"), ("rnn", "softmax"), ("lstm", "binary")])
def test_it_learns_which_replies_belong_to_which_contexts(tmp_path: Path, topics: Path, cell: str, loss: str) -> None:
    options: dict[str, Any] = {
        "data": str(topics),
        "model": {"cell": cell, "loss": loss},
        "batch": 32,
        "epochs": 12,
        "learning_rate": 0.02,
        "patience": 12,
        "max_dialogues": None,
        "valid_dialogues": None,
    }
    trained = fit(config(tmp_path, **options))
    assert trained.record["valid"]["hits@1"] > 0.3, "chance is 0.1, and one candidate in four is of the same topic"
    model = DualEncoder.load(tmp_path)
    replies = [said[1] for said in TOPICS.values()]
    queries = model.queries([Query((said[0],)) for said in TOPICS.values()])
    scores = model.scores(queries, np.broadcast_to(model.replies(replies), (4, *model.replies(replies).shape)))
    assert scores.argmax(axis=1).tolist() == [0, 1, 2, 3]


def test_the_same_config_gives_the_same_model(tmp_path: Path) -> None:
    for name in ("one", "two", "other"):
        fit(config(tmp_path / name, model={"dropout": 0.2, "word_dropout": 0.1}, seed=int(name == "other")))
    prints = {name: read_manifest(tmp_path / name).fingerprint for name in ("one", "two", "other")}
    assert prints["one"] == prints["two"] != prints["other"]
    losses = {name: [x.get("loss") for x in read_record(tmp_path / name / "record.jsonl")] for name in prints}
    assert losses["one"] == losses["two"]


def test_the_folder_explains_itself(tmp_path: Path) -> None:
    trained = fit(config(tmp_path, epochs=1))
    manifest = read_manifest(tmp_path)
    assert (manifest.bot, manifest.model) == ("dual-encoder", "dual-encoder")
    assert manifest.training == trained.figures()
    assert {"model.safetensors", "words.txt", "config.toml", "record.jsonl"} <= set(manifest.files)
    recipe, again = read_recipe(tmp_path / "config.toml")
    assert recipe is RECIPES.get("dual-encoder")
    assert again == config(tmp_path, epochs=1)


def test_pretrained_word_vectors(tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("the " + " 0.5" * 12 + "\nyou " + " -0.5" * 12 + "\n", encoding="utf-8")
    fit(config(tmp_path / "run", vectors=file, epochs=1, learning_rate=1e-9))
    model = DualEncoder.load(tmp_path / "run")
    the, you = (model.words.weight[model.vocabulary.index(word)].detach().numpy() for word in ("the", "you"))
    np.testing.assert_allclose(the, -you, atol=1e-6)
    with pytest.raises(ConfigError, match="12 numbers, not dim = 10"):
        fit(config(tmp_path / "run", vectors=file, model={"dim": 10}))


@pytest.mark.parametrize("name", ["ubuntu-rnn", "ubuntu-lstm"])
def test_the_configs_run_on_the_sample(name: str, tmp_path: Path) -> None:
    recipe, settings = read_recipe(CONFIGS / f"{name}.toml", {"out": tmp_path, "max_steps": 1, **SMALL})
    assert settings.data == "sample"
    assert recipe.train(settings, Silent()).figures()["steps"] == 1
    assert DualEncoder.load(tmp_path).config.cell == name.removeprefix("ubuntu-")


def test_settings_of_the_model_have_a_table_of_their_own() -> None:
    with pytest.raises(ConfigError, match=r"'hidden' is now called 'model\.hidden'"):
        validate(DualEncoderRecipe, {"hidden": 20}, where="old.toml")
