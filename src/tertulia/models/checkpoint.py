"""A trained model as a folder that explains itself: weights, config, vocabulary, record, and a manifest written last.

A folder with a manifest is whole; the manifest knows the SHA-256 of every file it vouches for, and which bot can use
the folder. Nothing is ever unpickled: weights are safetensors, the rest is text or plain NumPy arrays.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from tertulia import __version__
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError

MANIFEST = "manifest.json"
WEIGHTS = "model.safetensors"
MODEL = "model.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder says of itself."""

    bot: str
    """The bot that can use it."""
    model: str
    """The architecture, as in `tertulia.models`."""
    fingerprint: str
    """Changes with any weight."""
    files: Mapping[str, str]
    """SHA-256 by name."""
    training: Mapping[str, Json]
    """What was measured in training."""


def save_weights(folder: Path, module: nn.Module, model: Mapping[str, Json]) -> None:
    """Weights, and what is needed to build the module they belong to. The folder loses its manifest until `seal`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    state = {name: tensor.detach().contiguous().clone() for name, tensor in module.state_dict().items()}
    save_file(state, folder / WEIGHTS)
    (folder / MODEL).write_text(json.dumps(dict(model), indent=2), encoding="utf-8")


def seal(folder: Path, *, bot: str, model: str, files: Iterable[str] = (), training: Mapping[str, Json]) -> Manifest:
    """Write the manifest, which makes the folder whole; `files` are vouched for beside the weights and their config."""
    names = (WEIGHTS, MODEL, *files)
    digests = {name: digest(folder / name) for name in names}
    manifest = Manifest(bot, model, digests[WEIGHTS][:16], digests, training)
    record = {"format": FORMAT, "version": __version__, "bot": bot, "model": model}
    record |= {"fingerprint": manifest.fingerprint, "files": digests, "training": dict(training)}
    partial = folder / f"{MANIFEST}.part"
    partial.write_text(json.dumps(record, indent=2), encoding="utf-8")
    partial.replace(folder / MANIFEST)
    return manifest


def read_manifest(folder: Path, *, check: bool = True) -> Manifest:
    """The manifest of a whole folder; every file it vouches for is compared with its SHA-256."""
    try:
        record = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise DataError(f"{folder} has format {record['format']}; this version reads format {FORMAT}.")
        for name, expected in record["files"].items():
            if check and digest(folder / name) != expected:
                raise ValueError(f"{name} is not the file the manifest was written for")
        return Manifest(*(record[key] for key in ("bot", "model", "fingerprint", "files", "training")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from None


def read_model(folder: Path) -> dict[str, Json]:
    """What `save_weights` was told about the module."""
    try:
        found = json.loads((folder / MODEL).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(folder, error) from None
    return dict(found)


def load_weights(folder: Path, module: nn.Module) -> None:
    """Fill a module with the folder's weights."""
    try:
        module.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise _damaged(folder, error) from None


def digest(file: Path) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def count_parameters(module: nn.Module) -> int:
    """How many numbers are learned."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def _damaged(folder: Path, error: Exception) -> DataError:
    return DataError(f"The model in {folder} is damaged ({error}).", hint="Train it anew, or fetch a whole copy.")
