"""The files in configs/: every one is read and validated by the command it is for."""

import tomllib
from pathlib import Path

import pytest

from tertulia.core.config import resolve
from tertulia.corpus.mine import MineConfig
from tertulia.models.generators.evolved_transformer import EvolvedConfig
from tertulia.models.generators.seq2seq import Seq2SeqConfig
from tertulia.train.recipe import read_recipe
from tertulia.train.tasks.generative import GenerativeConfig
from tertulia.train.tasks.ranking import RankerConfig

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_a_config_is_valid_and_starts_from_the_sample(file: Path) -> None:
    settings = tomllib.loads(file.read_text())
    if "recipe" not in settings:
        assert resolve(MineConfig, file=file).source == "sample"
        return
    recipe, config = read_recipe(file)
    assert recipe.name == settings["recipe"] == config.recipe
    unset = {key for key in settings if key not in type(config).model_fields}
    assert not unset


def config_of(name: str) -> object:
    return read_recipe(Path(__file__).parents[2] / "configs" / f"{name}.toml")[1]


def test_meena_has_the_papers_shape_and_schedule() -> None:
    config = config_of("meena")
    assert isinstance(config, GenerativeConfig)
    assert isinstance(config.model, EvolvedConfig)
    assert config.model.encoder_blocks == 1
    assert (config.tokenizer, config.vocabulary) == ("subwords", 8000)
    assert (config.optimizer, config.learning_rate, config.hold, config.decay) == ("adafactor", 0.01, 10_000, "rsqrt")


def test_the_papers_seq2seq_has_an_encoder_and_no_attention() -> None:
    config = config_of("personachat-seq2seq-encoder")
    assert isinstance(config, GenerativeConfig)
    assert isinstance(config.model, Seq2SeqConfig)
    assert (config.model.encoder, config.model.attention) == (True, False)


@pytest.mark.parametrize("name", ["starspace", "memory"])
def test_training_on_revised_personas_differs_in_nothing_else(name: str) -> None:
    original, revised = config_of(f"personachat-{name}"), config_of(f"personachat-{name}-revised")
    assert isinstance(original, RankerConfig)
    assert isinstance(revised, RankerConfig)
    assert (original.revised_share, revised.revised_share) == (0, 1)
    assert revised.model_copy(update={"revised_share": 0.0, "out": original.out}) == original
