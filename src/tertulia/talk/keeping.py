"""Personas from what a person typed, and conversations kept in files without losing what was there."""

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tertulia import sample
from tertulia.core.codec import dialogue_to_json, dump_line
from tertulia.core.dialogue import Dialogue, Json, Persona
from tertulia.core.errors import DataError, UnknownName, UsageError
from tertulia.core.text import clean

SAMPLE = "sample:"


def read_persona(entries: Sequence[str]) -> Persona | None:
    """A persona from sentences, from the bundled corpus (`sample:ID`), or from a file with one sentence a line."""
    if len(entries) == 1 and entries[0].startswith(SAMPLE):
        known = {p.id: p for p in sample.personas()}
        wanted = entries[0].removeprefix(SAMPLE)
        if wanted not in known:
            raise UnknownName("persona in the sample", wanted, known)
        return known[wanted]
    sentences = _sentences_of(entries[0]) if len(entries) == 1 else [s.strip() for s in entries]
    found = tuple(clean(s) for s in sentences if s)
    return Persona(found) if found else None


def _sentences_of(entry: str) -> list[str]:
    """The one entry of a persona: a file, or a sentence that does not look like a file's name."""
    try:
        found = Path(entry).is_file()
    except OSError:  # too long for a name
        found = False
    try:
        if found:
            return [line.strip() for line in Path(entry).read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError as error:
        raise UsageError(f"The persona in {entry} cannot be read: {error.strerror}.") from None
    if re.fullmatch(r"\S*(/\S*|\.[A-Za-z]\w{0,4})", entry):
        raise UsageError(f"There is no file {entry}.", hint="A persona is sentences, sample:ID, or a file of them.")
    return [entry.strip()]


def check_place(path: Path) -> None:
    """Refuse a path that no conversation can be saved to."""
    if path.name.endswith((".gz", ".parquet")):
        raise UsageError(f"Conversations are JSON lines, not {path.suffix}.", hint="End the name in .jsonl.")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a file.", hint="Give the path of a file, such as chat.jsonl.")


def save_dialogue(dialogue: Dialogue, path: Path) -> None:
    """Put the dialogue at the end of a file of JSON lines, in place of its own earlier state; all else in it stays.

    The new file is written beside the old one and takes its place when it is whole.
    """
    path = path.expanduser().resolve()
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        check_place(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as out:
            if path.exists():
                shutil.copymode(path, partial)
                out.writelines(_lines_of_others(path, dialogue.id))
            out.write(dump_line(dialogue_to_json(dialogue)).encode("utf-8", "replace") + b"\n")
            out.flush()
            os.fsync(out.fileno())
        partial.replace(path)
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror}.", hint="Save it elsewhere with /save PATH."
        ) from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _lines_of_others(path: Path, own_id: str) -> Iterator[bytes]:
    with path.open("rb") as lines:
        for line in lines:
            if own_id.encode() not in line or _id_of(line) != own_id:
                yield line if line.endswith(b"\n") else line + b"\n"


def _id_of(line: bytes) -> Json:
    try:
        return json.loads(line)["id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
