"""Load and save dialogues and exchanges: the bundled sample by name, or files and folders in any registered format.

The format of a file is detected from its first record or its first lines. A folder is either a corpus of a format whose
files depend on each other, or means all corpus files in it, in the order of their names.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from itertools import chain, islice
from pathlib import Path
from typing import IO, NamedTuple, TypeVar

from tertulia import sample
from tertulia.artefacts.files import UNREADABLE, open_text
from tertulia.core.codec import DAMAGE, Problems, read_lines
from tertulia.core.dialogue import Dialogue, Exchange, Json, exchanges
from tertulia.core.errors import DataError, MissingFile, UnknownName, UsageError
from tertulia.corpus.mining.pairs import is_mined, shards
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
from tertulia.corpus.readers.records import Record, json_document, json_lines
from tertulia.corpus.registry import READERS
from tertulia.corpus.shards import read_parquet
from tertulia.corpus.write import save_dialogues as save_dialogues
from tertulia.corpus.write import save_exchanges as save_exchanges

T = TypeVar("T")
_NO_CORPUS = ("readme*", "licen[cs]e*", "notice*", "*.partial*", "sources.json", "history.json")
"""Common files that are not a corpus; a format adds its companion files."""
SAMPLE = "sample"
_LOG_LINE = re.compile(r"\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d?:\d\d(?::\d\d)?\S{0,6}\s+(?:<\S[^>]*> |\* |-|\S+\t)|=== |--- ")
"""A line of a chat log: a message, an action, or a system message."""


class CorpusFiles(NamedTuple):
    """The files of a corpus, and their reader if it is known without opening them."""

    files: Iterator[Path]
    reader: AnyReader | None


class Located(NamedTuple):
    """A dialogue or exchange, and where it was read."""

    item: Item
    file: Path
    line: int
    """On which it begins; 0 in a format without lines."""


def load_dialogues(
    target: str | Path,
    *,
    split: str | None = None,
    format: str | None = None,  # noqa: A002 - the word users know
    problems: Problems | None = None,
) -> Iterator[Dialogue]:
    """The dialogues of the sample, a file or a folder. Damaged lines are added to `problems` if given; else they raise.

    `split` selects the sample's split by name, and in a folder the files whose names begin with it.
    """
    if str(target) == SAMPLE:
        return iter(sample.dialogues(_sample_split(split)))
    corpus = _find(Path(target), split, format)
    return (item for item in _read_all(corpus, problems, wanted="dialogues") if isinstance(item, Dialogue))


def load_exchanges(
    target: str | Path,
    *,
    split: str | None = None,
    format: str | None = None,  # noqa: A002
    problems: Problems | None = None,
) -> Iterator[Exchange]:
    """The exchanges of a file or a folder; of dialogues, every reply with all turns before it."""
    if str(target) == SAMPLE:
        return (e for dialogue in sample.dialogues(_sample_split(split)) for e in exchanges(dialogue))
    corpus = _find(Path(target), split, format)
    return (e for item in _read_all(corpus, problems) for e in _exchanges(item))


def load_located(
    target: str | Path, *, split: str | None = None, problems: Problems | None = None
) -> Iterator[Located]:
    """The dialogues and exchanges of a file or a folder with their lines, so that an error can say where they are."""
    corpus = _find(Path(target), split, None)
    for file in corpus.files:
        if file.name.endswith(".parquet"):
            yield from (Located(dialogue, file, 0) for dialogue in read_parquet(file))
        else:
            yield from read_located(file, corpus.reader or recognise(file), problems)


def holds(target: str | Path, *, split: str | None = None, format: str | None = None) -> Holds:  # noqa: A002
    """Whether a corpus contains dialogues or exchanges, by its first file."""
    if str(target) == SAMPLE:
        return "dialogues"
    corpus = _find(Path(target), split, format)
    first = next(corpus.files)
    return "dialogues" if first.name.endswith(".parquet") else (corpus.reader or recognise(first)).holds


def files_of(target: Path, *, split: str | None = None) -> list[Path]:
    """The corpus files of a path: the file itself, or those in the folder."""
    if target.is_file():
        return [target]
    if not target.exists():
        raise MissingFile(
            f"File not found: {target}", hint=f"Give a file, a folder, or {SAMPLE!r} for the bundled corpus."
        )
    if not target.is_dir():
        raise DataError(f"{target} is neither a file nor a folder.", hint="Copy its content into a file first.")
    if is_mined(target):
        return _mined_files(target, split)
    content = sorted(f for f in target.iterdir() if f.is_file())
    files = [f for f in content if f.name.endswith(ENDINGS)] or _text_files(content)
    files = [f for f in files if split is None or f.name.startswith(split)]
    if not files:
        of = f" of the split {split!r}" if split else ""
        raise DataError(f"There are no corpus files{of} in {target}.", hint=_suggest_folders(target))
    return files


def _mined_files(folder: Path, split: str | None) -> list[Path]:
    """The shards of a mined corpus, which is one corpus until it is split."""
    if split:
        raise DataError(
            f"{folder} is a mined corpus without splits.", hint=f"Split it: tertulia corpus split {folder} --out FOLDER"
        )
    return shards(folder)


def corpus_in(folder: Path) -> Path | None:
    """The first folder with a corpus: this one or a subfolder, breadth first, since archives often nest their files."""
    waiting = [folder]
    while waiting:
        candidate = waiting.pop(0)
        with suppress(DataError):
            _find(candidate, None, None)
            return candidate
        waiting += sorted(f for f in candidate.iterdir() if f.is_dir())
    return None


def read_file(file: Path, decode: Callable[[Json], T], problems: Problems | None) -> Iterator[T]:
    """The records of one file of JSON lines, compressed or not."""
    try:
        with open_text(file) as lines:
            yield from read_lines(lines, decode, source=str(file), problems=problems)
    except UNREADABLE as error:
        raise DataError(f"Cannot read {file} to its end: {error}.") from None


def recognise(file: Path) -> AnyReader:
    """The reader for a file, detected from its first readable record or its first lines."""
    try:
        with open_text(file) as text:
            head = text.read(1 << 16)
            text.seek(0)
            as_json = file.name.endswith(JSON_LINES) or head.lstrip()[:1] in ("[", "{")
            reader = (_by_record(text, file.name) if as_json else None) or _by_head(head)
    except UNREADABLE as error:
        raise DataError(f"Cannot read {file}: {error}.") from None
    if reader is None:
        raise _unrecognised(file, head)
    return reader


def _unrecognised(file: Path, head: str) -> DataError:
    """Why a file cannot be read; for logs of chat rooms, the command that extracts dialogues from them."""
    mine = "tertulia corpus mine {} --threads rules --out ROOMS"
    if file.name.endswith((".txt", ".txt.gz")) and (room := _annotated_room(file.parent)):
        return DataError(
            f"{room} contains chat logs annotated with reply links, not dialogues.",
            hint=f"Extract dialogues from them with: {mine.format(room)}\n"
            "Train on them with: tertulia train configs/disentangler.toml --data FOLDER (with train/ and dev/)",
        )
    if not head.strip():
        return DataError(f"{file} is empty.", hint="Give a file or folder of dialogues, or 'sample'.")
    lines = [line for line in head.split("\n")[:-1] if line.strip()]
    if 2 * sum(map(bool, map(_LOG_LINE.match, lines))) > len(lines):
        return DataError(
            f"{file} is a chat log of interleaved conversations, not of dialogues.",
            hint=f"Extract dialogues from it with: {mine.format(file)}",
        )
    return DataError(f"Unrecognised format: {file}", hint=f"Name the format with --format: {', '.join(READERS)}.")


def _annotated_room(folder: Path) -> Path | None:
    """The folder of annotated logs (`NAME.raw.txt` beside `NAME.annotation.txt`): this one, or the first subfolder."""
    annotations = chain(folder.glob("*.annotation.txt"), sorted(folder.glob("*/*.annotation.txt")))
    return next((file.parent for file in annotations), None)


def _by_record(text: IO[str], name: str) -> AnyReader | None:
    readers = [r for r in _readers() if isinstance(r, Reader)]
    if name.endswith(JSON_LINES):
        records = json_lines(text)
    else:
        keyed = [r for r in readers if r.key]
        records = json_document(text, key="name", is_record=lambda value: any(_recognises(r, value) for r in keyed))
    return next((r for record in islice(records, 100) for r in readers if _recognises(r, record.value)), None)


def _recognises(reader: Reader, value: Json) -> bool:
    try:
        return isinstance(value, dict) and reader.recognises(value)
    except DAMAGE:
        return False


def _by_head(head: str) -> AnyReader | None:
    return next((r for r in _readers() if isinstance(r, TextReader) and r.recognises(head)), None)


def _readers() -> list[AnyReader]:
    return [reader for _, reader in READERS.usable()]


def find_files(target: Path, *, split: str | None = None, format: str | None = None) -> CorpusFiles:  # noqa: A002
    """The files of a corpus, and their reader if it is known without opening them."""
    return _find(target, split, format)


def check_dialogues(file: Path, reader: AnyReader) -> None:
    """Raise an error if a file contains exchanges."""
    if reader.holds == "exchanges":
        raise UsageError(
            f"{file} contains exchanges (single replies with their context), not dialogues.",
            hint="Use `tertulia corpus show`, `stats` or `convert` on this file alone; in Python, load_exchanges.",
        )


def _find(target: Path, split: str | None, format_name: str | None) -> CorpusFiles:
    """The files and, if a format is named or the folder as a whole has one, their reader."""
    named: AnyReader | None = READERS.get(format_name) if format_name else None
    if target.is_dir():
        for reader in [named] if named else _readers():
            files = iter(reader.files(target, split) if reader.files else ())
            first = next(files, None)
            if first is not None:
                return CorpusFiles(chain((first,), files), reader)
    return CorpusFiles(iter(files_of(target, split=split)), named)


def _text_files(files: list[Path]) -> list[Path]:
    excluded = (*_NO_CORPUS, *(pattern for reader in _readers() for pattern in reader.companions))
    text_files = [f for f in files if f.name.endswith(OTHER_ENDINGS)]
    return [f for f in text_files if not any(fnmatch(f.name.lower(), pattern) for pattern in excluded)]


def _suggest_folders(folder: Path) -> str:
    subfolders = sorted(f.name for f in folder.iterdir() if f.is_dir())
    if subfolders:
        return f"It has subfolders: {', '.join(subfolders[:5])}."
    return f"File names must end in {', '.join((*ENDINGS, *OTHER_ENDINGS))}."


def _read_all(corpus: CorpusFiles, problems: Problems | None, *, wanted: Holds = "exchanges") -> Iterator[Item]:
    for file in corpus.files:
        if file.name.endswith(".parquet"):
            yield from read_parquet(file)
            continue
        reader = corpus.reader or recognise(file)
        if wanted == "dialogues":
            check_dialogues(file, reader)
        yield from (one.item for one in read_located(file, reader, problems))


def read_located(
    file: Path, reader: AnyReader, problems: Problems | None, *, lines: IO[str] | None = None
) -> Iterator[Located]:
    """The items of one file, or of some of its `lines`, which count from 1."""
    decode = reader.beside(file) if reader.beside else reader.decode

    def located(value: tuple[int, Json]) -> Located:
        return Located(decode(value[1]), file, value[0])

    try:
        with lines or open_text(file) as text:
            records = (Record(r.line, (r.line, r.value), r.damage) for r in reader.records(text, file.name))
            yield from read_records(records, located, source=str(file), problems=problems)
    except UNREADABLE as error:
        raise DataError(f"Cannot read {file} to its end: {error}.") from None


def _exchanges(item: Item) -> Iterable[Exchange]:
    return exchanges(item) if isinstance(item, Dialogue) else (item,)


def _sample_split(split: str | None) -> sample.Split | None:
    for name in sample.SPLITS:
        if split == name:
            return name
    if split is None:
        return None
    raise UnknownName("split of the sample", split, sample.SPLITS)
