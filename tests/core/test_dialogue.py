import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.dialogue import Dialogue, Evidence, Exchange, Persona, Turn, exchanges

ANA, BEN = Persona(("I sail.",), name="Ana"), Persona(("I bake.",), name="Ben")
TALK = Dialogue(
    "d",
    (Turn("ana", "hi"), Turn("ben", "hello"), Turn("ben", "nice day"), Turn("ana", "indeed")),
    {"ana": ANA, "ben": BEN},
    (Evidence("It is sunny."),),
)


def test_speakers_come_in_the_order_of_their_first_turns() -> None:
    assert TALK.speakers == ("ana", "ben")
    assert Dialogue("e", ()).speakers == ()


def test_said_makes_a_longer_dialogue_and_leaves_the_first_alone() -> None:
    longer = TALK.said(Turn("ben", "bye"), Turn("ana", "bye"))
    assert [t.text for t in longer.turns] == ["hi", "hello", "nice day", "indeed", "bye", "bye"]
    assert len(TALK.turns) == 4
    assert longer.personas == TALK.personas


def test_values_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TALK.id = "x"  # type: ignore[misc]


def test_exchanges_know_both_personas_and_the_evidence() -> None:
    first, second, third = exchanges(TALK)
    assert [(e.id, e.response.text) for e in (first, second, third)] == [
        ("d#1", "hello"),
        ("d#2", "nice day"),
        ("d#3", "indeed"),
    ]
    assert (first.persona, first.partner) == (BEN, ANA)
    assert (second.persona, second.partner) == (BEN, ANA)
    assert (third.persona, third.partner) == (ANA, BEN)
    assert third.evidence == TALK.evidence
    assert third.context == TALK.turns[:3]


def test_exchanges_of_one_speaker_or_with_more_context() -> None:
    assert [e.id for e in exchanges(TALK, speaker="ana")] == ["d#3"]
    assert [e.id for e in exchanges(TALK, speaker="ana", min_context=0)] == ["d#0", "d#3"]
    assert [e.id for e in exchanges(TALK, min_context=3)] == ["d#3"]
    assert list(exchanges(TALK, speaker="nobody")) == []


def test_the_dialogue_of_an_exchange_waits_for_the_reply() -> None:
    *_, last = exchanges(TALK)
    waiting = last.dialogue
    assert waiting.turns == TALK.turns[:3]
    assert waiting.personas == {"ana": ANA, "ben": BEN}
    assert waiting.evidence == TALK.evidence


def test_a_partner_who_said_nothing_has_no_name_to_go_by() -> None:
    alone = Exchange("e", (Turn("ana", "hi"),), Turn("ana", "anyone?"), persona=ANA, partner=BEN)
    assert alone.dialogue.personas == {"ana": ANA}


@settings(max_examples=50, deadline=None)
@given(st.from_type(Dialogue))
def test_every_turn_but_the_first_is_a_reply(dialogue: Dialogue) -> None:
    found = list(exchanges(dialogue))
    assert [e.response for e in found] == list(dialogue.turns[1:])
    for exchange in found:
        assert exchange.dialogue.persona_of(exchange.response.speaker) == dialogue.persona_of(exchange.response.speaker)
