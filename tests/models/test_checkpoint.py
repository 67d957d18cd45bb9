"""Folders of trained models explain themselves, and damage to them is noticed."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from tertulia.artefacts.manifest import MANIFEST
from tertulia.core.errors import DataError
from tertulia.models.checkpoint import (
    MODEL,
    WEIGHTS,
    count_parameters,
    load_weights,
    read_manifest,
    read_model,
    save_weights,
    seal,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_weights(tmp_path / "run", nn.Linear(2, 3), {"config": {"size": 3}})
    (tmp_path / "run" / "words.txt").write_text("a\n")
    seal(tmp_path / "run", bot="some", model="line", files=["words.txt"], training={"steps": 4})
    return tmp_path / "run"


def test_a_loaded_model_equals_the_saved_one(folder: Path) -> None:
    torch.manual_seed(0)
    made, again = nn.Linear(2, 3), nn.Linear(2, 3)
    load_weights(folder, again)
    assert torch.equal(made.weight, again.weight)
    assert read_model(folder) == {"config": {"size": 3}}
    manifest = read_manifest(folder)
    assert (manifest.bot, manifest.model, manifest.training) == ("some", "line", {"steps": 4})
    assert set(manifest.files) == {WEIGHTS, MODEL, "words.txt"}


@pytest.mark.parametrize("name", [WEIGHTS, MODEL, "words.txt"])
def test_a_changed_file_is_noticed(folder: Path, name: str) -> None:
    with (folder / name).open("ab") as out:
        out.write(b"x")
    with pytest.raises(DataError, match=name):
        read_manifest(folder)


def test_a_folder_without_manifest_is_incomplete(folder: Path) -> None:
    save_weights(folder, nn.Linear(2, 3), {})
    assert not (folder / MANIFEST).exists()
    with pytest.raises(DataError, match="incomplete"):
        read_manifest(folder)


def test_weights_of_another_shape_are_refused(folder: Path) -> None:
    with pytest.raises(DataError, match="damaged"):
        load_weights(folder, nn.Linear(2, 4))


def test_another_format_is_refused(folder: Path) -> None:
    file = folder / MANIFEST
    file.write_text(file.read_text().replace('"format": 2', '"format": 99'))
    with pytest.raises(DataError, match="format 99"):
        read_manifest(folder)


def test_a_folder_of_an_earlier_version_says_to_train_again(folder: Path) -> None:
    file = folder / MANIFEST
    record = json.loads(file.read_text()) | {"format": 1}
    del record["kind"]
    file.write_text(json.dumps(record))
    with pytest.raises(DataError, match="earlier version") as caught:
        read_manifest(folder)
    assert "Train the model again" in str(caught.value.hint)


def test_frozen_parameters_are_not_counted() -> None:
    module = nn.Linear(2, 3)
    module.bias.requires_grad_(False)
    assert count_parameters(module) == 6
