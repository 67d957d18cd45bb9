"""A folder of texts as passages of a few sentences: what `tertulia.talk.retrieval` indexes.

`.txt` and `.md` files are split at blank lines and then into runs of sentences; a `.jsonl` file has one text per line.
What cannot be read is skipped and counted with its reason: one damaged file must not make a folder useless.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.core.text import clean, sentence_spans, squash

SUFFIXES = (".txt", ".md", ".jsonl")
MAX_SENTENCES, MAX_WORDS, MAX_CHARACTERS = 4, 90, 700
"""Of one passage: what a sentence vector can still represent, and three of which fit a small model's prompt."""
MAX_HEADING = 120
MAX_FILE_BYTES = 50_000_000
MAX_PROBLEMS = 5
"""How many of the skipped files are described."""
TEXT_FIELDS = ("text", "contents", "content", "body", "passage")


class DocumentFile(NamedTuple):
    """A file with its passages, in order."""

    name: str
    """Its path within the folder."""
    digest: str
    """SHA-256 of its bytes."""
    passages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Documents:
    """What could be read of a folder, and what could not."""

    files: tuple[DocumentFile, ...]
    skipped: tuple[str, ...] = ()
    """For each file or line that was skipped, why."""

    def remark(self) -> str:
        """What was skipped, in one sentence; empty if nothing was."""
        if not self.skipped:
            return ""
        more = f" and {len(self.skipped) - MAX_PROBLEMS} more" if len(self.skipped) > MAX_PROBLEMS else ""
        return f"Skipped: {'; '.join(self.skipped[:MAX_PROBLEMS])}{more}."


def read_documents(folder: Path) -> Documents:
    """The texts of a folder and its subfolders, in the order of their names; hidden files are left out."""
    if not folder.is_dir():
        raise DataError(
            f"{folder} is not a folder." if folder.exists() else f"Folder not found: {folder}",
            hint="Give a folder of .txt, .md or .jsonl files.",
        )
    files, skipped = [], []
    for path in _paths(folder):
        name = path.relative_to(folder).as_posix()
        try:
            document, problems = _read(path, name)
        except (OSError, ValueError) as why:
            skipped.append(f"{name} ({_reason(why)})")
            continue
        skipped += problems
        if document.passages:
            files.append(document)
        elif not problems:
            skipped.append(f"{name} (it has no text)")
    documents = Documents(tuple(files), tuple(clean(one) for one in skipped))
    if not files:
        raise DataError(
            f"{folder} has no texts to retrieve passages from. {documents.remark()}".rstrip(),
            hint="Put .txt, .md or .jsonl files into it; a line of .jsonl is an object with the field text.",
        )
    return documents


def _paths(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                yield Path(parent) / name


def _read(path: Path, name: str) -> tuple[DocumentFile, list[str]]:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ValueError(f"larger than {MAX_FILE_BYTES // 1_000_000} MB")
    data = path.read_bytes()
    if b"\0" in data:
        raise ValueError("not a text but a binary file")
    text = data.decode("utf-8-sig")
    problems: list[str] = []
    if name.lower().endswith(".jsonl"):
        passages = [part for record in _records(text, name, problems) for part in split_passages(record)]
    else:
        passages = split_passages(text)
    return DocumentFile(name, hashlib.sha256(data).hexdigest(), tuple(passages)), problems


def _records(text: str, name: str, problems: list[str]) -> Iterator[str]:
    damaged, first = 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield _record_text(json.loads(line))
        except (ValueError, TypeError, RecursionError):
            damaged, first = damaged + 1, first or number
    if damaged:
        problems.append(f"{damaged} lines of {name}, the first is {first} (no JSON object with a field text)")


def _record_text(record: Json) -> str:
    if not isinstance(record, dict):
        raise TypeError("not an object")
    text: str | None = next((record[name] for name in TEXT_FIELDS if isinstance(record.get(name), str)), None)
    if text is None:
        raise ValueError("no text")
    return text


def split_passages(text: str) -> list[str]:
    """A text as passages: runs of whole sentences of one paragraph; a heading is part of the passage that follows it.

    >>> split_passages("# The moon\\n\\nIt is round. It is grey.\\n\\nMars is red.")
    ['The moon: It is round. It is grey.', 'Mars is red.']
    """
    passages: list[str] = []
    heading = ""
    for block in clean(text).split("\n\n"):
        block = block.strip()
        if block.startswith("#"):
            line, _, block = block.partition("\n")
            heading = squash(line.lstrip("#"))[:MAX_HEADING]
        for i, passage in enumerate(_runs(block)):
            passages.append(f"{heading}: {passage}" if heading and i == 0 else passage)
            heading = ""
    return passages


def _runs(block: str) -> Iterator[str]:
    """Sentences joined as long as they are few and short; a single endless one is cut."""
    # A line break within a paragraph is only where the line was full.
    text = squash(block)
    run: list[str] = []
    for start, end in sentence_spans(text):
        for part in _pieces(text[start:end]):
            if run and (len(run) == MAX_SENTENCES or _too_long([*run, part])):
                yield " ".join(run)
                run = []
            run.append(part)
    if run:
        yield " ".join(run)


def _pieces(sentence: str) -> Iterator[str]:
    """A sentence in parts that fit a passage, cut between words where it has any."""
    words = sentence.split(" ")
    for i in range(0, len(words), MAX_WORDS):
        part = " ".join(words[i : i + MAX_WORDS])
        for j in range(0, len(part), MAX_CHARACTERS):
            yield part[j : j + MAX_CHARACTERS]


def _too_long(run: list[str]) -> bool:
    return sum(map(len, run)) > MAX_CHARACTERS or sum(part.count(" ") + 1 for part in run) > MAX_WORDS


def _reason(why: Exception) -> str:
    if isinstance(why, UnicodeError):
        return "not valid UTF-8"
    return (why.strerror or type(why).__name__) if isinstance(why, OSError) else str(why)
