import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.dialogue import Dialogue, Evidence, Exchange, Persona, Turn, exchanges

ANA, BEN = Persona(("I sail.",), name="Ana"), Persona(("I bake.",), name="Ben")
DIALOGUE = Dialogue(
    "d",
    (Turn("ana", "hi"), Turn("ben", "hello"), Turn("ben", "nice day"), Turn("ana", "indeed")),
    {"ana": ANA, "ben": BEN},
    (Evidence("It is sunny."),),
)


def test_speakers_come_in_the_order_of_their_first_turns() -> None:
    assert DIALOGUE.speakers == ("ana", "ben")
    assert Dialogue("e", ()).speakers == ()


def test_with_turns_returns_a_longer_dialogue_and_leaves_the_original_alone() -> None:
    longer = DIALOGUE.with_turns(Turn("ben", "bye"), Turn("ana", "bye"))
    assert [t.text for t in longer.turns] == ["hi", "hello", "nice day", "indeed", "bye", "bye"]
    assert len(DIALOGUE.turns) == 4
    assert longer.personas == DIALOGUE.personas


def test_values_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DIALOGUE.id = "x"  # type: ignore[misc]


def test_exchanges_have_both_personas_and_the_evidence() -> None:
    first, second, third = exchanges(DIALOGUE)
    assert [(e.id, e.response.text) for e in (first, second, third)] == [
        ("d#1", "hello"),
        ("d#2", "nice day"),
        ("d#3", "indeed"),
    ]
    assert (first.persona, first.partner) == (BEN, ANA)
    assert (second.persona, second.partner) == (BEN, ANA)
    assert (third.persona, third.partner) == (ANA, BEN)
    assert third.evidence == DIALOGUE.evidence
    assert third.context == DIALOGUE.turns[:3]


def test_exchanges_of_one_speaker_or_with_more_context() -> None:
    assert [e.id for e in exchanges(DIALOGUE, speaker="ana")] == ["d#3"]
    assert [e.id for e in exchanges(DIALOGUE, speaker="ana", min_context=0)] == ["d#0", "d#3"]
    assert [e.id for e in exchanges(DIALOGUE, min_context=3)] == ["d#3"]
    assert list(exchanges(DIALOGUE, speaker="nobody")) == []


def test_the_dialogue_of_an_exchange_is_its_context() -> None:
    *_, last = exchanges(DIALOGUE)
    waiting = last.dialogue
    assert waiting.turns == DIALOGUE.turns[:3]
    assert waiting.personas == {"ana": ANA, "ben": BEN}
    assert waiting.evidence == DIALOGUE.evidence


def test_the_persona_of_a_silent_partner_is_left_out() -> None:
    alone = Exchange("e", (Turn("ana", "hi"),), Turn("ana", "anyone?"), persona=ANA, partner=BEN)
    assert alone.dialogue.personas == {"ana": ANA}


@settings(max_examples=50, deadline=None)
@given(st.from_type(Dialogue))
def test_every_turn_but_the_first_is_a_reply(dialogue: Dialogue) -> None:
    replies = list(exchanges(dialogue))
    assert [e.response for e in replies] == list(dialogue.turns[1:])
    for exchange in replies:
        assert exchange.dialogue.persona_of(exchange.response.speaker) == dialogue.persona_of(exchange.response.speaker)
