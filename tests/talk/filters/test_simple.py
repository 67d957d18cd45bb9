"""Empty, too long, repeating itself: filters that look at the candidate alone."""

import pytest

from tertulia.core.dialogue import Dialogue
from tertulia.core.reply import Ask
from tertulia.talk.filters.base import NEVER
from tertulia.talk.filters.empty import Empty
from tertulia.talk.filters.in_turn import InTurn
from tertulia.talk.filters.too_long import TooLong

ASK = Ask(Dialogue("d", ()))


@pytest.mark.parametrize("text", ["", "  ", "...", "?!", "''", "\n", "- _ -"])
def test_signs_alone_say_nothing(text: str) -> None:
    assert Empty()(ASK, text) == "empty"
    assert Empty().weight == NEVER


@pytest.mark.parametrize("text", ["ok", "7", "好", "🙂", "♥", "é"])
def test_a_letter_a_digit_or_a_symbol_says_something(text: str) -> None:
    assert Empty()(ASK, text) is None


def test_too_many_words_are_too_long() -> None:
    assert TooLong()(ASK, "so " * 60) is None
    assert TooLong()(ASK, "so " * 61) == "too long (61 words)"
    assert TooLong(max_words=3)(ASK, "one, two ... three!") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I like tea. Do you? I like tea!", "says 'i like tea' twice"),
        ("me too . me too . me too .", "says 'me too' 3 times"),
        ("i have a dog named rex and i have a dog named max", "says 'i have a dog' twice"),
        ("it is very very very very good", "says 'very' 4 times in a row"),
        ("no no no, I mean it", None),
        ("i like to swim and i like to read", None),
        ("Yes! Yes!", None),
        ("ha ha ha", None),
        ("", None),
    ],
)
def test_loops_are_dropped_and_the_way_people_talk_is_not(text: str, reason: str | None) -> None:
    assert InTurn()(ASK, text) == reason


def test_what_a_loop_is_can_be_set() -> None:
    text = "i like to swim and i like to read"
    assert InTurn(phrase=3)(ASK, text) == "says 'i like to' twice"
    assert InTurn(sentence=1)(ASK, "Yes! Yes!") == "says 'yes' twice"
    assert InTurn(in_a_row=3)(ASK, "no no no") == "says 'no' 3 times in a row"
