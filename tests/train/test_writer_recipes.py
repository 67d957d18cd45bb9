"""Every recipe of a model that writes: trains on the sample, explains itself, and resumes exactly."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import DataError
from tertulia.core.progress import Silent
from tertulia.models.checkpoint import read_manifest
from tertulia.models.likelihood import batches_of, talks_of
from tertulia.train.recipe import read_recipe
from tertulia.train.writers import WriterConfig, read_data

CONFIGS = Path(__file__).parents[2] / "configs"
BLOCKS = {"d_model": 32, "heads": 2, "longest": 256}
GRU = {"dim": 16, "encoder": 16, "context": 24, "decoder": 16}
TINY: Mapping[str, dict[str, Any]] = {
    "personachat-transformer": {**BLOCKS, "decoder_layers": 1},
    "personachat-evolved": {**BLOCKS, "decoder_blocks": 1},
    "personachat-seq2seq": {"dim": 16, "hidden": 24, "encoder": False},
    "personachat-profile-memory-writer": {"dim": 16, "hidden": 24},
    "selfplay-hred": GRU,
}


class StopError(Exception):
    pass


class Stops(Silent):
    def __init__(self, at: int) -> None:
        self.left = at

    def advance(self, n: int = 1) -> None:
        self.left -= n
        if self.left <= 0:
            raise StopError


def train(name: str, out: Path, progress: Any = None, **more: Any) -> Mapping[str, Any]:
    settings = {"model": TINY[name], "out": out, "max_dialogues": 12, "valid_dialogues": 3, "tokens": 600}
    settings |= {"max_steps": 6, "validate_every": 3, "vocabulary": 300, "keep_seconds": 0, "rate": 1e-3}
    recipe, config = read_recipe(CONFIGS / f"{name}.toml", settings | more)
    return recipe.train(config, progress or Silent()).figures()


@pytest.mark.parametrize("name", TINY)
def test_a_recipe_leaves_a_run_that_explains_itself(name: str, tmp_path: Path) -> None:
    figures = train(name, tmp_path)
    assert figures["steps"] == 6
    assert 1 < figures["valid"]["perplexity per token"] < 600
    manifest = read_manifest(tmp_path)
    assert {"model.safetensors", "model.json", "config.toml", "record.jsonl", "record.svg"} <= set(manifest.files)
    again = read_recipe(tmp_path / "config.toml")[1]
    assert again.recipe == manifest.bot
    lines = [json.loads(line) for line in (tmp_path / "record.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "valid" in line] == [3, 6]


@pytest.mark.parametrize("name", ["personachat-transformer", "selfplay-hred"])
def test_an_interrupted_training_ends_with_the_same_weights(name: str, tmp_path: Path) -> None:
    train(name, tmp_path / "whole")
    with pytest.raises(StopError):
        train(name, tmp_path / "broken", Stops(5))
    train(name, tmp_path / "broken", resume=True)
    whole, broken = (read_manifest(tmp_path / part).files["model.safetensors"] for part in ("whole", "broken"))
    assert whole == broken


def test_a_dialogue_is_seen_by_each_of_its_speakers() -> None:
    personas = {"a": Persona(("i bake",)), "b": Persona(("i sail",))}
    dialogue = Dialogue("d", (Turn("a", "hi"), Turn("b", "hello"), Turn("a", "bye")), personas)
    first, second = talks_of(dialogue, "own")
    assert (first.own, first.persona) == ((True, False, True), ("i bake",))
    assert (second.own, second.persona) == ((False, True, False), ("i sail",))
    assert [talk.persona for talk in talks_of(dialogue, "none")] == [(), ()]
    assert len(list(talks_of(dialogue, "own", "b"))) == 1


def test_batches_hold_everything_once_and_keep_to_their_size() -> None:
    rng = random.Random(0)
    sizes = [rng.randint(1, 90) for _ in range(500)]
    for drawn in (None, random.Random(1)):
        found = batches_of(sizes, 200, drawn)
        assert sorted(place for batch in found for place in batch) == list(range(500))
        assert all(max(sizes[p] for p in batch) * len(batch) <= 200 for batch in found if len(batch) > 1)
    assert batches_of(sizes, 200, random.Random(1)) == batches_of(sizes, 200, random.Random(1))


def test_a_speaker_that_nobody_is_gets_an_error() -> None:
    with pytest.raises(DataError, match="no dialogue with a turn"):
        read_data(WriterConfig(speaker="nobody"))
