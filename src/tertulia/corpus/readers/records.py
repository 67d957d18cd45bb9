"""Split JSON text into records: one per line, or the items of one big list or object, read incrementally.

A published corpus is often a single JSON document of a gigabyte. It is never in memory as one: `JsonStream` keeps a
window of the text that is just large enough for the next record, and every record knows the line it begins on.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import IO, NamedTuple

from tertulia.core.codec import DAMAGE, dump_line, loads, reason_of
from tertulia.core.dialogue import Json

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"[0-9.eE+-]*")
_WINDOW = 1 << 16


class Record(NamedTuple):
    """One record of a file and the line it begins on; a damaged one has a reason instead of a value."""

    line: int
    value: Json
    damage: str = ""


def json_lines(lines: Iterable[str]) -> Iterator[Record]:
    """One record per line; blank lines are skipped."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = Record(number, loads(line))
        except DAMAGE as why:
            record = Record(number, None, reason_of(why))
        yield record


def json_document(text: IO[str], *, key: str = "", is_record: Callable[[Json], bool] = bool) -> Iterator[Record]:
    """The records of a JSON document: the items of a list, the values of an object of records, or concatenated values.

    The values of an object are records if the first of them `is_record`; their names go into the field `key`. An error
    within a list or an object ends it: the rest is one damaged record.
    """
    stream = JsonStream(text)
    try:
        if stream.peek() == "[":
            yield from stream.items()
        elif stream.peek() == "{" and key:
            yield from _named_records(stream, key, is_record)
    except DAMAGE as why:
        yield Record(stream.line, None, reason_of(why))
        return
    yield from _concatenated_values(stream)


def _concatenated_values(stream: "JsonStream") -> Iterator[Record]:
    """Concatenated values; if the first has a line of its own, damage ends with its line."""
    in_lines: bool | None = None
    while stream.peek():
        try:
            record = stream.value()
        except DAMAGE as why:
            yield Record(stream.line, None, reason_of(why))
            if not in_lines:
                return
            stream.skip_line()
            continue
        in_lines = stream.line == record.line if in_lines is None else in_lines
        yield record


def _named_records(stream: "JsonStream", key: str, is_record: Callable[[Json], bool]) -> Iterator[Record]:
    """Records by name; or, if the first value is not a record, the complete object as the only record."""
    members = stream.members()
    first = next(members, None)
    if first is None:
        return
    if not first.record.damage and not (isinstance(first.record.value, dict) and is_record(first.record.value)):
        yield Record(first.record.line, {name: record.value for name, record in chain((first,), members)})
        return
    for name, record in chain((first,), members):
        yield record._replace(value={key: name} | record.value) if isinstance(record.value, dict) else record


class Member(NamedTuple):
    """A member of a JSON object."""

    name: str
    record: Record


class JsonStream:
    """Reads JSON text through a window that grows only if a value does not fit."""

    def __init__(self, text: IO[str]) -> None:
        self._text, self._decoder = text, json.JSONDecoder()
        self._buffer, self._at, self._ended = "", 0, False
        self.line = 1

    def peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            self._skip(_end(_SPACE, self._buffer, self._at))
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._read_more():
                return ""

    def value(self) -> Record:
        """The next value; lone surrogates in it are damage."""
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as why:
                # A value truncated by the window has its error near the end, or is an unterminated string.
                truncated = why.msg.startswith("Unterminated string") or why.pos > len(self._buffer) - 16
                if not truncated or not self._read_more():
                    raise ValueError(f"not valid JSON from here on ({why.msg})") from None
                continue
            if _end(_NUMBER, self._buffer, end) == len(self._buffer) and self._read_more():
                continue  # the end of a number may be the end of the window
            raw, line = self._buffer[self._at : end], self.line
            self._skip(end)
            return _check_surrogates(Record(line, value), raw)

    def skip_line(self) -> None:
        """Skip to the beginning of the next line."""
        while (end := self._buffer.find("\n", self._at)) < 0:
            self._skip(len(self._buffer))
            if not self._read_more():
                return
        self._skip(end + 1)

    def items(self) -> Iterator[Record]:
        """The items of a list."""
        self._expect("[")
        while (mark := self.peek()) != "]":
            yield self.value()
            if (mark := self.peek()) != "]":
                self._expect(",")
        self._expect(mark)

    def members(self) -> Iterator[Member]:
        """The members of an object, in order."""
        self._expect("{")
        while (mark := self.peek()) != "}":
            name = self.value()
            if not isinstance(name.value, str):
                raise ValueError("not valid JSON from here on (expected a name in quotes)")  # noqa: TRY004 - damage
            self._expect(":")
            yield Member(name.value, self.value())
            if (mark := self.peek()) != "}":
                self._expect(",")
        self._expect(mark)

    def _expect(self, mark: str) -> None:
        character = self.peek()
        if character != mark:
            raise ValueError(f"not valid JSON from here on (expected {mark!r}, got {character or 'the end'!r})")
        self._skip(self._at + 1)

    def _skip(self, to: int) -> None:
        self.line += self._buffer.count("\n", self._at, to)
        self._at = to

    def _read_more(self) -> bool:
        """Double the window: the total work stays linear, however long a value is."""
        if self._ended:
            return False
        piece = self._text.read(max(_WINDOW, len(self._buffer) - self._at))
        self._ended = not piece
        self._buffer, self._at = self._buffer[self._at :] + piece, 0
        return bool(piece)


def _check_surrogates(record: Record, raw: str) -> Record:
    try:
        if not raw.isascii():
            raw.encode("utf-8")
        if "\\ud" in raw or "\\uD" in raw:
            dump_line({"": record.value}).encode("utf-8")
    except UnicodeError as why:
        return record._replace(value=None, damage=reason_of(why))
    return record


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start
