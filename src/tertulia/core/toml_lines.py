"""The line of every key of a TOML document, so that an error about a value can name the line.

`tomllib` gives values without positions. This scanner reads the same text again and notes where each key starts. It
expects a document that tomllib has accepted, so it only has to find keys, not to check them.
"""

import re
from collections.abc import Mapping

Location = tuple[str | int, ...]
"""A path of keys and list indices: ("questions", 1, "text")."""

_SPACE = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]++")
_SCALAR = re.compile(r"[^,\]}\n#]*+")


def key_lines(text: str) -> dict[Location, int]:
    """The lines (from 1) at which the keys, tables and list items of a valid TOML document start.

    >>> key_lines('a = 1\\n[[b]]\\nc.d = [\\n  "x",\\n]\\n')
    {('a',): 1, ('b',): 2, ('b', 0): 2, ('b', 0, 'c'): 3, ('b', 0, 'c', 'd'): 3, ('b', 0, 'c', 'd', 0): 4}
    """
    return _Scanner(text).scan()


def line_of(lines: Mapping[Location, int], location: Location) -> int | None:
    """The line of a key, or of the innermost table that should have it; None if the document has neither."""
    for end in range(len(location), 0, -1):
        if location[:end] in lines:
            return lines[location[:end]]
    return None


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.position = 0
        self.lines: dict[Location, int] = {}
        self.items: dict[Location, int] = {}
        """Arrays of tables: the index of the last item."""
        self._line, self._counted = 1, 0

    def scan(self) -> dict[Location, int]:
        table: Location = ()
        while True:
            self._skip_space()
            if self.position >= len(self.text):
                return self.lines
            if self.text.startswith("[[", self.position):
                table = self._table_header(2)
            elif self.text[self.position] == "[":
                table = self._table_header(1)
            else:
                self._key_and_value(table)

    def _table_header(self, brackets: int) -> Location:
        line = self._line_number()
        self.position += brackets
        keys = self._dotted_key()
        self.position += brackets
        table: Location = ()
        for key in keys[:-1]:  # a header names the last item of an array of tables by the array's name
            table = self._inside((*table, key))
            self.lines.setdefault(table, line)
        table = (*table, keys[-1])
        self.lines.setdefault(table, line)
        if brackets == 1:
            self.lines[table] = line
            return table
        self.items[table] = self.items.get(table, -1) + 1
        table = (*table, self.items[table])
        self.lines[table] = line
        return table

    def _inside(self, table: Location) -> Location:
        return (*table, self.items[table]) if table in self.items else table

    def _key_and_value(self, table: Location) -> None:
        line = self._line_number()
        for key in self._dotted_key():
            table = (*table, key)
            self.lines.setdefault(table, line)
        self.position += 1  # the equals sign
        self._value(table)

    def _dotted_key(self) -> list[str]:
        """The parts of a key; the position is then at the "=" or "]" after it."""
        keys = []
        while True:
            self._skip_space()
            if self.text[self.position] in "\"'":
                start = self.position + 1
                self._skip_string()
                keys.append(self.text[start : self.position - 1])
            elif match := _BARE_KEY.match(self.text, self.position):
                self.position = match.end()
                keys.append(match.group())
            self._skip_space()
            if self.position >= len(self.text) or self.text[self.position] != ".":
                return keys
            self.position += 1

    def _value(self, location: Location) -> None:
        self._skip_space()
        character = self.text[self.position]
        if character in "\"'":
            self._skip_string()
        elif character == "[":
            self._members(location, "]")
        elif character == "{":
            self._members(location, "}")
        else:
            match = _SCALAR.match(self.text, self.position)
            self.position = match.end() if match else len(self.text)

    def _members(self, location: Location, end: str) -> None:
        """The items of an array, or the keys of an inline table."""
        self.position += 1
        index = 0
        while True:
            self._skip_space()
            if self.text[self.position] == end:
                self.position += 1
                return
            if self.text[self.position] == ",":
                self.position += 1
            elif end == "}":
                self._key_and_value(location)
            else:
                self.lines[(*location, index)] = self._line_number()
                self._value((*location, index))
                index += 1

    def _skip_string(self) -> None:
        quote = self.text[self.position]
        end = quote * 3 if self.text.startswith(quote * 3, self.position) else quote
        self.position += len(end)
        while not self.text.startswith(end, self.position):
            self.position += 2 if quote == '"' and self.text[self.position] == "\\" else 1
        self.position += len(end)
        while len(end) == 3 and self.text.startswith(quote, self.position):  # up to two quotes may precede the end
            self.position += 1

    def _skip_space(self) -> None:
        match = _SPACE.match(self.text, self.position)
        self.position = match.end() if match else self.position

    def _line_number(self) -> int:
        self._line += self.text.count("\n", self._counted, self.position)
        self._counted = self.position
        return self._line
