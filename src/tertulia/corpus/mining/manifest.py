"""The manifest of a mined folder: the inputs and rules it is made from. A rerun continues only if they are the same.

Unlike the manifest of other artefacts it is written first, since it guards work in progress; a mined folder is complete
once its funnel, which is written last, is there.

On a disk one run at a time holds the lock of a folder. A store has no lock, and needs none for runs with the same
manifest: every file follows from the manifest and its own name, so that two runs write the same bytes. The manifest
itself is written only if there is none, and read back; whoever finds another one stops. A run that is started over
(--fresh) replaces it, so every task looks at it once more before it writes results, and the driver before it writes
the funnel.
"""

import hashlib
from collections.abc import Iterator, Mapping

import orjson

from tertulia.artefacts.folders import Folder, read_json_from
from tertulia.artefacts.manifest import MANIFEST
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, UsageError

FORMAT = 4
"""Raised whenever mining would produce different bytes from the same input and rules."""


def check_manifest(folder: Folder, manifest: Mapping[str, Json]) -> bool:
    """Whether an earlier run started the folder with this manifest; writes it if there is none, rejects another."""
    content = orjson.dumps(manifest, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    is_new = folder.create(MANIFEST, content)
    compare_manifest(folder, manifest)  # in a store, another run may have been faster
    return not is_new


def compare_manifest(folder: Folder, manifest: Mapping[str, Json]) -> None:
    """Reject a folder whose manifest is another one."""
    before = read_json_from(folder, MANIFEST)
    if before != orjson.loads(orjson.dumps(manifest)):
        differences = "; ".join(_differences(before, manifest))
        raise UsageError(
            f"{folder.location()} was mined with different inputs or settings: {differences}.",
            hint="Choose another folder with --out, or start over in this one with --fresh.",
        )


def manifest_digest(folder: Folder) -> str:
    """What the manifest says now; empty if there is none."""
    try:
        return hashlib.sha256(folder.read(MANIFEST)).hexdigest()
    except FileNotFoundError:
        return ""


def check_unchanged(folder: Folder, digest: str) -> None:
    """A store has no lock: a run that was started over by another one must notice, and not mix its results with those
    of the other."""
    if not folder.is_local and manifest_digest(folder) != digest:
        raise DataError(
            f"Another run has started over in {folder.location()}.", hint="Choose another folder with --out."
        )


def _differences(before: Json, now: Json, where: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            yield from _differences(before.get(key), now.get(key), f"{where}.{key}" if where else key)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for i, (old, new) in enumerate(zip(before, now, strict=True), 1):
            yield from _differences(old, new, f"{where} {i}")
    elif before != now:
        yield f"{where} was {_short(before)}, now {_short(now)}"


def _short(value: Json) -> str:
    return f"{len(value)} files" if isinstance(value, list) else repr(value)
