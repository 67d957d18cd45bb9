"""Where results go: outputs are marked in configs, checked before the work, and written all at once at its end.

A config marks the paths that are written: `out: Annotated[Path, Output("folder")]`. The command line checks them with
`check_outputs` before it calls the command, so that no work ends in front of a folder that cannot be written to, and
nothing is replaced that was there before: for that, a config has the field `force`.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from tertulia.artefacts.files import atomic_write, is_unfinished, unfinished_path
from tertulia.artefacts.manifest import is_complete, read_about
from tertulia.core.config import Cli, Config
from tertulia.core.errors import TertuliaError, UsageError

Force = Annotated[bool, Cli("--force"), Field(description="Replace what is in the place of the output.")]
"""The type of the field `force`."""
WORK = "_work"
"""The working folder that a killed command leaves in its output; who runs the command again removes it."""
_PROBE_BYTES = 4096
_FORCE = "force"


@dataclass(frozen=True, slots=True)
class Output:
    """Marks a field of a config as a path that is written to: `Annotated[Path | None, Output("file")]`."""

    kind: Literal["file", "folder", "either"]
    existing: Literal["refuse", "own"] = "refuse"
    """Refuse what is there unless the config says `force`; or leave it to the command, which appends or continues."""
    known_by: tuple[str, ...] = ()
    """Names by which the command recognises a folder of its own: without one of them, what is there is refused."""
    same: Callable[[Path, Any], bool] | None = None
    """Whether what is there is the result of the same command (path, config), which may replace it."""
    replaces_folders: bool = True
    """Whether `force` covers a folder with contents, or only files."""
    endings: tuple[str, ...] = ()
    """How the name must end."""
    companion: str = ""
    """Name of a second file that is written beside it, with {stem} for the name of the first."""


class MarkedPath(NamedTuple):
    """A path of a config that is written to."""

    field: str
    path: Path
    mark: Output


def marked_paths(config: Config) -> list[MarkedPath]:
    """The outputs of a config that are paths: those that are not given, and URLs, are left out."""
    return [
        MarkedPath(name, path, mark)
        for name, mark in marked_fields(type(config)).items()
        if isinstance(path := getattr(config, name), Path)
    ]


def marked_fields(config: type[Config]) -> dict[str, Output]:
    """The fields of a config that are outputs."""
    return {
        name: mark for name, info in config.model_fields.items() for mark in info.metadata if isinstance(mark, Output)
    }


def check_outputs(config: Config, labels: Mapping[str, str] | None = None) -> None:
    """Raise UsageError for an output that cannot be written, or that something else is in the place of.

    `labels` are the names of the fields on the command line. Nothing is created.
    """
    for field, path, mark in marked_paths(config):
        label = (labels or {}).get(field) or f"--{field.replace('_', '-')}"
        try:
            _check_kind(path, mark, label)
            _check_existing(path, mark, config, label)
            if mark.companion:
                _check_existing(path.with_name(mark.companion.format(stem=path.stem)), mark, config, label)
            _check_writable(path, mark)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise UsageError(f"{path} cannot be written: {reason}.", hint=_other(label)) from None


@contextmanager
def write_output(path: Path) -> Iterator[Path]:
    """A path to write to that becomes `path` when the block ends; missing folders are created.

    A link stays a link: what it points to is replaced. A device or a pipe is written to as it is.
    """
    path = path.resolve() if path.is_symlink() else path
    if path.exists() and not path.is_file() and not path.is_dir():
        yield path
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as unfinished:
        yield unfinished


def contents(folder: Path) -> list[str]:
    """The names in a folder, without what killed commands left."""
    return sorted(entry.name for entry in folder.iterdir() if entry.name != WORK and not is_unfinished(entry))


def has_manifest_of(folder: Path, expected: Mapping[str, object]) -> bool:
    """Whether a folder is a complete artefact whose manifest has all these values."""
    try:
        about = read_about(folder) if is_complete(folder) else {}
    except TertuliaError:
        return False
    return bool(about) and all(about.get(key) == value for key, value in expected.items())


def _check_kind(path: Path, mark: Output, label: str) -> None:
    if "\0" in str(path):
        raise UsageError(f"{str(path)!r} is not a path.", hint=_other(label))
    if mark.endings and path.suffix not in mark.endings:
        raise UsageError(f"{path} must end in {' or '.join(mark.endings)}.", hint=_other(label))
    if mark.kind == "folder" and path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file, not a folder.", hint=f"Name another folder with {label}.")
    if mark.kind == "file" and path.is_dir():
        raise UsageError(f"{path} is a folder, not a file.", hint=f"Name a file with {label}.")


def _check_existing(path: Path, mark: Output, config: Config, label: str) -> None:
    forced = bool(getattr(config, _FORCE, False))
    if path.is_dir():
        names = contents(path)
        if not names or (forced and mark.replaces_folders):
            return
        if mark.existing == "own" and (not mark.known_by or set(names) & set(mark.known_by)):
            return
        if mark.same is not None and mark.same(path, config):
            return
        problem = f"{path} is not empty: it contains {names[0]}."
    else:
        if forced or mark.existing == "own" or not path.is_file() or not path.stat().st_size:
            return
        problem = f"{path} exists."
    can_force = _FORCE in type(config).model_fields and (mark.replaces_folders or not path.is_dir())
    replace = ", or replace what is there with --force." if can_force else "."
    raise UsageError(problem, hint=_other(label).rstrip(".") + replace)


def _check_writable(path: Path, mark: Output) -> None:
    """Write a little where the output goes, or into the nearest folder that exists; it is gone at once."""
    folder = path if path.is_dir() else path.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file, not a folder, so {path} cannot be written.", hint="Choose another path.")
    if path.exists() and not path.is_dir():
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "Permission denied", str(path))
        if not path.is_file():
            return  # a device or a pipe
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(b"\0" * _PROBE_BYTES)
        probe.flush()
    if mark.kind != "folder":
        unfinished_path(folder / path.name).exists()  # raises OSError if the name is too long


def _other(label: str) -> str:
    return f"Choose another path with {label}." if label.startswith("-") else f"Choose another {label}."
