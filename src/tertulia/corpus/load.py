"""One way in and out for dialogues and exchanges: the bundled sample by name, or files and folders in any known format.

A file is recognised by its first record or its first lines, `.parquet` by its schema; a folder is a corpus of its own
(where its files depend on each other), or means all corpus files in it, in the order of their names.
"""

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from itertools import chain, islice
from pathlib import Path
from typing import IO, NamedTuple, TypeVar

from tertulia import sample
from tertulia.core.codec import DAMAGE, Problems, read_lines
from tertulia.core.dialogue import Dialogue, Exchange, Json, exchanges
from tertulia.core.errors import DataError, UnknownName, UsageError
from tertulia.corpus.readers.base import (
    ENDINGS,
    JSON_LINES,
    OTHER_ENDINGS,
    AnyReader,
    Holds,
    Item,
    Reader,
    TextReader,
    read_records,
)
from tertulia.corpus.readers.opening import open_text as open_text
from tertulia.corpus.readers.records import json_document, json_lines
from tertulia.corpus.shards import read_parquet
from tertulia.corpus.table import READERS
from tertulia.corpus.write import save_dialogues as save_dialogues
from tertulia.corpus.write import save_exchanges as save_exchanges

T = TypeVar("T")
ASIDE = ("readme*", "licen[cs]e*", "notice*", "*.partial*", "sources.json")
"""Files that lie in many folders and are no corpus; a format adds those that it leans on."""
SAMPLE = "sample"
_LOG_LINE = re.compile(r"\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d?:\d\d(?::\d\d)?\S{0,6}\s+(?:<\S[^>]*> |\* |-|\S+\t)|=== |--- ")
"""A line of a chat log: somebody speaks or acts, or the room reports."""


class Found(NamedTuple):
    """The files of a corpus, and their reader where it is known without looking into each."""

    files: Iterator[Path]
    reader: AnyReader | None


def load_dialogues(
    target: str | Path,
    *,
    split: str | None = None,
    format: str | None = None,  # noqa: A002 - the word users know
    problems: Problems | None = None,
) -> Iterator[Dialogue]:
    """The dialogues of the sample, a file or a folder. With `problems`, damaged lines are counted there, else refused.

    `split` picks the sample's split by name, and in a folder the files whose names begin with it.
    """
    if str(target) == SAMPLE:
        return iter(sample.dialogues(_sample_split(split)))
    found = _find(Path(target), split, format)
    return (item for item in _read_all(found, problems, wanted="dialogues") if isinstance(item, Dialogue))


def load_exchanges(
    target: str | Path,
    *,
    split: str | None = None,
    format: str | None = None,  # noqa: A002
    problems: Problems | None = None,
) -> Iterator[Exchange]:
    """The exchanges of a file or a folder; of dialogues, every reply with all that came before it."""
    if str(target) == SAMPLE:
        return (e for dialogue in sample.dialogues(_sample_split(split)) for e in exchanges(dialogue))
    found = _find(Path(target), split, format)
    return (e for item in _read_all(found, problems) for e in _exchanges(item))


def holds(target: str | Path, *, split: str | None = None, format: str | None = None) -> Holds:  # noqa: A002
    """Whether a corpus holds dialogues or exchanges, by its first file."""
    if str(target) == SAMPLE:
        return "dialogues"
    found = _find(Path(target), split, format)
    first = next(found.files)
    return "dialogues" if first.name.endswith(".parquet") else (found.reader or recognise(first)).holds


def files_of(target: Path, *, split: str | None = None) -> list[Path]:
    """The corpus files a path stands for."""
    if target.is_file():
        return [target]
    if not target.exists():
        raise DataError(f"There is no {target}.", hint=f"Give a file, a folder, or {SAMPLE!r} for the bundled corpus.")
    if not target.is_dir():
        raise DataError(f"{target} is neither a file nor a folder.", hint="Copy what it gives into a file first.")
    there = sorted(f for f in target.iterdir() if f.is_file())
    found = [f for f in there if f.name.endswith(ENDINGS)] or _others(there)
    found = [f for f in found if split is None or f.name.startswith(split)]
    if not found:
        of = f" of the split {split!r}" if split else ""
        raise DataError(f"There are no corpus files{of} in {target}.", hint=_where_else(target))
    return found


def corpus_in(folder: Path) -> Path | None:
    """The first folder with a corpus in it: this one, or one inside, the nearest first; archives nest theirs."""
    waiting = [folder]
    while waiting:
        place = waiting.pop(0)
        with suppress(DataError):
            _find(place, None, None)
            return place
        waiting += sorted(f for f in place.iterdir() if f.is_dir())
    return None


def read_file(file: Path, decode: Callable[[Json], T], problems: Problems | None) -> Iterator[T]:
    """The records of one file of JSON lines, packed or not."""
    try:
        with open_text(file) as lines:
            yield from read_lines(lines, decode, source=str(file), problems=problems)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file} cannot be read to its end: {error}.") from None


def recognise(file: Path) -> AnyReader:
    """The reader for a file, by its first record that can be read, or by its first lines."""
    try:
        with open_text(file) as text:
            head = text.read(1 << 16)
            text.seek(0)
            as_json = file.name.endswith(JSON_LINES) or head.lstrip()[:1] in ("[", "{")
            found = (_by_record(text, file.name) if as_json else None) or _by_head(head)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file} cannot be read: {error}.") from None
    if found is None:
        raise _unknown(file, head)
    return found


def _unknown(file: Path, head: str) -> DataError:
    """Why a file cannot be read; chat rooms are many dialogues at once, and another command pulls them apart."""
    mine = "tertulia corpus mine {} --threads rules --out ROOMS"
    if file.name.endswith((".txt", ".txt.gz")) and (room := _annotated_room(file.parent)):
        return DataError(
            f"{room} holds logs of a chat room with hand-made links between their lines, not dialogues.",
            hint=f"Pull dialogues out of them with: {mine.format(room)}\n"
            "Learn from such links with: tertulia train configs/disentangler.toml --data FOLDER (of train/ and dev/)",
        )
    lines = [line for line in head.split("\n")[:-1] if line.strip()]
    if 2 * sum(map(bool, map(_LOG_LINE.match, lines))) > len(lines):
        return DataError(
            f"{file} is the log of a chat room: conversations in a tangle, not dialogues.",
            hint=f"Pull dialogues out of it with: {mine.format(file)}",
        )
    known = ", ".join(READERS)
    return DataError(f"{file} is in no format we know.", hint=f"Known: {known}; name one with --format.")


def _annotated_room(folder: Path) -> Path | None:
    """The folder of annotated logs (`NAME.raw.txt` beside `NAME.annotation.txt`): this one, or the first inside."""
    found = chain(folder.glob("*.annotation.txt"), sorted(folder.glob("*/*.annotation.txt")))
    return next((file.parent for file in found), None)


def _by_record(text: IO[str], name: str) -> AnyReader | None:
    readers = [r for r in _readers() if isinstance(r, Reader)]
    if name.endswith(JSON_LINES):
        records = json_lines(text)
    else:
        named = [r for r in readers if r.key]
        records = json_document(text, key="name", is_record=lambda value: any(_knows(r, value) for r in named))
    return next((r for record in islice(records, 100) for r in readers if _knows(r, record.value)), None)


def _knows(reader: Reader, value: Json) -> bool:
    try:
        return isinstance(value, dict) and reader.recognises(value)
    except DAMAGE:
        return False


def _by_head(head: str) -> AnyReader | None:
    return next((r for r in _readers() if isinstance(r, TextReader) and r.recognises(head)), None)


def _readers() -> list[AnyReader]:
    return [READERS.get(name) for name in READERS]


def _find(target: Path, split: str | None, format_name: str | None) -> Found:
    """The files and, where a format was named or the folder itself is of one, their reader."""
    named: AnyReader | None = READERS.get(format_name) if format_name else None
    if target.is_dir():
        for reader in [named] if named else _readers():
            files = iter(reader.files(target, split) if reader.files else ())
            first = next(files, None)
            if first is not None:
                return Found(chain((first,), files), reader)
    return Found(iter(files_of(target, split=split)), named)


def _others(files: list[Path]) -> list[Path]:
    aside = (*ASIDE, *(pattern for reader in _readers() for pattern in reader.companions))
    return [f for f in files if f.name.endswith(OTHER_ENDINGS) and not any(fnmatch(f.name.lower(), a) for a in aside)]


def _where_else(folder: Path) -> str:
    inside = sorted(f.name for f in folder.iterdir() if f.is_dir())
    if inside:
        return f"There are folders in it: {', '.join(inside[:5])}."
    return f"Files end in {', '.join((*ENDINGS, *OTHER_ENDINGS))}."


def _read_all(found: Found, problems: Problems | None, *, wanted: Holds = "exchanges") -> Iterator[Item]:
    for file in found.files:
        if file.name.endswith(".parquet"):
            yield from read_parquet(file)
            continue
        reader = found.reader or recognise(file)
        if wanted == "dialogues" and reader.holds == "exchanges":
            raise UsageError(
                f"{file} holds exchanges (single replies with what they answer), not dialogues.",
                hint="Show, count or convert it alone with `tertulia corpus`; in Python, read it with load_exchanges.",
            )
        yield from _read(file, reader, problems)


def _read(file: Path, reader: AnyReader, problems: Problems | None) -> Iterator[Item]:
    decode = reader.beside(file) if reader.beside else reader.decode
    try:
        with open_text(file) as text:
            yield from read_records(reader.records(text, file.name), decode, source=str(file), problems=problems)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file} cannot be read to its end: {error}.") from None


def _exchanges(item: Item) -> Iterable[Exchange]:
    return exchanges(item) if isinstance(item, Dialogue) else (item,)


def _sample_split(split: str | None) -> sample.Split | None:
    for known in sample.SPLITS:
        if split == known:
            return known
    if split is None:
        return None
    raise UnknownName("split of the sample", split, sample.SPLITS)
