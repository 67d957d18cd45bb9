"""The manifest: what makes a folder of files a complete artefact, and lets any reader check that it still is.

It is written last and removed first, so an interrupted writer never leaves a folder that looks complete. It is one flat
JSON object: `kind`, `format`, `version` of Tertulia, `fingerprint`, `files` (SHA-256 by name), and whatever else the
kind of artefact records about itself, such as `bot`, `model` or `training`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tertulia import __version__
from tertulia.artefacts.files import fingerprint, read_json, sha256_of, write_json
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, MissingFile

MANIFEST = "manifest.json"
_OWN = ("kind", "format", "version", "fingerprint", "files")
_UNKNOWN_KIND = ""
"""The kind in a manifest of an early version, which did not record it."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder says about itself."""

    kind: str
    """The kind of artefact, such as "model", "tfidf-index" or "judged-run"."""
    format: int
    """Version of the layout of that kind."""
    version: str
    """Version of Tertulia that wrote it."""
    fingerprint: str
    """Changes whenever the content changes."""
    files: Mapping[str, str]
    """SHA-256 by file name."""
    about: Mapping[str, Json]
    """What else the kind records about itself."""


def is_complete(folder: Path) -> bool:
    """Whether a folder has a manifest."""
    try:
        return (folder / MANIFEST).is_file()
    except OSError:  # for example, a name too long for a path
        return False


def open_folder(folder: Path) -> None:
    """Create the folder if needed and remove its manifest: it counts as incomplete until `seal`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)


def seal(
    folder: Path,
    *,
    kind: str,
    format: int,  # noqa: A002
    files: Iterable[str],
    about: Mapping[str, Json] | None = None,
    content: str | None = None,
) -> Manifest:
    """Write the manifest, which makes the folder complete.

    `content` is the fingerprint; by default it is computed from the digests of all files.
    """
    digests = {name: sha256_of(folder / name) for name in files}
    content = content or fingerprint(f"{name} {digest}" for name, digest in sorted(digests.items()))
    manifest = Manifest(kind, format, __version__, content, digests, dict(about or {}))
    if taken := sorted(set(manifest.about) & set(_OWN)):
        raise ValueError(f"the manifest writes {taken[0]!r} itself")
    record = {"kind": kind, "format": format, "version": __version__, "fingerprint": content, "files": digests}
    write_json(folder / MANIFEST, record | dict(manifest.about), durable=True)
    return manifest


def read_manifest(
    folder: Path,
    *,
    kind: str,
    format: int,  # noqa: A002
    check: bool = True,
    remake: str = "Create it again, or copy it again.",
) -> Manifest:
    """Read the manifest of a complete folder of that kind and format; with `check`, every file is verified.

    `remake` tells the user what to do where the folder is damaged, incomplete or of another version.
    """
    record = _record(folder, remake)
    written = record["format"]
    if record["kind"] not in (kind, _UNKNOWN_KIND):
        raise DataError(f"{folder} contains a {record['kind']!r}, not a {kind!r}.", hint="Check the path.")
    if isinstance(written, int) and written > format:
        raise DataError(
            f"{folder} was written by a newer Tertulia (format {written}; this one reads {format}).",
            hint="Upgrade with: pip install -U tertulia",
        )
    if written != format:
        raise DataError(
            f"{folder} was written by an earlier version of Tertulia (format {written}; this one reads {format}).",
            hint=remake,
        )
    try:
        for name, expected in record["files"].items():
            if check and sha256_of(folder / name) != expected:
                raise DataError(f"{folder} is damaged: {name} has changed since it was written.", hint=remake)
        about = {key: value for key, value in record.items() if key not in _OWN}
        return Manifest(kind, format, record["version"], record["fingerprint"], record["files"], about)
    except FileNotFoundError as error:
        raise DataError(f"{folder} is incomplete: {Path(str(error.filename)).name} is missing.", hint=remake) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder} is damaged ({error}).", hint=remake) from None


def read_about(folder: Path) -> Mapping[str, Json]:
    """The manifest without any verification: what kind of artefact is this?"""
    return _record(folder, "Check the path.")


def _record(folder: Path, remake: str) -> dict[str, Json]:
    try:
        record = read_json(folder / MANIFEST)
        if not isinstance(record, dict):
            raise TypeError("the manifest is not an object")
        return {"kind": _UNKNOWN_KIND, "format": 0} | record
    except FileNotFoundError:
        if not folder.is_dir():
            raise MissingFile(f"Folder not found: {folder}", hint="Check the path.") from None
        raise DataError(f"{folder} is incomplete: {MANIFEST} is missing.", hint=remake) from None
    except DataError as error:
        raise DataError(error.message, hint=remake) from None
    except (OSError, TypeError, ValueError) as error:
        raise DataError(f"{folder} is damaged ({error}).", hint=remake) from None
