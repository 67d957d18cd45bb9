import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.reply import Ask
from tertulia.talk.repetition import ECHO, REPEAT, SAID, RepetitionCheck, overlap, text_key


def conversation(*turns: tuple[str, str]) -> RepetitionCheck:
    return RepetitionCheck.of(Ask(Dialogue("d", tuple(Turn(who, text) for who, text in turns)), "bot"))


def test_text_keys_ignore_case_white_space_and_punctuation() -> None:
    assert text_key("Well,  DON'T!") == text_key("well don’t")
    assert text_key("🙂") == "🙂"
    assert text_key("...") != text_key("!!!")


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [("a b", "b a", 1.0), ("a b c", "a b d", 2 / 3), ("a a a", "a", 1.0), ("a", "b", 0.0), ("", "", 0.0)],
)
def test_overlap_is_the_dice_coefficient(one: str, other: str, share: float) -> None:
    assert overlap(one.split(), other.split()) == pytest.approx(share)
    assert overlap(other.split(), one.split()) == pytest.approx(share)


def test_reasons_not_to_reply_with_a_text() -> None:
    so_far = conversation(("ana", "I like the sea"), ("bot", "I love my two dogs"))
    assert so_far.reason("i LIKE the sea!") == SAID
    assert so_far.reason("I love my two dogs.") == SAID
    assert so_far.reason("my two dogs I love") == REPEAT
    assert so_far.reason("I love my dogs") is None
    assert so_far.reason("I love my dogs", repeat_overlap=0.8) == REPEAT
    assert so_far.reason("the sea I like", repeat_overlap=0.5) is None
    assert so_far.reason("🙂", repeat_overlap=0.1) is None
    assert conversation().reason("anything") is None


def test_a_reply_that_contains_the_message_is_an_echo() -> None:
    question = conversation(("me", "what do you do for a living?"))
    assert question.reason("Hi there! what do you do for a living then?", echo=0.7) == ECHO
    assert question.reason("I do what I love for a living", echo=1.0) is None
    assert question.reason("I bake bread.", echo=0.7) is None
    assert conversation(("me", "hi, hello you")).reason("hi, hello, you too", echo=0.7) is None
    assert (
        conversation(("bot", "what do you do for a living?")).reason("so what do you do for a living", echo=0.7) is None
    )
