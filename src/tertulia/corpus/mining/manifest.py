"""What a mined folder was, or is being, made from: whoever goes on with it must have the same in mind."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.corpus.mining.files import read_json, write_json

NAME = "manifest.json"
FORMAT = 2
"""Raised whenever the engine would make other bytes from the same input and rules."""


def check_manifest(folder: Path, manifest: Mapping[str, Json]) -> bool:
    """Whether the folder was begun with this manifest before; writes it where there is none, refuses another one."""
    path = folder / NAME
    if not path.is_file():
        write_json(path, manifest, durable=True)
        return False
    before = read_json(path)
    if before != manifest:
        told = "; ".join(_differences(before, manifest))
        raise UsageError(
            f"{folder} was mined from something else: {told}.",
            hint="Choose another folder with --out, or start anew in this one with --fresh.",
        )
    return True


def _differences(before: Json, now: Json, where: str = "") -> Iterator[str]:
    """What differs, each in words."""
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
