from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.talk.chat import OPENING, chat_messages


def talk(*said: tuple[str, str], persona: Persona | None = None, **meta: str) -> Dialogue:
    return Dialogue("d", tuple(Turn(*s) for s in said), {"bot": persona} if persona else {}, meta=meta)


def pairs(messages: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(m["role"], m["content"]) for m in messages]


def test_own_turns_are_the_assistants() -> None:
    said = talk(("ana", "hi"), ("bot", "hello"), ("ana", "how are you"))
    assert pairs(chat_messages(said, "bot")) == [("user", "hi"), ("assistant", "hello"), ("user", "how are you")]


def test_several_others_are_one_user() -> None:
    assert pairs(chat_messages(talk(("ana", "hi"), ("ben", "ho")), "bot")) == [("user", "hi\nho")]


def test_a_bot_that_opens_is_greeted() -> None:
    assert pairs(chat_messages(talk(), "bot")) == [("user", OPENING)]
    opened = talk(("bot", "Good day."), ("ana", "hi"))
    assert pairs(chat_messages(opened, "bot")) == [("user", OPENING), ("assistant", "Good day."), ("user", "hi")]


def test_the_system_turn() -> None:
    sailor = Persona(("I sail.", "I bake."), name="Ana")
    system = {
        "persona and instructions": chat_messages(talk(persona=sailor), "bot", "Be brief."),
        "persona": chat_messages(talk(persona=Persona(("I sail.",))), "bot"),
        "instructions": chat_messages(talk(), "bot", "Be brief."),
        "verbatim": chat_messages(talk(persona=sailor, system="Only rhymes."), "bot", "Be brief."),
    }
    assert {name: messages[0]["content"] for name, messages in system.items()} == {
        "persona and instructions": "Your name is Ana. About you: I sail. I bake. Be brief.",
        "persona": "About you: I sail.",
        "instructions": "Be brief.",
        "verbatim": "Only rhymes.",
    }
    assert {messages[0]["role"] for messages in system.values()} == {"system"}


@pytest.mark.parametrize(("speaker", "other"), [("ana", "bot"), ("bot", "ana")])
def test_each_side_is_told_whose_personas_it_is_shown(speaker: str, other: str) -> None:
    both = Dialogue("d", (), {"ana": Persona(("I am ana.",)), "bot": Persona(("I am bot.",))})
    told = f"About you: I am {speaker}. About the one you talk with: I am {other}. Be brief."
    assert chat_messages(both, speaker, "Be brief.")[0]["content"] == told
    theirs = Dialogue("d", (), {other: Persona(("I sail.",))})
    assert chat_messages(theirs, speaker)[0]["content"] == "About the one you talk with: I sail."


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["ana", "ben", "bot"]), st.text("ab", min_size=1)), min_size=1))
def test_roles_alternate_from_the_user_on_and_nothing_said_is_lost(said: list[tuple[str, str]]) -> None:
    messages = pairs(chat_messages(talk(*said), "bot"))
    roles = [role for role, _ in messages]
    assert roles[0] == "user"
    assert all(a != b for a, b in pairwise(roles))
    if said[0][0] == "bot":
        assert messages.pop(0) == ("user", OPENING)
    assert "\n".join(text for _, text in messages) == "\n".join(text for _, text in said)
