"""What was made from a mined corpus: found by the records that splits, runs and judgements keep of their data.

The `config.toml` of a split or a run names its data by the path; the manifest of a judged run also has its digest; test
sets, conversions and filtered corpora have a record of their origin (`corpus.origin`). Whatever names the corpus, or
something made from it, is derived. Other files near the corpus are reported as not searched, until the user names them.
"""

import os
import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tertulia.artefacts.files import fingerprint, read_json, sha256_of
from tertulia.artefacts.manifest import MANIFEST
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.corpus.load import files_of
from tertulia.corpus.origin import with_origin
from tertulia.corpus.readers.base import ENDINGS, OTHER_ENDINGS

CONFIG = "config.toml"
_MAX_FOLDERS, _MAX_DEPTH = 5000, 6
_MIN_DIGEST = 16
_NOT_DATA = frozenset((MANIFEST, CONFIG, "README.txt", "LICENSE.txt", "requirements.txt", "constraints.txt"))


class Derived(NamedTuple):
    """A folder that was made from the corpus and holds more than records: an index, a model, judged scores."""

    path: str
    kind: str
    fingerprint: str
    """Of its manifest; a folder made again has another one."""
    why: str


@dataclass(slots=True)
class Lineage:
    """What was found near a corpus."""

    data: list[Path] = field(default_factory=list)
    """Files of records, which can be searched and rewritten."""
    artefacts: list[Derived] = field(default_factory=list)
    unknown: list[Path] = field(default_factory=list)
    """Corpus files without a record of what they were made from."""
    is_complete: bool = True
    """Whether all folders were looked at."""


def digests_of(path: Path, files: Sequence[Path] | None = None) -> frozenset[str]:
    """Every digest by which a record may know a file or folder of data (of which only some files may matter)."""
    if path.is_file():
        digest = sha256_of(path)
        return frozenset((digest, digest[:_MIN_DIGEST], fingerprint([path.name, digest]), fingerprint([digest])))
    result: set[str] = set()
    files = sorted(file for file in path.rglob("*") if file.is_file()) if files is None else files
    digests = {file: sha256_of(file) for file in files}
    for digest in digests.values():
        result |= {digest, digest[:_MIN_DIGEST]}
    for split in (None, "train", "valid", "test"):
        try:
            chosen: Sequence[Path] = files_of(path, split=split)
        except DataError:
            chosen = files if split is None else ()
        if chosen:
            result.add(fingerprint(part for file in chosen if file in digests for part in (file.name, digests[file])))
    return frozenset(result)


def find_derived(
    corpus: Path, *, look_in: Sequence[Path], given: Collection[Path], digests: Collection[str]
) -> Lineage:
    """Search folders for what was made from the corpus, from the given places, or from what is found on the way."""
    lineage = Lineage()
    folders = list(_folders(look_in, corpus, lineage))
    tainted, tainted_digests = {corpus.resolve(), *(path.resolve() for path in given)}, set(digests)
    records = {folder: list(_recorded(folder)) for folder in folders}
    # A folder that holds the corpus is a project, whatever its records name, and not made from the corpus.
    waiting = [folder for folder in folders if records[folder] and not _is_in(corpus.resolve(), folder.resolve())]
    _add_recorded(folders, lineage, tainted, tainted_digests, look_in)
    while named := [folder for folder in waiting if _names(folder, records[folder], tainted, tainted_digests, look_in)]:
        for folder in named:
            tainted.add(folder.resolve())
            if (derived := artefact_in(folder, "made from erased data")) is not None:
                lineage.artefacts.append(derived)
                tainted_digests |= {derived.fingerprint} if derived.fingerprint else set()
            else:
                files = [file for file in sorted(folder.iterdir()) if file.is_file()]
                lineage.data += files
                tainted_digests |= digests_of(folder, files)
        waiting = [folder for folder in waiting if folder not in named]
        _add_recorded(folders, lineage, tainted, tainted_digests, look_in)
    inside = {corpus, *given, *lineage.data, *(Path(derived.path) for derived in lineage.artefacts)}
    searched = {path.resolve() for path in inside}
    lineage.unknown = [
        file for folder in folders for file in _loose(folder) if searched.isdisjoint(_with_parents(file.resolve()))
    ]
    return lineage


def _add_recorded(
    folders: Sequence[Path], lineage: Lineage, tainted: set[Path], tainted_digests: set[str], look_in: Sequence[Path]
) -> None:
    """Add what has a record of its origin that names erased data, or something that was added."""
    recorded = [(made, named) for folder in folders for made, named in with_origin(folder)]
    while derived := [
        made
        for made, named in recorded
        if made.resolve() not in tainted and _names(made, named, tainted, tainted_digests, look_in)
    ]:
        for made in derived:
            files = [made] if made.is_file() else sorted(file for file in made.rglob("*") if file.is_file())
            tainted.add(made.resolve())
            lineage.data += files
            tainted_digests |= digests_of(made)


def _with_parents(path: Path) -> tuple[Path, ...]:
    return (path, *path.parents)


def artefact_in(folder: Path, why: str) -> Derived | None:
    """The artefact that a folder is, by its manifest; None for a folder of plain records."""
    if not (folder / MANIFEST).is_file():
        return None
    try:
        record = read_json(folder / MANIFEST)
    except (DataError, OSError):
        return Derived(str(folder), "damaged artefact", "", why)
    if not isinstance(record, dict) or {"inputs", "rules"} <= set(record):
        return None
    kind = str(record.get("model") or record.get("kind") or "artefact")
    return Derived(str(folder), kind, str(record.get("fingerprint", "")), why)


def _folders(look_in: Sequence[Path], corpus: Path, lineage: Lineage) -> Iterator[Path]:
    """The folders to look at, without hidden ones and the corpus itself."""
    count = 0
    for top in look_in:
        for name, subfolders, _ in os.walk(top):
            folder = Path(name)
            count += 1
            if count > _MAX_FOLDERS:
                lineage.is_complete = False
                return
            depth = len(folder.relative_to(top).parts)
            subfolders[:] = sorted(
                s for s in subfolders if not s.startswith(".") and (folder / s).resolve() != corpus.resolve()
            )
            if depth >= _MAX_DEPTH and subfolders:
                lineage.is_complete = False
                subfolders.clear()
            yield folder


def _recorded(folder: Path) -> Iterator[str]:
    """Every string in the records of a folder; a damaged record says nothing."""
    for name in (CONFIG, MANIFEST):
        file = folder / name
        if file.is_file():
            try:
                text = file.read_text(encoding="utf-8")
                yield from _strings(tomllib.loads(text) if name == CONFIG else read_json(file))
            except (OSError, ValueError, DataError):
                continue


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _names(
    folder: Path, recorded: Sequence[str], tainted: set[Path], tainted_digests: set[str], look_in: Sequence[Path]
) -> bool:
    """Whether the records of a folder name data that is erased from."""
    for value in recorded:
        if len(value) >= _MIN_DIGEST and value in tainted_digests:
            return True
        if _is_path(value) and any(
            _is_in(path, erased)
            for path in _resolved(value, folder.resolve(), look_in)
            for erased in tainted
            if erased != folder.resolve()
        ):
            return True
    return False


def _is_path(value: str) -> bool:
    return 0 < len(value) < 4096 and "\n" not in value and "\0" not in value


def _resolved(value: str, folder: Path, look_in: Sequence[Path]) -> Iterator[Path]:
    """What a recorded path may mean: it was relative to a working folder that nobody recorded. In the specification
    of a bot the path follows its name: `tfidf:DATA?option=1`."""
    for text in dict.fromkeys((value, value.partition(":")[2].partition("?")[0])):
        if text and text not in (".", ".."):
            for base in (Path.cwd(), folder, *folder.parents[:3], *(place.resolve() for place in look_in)):
                yield Path(os.path.normpath(base / text))


def _is_in(path: Path, place: Path) -> bool:
    return path == place or place in path.parents


def _loose(folder: Path) -> Iterator[Path]:
    """The corpus files that lie in a folder."""
    if (folder / MANIFEST).is_file():
        return
    for file in sorted(folder.iterdir()):
        if file.name.endswith((*ENDINGS, *OTHER_ENDINGS)) and file.name not in _NOT_DATA and file.is_file():
            yield file
