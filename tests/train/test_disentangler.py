"""The disentangler's recipe: deterministic, resumable, and able to learn."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tertulia.cli.train import train as train_command
from tertulia.core.config import save
from tertulia.core.errors import ConfigError, DataError, UnknownName
from tertulia.core.progress import Silent
from tertulia.corpus.rooms.folder import read_manifest
from tertulia.train.recipe import read_recipe
from tertulia.train.recipes.disentangler import DisentanglerConfig, Trained, read_data, train
from tertulia.train.table import RECIPES

SMALL = {"trees": 8, "second_trees": 5, "min_rows": 20, "window": 20, "keep": 5, "max_logs": 2}


def config(out: Path, **more: object) -> DisentanglerConfig:
    return DisentanglerConfig.model_validate({"out": out} | SMALL | more)


class Stopping(Silent):
    """Interrupts at a step, as a user would."""

    def __init__(self, at: str) -> None:
        self.at = at

    def step(self, title: str, total: int | None = None) -> None:
        if title.startswith(self.at):
            raise KeyboardInterrupt


class Hearing(Silent):
    """Remembers the steps."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, title: str, total: int | None = None) -> None:
        self.steps.append(title)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A training that was not disturbed."""
    return train(config(tmp_path_factory.mktemp("done")))


def test_the_same_seed_gives_the_same_model(tmp_path: Path, done: Trained) -> None:
    """In another process too, where sets of words come in another order."""
    file = tmp_path / "r.toml"
    save(config(tmp_path / "two"), file)
    command = [sys.executable, "-m", "tertulia", "train", str(file)]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PYTHONHASHSEED": "12345"})
    for name in ("first.0.txt", "first.1.txt", "second.0.txt", "idf.json"):
        assert (done.folder / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert train(config(tmp_path / "other", seed=1)).fingerprint != done.fingerprint


def test_the_record_tells_what_happened(done: Trained) -> None:
    manifest = read_manifest(done.folder)
    training = manifest["training"]
    assert (manifest["kind"], manifest["format"], manifest["fingerprint"]) == ("disentangler", 1, done.fingerprint)
    assert (training["logs"], training["seed"]) == (2, 0)
    assert training["dev"]["lines"] == 433
    assert training["dev"]["link_f"] > 80
    assert not (done.folder / "partial").exists()
    assert read_recipe(done.folder / "config.toml")[1] == config(done.folder)


def test_an_interrupted_run_goes_on(tmp_path: Path, done: Trained) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(config(tmp_path / "cut"), Stopping("Learning conversations"))
    assert not (tmp_path / "cut" / "manifest.json").exists()
    hearing = Hearing()
    resumed = train(config(tmp_path / "cut", resume=True), hearing)
    assert resumed.fingerprint == done.fingerprint
    assert not [step for step in hearing.steps if step.startswith("Learning pairs")]


def test_other_settings_do_not_go_on_from_it(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(config(tmp_path), Stopping("Learning conversations"))
    with pytest.raises(KeyboardInterrupt):
        train(config(tmp_path, resume=True, trees=9), Stopping("Learning pairs"))


def test_vectors_go_into_the_model(tmp_path: Path) -> None:
    glove = tmp_path / "glove.txt"
    glove.write_text("disk 1 0\nmount 1 0.5\nwifi 0 1\n")
    done = train(config(tmp_path / "run", vectors=glove))
    glove.unlink()
    assert done.record["vectors"] == 3
    assert "vectors.npz" in read_manifest(tmp_path / "run")["files"]


def test_a_folder_without_annotations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no annotated logs"):
        read_data(str(tmp_path))


def test_recipes_are_found_by_the_name_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text('recipe = "disentangler"\ntrees = 7\n')
    recipe, settings = read_recipe(file, {"out": tmp_path / "x", "data": None})
    assert recipe is RECIPES.get("disentangler")
    assert settings == DisentanglerConfig(trees=7, out=tmp_path / "x")


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("trees = 7", ConfigError, "names no recipe"),
        ('recipe = "disentangle"', UnknownName, "disentangler"),
        ('recipe = "disentangler"\ntree = 7', ConfigError, "did you mean 'trees'"),
        ('recipe = "disentangler"\ntrees = 0', ConfigError, "trees"),
    ],
)
def test_recipes_that_do_not_fit_say_why(tmp_path: Path, text: str, error: type[Exception], said: str) -> None:
    file = tmp_path / "r.toml"
    file.write_text(text)
    with pytest.raises(error) as caught:
        read_recipe(file)
    assert said in str(caught.value)


def test_the_packaged_config_fits() -> None:
    _, settings = read_recipe(Path(__file__).parents[2] / "configs" / "disentangler.toml")
    assert isinstance(settings, DisentanglerConfig)


def test_the_command_prints_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.toml"
    file.write_text('recipe = "disentangler"\n' + "\n".join(f"{key} = {value}" for key, value in SMALL.items()))
    train_command(file, out_folder=tmp_path / "run", json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["recipe"] == "disentangler"
    assert told["dev"]["link_f"] > 80


@pytest.mark.slow
def test_real_logs_are_pulled_apart_better_than_by_rules(shared_data: Path, tmp_path: Path) -> None:
    """A small model from ten real logs: far above the rules (exact F 8), far below what all the data gives."""
    for split, few in (("train", slice(0, 150, 15)), ("dev", slice(0, 10, 2))):
        (tmp_path / split).mkdir()
        for file in sorted((shared_data / "ubuntu_irc" / split).glob("*.annotation.txt"))[few]:
            for name in (file.name, file.name.replace(".annotation.", ".raw.")):
                (tmp_path / split / name).symlink_to(file.with_name(name))
    done = train(config(tmp_path / "run", data=str(tmp_path), max_logs=None, trees=40, second_trees=20, window=50))
    assert done.record["logs"] == 10
    assert done.record["dev"]["link_f"] > 60
    assert done.record["dev"]["exact_f"] > 20
