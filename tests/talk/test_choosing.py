import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.reply import Ask
from tertulia.talk.choosing import ECHO, REPEAT, SAID, Heard, overlap, text_key


def heard(*said: tuple[str, str]) -> Heard:
    return Heard.by(Ask(Dialogue("d", tuple(Turn(who, text) for who, text in said)), "bot"))


def test_case_blanks_and_punctuation_make_no_difference() -> None:
    assert text_key("Well,  DON'T!") == text_key("well don’t")
    assert text_key("🙂") == "🙂"
    assert text_key("...") != text_key("!!!")


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [("a b", "b a", 1.0), ("a b c", "a b d", 2 / 3), ("a a a", "a", 1.0), ("a", "b", 0.0), ("", "", 0.0)],
)
def test_overlap(one: str, other: str, share: float) -> None:
    assert overlap(one.split(), other.split()) == pytest.approx(share)
    assert overlap(other.split(), one.split()) == pytest.approx(share)


def test_what_speaks_against_a_text() -> None:
    so_far = heard(("ana", "I like the sea"), ("bot", "I love my two dogs"))
    assert so_far.against("i LIKE the sea!") == SAID
    assert so_far.against("I love my two dogs.") == SAID
    assert so_far.against("my two dogs I love") == REPEAT
    assert so_far.against("I love my dogs") is None
    assert so_far.against("I love my dogs", repeat_overlap=0.8) == REPEAT
    assert so_far.against("the sea I like", repeat_overlap=0.5) is None
    assert so_far.against("🙂", repeat_overlap=0.1) is None
    assert heard().against("anything") is None


def test_a_reply_that_says_the_message_again_is_an_echo() -> None:
    asked = heard(("me", "what do you do for a living?"))
    assert asked.against("Hi there! what do you do for a living then?", echo=0.7) == ECHO
    assert asked.against("I do what I love for a living", echo=1.0) is None
    assert asked.against("I bake bread.", echo=0.7) is None
    assert heard(("me", "hi, hello you")).against("hi, hello, you too", echo=0.7) is None
    assert heard(("bot", "what do you do for a living?")).against("so what do you do for a living", echo=0.7) is None
