"""What a reader of a corpus format is. The simple case is three functions on one JSON object; the rest has defaults.

Every reader splits a file into records and decodes each as an item (a dialogue or an exchange). A damaged record is
counted with the line it begins on, and the others are still read. A `Reader` is for JSON records: one per line, in one
big list, or in one big object by name. A `TextReader` is for any other text and has its own function to split it. Both
may depend on files beside the one that is read (`beside`), or on a folder (`files`, `write_folder`).
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sized
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
"""Names of files that are always part of a corpus end in one of these."""
OTHER_ENDINGS = (*JSON_DOCUMENTS, ".txt", ".txt.gz", ".tsv", ".tsv.gz", ".csv", ".csv.gz")
"""Names of files that are part of a corpus in a folder that has none of the above."""
INVALID_UTF8 = "not valid UTF-8"


@dataclass(frozen=True, slots=True)
class Reader:
    """A format whose records are JSON objects."""

    name: str
    recognises: Callable[[dict[str, Json]], bool]
    """Whether a record (the first of a file) has this format."""
    decode: Callable[[Json], Any]
    """Decode a record as a dialogue (or exchange); raises ValueError, KeyError or TypeError if it is damaged."""
    encode: Callable[[Any], dict[str, Json]] | None = None
    """Encode a dialogue (or exchange) as a record; None if the format can only be read."""
    holds: Holds = "dialogues"
    key: str = ""
    """If a file may be one object of records by name: the field that receives a record's name."""
    beside: Callable[[Path], Callable[[Json], Any]] | None = None
    """Returns the decoder for a file, if it depends on files beside it; used instead of `decode`."""
    companions: tuple[str, ...] = ()
    """Patterns (with * and ?) of the names of such files, which are not corpus files themselves."""
    files: Callable[[Path, str | None], Iterable[Path]] | None = None
    """The files to read in a folder of this format, of one split or all; none if the folder has another format."""
    write_folder: Callable[[Iterable[Any], Path], int] | None = None
    """Writes items into an empty folder and returns their number, for formats that are folders."""

    @property
    def endings(self) -> tuple[str, ...]:
        """Suffixes of the files it can be written to."""
        return (*JSON_LINES, *JSON_DOCUMENTS) if self.encode else ()

    def records(self, text: IO[str], name: str) -> Iterator[Record]:
        """Split a file into records: lines or one document, depending on its name."""
        if name.endswith(JSON_LINES):
            return json_lines(text)
        return json_document(text, key=self.key, is_record=self.recognises)

    def pieces(self, items: Iterable[Any], name: str) -> Iterator[str]:
        """The text of a file with these items, in pieces."""
        assert self.encode is not None
        if name.endswith(JSON_LINES):
            yield from (dump_line(self.encode(item)) + "\n" for item in items)
            return
        yield "{" if self.key else "["
        separator = "\n"
        for item in items:
            record = self.encode(item)
            yield separator + (dump_line({record.pop(self.key): record})[1:-1] if self.key else dump_line(record))
            separator = ",\n"
        yield "\n}\n" if self.key else "\n]\n"


@dataclass(frozen=True, slots=True)
class TextReader:
    """A text format other than JSON: groups of lines, or rows of a table."""

    name: str
    recognises: Callable[[str], bool]
    """Whether the beginning of a file (some thousand characters) has this format."""
    cut: Callable[[Iterable[str]], Iterator[Record]]
    """Split lines into records, each with the line it begins on."""
    decode: Callable[[Any], Any]
    """Decode a record as a dialogue (or exchange); raises ValueError, KeyError or TypeError if it is damaged."""
    endings: tuple[str, ...]
    """Suffixes of the files it can be written to."""
    encode: Callable[[Any], str] | None = None
    """Encode a dialogue (or exchange) as lines, including line ends."""
    head: str = ""
    """The text above the first record, such as a row of column names."""
    join: Callable[[Iterable[Any]], Iterator[str]] | None = None
    """The text of a complete file, if `head` depends on the records or they depend on each other; used instead."""
    holds: Holds = "dialogues"
    beside: Callable[[Path], Callable[[Any], Any]] | None = None
    companions: tuple[str, ...] = ()
    files: Callable[[Path, str | None], Iterable[Path]] | None = None
    write_folder: Callable[[Iterable[Any], Path], int] | None = None

    def records(self, text: IO[str], name: str) -> Iterator[Record]:
        """Split a file into records."""
        return self.cut(text)

    def pieces(self, items: Iterable[Any], name: str) -> Iterator[str]:
        """The text of a file with these items, in pieces."""
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
    """Decode records. With `problems`, damaged ones are skipped and counted there; otherwise the first one raises."""
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
    """Each line that is not blank, without its line end, as a record."""
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\n")
        if text.strip():
            yield Record(number, text, "" if is_valid_text(text) else INVALID_UTF8)


def is_valid_text(text: str) -> bool:
    """Whether a text has no lone surrogates, which `open_text` puts in the place of bytes that are not UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeError:
        return False
    return True


def content_id(*parts: str) -> str:
    """An id computed from the content, for formats without ids: reading a file twice gives the same ids.

    >>> content_id("hi", "hello")
    '23ae5a6aa83ddda4'
    """
    return hashlib.sha256(dump_line({"": parts}).encode()).hexdigest()[:16]


def one_line(text: str) -> str:
    """Put a text on one line, for formats that have no escapes: line breaks and tabs become spaces.

    >>> one_line("one\\n\\ttwo ")
    'one two'
    """
    return " ".join(part for part in text.replace("\t", "\n").splitlines() if part).strip()


def text_of(value: Json, name: str) -> str:
    """The value as text; a TypeError names the field."""
    if not isinstance(value, str):
        raise TypeError(f"expected text in {name!r}, got {type(value).__name__}")
    return value


def texts_of(value: Json, name: str) -> tuple[str, ...]:
    """The value as a list of texts; a TypeError names the field."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"expected a list of texts in {name!r}, got {type(value).__name__}")
    return tuple(text_of(item, name) for item in value)


def objects_of(value: Json, name: str) -> list[dict[str, Json]]:
    """The value as a list of objects; a TypeError names the field."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise TypeError(f"expected a list of objects in {name!r}")
    return value


def unix_lines(text: str) -> str:
    """The text with line feeds as its only line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def misfit(
    name: str, why: str, *, hint: str = "Write it in another format, such as tertulia or messages."
) -> DataError:
    """The error for a dialogue or exchange that a format cannot represent."""
    return DataError(f"{name!r} does not fit the format: {why}.", hint=hint)


def check_alternating(dialogue: Dialogue, *, format: str) -> None:  # noqa: A002 - the word users know
    """Raise an error for a dialogue of more than two people, or in which one has two turns in a row."""
    if len(dialogue.speakers) > 2 or any(a.speaker == b.speaker for a, b in pairwise(dialogue.turns)):
        raise misfit(dialogue.id, f"{format} needs two speakers who alternate")


class Roles(NamedTuple):
    """The two speakers of a dialogue, for formats that consist of messages and replies."""

    partner: str
    replier: str


def dialogue_roles(dialogue: Dialogue, *, format: str) -> Roles:  # noqa: A002 - the word users know
    """The roles of two who alternate: "second" or "assistant" is the replier, otherwise who speaks second."""
    check_alternating(dialogue, format=format)
    speakers = dialogue.speakers
    first, second = (*speakers, *(name for name in ("first", "second") if name not in speakers))[:2]
    return Roles(second, first) if first in ("second", "assistant") else Roles(first, second)


def wrong_columns(cells: Sized, expected: int) -> str:
    """Why a row is damaged: its number of columns; empty if it is right."""
    return "" if len(cells) == expected else f"expected {expected} columns, got {len(cells)}"
