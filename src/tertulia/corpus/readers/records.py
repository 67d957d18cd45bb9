"""Cutting JSON text into records: one a line, or the items of one big list or object, read piece by piece.

A published corpus is often a single JSON document of a gigabyte. Here it is never held whole: `JsonStream` keeps a
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
    """One record of a file and its place; a damaged one has a reason instead of a value."""

    line: int
    value: Json
    damage: str = ""


def json_lines(lines: Iterable[str]) -> Iterator[Record]:
    """One record a line; blank lines are none."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = Record(number, loads(line))
        except DAMAGE as why:
            record = Record(number, None, reason_of(why))
        yield record


def json_document(text: IO[str], *, key: str = "", is_record: Callable[[Json], bool] = bool) -> Iterator[Record]:
    """The records of a JSON document: the items of a list, the values of an object of records, or value after value.

    The values of an object are taken for records where the first of them `is_record`; its name goes into the field
    `key`. What cannot be read any further ends a list or an object: the rest is one damaged record.
    """
    stream = JsonStream(text)
    try:
        if stream.peek() == "[":
            yield from stream.items()
        elif stream.peek() == "{" and key:
            yield from _named(stream, key, is_record)
    except DAMAGE as why:
        yield Record(stream.line, None, reason_of(why))
        return
    yield from _one_by_one(stream)


def _one_by_one(stream: "JsonStream") -> Iterator[Record]:
    """Value after value; where the first stood on a line of its own, damage ends with its line."""
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


def _named(stream: "JsonStream", key: str, is_record: Callable[[Json], bool]) -> Iterator[Record]:
    """Records by name; or, where the first value is none, the whole object as the only record."""
    members = stream.members()
    first = next(members, None)
    if first is None:
        return
    if first.record.damage or _is(first.record.value, is_record):
        found = chain((first,), members)
    else:
        whole = {name: record.value for name, record in chain((first,), members)}
        yield Record(first.record.line, whole)
        return
    for name, record in found:
        yield record._replace(value={key: name} | record.value) if isinstance(record.value, dict) else record


def _is(value: Json, is_record: Callable[[Json], bool]) -> bool:
    return isinstance(value, dict) and is_record(value)


class Member(NamedTuple):
    """A member of an object."""

    name: str
    record: Record


class JsonStream:
    """A JSON text seen through a window that grows only where a value does not fit."""

    def __init__(self, text: IO[str]) -> None:
        self._text, self._decoder = text, json.JSONDecoder()
        self._buffer, self._at, self._ended = "", 0, False
        self.line = 1

    def peek(self) -> str:
        """The next character that is no white space; nothing at the end."""
        while True:
            self._skip(_end(_SPACE, self._buffer, self._at))
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more():
                return ""

    def value(self) -> Record:
        """The next value; its text is checked to be whole characters."""
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as why:
                # A value cut off by the window looks damaged near its end, or is a string that never closes.
                cut_off = why.msg.startswith("Unterminated string") or why.pos > len(self._buffer) - 16
                if not cut_off or not self._more():
                    raise ValueError(f"not valid JSON from here on ({why.msg})") from None
                continue
            if _end(_NUMBER, self._buffer, end) == len(self._buffer) and self._more():
                continue  # what looks like a number's end may be the window's
            raw, line = self._buffer[self._at : end], self.line
            self._skip(end)
            return _checked(Record(line, value), raw)

    def skip_line(self) -> None:
        """Go to the beginning of the next line."""
        while (end := self._buffer.find("\n", self._at)) < 0:
            self._skip(len(self._buffer))
            if not self._more():
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
                raise ValueError("not valid JSON from here on (a name must stand in quotes)")  # noqa: TRY004 - damage
            self._expect(":")
            yield Member(name.value, self.value())
            if (mark := self.peek()) != "}":
                self._expect(",")
        self._expect(mark)

    def _expect(self, mark: str) -> None:
        found = self.peek()
        if found != mark:
            raise ValueError(f"not valid JSON from here on ({mark!r} expected, not {found or 'the end'!r})")
        self._skip(self._at + 1)

    def _skip(self, to: int) -> None:
        self.line += self._buffer.count("\n", self._at, to)
        self._at = to

    def _more(self) -> bool:
        """Read on, as much again as the window holds: the work stays linear however long a value is."""
        if self._ended:
            return False
        piece = self._text.read(max(_WINDOW, len(self._buffer) - self._at))
        self._ended = not piece
        self._buffer, self._at = self._buffer[self._at :] + piece, 0
        return bool(piece)


def _checked(record: Record, raw: str) -> Record:
    try:
        if not raw.isascii():
            raw.encode("utf-8")
        if "\\ud" in raw or "\\uD" in raw:
            dump_line({"": record.value}).encode("utf-8")
    except UnicodeError as why:
        return record._replace(value=None, damage=reason_of(why))
    return record


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    found = pattern.match(text, start)
    return found.end() if found else start
