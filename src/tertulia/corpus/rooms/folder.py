"""A disentangler on disk: a folder that explains itself, read back from the folder alone.

Trees as LightGBM's text, the idf table as JSON, word vectors as plain arrays, the config it was trained with, and a
manifest, written last, with the format's version, a digest of every file and the record of the training.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from tertulia import __version__
from tertulia.core.config import Config, save, validate
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.corpus.rooms.boost import Trees
from tertulia.corpus.rooms.disentangler import FIRST, SECOND, Disentangler, Reach
from tertulia.corpus.rooms.likeness import Lexicon
from tertulia.corpus.rooms.vectors import read_vectors, save_vectors

KIND, FORMAT = "disentangler", 1
MANIFEST, CONFIG, IDF, VECTORS = "manifest.json", "config.toml", "idf.json", "vectors.npz"


def save_disentangler(model: Disentangler, folder: Path, *, config: Config, training: Mapping[str, Json]) -> str:
    """Write the model; returns its fingerprint. An older manifest goes first: half a folder must never look whole."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    for old in (*folder.glob("first.*.txt"), *folder.glob("second.*.txt"), folder / VECTORS):
        old.unlink(missing_ok=True)
    names = [CONFIG, IDF]
    save(config, folder / CONFIG)
    table = {"unknown": model.lexicon.unknown, "idf": dict(model.lexicon.idf)}
    (folder / IDF).write_text(json.dumps(table, ensure_ascii=False, indent=0), encoding="utf-8")
    if model.lexicon.vectors:
        save_vectors(model.lexicon.vectors, folder / VECTORS)
        names.append(VECTORS)
    for kind, models in (("first", model.first), ("second", model.second)):
        for number, trees in enumerate(models):
            (folder / f"{kind}.{number}.txt").write_text(trees.text, encoding="utf-8")
            names.append(f"{kind}.{number}.txt")
    files = {name: _digest(folder / name) for name in names}
    manifest = {
        "kind": KIND,
        "format": FORMAT,
        "version": __version__,
        "fingerprint": _fingerprint(files),
        "reach": model.reach.model_dump(),
        "start_bias": model.start_bias,
        "training": dict(training),
        "files": files,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
    return str(manifest["fingerprint"])


def load_disentangler(folder: Path) -> Disentangler:
    """Read a model back; anything that is not as it was written is an error."""
    manifest = read_manifest(folder)
    try:
        table = json.loads((folder / IDF).read_text(encoding="utf-8"))
        vectors = read_vectors(folder / VECTORS, table["idf"]) if VECTORS in manifest["files"] else {}
        model = Disentangler(
            reach=validate(Reach, manifest["reach"], where=str(folder / MANIFEST)),
            lexicon=Lexicon(table["idf"], float(table["unknown"]), vectors),
            first=_trees(folder, manifest, "first"),
            second=_trees(folder, manifest, "second"),
            start_bias=float(manifest["start_bias"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, str(error)) from None
    for models, columns in ((model.first, FIRST), (model.second, SECOND)):
        if any(trees.names != tuple(columns) for trees in models):
            raise DataError(
                f"The disentangler in {folder} knows other columns than this version of Tertulia.",
                hint="Train it anew: tertulia train configs/disentangler.toml",
            )
    return model


def read_manifest(folder: Path) -> dict[str, Json]:
    """The manifest, once every file has been checked against it."""
    try:
        manifest: dict[str, Json] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["kind"] != KIND or manifest["format"] != FORMAT:
            raise DataError(
                f"{folder} holds {manifest['kind']!r}, format {manifest['format']}: not what this one reads."
            )
        for name, digest in manifest["files"].items():
            if _digest(folder / name) != digest:
                raise _damaged(folder, f"{name} is not what was written")
        if manifest["fingerprint"] != _fingerprint(manifest["files"]):
            raise _damaged(folder, "the fingerprint does not fit")
    except FileNotFoundError as error:
        raise DataError(
            f"{folder} is no whole disentangler: {Path(str(error.filename)).name} is missing.",
            hint="Train one: tertulia train configs/disentangler.toml --data FOLDER --out RUN",
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(folder, str(error)) from None
    return manifest


def _trees(folder: Path, manifest: Mapping[str, Json], kind: str) -> tuple[Trees, ...]:
    names = sorted(name for name in manifest["files"] if name.startswith(f"{kind}."))
    return tuple(Trees((folder / name).read_text(encoding="utf-8")) for name in names)


def _damaged(folder: Path, why: str) -> DataError:
    return DataError(f"The disentangler in {folder} is damaged: {why}.", hint="Copy it again, or train it anew.")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _fingerprint(files: Mapping[str, str]) -> str:
    joined = "\n".join(f"{name} {digest}" for name, digest in sorted(files.items()) if name != CONFIG)
    return hashlib.sha256(joined.encode()).hexdigest()[:16]
