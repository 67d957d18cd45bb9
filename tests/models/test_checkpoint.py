"""Folders that explain themselves, and notice when they are damaged."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tertulia.core.errors import DataError
from tertulia.models.checkpoint import (
    MANIFEST,
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


def test_what_was_saved_comes_back(folder: Path) -> None:
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


def test_a_folder_without_manifest_is_not_whole(folder: Path) -> None:
    save_weights(folder, nn.Linear(2, 3), {})
    assert not (folder / MANIFEST).exists()
    with pytest.raises(DataError, match="damaged"):
        read_manifest(folder)


def test_weights_of_another_shape_are_refused(folder: Path) -> None:
    with pytest.raises(DataError, match="damaged"):
        load_weights(folder, nn.Linear(2, 4))


def test_another_format_is_refused(folder: Path) -> None:
    file = folder / MANIFEST
    file.write_text(file.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(DataError, match="format 99"):
        read_manifest(folder)


def test_frozen_parameters_are_not_counted() -> None:
    module = nn.Linear(2, 3)
    module.bias.requires_grad_(False)
    assert count_parameters(module) == 6
