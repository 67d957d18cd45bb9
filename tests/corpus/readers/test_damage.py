"""Damaged records are counted with a reason, and the others are read; unreadable files are refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from tertulia.core.codec import Problems
from tertulia.core.errors import DamagedLine, DataError
from tertulia.corpus.load import load_dialogues, load_exchanges
from tertulia.corpus.readers.base import Reader
from tertulia.corpus.registry import READERS

Original = Callable[..., Path]
Failures = Callable[..., list[str]]
NAMES = list(READERS)
JSON_NAMES = [name for name in NAMES if isinstance(READERS.get(name), Reader)] + ["convokit"]
wrong_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def read(file: Path, name: str, problems: Problems | None) -> list[Any]:
    return list(load_exchanges(file, format=name, problems=problems))


def refusal(file: Path, name: str) -> str:
    """Why the file is refused; empty if it is read."""
    try:
        read(file, name, Problems())
    except DataError as error:
        return error.message
    return ""


def paths_in(value: Any) -> list[tuple[Any, Any]]:
    """Every position inside a JSON value, as its container and key."""
    items = (
        list(value.items() if isinstance(value, dict) else enumerate(value)) if isinstance(value, dict | list) else []
    )
    return [(value, key) for key, _ in items] + [path for _, inner in items for path in paths_in(inner)]


def test_files_truncated_anywhere(original: Original, tmp_path: Path, failures: Failures) -> None:
    def check(name: str, data: st.DataObject) -> None:
        file = original(name, tmp_path / name)
        content = file.read_bytes()
        file.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        read(file, name, Problems())

    assert not failures(check, NAMES, 15)


def test_bytes_inserted_anywhere(original: Original, tmp_path: Path, failures: Failures) -> None:
    def check(name: str, data: st.DataObject) -> None:
        file = original(name, tmp_path / name)
        content = file.read_bytes()
        at = data.draw(st.integers(0, len(content)))
        file.write_bytes(content[:at] + data.draw(st.binary(min_size=1, max_size=4)) + content[at:])
        for exchange in read(file, name, Problems()):
            json.dumps([t.text for t in (*exchange.context, exchange.response)], ensure_ascii=False).encode()

    assert not failures(check, NAMES, 15)


def test_wrong_types_anywhere(original: Original, tmp_path: Path, failures: Failures) -> None:
    def check(name: str, data: st.DataObject) -> None:
        file = original(name, tmp_path / name)
        lines = file.read_text().splitlines() if file.name.endswith(".jsonl") else [file.read_text()]
        records = [json.loads(line) for line in lines]
        container, key = data.draw(st.sampled_from(paths_in(records)))
        container[key] = data.draw(wrong_values)
        file.write_text("\n".join(json.dumps(record) for record in records))
        problems = Problems()
        read(file, name, problems)
        if problems.count:
            with pytest.raises(DamagedLine, match=r", line \d+: ."):
                read(file, name, None)

    assert not failures(check, JSON_NAMES, 40)


COMPANIONS = [
    ("cmu-dog", "documents.json"),
    ("topical-chat", "reading_sets_valid_freq.json"),
    ("convokit", "conversations.json"),
    ("convokit", "speakers.json"),
    ("dailydialog-text", "dialogues_act.txt"),
]


def test_damaged_companions_are_refused(original: Original, tmp_path: Path, failures: Failures) -> None:
    def as_file(value: object) -> bytes:
        return json.dumps({"u1": value, "t_1": value}).encode()

    def check(companion: tuple[str, str], data: st.DataObject) -> None:
        name, companion_name = companion
        file = original(name, tmp_path / name)
        (file.parent / companion_name).write_bytes(data.draw(st.binary(max_size=20) | wrong_values.map(as_file)))
        assert re.fullmatch("|.*which the corpus depends on.*", refusal(file, name), re.DOTALL)

    assert not failures(check, COMPANIONS, 20)


def test_a_line_without_a_number_damages_only_its_dialogue(tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_text("1 a\tb\nno number\n3 c\td\n1 e\tf\n1 g\th\ti\tj\tk\n1 l\tm\n")
    problems = Problems()
    dialogues = list(load_dialogues(file, format="personachat-text", problems=problems))
    assert [d.turns[0].text for d in dialogues] == ["e", "l"]
    assert [example.partition(", ")[2] for example in problems.examples] == [
        "line 1: expected a number at the beginning of line 2",
        "line 5: expected at most 4 columns, got 5",
    ]


def test_a_damaged_first_line_damages_only_its_dialogue(tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_bytes(b"1 a\tb\n2 c\td\n1 caf\xe9\te\n2 f\tg\n1 h\ti\n")
    problems = Problems()
    dialogues = list(load_dialogues(file, format="personachat-text", problems=problems))
    assert [[t.text for t in d.turns] for d in dialogues] == [["a", "b", "c", "d"], ["h", "i"]]
    assert (problems.count, "line 3: not valid UTF-8" in problems.examples[0]) == (1, True)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (
            "parlai",
            "text:a\tlabels:b\tepisode_done:True\nlabels:c\tepisode_done:True\n",
            "line 2: expected a field 'text' on line 2",
        ),
        ("dailydialog-text", "Hi . __eou__\nand so __eou__ it en", "line 2: expected __eou__ at the end of the line"),
        ("empathetic-csv", "a,1,sad,p,0,hi,,\nb,1,sad\n", "line 2: expected 8 or 9 columns on line 2, got 3"),
        ("wizard", '[{"chosen_topic": "x", "dialog": [{"speaker": "cat", "text": ""}]}]', "got 'cat'"),
        ("sharegpt", '[{"conversations": [{"from": "human"}]}]', "'value' is missing"),
        ("blended-skill-talk", '[{"dialog": [[2, "x"]], "personas": []}]', "expected speaker 0 or 1, got 2"),
        ("convokit", '{"id": "a", "text": "b"}', "line 1: expected a 'conversation_id'"),
        ("topical-chat", '{"t": {"content": []}, "u": {"content": [3]}}', "expected a list of objects in 'content'"),
    ],
)
def test_the_reason_is_reported(tmp_path: Path, name: str, text: str, why: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    problems = Problems()
    list(load_dialogues(file, format=name, problems=problems))
    assert (problems.count, why in problems.examples[0]) == (1, True), problems.examples
    with pytest.raises(DamagedLine):
        list(load_dialogues(file, format=name))


@pytest.mark.parametrize(
    ("name", "row", "why"),
    [
        ("begin-v1", "a\tb\tc", "expected 6 columns, got 3"),
        ("begin-v2", "m\td\tk\tmsg\tr\t", "expected a label, got none"),
    ],
)
def test_damaged_rows_of_begin(tmp_path: Path, original: Original, name: str, row: str, why: str) -> None:
    file = original(name)
    file.write_text(file.read_text() + row + "\n")
    problems = Problems()
    assert len(list(load_exchanges(file, problems=problems))) == 2
    assert f"line 4: {why}" in problems.examples[0]
