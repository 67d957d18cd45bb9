import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.codec import Problems, read_lines
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import DataError
from tertulia.corpus.readers import sharegpt
from tertulia.corpus.readers.messages import READER, decode, encode, merge_turns, repeats_role, text_of


def record(*messages: tuple[str, Any], **more: str) -> dict[str, Any]:
    return {**more, "messages": [{"role": role, "content": content} for role, content in messages]}


def test_the_system_message_becomes_the_persona_of_the_assistant() -> None:
    dialogue = decode(record(("system", "I sail. I bake."), ("user", "hi"), ("assistant", "hello"), id="d"))
    assert dialogue == Dialogue(
        "d",
        (Turn("user", "hi"), Turn("assistant", "hello")),
        {"assistant": Persona(("I sail.", "I bake."))},
        meta={"system": "I sail. I bake."},
    )


def test_developer_messages_count_as_system_messages() -> None:
    dialogue = decode(record(("system", "I sail."), ("developer", "Be brief."), ("user", "hi")))
    assert dialogue.meta["system"] == "I sail.\nBe brief."
    assert dialogue.persona_of("assistant") == Persona(("I sail.", "Be brief."))


def test_without_an_id_one_is_computed_from_the_content() -> None:
    one, same, other = (decode(record(("user", text))) for text in ("hi", "hi", "ho"))
    assert one.id == same.id != other.id


def test_content_may_be_a_list_of_parts() -> None:
    assert text_of([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]) == "ab"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "expected text or a list of parts in 'content', got NoneType"),
        (3, "expected text or a list of parts in 'content', got int"),
        ([{"type": "image_url", "image_url": {}}], "expected only parts of type 'text'"),
        ([{"type": "text"}], "expected only parts of type 'text'"),
        (["hi"], "expected only parts of type 'text'"),
    ],
)
def test_content_other_than_text_is_damage(content: Any, why: str) -> None:
    problems = Problems()
    assert list(read_lines([json.dumps(record(("user", content)))], decode, problems=problems)) == []
    assert why in problems.examples[0]


@pytest.mark.parametrize("value", [{}, {"messages": None}, {"messages": ["hi"]}, {"messages": [{"role": "user"}]}, []])
def test_other_shapes_are_damage(value: Any) -> None:
    problems = Problems()
    assert list(read_lines([json.dumps(value)], decode, problems=problems)) == []
    assert problems.count == 1


messages = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text()), min_size=1)


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=1), st.text(), messages)
def test_round_trip(name: str, system: str, turns: list[tuple[str, str]]) -> None:
    given_record = record(*([("system", system)] if system else []), *turns, id=name)
    assert encode(decode(json.loads(json.dumps(given_record)))) == given_record


@pytest.mark.parametrize(
    ("speakers", "roles"),
    [
        ("ab", ["user", "assistant"]),
        ("aba", ["user", "assistant", "user"]),
        ("a", ["user"]),
        ("", []),
    ],
)
def test_the_second_speaker_is_the_assistant(speakers: str, roles: list[str]) -> None:
    written = encode(Dialogue("d", tuple(Turn(s, "x") for s in speakers)))
    assert [m["role"] for m in written["messages"]] == roles


def test_three_speakers_do_not_fit_two_roles_unless_their_turns_are_merged() -> None:
    turns = tuple(Turn(s, f"{s}{i}", (f"m{i}",)) for i, s in enumerate("abcab"))
    dialogue = Dialogue("d", turns, {"b": Persona(("I sail.",))})
    for encoder in (encode, sharegpt.encode):
        with pytest.raises(DataError, match="two roles, and 3 people speak here") as error:
            encoder(dialogue)
        assert "--merge-turns" in error.value.hint
    merged = merge_turns(dialogue)
    assert [(m["role"], m["content"]) for m in encode(merged)["messages"]] == [
        ("system", "I sail."),
        ("user", "a: a0"),
        ("assistant", "b1"),
        ("user", "c: c2\na: a3"),
        ("assistant", "b4"),
    ]
    assert merged.turns[2].source == ("m2", "m3")
    assert repeats_role(dialogue)
    assert not repeats_role(merged)
    assert merge_turns(merged) == merged


def test_an_assistant_who_speaks_first_stays_the_assistant() -> None:
    written = encode(Dialogue("d", (Turn("assistant", "hello"), Turn("ana", "hi"))))
    assert [m["role"] for m in written["messages"]] == ["assistant", "user"]


def test_the_persona_of_the_assistant_is_written_as_the_system_message() -> None:
    dialogue = Dialogue("d", (Turn("ana", "hi"), Turn("ben", "ho")), {"ben": Persona(("I sail.", "I bake."))})
    assert encode(dialogue)["messages"][0] == {"role": "system", "content": "I sail. I bake."}


def test_recognised_by_its_messages() -> None:
    assert READER.recognises({"messages": []})
    assert not READER.recognises({"id": "d", "turns": []})
