"""Personas from what a user typed, and conversations saved to files that keep everything else in them."""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tertulia import sample
from tertulia.artefacts.files import atomic_write
from tertulia.core.codec import dialogue_to_json, dump_line
from tertulia.core.dialogue import Dialogue, Json, Persona
from tertulia.core.errors import DataError, UnknownName, UsageError
from tertulia.core.text import clean

SAMPLE = "sample:"


def read_persona(entries: Sequence[str]) -> Persona | None:
    """A persona from sentences, from the bundled corpus (`sample:ID`), or from a file with one sentence per line."""
    if len(entries) == 1 and entries[0].startswith(SAMPLE):
        personas = {persona.id: persona for persona in sample.personas()}
        wanted = entries[0].removeprefix(SAMPLE)
        if wanted not in personas:
            raise UnknownName("persona in the sample", wanted, personas)
        return personas[wanted]
    lines = _read_entry(entries[0]) if len(entries) == 1 else [entry.strip() for entry in entries]
    sentences = tuple(clean(line) for line in lines if line)
    return Persona(sentences) if sentences else None


def _read_entry(entry: str) -> list[str]:
    """The only entry of a persona: the lines of a file, or a sentence that does not look like a file name."""
    try:
        is_file = Path(entry).is_file()
    except OSError:  # too long for a file name
        is_file = False
    try:
        if is_file:
            return [line.strip() for line in Path(entry).read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError as error:
        raise UsageError(f"Cannot read the persona in {entry}: {error.strerror}.") from None
    if re.fullmatch(r"\S*(/\S*|\.[A-Za-z]\w{0,4})", entry):
        raise UsageError(f"File not found: {entry}", hint="A persona is sentences, sample:ID, or a file of sentences.")
    return [entry.strip()]


def check_target(path: Path) -> None:
    """Raise UsageError for a path that a conversation cannot be saved to."""
    if path.name.endswith((".gz", ".parquet")):
        raise UsageError(f"Conversations are saved as JSON lines, not {path.suffix}.", hint="Use a name in .jsonl.")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a file.", hint="Give the path of a file, such as chat.jsonl.")
    if path.exists() and not _has_dialogues(path):
        raise UsageError(f"{path} is not a file of dialogues.", hint="Conversations are appended: name another file.")


def save_dialogue(dialogue: Dialogue, path: Path) -> None:
    """Append the dialogue to a file of JSON lines, replacing its own earlier state; all other lines are kept."""
    path = path.expanduser().resolve()
    try:
        check_target(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, durable=True) as unfinished, unfinished.open("wb") as out:
            if path.exists():
                shutil.copymode(path, unfinished)
                out.writelines(_other_lines(path, dialogue.id))
            out.write(dump_line(dialogue_to_json(dialogue)).encode("utf-8", "replace") + b"\n")
    except OSError as error:
        raise DataError(f"Cannot write {path}: {error.strerror}.", hint="Save it elsewhere with /save PATH.") from None


def rescue_dialogue(dialogue: Dialogue) -> Path:
    """Save a dialogue whose own file cannot be written to a new file in the folder for temporary files."""
    path = Path(tempfile.gettempdir()) / f"tertulia-{dialogue.id}.jsonl"
    save_dialogue(dialogue, path)
    return path


def _has_dialogues(path: Path) -> bool:
    """Whether the first line is a JSON object, or there is none."""
    with path.open("rb") as lines:
        first = next((line for line in lines if line.strip()), b"{}")
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _other_lines(path: Path, own_id: str) -> Iterator[bytes]:
    with path.open("rb") as lines:
        for line in lines:
            if own_id.encode() not in line or _id_of(line) != own_id:
                yield line if line.endswith(b"\n") else line + b"\n"


def _id_of(line: bytes) -> Json:
    try:
        return json.loads(line)["id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
