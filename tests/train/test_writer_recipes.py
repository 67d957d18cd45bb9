"""Every recipe of a model that writes: trains on the sample, explains itself, and resumes exactly."""

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress, Silent
from tertulia.models.checkpoint import read_manifest
from tertulia.models.likelihood import batches_of, talks_of
from tertulia.models.transformer import Transformer, TransformerConfig
from tertulia.train.recipe import read_recipe
from tertulia.train.writers import WriterConfig, WriterTrainee, read_data

CONFIGS = Path(__file__).parents[2] / "configs"
BLOCKS = {"d_model": 32, "heads": 2, "longest": 256}
TINY: Mapping[str, dict[str, Any]] = {
    "personachat-transformer": {**BLOCKS, "decoder_layers": 1},
    "personachat-evolved": {**BLOCKS, "decoder_blocks": 1},
    "personachat-evolved-both": {**BLOCKS, "decoder_blocks": 1},
    "personachat-seq2seq": {"dim": 16, "hidden": 24, "encoder": False},
    "personachat-profile-memory-writer": {"dim": 16, "hidden": 24},
}


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


@pytest.mark.parametrize("name", ["personachat-transformer", "personachat-seq2seq"])
def test_an_interrupted_training_ends_with_the_same_weights(
    name: str, tmp_path: Path, stops: Callable[[int], Progress]
) -> None:
    train(name, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(name, tmp_path / "broken", stops(5))
    train(name, tmp_path / "broken", resume=True)
    whole, broken = (read_manifest(tmp_path / part).files["model.safetensors"] for part in ("whole", "broken"))
    assert whole == broken


def test_a_dialogue_is_seen_by_each_of_its_speakers() -> None:
    personas = {"a": Persona(("i bake",)), "b": Persona(("i sail",))}
    dialogue = Dialogue("d", (Turn("a", "hi"), Turn("b", "hello"), Turn("a", "bye")), personas)
    first, second = talks_of(dialogue, "own")
    assert (first.own, first.persona) == ((True, False, True), ("i bake",))
    assert (second.own, second.persona) == ((False, True, False), ("i sail",))
    assert [talk.texts for talk in talks_of(dialogue, "none")] == [("hi", "hello", "bye")] * 2
    assert [(t.persona, t.partner) for t in talks_of(dialogue, "their")] == [((), ("i sail",)), ((), ("i bake",))]
    assert next(talks_of(dialogue, "both")).texts == ("i bake", "i sail", "hi", "hello", "bye")
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


def test_some_talks_are_learned_from_without_their_persona() -> None:
    _, config = read_recipe(CONFIGS / "personachat-transformer.toml", {"max_dialogues": 40, "vocabulary": 300})
    assert isinstance(config, WriterConfig)
    assert config.persona_dropout == 0.3
    data = read_data(config)
    assert all(talk.persona for talk in data.talks)
    learner = WriterTrainee(Transformer.untrained(TransformerConfig(**BLOCKS), data.tokenizer), data, config)
    epochs = [[bool(talk.persona) for batch in learner.batches(epoch) for talk in batch] for epoch in (0, 0, 1)]
    assert epochs[0] == epochs[1] != epochs[2]
    assert 0.5 < sum(epochs[0]) / len(epochs[0]) < 0.9


def test_of_both_personas_each_is_left_out_by_itself() -> None:
    overrides = {"max_dialogues": 40, "vocabulary": 300, "persona": "both", "valid_persona": "own"}
    _, config = read_recipe(CONFIGS / "personachat-transformer.toml", overrides)
    assert isinstance(config, WriterConfig)
    data = read_data(config)
    assert all(talk.persona and not talk.partner for talk in data.valid)
    learner = WriterTrainee(Transformer.untrained(TransformerConfig(**BLOCKS), data.tokenizer), data, config)
    seen = [(bool(talk.persona), bool(talk.partner)) for batch in learner.batches(0) for talk in batch]
    assert set(seen) == {(True, True), (True, False), (False, True), (False, False)}
