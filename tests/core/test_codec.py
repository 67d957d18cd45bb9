import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core import codec
from tertulia.core.codec import Problems, dump_line, read_lines
from tertulia.core.dialogue import Dialogue, Evidence, Exchange, Message, Persona, Turn
from tertulia.core.errors import DamagedLine

quick = settings(max_examples=80, deadline=None)


def there_and_back(encode: Callable[[Any], Any], decode: Callable[[Any], Any], value: Any) -> Any:
    line = dump_line(encode(value))
    assert "\n" not in line
    (back,) = read_lines([line + "\n"], decode)
    return back


@quick
@given(st.from_type(Dialogue))
def test_dialogues_round_trip(dialogue: Dialogue) -> None:
    assert there_and_back(codec.dialogue_to_json, codec.dialogue_from_json, dialogue) == dialogue


@quick
@given(st.from_type(Message))
def test_messages_round_trip(message: Message) -> None:
    assert there_and_back(codec.message_to_json, codec.message_from_json, message) == message


@quick
@given(st.from_type(Exchange))
def test_exchanges_round_trip(exchange: Exchange) -> None:
    assert there_and_back(codec.exchange_to_json, codec.exchange_from_json, exchange) == exchange


def test_empty_fields_are_omitted_but_empty_texts_are_kept() -> None:
    assert codec.dialogue_to_json(Dialogue("d", (Turn("", ""),))) == {"id": "d", "turns": [{"speaker": "", "text": ""}]}
    assert codec.message_to_json(Message("1", "ana", "")) == {"id": "1", "author": "ana", "text": ""}
    assert codec.evidence_to_json(Evidence("x")) == {"text": "x", "id": ""}
    assert codec.persona_to_json(Persona(("I sail.",), name="Ana")) == {
        "sentences": ["I sail."],
        "id": "",
        "name": "Ana",
    }


def test_lines_are_compact_and_not_escaped_to_ascii() -> None:
    assert dump_line({"text": "añ🙂", "n": [1, 2]}) == '{"text":"añ🙂","n":[1,2]}'


GOOD = '{"id":"d","turns":[{"speaker":"a","text":"hi"}]}'
DAMAGED = {
    "not JSON": ("{oops", "not valid JSON"),
    "cut short": (GOOD[:-5], "not valid JSON"),
    "no object": ("[1]", "must be an object, not list"),
    "null": ("null", "must be an object, not NoneType"),
    "no turns": ('{"id":"d"}', "needs 'turns'"),
    "unknown field": ('{"id":"d","turns":[],"mood":"fine"}', "no field 'mood'"),
    "unknown field of a turn": ('{"id":"d","turns":[{"speaker":"a","text":"b","x":1}]}', "a turn has no field 'x'"),
    "id is a number": ('{"id":1,"turns":[]}', "'id' must be text, not int"),
    "turns is text": ('{"id":"d","turns":"hi"}', "'turns' must be a list, not str"),
    "text is null": ('{"id":"d","turns":[{"speaker":"a","text":null}]}', "'text' must be text"),
    "persona is text": ('{"id":"d","turns":[],"personas":{"a":"I sail."}}', "a persona must be an object"),
    "meta is a list": ('{"id":"d","turns":[],"meta":[1]}', "'meta' must be an object"),
    "source holds a number": ('{"id":"d","turns":[{"speaker":"a","text":"b","source":[1]}]}', "'source' must be text"),
    "half a pair": ('{"id":"\\ud83d","turns":[]}', "not valid UTF-8, or a lone surrogate"),
    "half a pair in meta": ('{"id":"d","turns":[],"meta":{"x":["\\uDE00"]}}', "not valid UTF-8, or a lone surrogate"),
    "not UTF-8": (b'{"id":"caf\xe9","turns":[]}', "not valid UTF-8, or a lone surrogate"),
    "too deep": ("[" * 100_000, "recursion"),
}


@pytest.mark.parametrize(("line", "why"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_lines_raise_with_their_number(line: str | bytes, why: str) -> None:
    with pytest.raises(DamagedLine, match="strict") as caught:
        list(read_lines([GOOD, "\n", line, GOOD], codec.dialogue_from_json, source="dialogues.jsonl"))
    assert caught.value.line == 3
    assert caught.value.message.startswith("dialogues.jsonl, line 3: ")
    assert why in caught.value.message


@pytest.mark.parametrize("line", [line for line, _ in DAMAGED.values()], ids=DAMAGED)
def test_damaged_lines_are_counted_if_requested(line: str | bytes) -> None:
    problems = Problems()
    dialogues = list(read_lines([GOOD, line, GOOD], codec.dialogue_from_json, source="x", problems=problems))
    assert [d.id for d in dialogues] == ["d", "d"]
    assert problems.count == 1
    assert problems.examples[0].startswith("x, line 2: ")


def test_a_complete_surrogate_pair_is_a_character() -> None:
    (dialogue,) = read_lines(['{"id":"\\ud83d\\ude00","turns":[]}'], codec.dialogue_from_json)
    assert dialogue.id == "😀"


def test_only_the_first_few_problems_are_described() -> None:
    problems = Problems()
    assert list(read_lines(["?"] * 12 + [GOOD], codec.dialogue_from_json, problems=problems)) != []
    assert problems.count == 12
    assert [e.partition(":")[0] for e in problems.examples] == [f"<lines>, line {n}" for n in range(1, 6)]


def test_blank_lines_count_as_lines_but_not_as_problems() -> None:
    problems = Problems()
    (dialogue,) = read_lines(["", "  \n", GOOD, "{"], codec.dialogue_from_json, problems=problems)
    assert dialogue.id == "d"
    assert problems.count == 1
    assert "line 4" in problems.examples[0]


@pytest.mark.parametrize("time", ['"noon"', "true", "[]", "1" + "0" * 400])
def test_times_are_numbers(time: str) -> None:
    with pytest.raises(DamagedLine):
        list(read_lines([f'{{"id":"1","author":"a","text":"t","time":{time}}}'], codec.message_from_json))


def test_integer_seconds_become_floats() -> None:
    message = codec.message_from_json({"id": "1", "author": "a", "text": "t", "time": 12})
    assert message.time == 12.0
    assert isinstance(message.time, float)


def test_null_means_the_default() -> None:
    value = {"id": "1", "author": "a", "text": "t", "parent": None, "thread": None, "time": None, "meta": None}
    assert codec.message_from_json(value) == Message("1", "a", "t")
    value = {"id": "e", "context": [], "response": {"speaker": "b", "text": "x"}, "persona": None, "label": None}
    assert codec.exchange_from_json(value) == Exchange("e", (), Turn("b", "x"))


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda s: (
            st.lists(s)
            | st.dictionaries(
                st.sampled_from(
                    ["id", "turns", "speaker", "text", "author", "meta", "personas", "context", "response"]
                ),
                s,
            )
        ),
    )
)
def test_any_json_is_either_decoded_or_counted(value: Any) -> None:
    for decode in (codec.dialogue_from_json, codec.message_from_json, codec.exchange_from_json):
        problems = Problems()
        values = list(read_lines([json.dumps(value)], decode, problems=problems))
        assert len(values) + problems.count == 1
