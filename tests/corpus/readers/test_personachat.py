import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.codec import Problems, read_lines
from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import DataError
from tertulia.corpus.readers.personachat import READER, decode, encode

RECORD = {
    "id": "valid_3",
    "first_speaker_persona_original": ["I sail.", "I bake."],
    "first_speaker_persona_revised": ["Boats are my life."],
    "second_speaker_persona_original": ["I paint."],
    "utterances": ["hi", "hello", "bye"],
}


def test_decode_a_record() -> None:
    assert decode(RECORD) == Dialogue(
        "valid_3",
        (Turn("first", "hi"), Turn("second", "hello"), Turn("first", "bye")),
        {
            "first": Persona(("I sail.", "I bake."), revised=("Boats are my life.",)),
            "second": Persona(("I paint.",)),
        },
    )


def test_personas_may_be_missing() -> None:
    assert decode({"id": 7, "utterances": []}) == Dialogue("7", ())


@settings(max_examples=60, deadline=None)
@given(
    st.text(min_size=1),
    st.lists(st.text(), min_size=2),
    st.lists(st.text(min_size=1), min_size=1),
    st.lists(st.text(min_size=1)),
)
def test_round_trip(name: str, utterances: list[str], original: list[str], revised: list[str]) -> None:
    record = {
        "id": name,
        "utterances": utterances,
        "first_speaker_persona_original": original,
        "first_speaker_persona_revised": revised,
        "second_speaker_persona_original": revised or original,
        "second_speaker_persona_revised": [],
    }
    assert encode(decode(json.loads(json.dumps(record)))) == record


def test_speakers_of_any_name_are_written_in_their_order() -> None:
    dialogue = Dialogue("d", (Turn("ben", "hi"), Turn("ana", "ho")), {"ana": Persona(("I sail.",))})
    assert encode(dialogue) == {
        "id": "d",
        "utterances": ["hi", "ho"],
        "second_speaker_persona_original": ["I sail."],
        "second_speaker_persona_revised": [],
    }


@pytest.mark.parametrize("speakers", ["aa", "aba" + "a", "abc", "abb"])
def test_speakers_who_do_not_alternate_are_refused(speakers: str) -> None:
    with pytest.raises(DataError, match="'d' does not fit"):
        encode(Dialogue("d", tuple(Turn(s, "x") for s in speakers)))


@pytest.mark.parametrize("speakers", ["", "a", "ab", "aba"])
def test_speakers_who_alternate_are_written(speakers: str) -> None:
    assert len(encode(Dialogue("d", tuple(Turn(s, "x") for s in speakers)))["utterances"]) == len(speakers)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"utterances": "hi there"}, "expected a list of texts in 'utterances', got str"),
        ({"utterances": ["hi", 3]}, "expected text in 'utterances', got int"),
        (
            {"first_speaker_persona_original": "I sail."},
            "expected a list of texts in 'first_speaker_persona_original', got str",
        ),
        ({"second_speaker_persona_revised": [["I"]]}, "expected text in 'second_speaker_persona_revised', got list"),
        ({"id": ...}, "'id' is missing"),
        ({"utterances": ...}, "'utterances' is missing"),
    ],
)
def test_damaged_records(change: dict[str, Any], why: str) -> None:
    record = {k: v for k, v in (RECORD | change).items() if v is not ...}
    problems = Problems()
    assert list(read_lines([json.dumps(record)], decode, problems=problems)) == []
    assert why in problems.examples[0]


def test_recognised_by_its_utterances() -> None:
    assert READER.recognises(RECORD)
    assert not READER.recognises({"id": "d", "turns": []})
