"""A disentangler on disk: a folder that explains itself and is loaded from the folder alone.

It holds the trees as LightGBM's text, the idf table as JSON, word vectors as plain arrays, the config it was trained
with, and a manifest, written last, with a digest of every file and the training record.
"""

from collections.abc import Mapping
from pathlib import Path

from tertulia.artefacts.files import atomic_write, fingerprint, read_json, save_config, sha256_of, write_json
from tertulia.artefacts.manifest import MANIFEST, Manifest, open_folder, read_manifest, seal
from tertulia.artefacts.word_vectors import read_word_vectors, save_word_vectors
from tertulia.core.config import Config, validate
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.corpus.chatlogs.boosted_trees import BoostedTrees
from tertulia.corpus.chatlogs.disentangler import FIRST_FEATURES, SECOND_FEATURES, CandidateWindow, Disentangler
from tertulia.corpus.chatlogs.similarity import IdfTable

KIND, FORMAT = "disentangler", 2
CONFIG, IDF, VECTORS = "config.toml", "idf.json", "vectors.npz"
_REMAKE = "Train it again: tertulia train configs/disentangler.toml --data FOLDER --out RUN"


def save_disentangler(model: Disentangler, folder: Path, *, config: Config, training: Mapping[str, Json]) -> str:
    """Write the model; returns its fingerprint, which depends on the model and not on where or how it was trained."""
    open_folder(folder)
    for stale in (*folder.glob("first.*.txt"), *folder.glob("second.*.txt"), folder / VECTORS):
        stale.unlink(missing_ok=True)
    save_config(config, folder / CONFIG)
    write_json(folder / IDF, {"unseen": model.idf.unseen, "idf": dict(model.idf.idf)})
    model_files = [IDF]
    if model.idf.vectors:
        save_word_vectors(model.idf.vectors, folder / VECTORS)
        model_files.append(VECTORS)
    for stage, members in (("first", model.first), ("second", model.second)):
        for number, trees in enumerate(members):
            name = f"{stage}.{number}.txt"
            with atomic_write(folder / name) as file:
                file.write_text(trees.text, encoding="utf-8")
            model_files.append(name)
    manifest = seal(
        folder,
        kind=KIND,
        format=FORMAT,
        files=[CONFIG, *model_files],
        about={
            "candidates": model.window.model_dump(),
            "start_bias": model.start_bias,
            "training": dict(training),
        },
        content=fingerprint(f"{name} {sha256_of(folder / name)}" for name in sorted(model_files)),
    )
    return manifest.fingerprint


def load_disentangler(folder: Path) -> Disentangler:
    """Load a model; any file that has changed since it was written is an error."""
    manifest = read_disentangler_manifest(folder)
    try:
        table = read_json(folder / IDF)
        vectors = read_word_vectors(folder / VECTORS, table["idf"]) if VECTORS in manifest.files else {}
        model = Disentangler(
            window=validate(CandidateWindow, manifest.about["candidates"], where=str(folder / MANIFEST)),
            idf=IdfTable(table["idf"], float(table["unseen"]), vectors),
            first=_load_trees(folder, manifest, "first"),
            second=_load_trees(folder, manifest, "second"),
            start_bias=float(manifest.about["start_bias"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"The disentangler in {folder} is damaged ({error}).", hint=_REMAKE) from None
    for members, names in ((model.first, FIRST_FEATURES), (model.second, SECOND_FEATURES)):
        if any(trees.names != tuple(names) for trees in members):
            raise DataError(
                f"The disentangler in {folder} has other features than this version of Tertulia.", hint=_REMAKE
            )
    return model


def read_disentangler_manifest(folder: Path) -> Manifest:
    """The manifest of a saved disentangler, with every file verified."""
    return read_manifest(folder, kind=KIND, format=FORMAT, remake=_REMAKE)


def _load_trees(folder: Path, manifest: Manifest, stage: str) -> tuple[BoostedTrees, ...]:
    # By number, not by name: "first.10" would sort before "first.2", and sums would be rounded in another order.
    names = sorted((n for n in manifest.files if n.startswith(f"{stage}.")), key=lambda n: int(n.split(".")[1]))
    return tuple(BoostedTrees((folder / name).read_text(encoding="utf-8")) for name in names)
