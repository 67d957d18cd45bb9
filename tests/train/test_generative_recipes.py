"""Recipes of generative models: they train on the sample, save complete folders, and resume exactly."""

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
from tertulia.models.generators.transformer import Transformer, TransformerConfig
from tertulia.models.likelihood import batches_of, views_of
from tertulia.models.tokenizer import UNKNOWN
from tertulia.train.recipe import read_recipe
from tertulia.train.tasks.generative import GenerativeConfig, GenerativeTask, read_data

CONFIGS = Path(__file__).parents[2] / "configs"
BLOCKS = {"d_model": 32, "heads": 2, "max_length": 256}
TINY: Mapping[str, dict[str, Any]] = {
    "personachat-transformer": {**BLOCKS, "decoder_layers": 1},
    "personachat-evolved": {**BLOCKS, "decoder_blocks": 1},
    "personachat-evolved-both": {**BLOCKS, "decoder_blocks": 1},
    "personachat-seq2seq": {"dim": 16, "hidden": 24, "encoder": False},
    "personachat-generative-profile-memory": {"dim": 16, "hidden": 24},
}


def train(name: str, out: Path, progress: Any = None, **more: Any) -> Mapping[str, Any]:
    settings = {"model": TINY[name], "out": out, "max_dialogues": 12, "valid_dialogues": 3, "batch_tokens": 600}
    settings |= {"max_steps": 6, "validate_every": 3, "vocabulary": 400, "save_seconds": 0, "learning_rate": 1e-3}
    recipe, config = read_recipe(CONFIGS / f"{name}.toml", settings | more)
    return recipe.train(config, progress or Silent()).figures()


@pytest.mark.parametrize("name", TINY)
def test_a_recipe_saves_a_run_that_explains_itself(name: str, tmp_path: Path) -> None:
    figures = train(name, tmp_path)
    assert figures["steps"] == 6
    assert 1 < figures["valid"]["perplexity per token"] < 600
    manifest = read_manifest(tmp_path)
    assert {"model.safetensors", "model.json", "config.toml", "record.jsonl", "record.svg"} <= set(manifest.files)
    subwords = "evolved" in name or "transformer" in name  # the sample has capitals
    assert manifest.training["tokenizer"]["lower_case"] is not subwords
    assert manifest.training["tokenizer"]["byte_fallback"] is subwords
    again = read_recipe(tmp_path / "config.toml")[1]
    assert again.recipe == manifest.bot
    lines = [json.loads(line) for line in (tmp_path / "record.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "valid" in line] == [3, 6]


@pytest.mark.parametrize("name", ["personachat-transformer", "personachat-seq2seq"])
def test_a_resumed_run_ends_with_the_same_weights(name: str, tmp_path: Path, stops: Callable[[int], Progress]) -> None:
    train(name, tmp_path / "complete")
    with pytest.raises(KeyboardInterrupt):
        train(name, tmp_path / "interrupted", stops(5))
    train(name, tmp_path / "interrupted", resume=True)
    complete, interrupted = (
        read_manifest(tmp_path / part).files["model.safetensors"] for part in ("complete", "interrupted")
    )
    assert complete == interrupted


def test_a_dialogue_is_an_example_for_each_of_its_speakers() -> None:
    personas = {"a": Persona(("i bake",)), "b": Persona(("i sail",))}
    dialogue = Dialogue("d", (Turn("a", "hi"), Turn("b", "hello"), Turn("a", "bye")), personas)
    first, second = views_of(dialogue, "own")
    assert (first.own, first.persona) == ((True, False, True), ("i bake",))
    assert (second.own, second.persona) == ((False, True, False), ("i sail",))
    assert [view.texts for view in views_of(dialogue, "none")] == [("hi", "hello", "bye")] * 2
    assert [(t.persona, t.partner) for t in views_of(dialogue, "their")] == [((), ("i sail",)), ((), ("i bake",))]
    assert next(views_of(dialogue, "both")).texts == ("i bake", "i sail", "hi", "hello", "bye")
    assert len(list(views_of(dialogue, "own", "b"))) == 1


def test_batches_cover_everything_once_within_their_size() -> None:
    rng = random.Random(0)
    sizes = [rng.randint(1, 90) for _ in range(500)]
    for drawn in (None, random.Random(1)):
        batches = batches_of(sizes, 200, drawn)
        assert sorted(i for batch in batches for i in batch) == list(range(500))
        assert all(max(sizes[p] for p in batch) * len(batch) <= 200 for batch in batches if len(batch) > 1)
    assert batches_of(sizes, 200, random.Random(1)) == batches_of(sizes, 200, random.Random(1))


def test_a_speaker_without_turns_is_an_error() -> None:
    with pytest.raises(DataError, match="no dialogue with a turn"):
        read_data(GenerativeConfig(speaker="nobody"))


def test_unknown_words_occur_in_training() -> None:
    """As often as words that are seen once, unless every word is to be known."""
    for options, expected in (({}, True), ({"min_count": 1}, False)):
        data = read_data(GenerativeConfig(tokenizer="words", vocabulary=20_000, max_dialogues=40, **options))
        encoded = [data.tokenizer.encode(text) for view in data.views for text in view.turns]
        assert any(UNKNOWN in ids for ids in encoded) is expected


def test_persona_dropout_drops_some_personas() -> None:
    _, config = read_recipe(CONFIGS / "personachat-transformer.toml", {"max_dialogues": 40, "vocabulary": 400})
    assert isinstance(config, GenerativeConfig)
    assert config.persona_dropout == 0.3
    data = read_data(config)
    assert all(view.persona for view in data.views)
    task = GenerativeTask(Transformer.untrained(TransformerConfig(**BLOCKS), data.tokenizer), data, config)
    epochs = [[bool(view.persona) for batch in task.batches(epoch) for view in batch] for epoch in (0, 0, 1)]
    assert epochs[0] == epochs[1] != epochs[2]
    assert 0.5 < sum(epochs[0]) / len(epochs[0]) < 0.9


def test_both_personas_are_dropped_independently() -> None:
    overrides = {"max_dialogues": 40, "vocabulary": 400, "persona": "both", "valid_persona": "own"}
    _, config = read_recipe(CONFIGS / "personachat-transformer.toml", overrides)
    assert isinstance(config, GenerativeConfig)
    data = read_data(config)
    assert all(view.persona and not view.partner for view in data.valid)
    task = GenerativeTask(Transformer.untrained(TransformerConfig(**BLOCKS), data.tokenizer), data, config)
    seen = [(bool(view.persona), bool(view.partner)) for batch in task.batches(0) for view in batch]
    assert set(seen) == {(True, True), (True, False), (False, True), (False, False)}
