from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.talk.chat import OPENING, chat_messages


def dialogue(*turns: tuple[str, str], persona: Persona | None = None, **meta: str) -> Dialogue:
    return Dialogue("d", tuple(Turn(*turn) for turn in turns), {"bot": persona} if persona else {}, meta=meta)


def role_and_text(messages: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(m["role"], m["content"]) for m in messages]


def test_own_turns_are_the_assistant_turns() -> None:
    three_turns = dialogue(("ana", "hi"), ("bot", "hello"), ("ana", "how are you"))
    assert role_and_text(chat_messages(three_turns, "bot")) == [
        ("user", "hi"),
        ("assistant", "hello"),
        ("user", "how are you"),
    ]


def test_all_other_speakers_are_the_user() -> None:
    assert role_and_text(chat_messages(dialogue(("ana", "hi"), ("ben", "ho")), "bot")) == [("user", "hi\nho")]


def test_a_bot_that_opens_the_conversation_gets_a_greeting() -> None:
    assert role_and_text(chat_messages(dialogue(), "bot")) == [("user", OPENING)]
    opened = dialogue(("bot", "Good day."), ("ana", "hi"))
    assert role_and_text(chat_messages(opened, "bot")) == [
        ("user", OPENING),
        ("assistant", "Good day."),
        ("user", "hi"),
    ]


def test_the_system_message_has_the_persona_and_the_instructions() -> None:
    sailor = Persona(("I sail.", "I bake."), name="Ana")
    system = {
        "persona and instructions": chat_messages(dialogue(persona=sailor), "bot", "Be brief."),
        "persona": chat_messages(dialogue(persona=Persona(("I sail.",))), "bot"),
        "instructions": chat_messages(dialogue(), "bot", "Be brief."),
        "verbatim": chat_messages(dialogue(persona=sailor, system="Only rhymes."), "bot", "Be brief."),
    }
    assert {name: messages[0]["content"] for name, messages in system.items()} == {
        "persona and instructions": "Your name is Ana. About you: I sail. I bake. Be brief.",
        "persona": "About you: I sail.",
        "instructions": "Be brief.",
        "verbatim": "Only rhymes.",
    }
    assert {messages[0]["role"] for messages in system.values()} == {"system"}


@pytest.mark.parametrize(("speaker", "other"), [("ana", "bot"), ("bot", "ana")])
def test_the_system_message_says_whose_persona_is_whose(speaker: str, other: str) -> None:
    both = Dialogue("d", (), {"ana": Persona(("I am ana.",)), "bot": Persona(("I am bot.",))})
    expected = f"About you: I am {speaker}. About the person you are talking to: I am {other}. Be brief."
    assert chat_messages(both, speaker, "Be brief.")[0]["content"] == expected
    theirs = Dialogue("d", (), {other: Persona(("I sail.",))})
    assert chat_messages(theirs, speaker)[0]["content"] == "About the person you are talking to: I sail."


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["ana", "ben", "bot"]), st.text("ab", min_size=1)), min_size=1))
def test_roles_alternate_beginning_with_the_user_and_no_text_is_lost(turns: list[tuple[str, str]]) -> None:
    messages = role_and_text(chat_messages(dialogue(*turns), "bot"))
    roles = [role for role, _ in messages]
    assert roles[0] == "user"
    assert all(a != b for a, b in pairwise(roles))
    if turns[0][0] == "bot":
        assert messages.pop(0) == ("user", OPENING)
    assert "\n".join(text for _, text in messages) == "\n".join(text for _, text in turns)
