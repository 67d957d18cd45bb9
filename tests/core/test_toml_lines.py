import tomllib
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import model_validator

from tertulia.core.config import Config, InvalidKey, parse_toml, validate
from tertulia.core.errors import ConfigError
from tertulia.core.toml_lines import key_lines, line_of

DOCUMENT = '''# a comment with [brackets] and a = 1
title = "one # not a comment"
text = """
three = "lines"
and \\""" a quote"""
literal = \'\'\'
x = 1\'\'\'
"quoted key" = 1
list = [  # of tables
  { a = 1, b = "}" },
  { a = [1,
         2] },
]
[table]
key = 2020-01-01
[table.inner]
dotted.key = true
[[rows]]
name = 'first'
[rows.inner]
x = 1
[[rows]]
name = "second"
[[rows.cells]]
y = 1
[[rows.cells]]
y = 2
'''


def locations(value: Any, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    members: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {path} | {location for key, member in members for location in locations(member, (*path, key))}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_key_of_a_document_has_its_line(newline: str) -> None:
    lines = key_lines(DOCUMENT.replace("\n", newline))
    assert set(lines) == locations(tomllib.loads(DOCUMENT)) - {()}
    rows = DOCUMENT.splitlines()
    for key, line in lines.items():
        named = [str(part) for part in key if isinstance(part, str)][-1]
        if isinstance(key[-1], str):
            assert named in rows[line - 1], key
    assert lines[("list", 1, "a", 1)] == 12
    assert lines[("rows", 1)] == 22
    assert lines[("rows", 1, "cells", 1, "y")] == 27


values = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text(max_size=8) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b-c", "d.e", "f g"]), inner),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["x", "y", "z.z"]), values), st.booleans())
def test_every_key_of_any_document_is_located(document: dict[str, Any], multiline: bool) -> None:
    text = tomli_w.dumps(document, multiline_strings=multiline)
    assert set(key_lines(text)) == locations(tomllib.loads(text)) - {()}


def test_a_missing_key_has_the_line_of_its_table() -> None:
    lines = key_lines(DOCUMENT)
    assert line_of(lines, ("rows", 1, "missing")) == 22
    assert line_of(lines, ("missing",)) is None


class Shelf(Config):
    """A config with a validator that names keys."""

    low: int = 0
    high: int = 10
    width: float = 1

    @model_validator(mode="after")
    def check(self) -> "Shelf":
        if self.low > self.high:
            raise InvalidKey("low must not exceed high", ("low",), ("high",))
        return self


def error_of(text: str) -> str:
    values, lines = parse_toml(text, where="shelf.toml")
    with pytest.raises(ConfigError) as caught:
        validate(Shelf, values, where="shelf.toml", lines=lines)
    return caught.value.message


def test_problems_name_their_lines_in_order() -> None:
    assert error_of("# sizes\nwidth = 'x'\nlow = 1.5\nhihg = 2\n") == (
        "In shelf.toml: line 2: width: must be a number, got 'x'; line 3: low: must be an integer, got 1.5; "
        "line 4: unknown option 'hihg' (did you mean 'high'?)"
    )


def test_a_validator_names_the_key_that_the_file_has() -> None:
    assert error_of("\nlow = 20\nhigh = 3") == "In shelf.toml: line 2: low: low must not exceed high"
    assert error_of("\n\nhigh = -1") == "In shelf.toml: line 3: high: low must not exceed high"


def test_a_syntax_error_names_its_line() -> None:
    with pytest.raises(ConfigError, match=r"shelf\.toml is not valid TOML: .*line 2"):
        parse_toml("a = 1\nb = \n", where="shelf.toml")
