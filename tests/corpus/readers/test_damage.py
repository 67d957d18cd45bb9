"""Whatever is wrong with a file, it is counted or refused with a word for people; the rest is read all the same."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tertulia.core.codec import Problems
from tertulia.core.errors import DamagedLine, DataError
from tertulia.corpus.load import load_dialogues, load_exchanges
from tertulia.corpus.table import READERS

Original = Callable[[str], Path]
NAMES = list(READERS)
wrong = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def read(file: Path, name: str, problems: Problems | None) -> list[Any]:
    return list(load_exchanges(file, format=name, problems=problems))


def refusal(file: Path, name: str) -> str:
    """Why the file is refused; nothing where it is read."""
    try:
        read(file, name, Problems())
    except DataError as error:
        return error.message
    return ""


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every place inside a JSON value, as its holder and key."""
    items = (
        list(value.items() if isinstance(value, dict) else enumerate(value)) if isinstance(value, dict | list) else []
    )
    return [(value, key) for key, _ in items] + [place for _, inner in items for place in places(inner)]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_cut_off_anywhere(original: Original, name: str, data: st.DataObject) -> None:
    file = original(name)
    whole = file.read_bytes()
    file.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    read(file, name, Problems())


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_bytes_in_between(original: Original, name: str, data: st.DataObject) -> None:
    file = original(name)
    whole = file.read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    file.write_bytes(whole[:at] + data.draw(st.binary(min_size=1, max_size=4)) + whole[at:])
    problems = Problems()
    found = read(file, name, problems)
    for exchange in found:
        json.dumps([t.text for t in (*exchange.context, exchange.response)], ensure_ascii=False).encode()


@pytest.mark.parametrize("name", [n for n in NAMES if not hasattr(READERS.get(n), "cut")] + ["convokit"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_wrong_types_anywhere(original: Original, name: str, data: st.DataObject) -> None:
    file = original(name)
    lines = file.read_text().splitlines() if file.name.endswith(".jsonl") else [file.read_text()]
    records = [json.loads(line) for line in lines]
    holder, key = data.draw(st.sampled_from(places(records)))
    holder[key] = data.draw(wrong)
    file.write_text("\n".join(json.dumps(record) for record in records))
    problems = Problems()
    read(file, name, problems)
    if problems.count:
        with pytest.raises(DamagedLine, match=r", line \d+: ."):
            read(file, name, None)


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("cmu-dog", "documents.json"),
        ("topical-chat", "reading_sets_valid_freq.json"),
        ("convokit", "conversations.json"),
        ("convokit", "speakers.json"),
        ("dailydialog-text", "dialogues_act.txt"),
    ],
)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=20) | wrong.map(lambda value: json.dumps({"u1": value, "t_1": value}).encode()))
def test_what_lies_beside_may_be_damaged_too(original: Original, name: str, beside: str, content: bytes) -> None:
    file = original(name)
    (file.parent / beside).write_bytes(content)
    assert re.fullmatch("|.*leans on.*", refusal(file, name), re.DOTALL)


def test_a_line_without_its_number_spoils_its_dialogue_alone(tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_text("1 a\tb\nno number\n3 c\td\n1 e\tf\n1 g\th\ti\tj\tk\n1 l\tm\n")
    problems = Problems()
    found = list(load_dialogues(file, format="personachat-text", problems=problems))
    assert [d.turns[0].text for d in found] == ["e", "l"]
    assert [example.partition(", ")[2] for example in problems.examples] == [
        "line 1: line 2 does not begin with a number",
        "line 5: a line has at most four columns, not 5",
    ]


def test_a_spoiled_first_line_takes_its_dialogue_along_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_bytes(b"1 a\tb\n2 c\td\n1 caf\xe9\te\n2 f\tg\n1 h\ti\n")
    problems = Problems()
    found = list(load_dialogues(file, format="personachat-text", problems=problems))
    assert [[t.text for t in d.turns] for d in found] == [["a", "b", "c", "d"], ["h", "i"]]
    assert (problems.count, "line 3: half a character" in problems.examples[0]) == (1, True)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (
            "parlai",
            "text:a\tlabels:b\tepisode_done:True\nlabels:c\tepisode_done:True\n",
            "line 2: line 2 has no field 'text'",
        ),
        ("dailydialog-text", "Hi . __eou__\nand so __eou__ it en", "line 2: the line does not end in __eou__"),
        ("empathetic-csv", "a,1,sad,p,0,hi,,\nb,1,sad\n", "line 2: line 2 has 3 columns, not 8 or 9"),
        ("wizard", '[{"chosen_topic": "x", "dialog": [{"speaker": "cat", "text": ""}]}]', "not 'cat'"),
        ("sharegpt", '[{"conversations": [{"from": "human"}]}]', "'value' is missing"),
        ("blended-skill-talk", '[{"dialog": [[2, "x"]], "personas": []}]', "a speaker is 0 or 1, not 2"),
        ("convokit", '{"id": "a", "text": "b"}', "line 1: an utterance needs a 'conversation_id'"),
        ("topical-chat", '{"t": {"content": []}, "u": {"content": [3]}}', "'content' must be a list of objects"),
    ],
)
def test_the_reason_is_told(tmp_path: Path, name: str, text: str, why: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    problems = Problems()
    list(load_dialogues(file, format=name, problems=problems))
    assert (problems.count, why in problems.examples[0]) == (1, True), problems.examples
    with pytest.raises(DamagedLine):
        list(load_dialogues(file, format=name))


@pytest.mark.parametrize(
    ("name", "row", "why"),
    [("begin-v1", "a\tb\tc", "3 columns, not 6"), ("begin-v2", "m\td\tk\tmsg\tr\t", "the label is missing")],
)
def test_rows_of_begin(tmp_path: Path, original: Original, name: str, row: str, why: str) -> None:
    file = original(name)
    file.write_text(file.read_text() + row + "\n")
    problems = Problems()
    assert len(list(load_exchanges(file, problems=problems))) == 2
    assert f"line 4: {why}" in problems.examples[0]
