"""What a reader of a format is. The simple case is three functions about one JSON object; the rest has defaults.

Every reader cuts a file into records and makes an item (a dialogue, or an exchange) of each; a record that is damaged
is counted with the line it begins on, and the others are read all the same. A `Reader` is for records of JSON, wherever
they stand: one a line, in one big list, or in one big object by name. A `TextReader` is for text of any other shape and
brings its own way of cutting. Both may lean on files beside the one that is read (`beside`), or on a whole folder
(`files`, `write_folder`).
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeVar

from tertulia.core.codec import DAMAGE, Problems, dump_line, reason_of
from tertulia.core.dialogue import Dialogue, Exchange, Json
from tertulia.core.errors import DamagedLine, DataError
from tertulia.corpus.readers.records import Record, json_document, json_lines

T = TypeVar("T")
Item = Dialogue | Exchange
Holds = Literal["dialogues", "exchanges"]
JSON_LINES = (".jsonl", ".jsonl.gz", ".ndjson")
JSON_DOCUMENTS = (".json", ".json.gz")
ENDINGS = (*JSON_LINES, ".parquet")
"""Files that are a corpus wherever they lie."""
OTHER_ENDINGS = (*JSON_DOCUMENTS, ".txt", ".txt.gz", ".tsv", ".tsv.gz", ".csv", ".csv.gz")
"""Files that are taken for a corpus in a folder that has none of the above."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A format whose records are JSON objects."""

    name: str
    recognises: Callable[[dict[str, Json]], bool]
    """Whether a record (the first of a file) is of this format."""
    decode: Callable[[Json], Any]
    """A record as a dialogue (or exchange); raises ValueError, KeyError or TypeError where it is damaged."""
    encode: Callable[[Any], dict[str, Json]] | None = None
    """A dialogue (or exchange) as a record, for formats we can write."""
    holds: Holds = "dialogues"
    key: str = ""
    """Where a file is one object of records by name: the field that a record's name is put into."""
    beside: Callable[[Path], Callable[[Json], Any]] | None = None
    """The decoder for a file, where it depends on files that lie beside it; instead of `decode`."""
    companions: tuple[str, ...] = ()
    """Names (with * and ?) of files that lie beside the corpus and are no corpus themselves."""
    files: Callable[[Path, str | None], Iterable[Path]] | None = None
    """The files to read in a folder of this format, of one split or all; none where it is no such folder."""
    write_folder: Callable[[Iterable[Any], Path], int] | None = None
    """Writes items into an empty folder, for formats that are folders; returns how many."""

    @property
    def endings(self) -> tuple[str, ...]:
        """The endings of the files it is written to."""
        return (*JSON_LINES, *JSON_DOCUMENTS) if self.encode else ()

    def records(self, text: IO[str], name: str) -> Iterator[Record]:
        """Cut a file into records, by its name: lines, or one document."""
        if name.endswith(JSON_LINES):
            return json_lines(text)
        return json_document(text, key=self.key, is_record=self.recognises)

    def pieces(self, items: Iterable[Any], name: str) -> Iterator[str]:
        """The text of a file that holds the items, piece by piece."""
        assert self.encode is not None
        if name.endswith(JSON_LINES):
            yield from (dump_line(self.encode(item)) + "\n" for item in items)
            return
        yield "{" if self.key else "["
        before = "\n"
        for item in items:
            record = self.encode(item)
            yield before + (dump_line({record.pop(self.key): record})[1:-1] if self.key else dump_line(record))
            before = ",\n"
        yield "\n}\n" if self.key else "\n]\n"


@dataclass(frozen=True, slots=True)
class TextReader:
    """A format of text that is no JSON: lines that belong together, or rows of a table."""

    name: str
    recognises: Callable[[str], bool]
    """Whether the beginning of a file (some thousand characters) is of this format."""
    cut: Callable[[Iterable[str]], Iterator[Record]]
    """Lines as records, each with the line it begins on."""
    decode: Callable[[Any], Any]
    """A record as a dialogue (or exchange); raises ValueError, KeyError or TypeError where it is damaged."""
    endings: tuple[str, ...]
    """The endings of the files it is written to."""
    encode: Callable[[Any], str] | None = None
    """A dialogue (or exchange) as lines, line ends included."""
    head: str = ""
    """What stands above the first record."""
    join: Callable[[Iterable[Any]], Iterator[str]] | None = None
    """The text of a whole file, where its head depends on the records or they on each other; instead of `head`."""
    holds: Holds = "dialogues"
    beside: Callable[[Path], Callable[[Any], Any]] | None = None
    companions: tuple[str, ...] = ()
    files: Callable[[Path, str | None], Iterable[Path]] | None = None
    write_folder: Callable[[Iterable[Any], Path], int] | None = None

    def records(self, text: IO[str], name: str) -> Iterator[Record]:
        """Cut a file into records."""
        return self.cut(text)

    def pieces(self, items: Iterable[Any], name: str) -> Iterator[str]:
        """The text of a file that holds the items, piece by piece."""
        assert self.encode is not None
        if self.join:
            yield from self.join(items)
            return
        yield self.head
        yield from (self.encode(item) for item in items)


AnyReader = Reader | TextReader


def read_records(
    records: Iterable[Record], decode: Callable[[Any], T], *, source: str, problems: Problems | None
) -> Iterator[T]:
    """Decode records. With `problems`, damaged ones are skipped and counted there; without, the first one raises."""
    for record in records:
        try:
            if record.damage:
                raise ValueError(record.damage)
            item = decode(record.value)
        except DAMAGE as why:
            error = DamagedLine(source, record.line, reason_of(why))
            if problems is None:
                raise error from None
            problems.add(error)
        else:
            yield item


def text_lines(lines: Iterable[str]) -> Iterator[Record]:
    """Each line that is not blank, without its end, as a record."""
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\n")
        if text.strip():
            yield Record(number, text, "" if is_whole(text) else "half a character: not valid UTF-8")


def is_whole(text: str) -> bool:
    """Whether a text has no lone surrogate, the trace of a byte that is no UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeError:
        return False
    return True


def name_of(*parts: str) -> str:
    """An id made of the content, for formats without ids: reading twice gives the same.

    >>> name_of("hi", "hello")
    '23ae5a6aa83ddda4'
    """
    return hashlib.sha256(dump_line({"": parts}).encode()).hexdigest()[:16]


def flat(text: str) -> str:
    """Text on one line, for formats that have no other: line breaks and tabs become blanks.

    >>> flat("one\\n\\ttwo ")
    'one two'
    """
    return " ".join(part for part in text.replace("\t", "\n").splitlines() if part).strip()


def text_of(value: Json, name: str) -> str:
    """A text, or a TypeError that says which field is none."""
    if not isinstance(value, str):
        raise TypeError(f"{name!r} must be text, not {type(value).__name__}")
    return value


def texts_of(value: Json, name: str) -> tuple[str, ...]:
    """A list of texts, or a TypeError that says which field is none."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"{name!r} must be a list of texts, not {type(value).__name__}")
    return tuple(text_of(item, name) for item in value)


def objects_of(value: Json, name: str) -> list[dict[str, Json]]:
    """A list of objects, or a TypeError that says which field is none."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise TypeError(f"{name!r} must be a list of objects")
    return value


def check_alternating(dialogue: Dialogue, *, format: str) -> None:  # noqa: A002 - the word users know
    """Refuse a dialogue of more than two, or in which someone speaks twice in a row."""
    if len(dialogue.speakers) > 2 or any(a.speaker == b.speaker for a, b in pairwise(dialogue.turns)):
        raise DataError(
            f"The dialogue {dialogue.id!r} does not fit: {format} holds two speakers who alternate strictly.",
            hint="Write it in another format, such as tertulia or messages.",
        )


class Sides(NamedTuple):
    """The two speakers of a dialogue: the one who is answered, and the one whose replies a format is about."""

    partner: str
    own: str


def two_sides(dialogue: Dialogue, *, format: str) -> Sides:  # noqa: A002 - the word users know
    """The two who alternate strictly; "second" (or "assistant") is the one who replies, else who speaks second."""
    check_alternating(dialogue, format=format)
    speakers = dialogue.speakers
    first, second = (*speakers, *(name for name in ("first", "second") if name not in speakers))[:2]
    return Sides(second, first) if first in ("second", "assistant") else Sides(first, second)
