"""A corpus in parts: ranges of its files that are read independently of each other, by any engine, in bounded memory.

JSON lines are cut at line ends and Parquet files between row groups; a compressed file, a JSON document or a text is
one part, however large, and is streamed. Small files of one kind share a part. The parts of a corpus in their order
contain exactly what `load_dialogues` and `load_exchanges` read.
"""

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, TypeVar

from tertulia import sample
from tertulia.artefacts.files import UNREADABLE, open_bytes
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Dialogue, Exchange, exchanges
from tertulia.core.errors import DamagedLine, DataError
from tertulia.corpus.config import ReadConfig
from tertulia.corpus.load import SAMPLE, check_dialogues, find_files, load_dialogues, read_located, recognise
from tertulia.corpus.readers.base import AnyReader, Holds, Item, Reader
from tertulia.corpus.registry import READERS
from tertulia.corpus.shards import open_parquet, read_parquet

T = TypeVar("T")
PART_BYTES = 16 << 20
"""Bytes of JSON lines in a part."""
PART_ROWS = 20_000
"""Rows of Parquet files in a part, at least one row group."""
_LINE_BYTES = 400
"""A guess at the bytes of one dialogue, to choose sizes by; nothing else depends on it."""
_PLAIN_LINES = (".jsonl", ".ndjson")
_NAME = re.compile(r"[^.\d]*")
BATCH = 2000
"""Items handled together within a part."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """A range of one file."""

    path: str
    reader: str = ""
    """Name of the format; none for Parquet."""
    start: int = 0
    end: int = -1
    """Bytes of a file of lines, or row groups of a Parquet file; -1: all of it."""


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """Some of a corpus, in order."""

    number: int
    ranges: tuple[FileRange, ...]
    rows: int
    """About how many dialogues it contains."""
    strict: bool = False
    """Whether a damaged line is an error."""
    sample_split: sample.Split | None = None
    """Of the bundled sample, which has no ranges: the split, or all."""

    @property
    def name(self) -> str:
        """What files made from it are called: the beginning of its first file's name, such as `train`."""
        return _stem(self.ranges[0].path) if self.ranges else self.sample_split or SAMPLE


def parts_of(config: ReadConfig, *, wanted: Holds | None = None) -> list[CorpusPart]:
    """The parts of a corpus. With `wanted` dialogues, a file of exchanges is an error."""
    if config.target == SAMPLE:
        splits = [s for s in sample.SPLITS if config.split in (None, s)]
        if not splits:
            load_dialogues(SAMPLE, split=config.split)  # raises the error
        return [CorpusPart(i, (), len(sample.dialogues(s)), sample_split=s) for i, s in enumerate(splits)]
    corpus = find_files(Path(config.target), split=config.split, format=config.format)
    parts: list[CorpusPart] = []
    for chosen, rows in _ranges(corpus.files, corpus.reader, wanted):
        previous = parts[-1] if parts else None
        if previous and previous.rows + rows <= PART_ROWS and previous.name == _stem(chosen.path):
            parts[-1] = CorpusPart(previous.number, (*previous.ranges, chosen), previous.rows + rows, config.strict)
        else:
            parts.append(CorpusPart(len(parts), (chosen,), rows, config.strict))
    return parts


def read_part(part: CorpusPart, problems: Problems) -> Iterator[Item]:
    """The dialogues or exchanges of a part, streamed; damaged lines are counted, or raise if the part is strict."""
    if not part.ranges:
        return iter(sample.dialogues(part.sample_split))
    skipped = None if part.strict else problems
    return chain.from_iterable(_read_range(chosen, skipped) for chosen in part.ranges)


def read_dialogues(part: CorpusPart, problems: Problems) -> Iterator[Dialogue]:
    """The dialogues of a part."""
    return (item for item in read_part(part, problems) if isinstance(item, Dialogue))


def read_exchanges(part: CorpusPart, problems: Problems) -> Iterator[Exchange]:
    """The exchanges of a part; of dialogues, every reply with all turns before it."""
    for item in read_part(part, problems):
        yield from exchanges(item) if isinstance(item, Dialogue) else (item,)


def batches(items: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    """The items, some at a time."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def merge_problems(total: Problems, other: Problems) -> None:
    """Add the damaged lines of a part to those of the parts before it."""
    total.count += other.count
    total.examples += other.examples[: max(0, total.keep - len(total.examples))]


def _stem(path: str) -> str:
    match = _NAME.match(Path(path).name)
    return (match[0].rstrip("-_ ") if match else "") or "dialogues"


def _ranges(files: Iterable[Path], reader: AnyReader | None, wanted: Holds | None) -> Iterator[tuple[FileRange, int]]:
    """The ranges of all files, each with about how many dialogues it contains."""
    for file in files:
        path = str(file.resolve())
        if file.name.endswith(".parquet"):
            yield from _row_groups(file, path)
            continue
        own = reader or recognise(file)
        if wanted == "dialogues":
            check_dialogues(file, own)
        size = _size(file)
        if isinstance(own, Reader) and file.name.endswith(_PLAIN_LINES):
            for start in range(0, max(1, size), PART_BYTES):
                end = min(start + PART_BYTES, size)
                yield FileRange(path, own.name, start, end), 1 + (end - start) // _LINE_BYTES
        else:
            yield FileRange(path, own.name), 1 + size * (4 if file.name.endswith(".gz") else 1) // _LINE_BYTES


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise DataError(f"Cannot read {file}: {error.strerror}.") from None


def _row_groups(file: Path, path: str) -> Iterator[tuple[FileRange, int]]:
    with open_parquet(file) as parquet:
        counts = [parquet.metadata.row_group(i).num_rows for i in range(parquet.metadata.num_row_groups)]
    start = rows = 0
    for i, count in enumerate(counts):
        if rows and rows + count > PART_ROWS:
            yield FileRange(path, "", start, i), rows
            start, rows = i, 0
        rows += count
    yield FileRange(path, "", start, len(counts)), rows


def _read_range(chosen: FileRange, problems: Problems | None) -> Iterator[Item]:
    path = Path(chosen.path)
    if not chosen.reader:
        yield from read_parquet(path, row_groups=range(chosen.start, chosen.end))
        return
    reader = READERS.get(chosen.reader)
    if chosen.end < 0:
        yield from (one.item for one in read_located(path, reader, problems))
        return
    try:
        text = _lines(chosen)
    except UNREADABLE as error:
        raise DataError(f"Cannot read {path}: {error}.") from None
    yield from (one.item for one in read_located(path, reader, _RangeProblems(chosen, problems), lines=text))


class _RangeProblems(Problems):
    """Numbers damaged lines of a range within their file, and counts them in `target` or, without one, raises."""

    def __init__(self, chosen: FileRange, target: Problems | None) -> None:
        super().__init__()
        self.chosen, self.target = chosen, target
        self.before: int | None = None

    def add(self, error: DamagedLine) -> None:
        """Count one damaged line."""
        if self.before is None:
            self.before = _lines_before(self.chosen)
        located = DamagedLine(error.source, error.line + self.before, error.why)
        if self.target is None:
            raise located
        self.target.add(located)


def _lines(chosen: FileRange) -> IO[str]:
    """The lines that begin in a range of bytes."""
    with open_bytes(chosen.path) as file:
        start = _line_start(file, chosen.start)
        file.seek(start)
        data = file.read(max(0, chosen.end - start))
        if data and not data.endswith(b"\n"):
            data += file.readline()
    encoding = "utf-8" if start else "utf-8-sig"
    return io.TextIOWrapper(io.BytesIO(data), encoding=encoding, errors="surrogateescape")


def _line_start(file: IO[bytes], position: int) -> int:
    """Where the first line begins that begins at this position or later."""
    if not position:
        return 0
    file.seek(position - 1)
    return position - 1 + len(file.readline())


def _lines_before(chosen: FileRange) -> int:
    """How many lines begin before a range; asked only if one of its lines is damaged."""
    count = 0
    with open_bytes(chosen.path) as file:
        left = _line_start(file, chosen.start)
        file.seek(0)
        while left and (data := file.read(min(left, 1 << 20))):
            left -= len(data)
            count += data.count(b"\n")
    return count
