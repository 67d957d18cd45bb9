"""A trained model as a folder that explains itself: weights, config, vocabulary, training record and manifest.

The manifest (`tertulia.artefacts.manifest`) is written last; besides the SHA-256 of every file it names the
architecture and the bot that can use the folder. Nothing is ever unpickled: weights are safetensors, the rest is text
or plain NumPy arrays.
"""

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from tertulia.artefacts import manifest as artefact
from tertulia.artefacts.files import atomic_write, read_json, sha256_of, write_json
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError

WEIGHTS = "model.safetensors"
MODEL = "model.json"
KIND = "model"
FORMAT = 2
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")
_TORCH_WRITER = ("inline_container", "PytorchStreamWriter")
"""What errors of torch's writer name: it does not say why a file could not be written."""
_REMAKE = "Train the model again, or copy the folder again."


@dataclass(frozen=True, slots=True)
class ModelManifest:
    """What the folder of a trained model says about itself."""

    bot: str
    """The bot that can use it."""
    model: str
    """The architecture, by its name in `tertulia.models.registry`."""
    fingerprint: str
    """Changes with any weight."""
    files: Mapping[str, str]
    """SHA-256 by file name."""
    training: Mapping[str, Json]
    """What was measured in training."""


@contextmanager
def write_weights(path: Path) -> Iterator[Path]:
    """A file of weights, written at once. What torch and safetensors raise if there is no room is an OSError here."""
    with atomic_write(path) as unfinished:
        try:
            yield unfinished
        except SafetensorError as error:
            number = _SYSTEM_ERROR.search(str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        except RuntimeError as error:
            if not any(name in str(error) for name in _TORCH_WRITER):
                raise
            raise OSError(errno.ENOSPC, "No room for the weights", str(path)) from error


def save_weights(folder: Path, module: nn.Module, model: Mapping[str, Json]) -> None:
    """Save weights, and in `model` what is needed to build their module. The folder is incomplete until `seal`."""
    artefact.open_folder(folder)
    state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in module.state_dict().items()}
    with write_weights(folder / WEIGHTS) as file:
        save_file(state, file)
    write_json(folder / MODEL, dict(model))


def seal(
    folder: Path, *, bot: str, model: str, files: Iterable[str] = (), training: Mapping[str, Json]
) -> ModelManifest:
    """Write the manifest, which completes the folder; it vouches for weights, config and `files`."""
    artefact.seal(
        folder,
        kind=KIND,
        format=FORMAT,
        files=dict.fromkeys((WEIGHTS, MODEL, *files)),
        about={"bot": bot, "model": model, "training": dict(training)},
        content=sha256_of(folder / WEIGHTS)[:16],
    )
    return read_manifest(folder, check=False)


def read_manifest(folder: Path, *, check: bool = True) -> ModelManifest:
    """The manifest of a complete folder; with `check`, every file is compared with its SHA-256."""
    manifest = artefact.read_manifest(folder, kind=KIND, format=FORMAT, check=check, remake=_REMAKE)
    try:
        bot, model, training = (manifest.about[key] for key in ("bot", "model", "training"))
    except KeyError as error:
        raise _damaged(folder, f"the manifest lacks {error}") from None
    return ModelManifest(bot, model, manifest.fingerprint, manifest.files, training)


def read_model(folder: Path) -> dict[str, Json]:
    """What `save_weights` was given about the module."""
    try:
        return dict(read_json(folder / MODEL))
    except (OSError, ValueError, TypeError) as error:
        raise _damaged(folder, error) from None


def load_weights(folder: Path, module: nn.Module) -> None:
    """Load the folder's weights into a module."""
    try:
        module.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise _damaged(folder, error) from None


def save_half(run: Path, folder: Path) -> ModelManifest:
    """Copy a complete folder with its weights rounded to half precision (float16): half the size, to be passed on.

    The copy is complete as well, and loads like the original; its manifest says how it was rounded.
    """
    manifest = read_manifest(run)
    try:
        weights = load_file(run / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise _damaged(run, error) from None
    half = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    if too_large := next((name for name, tensor in half.items() if not bool(tensor.isfinite().all())), None):
        raise DataError(
            f"{too_large} of the model in {run} has numbers that half precision cannot hold.",
            hint="Use the run itself, or export it with --merged.",
        )
    artefact.open_folder(folder)
    with write_weights(folder / WEIGHTS) as file:
        save_file(half, file)
    others = [name for name in manifest.files if name != WEIGHTS]
    for name in others:
        shutil.copyfile(run / name, folder / name)
    training = {**manifest.training, "weights": "float16"}
    return seal(folder, bot=manifest.bot, model=manifest.model, files=others, training=training)


def count_parameters(module: nn.Module) -> int:
    """The number of trainable parameters."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def _damaged(folder: Path, problem: object) -> DataError:
    return DataError(f"The model in {folder} is damaged ({problem}).", hint=_REMAKE)
