"""What identifies data: its path, its split, a digest of its content, and the digests of its files.

Verdicts record it of what they judge, training runs of what they learn from. Two records that share a file are about
the same texts, wherever the files were.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import orjson

from tertulia import sample
from tertulia.artefacts.files import fingerprint, sha256_of
from tertulia.core.codec import dialogue_to_json
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.corpus.load import SAMPLE, files_of

MAX_FILES = 100
"""Of data with more files, the digest of all of them is recorded, and not that of each."""
DIGEST_LENGTH = 16
"""Characters of a file's digest: enough to tell files apart."""


def describe_data(data: str, split: str | None) -> dict[str, Json]:
    """Path, split, digest and digests of the files of a corpus; splits of the sample count as files."""
    if data == SAMPLE:
        digests = {f"{SAMPLE}/{name}": _sample_digest(name) for name in sample.SPLITS if split in (None, name)}
    else:
        try:
            files = files_of(Path(data), split=split)
        except DataError:  # a folder whose files depend on each other, read as one corpus
            files = sorted(file for file in Path(data).rglob("*") if file.is_file())
        digests = file_digests(files)
    # Erasure finds derived artefacts by these digests: see `tertulia.corpus.erase.lineage`.
    digest = fingerprint(part for name, own in digests.items() for part in (Path(name).name, own))
    few = {"files": _short(digests)} if len(digests) <= MAX_FILES else {}
    return {"path": data, "split": split, "digest": digest, **few}


def describe_paths(paths: Sequence[str], split: str | None) -> dict[str, Json]:
    """The same of several corpora together."""
    parts = [describe_data(path, split) for path in paths]
    if len(parts) == 1:
        return parts[0]
    files = {f"{part['path']}: {name}": digest for part in parts for name, digest in part.get("files", {}).items()}
    digest = fingerprint(str(part["digest"]) for part in parts)
    few = {"files": files} if 0 < len(files) <= MAX_FILES else {}
    return {"path": ", ".join(paths), "split": split, "digest": digest, **few}


def describe_artefacts(**folders: Path) -> dict[str, Json]:
    """Folders with a manifest, such as judged runs, or files, each under its role."""
    files = {role: path / "manifest.json" if path.is_dir() else path for role, path in folders.items()}
    digests = _short({role: sha256_of(file) for role, file in files.items()})
    paths = {role: str(path) for role, path in folders.items()}
    return {"path": ", ".join(paths.values()), "split": None, "digest": fingerprint(digests.values()), "files": digests}


def _short(digests: Mapping[str, str]) -> dict[str, Json]:
    return {name: digest[:DIGEST_LENGTH] for name, digest in digests.items()}


def file_digests(files: Iterable[Path]) -> dict[str, str]:
    """The SHA-256 of each file by its name; files of the same name in several folders get their paths."""
    given = list(files)
    times = Counter(file.name for file in given)
    return {file.name if times[file.name] == 1 else str(file): sha256_of(file) for file in given}


def shared_files(one: Mapping[str, Json], other: Mapping[str, Json]) -> list[str]:
    """The files of the first that the second has too, under whatever name; all of it, if the digests agree."""
    theirs = set((other.get("files") or {}).values())
    shared = [name for name, digest in (one.get("files") or {}).items() if digest in theirs]
    if not shared and one.get("digest") and one.get("digest") == other.get("digest"):
        return [str(one.get("path", ""))]
    return shared


def _sample_digest(split: sample.Split) -> str:
    return fingerprint(orjson.dumps(dialogue_to_json(dialogue)).decode() for dialogue in sample.dialogues(split))
