"""`tertulia train`: recipes by name, single settings, several seeds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tertulia.core.errors import ConfigError, UnknownName
from tertulia.train.configs import shipped
from tertulia.train.recipe import read_recipe

Tertulia = Callable[..., Any]
TINY = [f"--set={setting}" for setting in ("max_dialogues=20", "valid_dialogues=10", "epochs=1", "model.hidden=4")]
TINY.append("--set=model.dim=4")


def test_a_recipe_is_a_file_a_ready_made_one_or_a_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('recipe = "dual-encoder"\nbatch = 7\n')
    assert read_recipe(file)[1].batch == 7  # type: ignore[attr-defined]
    recipe, config = read_recipe("ubuntu-lstm")
    assert (recipe.name, config.out) == ("dual-encoder", Path("run/ubuntu-lstm"))
    recipe, config = read_recipe("dual-encoder")
    assert config == recipe.config(out=Path("run/dual-encoder"))
    with pytest.raises(UnknownName, match="Did you mean 'ubuntu-lstm'"):
        read_recipe("ubuntu-lstn")


def test_ready_made_recipes_come_with_the_package() -> None:
    folder = Path(__file__).parents[2] / "configs"
    assert {file.stem for file in folder.glob("*.toml")} - {"mine-selfplay-reddit"} == set(shipped())
    assert all(config.summary for config in shipped().values())


def test_settings_get_the_type_of_their_field() -> None:
    changes = {"epochs": "3", "learning_rate": "1e-3", "speaker": "17", "model.tied": "false", "model.cell": "rnn"}
    config: Any = read_recipe("dual-encoder", changes=changes)[1]
    assert (config.epochs, config.learning_rate, config.speaker) == (3, 0.001, "17")
    assert (config.model.tied, config.model.cell) == (False, "rnn")
    assert config.model.dim == read_recipe("dual-encoder")[1].model.dim  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": "3"}, "In --set: unknown option 'epoch' (did you mean 'epochs'?)"),
        ({"model.hiden": "3"}, "In --set: unknown option 'model.hiden' (did you mean 'hidden'?)"),
        ({"epochs": "many"}, "In --set: epochs: must be an integer, got 'many'"),
        ({"model.cell": "gru"}, "In --set: model.cell: must be "),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_recipe("dual-encoder", changes=changes)
    assert error.value.message.startswith(message)


def test_a_setting_that_the_file_has_wrong_is_the_files_error(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text('recipe = "dual-encoder"\nepochs = 0\n')
    with pytest.raises(ConfigError, match=r"In .*wrong\.toml: epochs: must be at least 1"):
        read_recipe(file, changes={"batch": "4"})


def test_several_seeds_give_mean_and_spread_and_go_on(tertulia: Tertulia, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = ("train", "ubuntu-rnn", *TINY, "--out", tmp_path / "run", "--seeds", 2)
    result = tertulia(*command, "--json")
    assert result.code == 0, result.err
    outcome = json.loads(result.out)
    values = [run["valid"]["hits@1"] for run in outcome["runs"].values()]
    assert list(outcome["runs"]) == ["seed-0", "seed-1"]
    assert all((tmp_path / "run" / name / "manifest.json").is_file() for name in outcome["runs"])
    assert outcome["spread"].get("valid.hits@1", {"mean": values[0]})["mean"] == pytest.approx(sum(values) / 2)
    assert tertulia(*command).code == 2  # both are finished
    again = tertulia(*command, "--resume")
    assert again.code == 0, again.err
    assert "std. dev." in again.out
    assert "Training" not in again.err
