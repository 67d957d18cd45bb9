"""JSON is split into records, whatever its layout and however it is damaged."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.corpus.readers import records
from tertulia.corpus.readers.records import Record, json_document, json_lines

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def split(text: str, **how: Any) -> list[Record]:
    return list(json_document(io.StringIO(text), **how))


@pytest.fixture(params=[1, 7, 1 << 16])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Windows so small that every value is truncated somewhere."""
    monkeypatch.setattr(records, "_WINDOW", request.param)
    return int(request.param)


@given(items=st.lists(values, max_size=5), indent=st.sampled_from([None, 2]), size=st.sampled_from([1, 5, 1 << 16]))
def test_a_list_is_split_into_its_items(items: list[Any], indent: int | None, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_WINDOW", size)
        assert [r.value for r in split(json.dumps(items, indent=indent))] == items


@given(st.dictionaries(st.text(max_size=4), st.fixed_dictionaries({"x": values}), max_size=4))
def test_an_object_of_records_is_split_into_them(named: dict[str, Any]) -> None:
    result = split(json.dumps(named), key="name", is_record=lambda value: "x" in value)
    assert [r.value for r in result] == [{"name": name} | value for name, value in named.items()]


def test_an_object_may_be_the_only_record() -> None:
    one = {"date": "today", "x": {"y": 1}}
    assert [r.value for r in split(json.dumps(one, indent=1), key="name", is_record=lambda v: "x" in v)] == [one]
    assert [r.value for r in split(json.dumps(one))] == [one]


def test_concatenated_records(window: int) -> None:
    text = '{"x": 1}\n{"x": 12}\n\n{"x":\n 3}'
    assert [(r.line, r.value["x"]) for r in split(text)] == [(1, 1), (2, 12), (4, 3)]


def test_damage_ends_with_its_line(window: int) -> None:
    result = split('{"x": 1}\n{"x": oops, "y": "z"}\n{"x": "a\n{"x": 4}\n')
    assert [(r.line, r.value, bool(r.damage)) for r in result] == [
        (1, {"x": 1}, False),
        (2, None, True),
        (3, None, True),
        (4, {"x": 4}, False),
    ]


def test_records_know_the_line_they_begin_on(window: int) -> None:
    assert [r.line for r in split('[\n{"x": "a\\nb"},\n\n{"y":\n1}, 5]')] == [2, 4, 5]


@pytest.mark.parametrize(
    ("text", "values", "why", "line"),
    [
        ('[{"x": 1},\n{"x": 2', [{"x": 1}], "not valid JSON from here on", 2),
        ('[{"x": 1}\n', [{"x": 1}], "expected ',', got 'the end'", 2),
        ('[{"x": 1}\n{"x": 2}]', [{"x": 1}], "expected ',', got '{'", 2),
        ('[{"x": 1},\n"abc', [{"x": 1}], "Unterminated string", 2),
        ("[1, 2] rest", [1, 2], "Expecting value", 1),
        ("[" * 100_000, [], "recursion", 1),
        ("[nul, 2]" + " " * 100, [], "Expecting value", 1),
    ],
)
def test_a_syntax_error_ends_the_document(window: int, text: str, values: list[Any], why: str, line: int) -> None:
    *good, bad = split(text)
    assert [r.value for r in good] == values
    assert why in bad.damage
    assert bad.line == line


def test_a_damaged_object_of_records() -> None:
    good, bad = split('{"a": {"x": 1},\n"b" 2}', key="name", is_record=lambda value: "x" in value)
    assert (good.value, bad.line) == ({"name": "a", "x": 1}, 2)
    (bad,) = split("{1: 2}", key="name")
    assert "in quotes" in bad.damage


def test_a_lone_surrogate_damages_only_its_record() -> None:
    result = split('[{"x": "\\ud800"}, {"x": "\udce9"}, {"x": "\\ud83d\\ude00"}]')
    assert [bool(r.damage) for r in result] == [True, True, False]
    assert result[2].value == {"x": "😀"}


def test_line_numbers_include_blank_lines() -> None:
    result = list(json_lines(["1\n", "\n", "oops\n", "[2]"]))
    assert [(r.line, r.value, bool(r.damage)) for r in result] == [(1, 1, False), (3, None, True), (4, [2], False)]


def test_a_long_value_is_read_in_linear_time() -> None:
    """The window doubles each time it is too small: a value of a million characters takes few reads, not a thousand."""
    reads = []

    class Counted(io.StringIO):
        def read(self, size: int | None = -1, /) -> str:
            reads.append(size)
            return super().read(size)

    text = json.dumps([["x" * 10] * 100_000])
    (record,) = json_document(Counted(text))
    assert len(record.value) == 100_000
    assert len(reads) < 15
