"""Filters of a reply's form: empty, too long, repeating itself, repeating an earlier turn."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.reply import Ask
from tertulia.talk.filters.base import NEVER
from tertulia.talk.filters.rules import CrossTurn, Empty, InTurn, TooLong, common_subsequence

ASK = Ask(Dialogue("d", ()))


@pytest.mark.parametrize("text", ["", "  ", "...", "?!", "''", "\n", "- _ -"])
def test_punctuation_alone_is_empty(text: str) -> None:
    assert Empty()(ASK, text) == "empty"
    assert Empty().weight == NEVER


@pytest.mark.parametrize("text", ["ok", "7", "好", "🙂", "♥", "é"])
def test_a_letter_a_digit_or_a_symbol_is_not_empty(text: str) -> None:
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
def test_loops_are_dropped_and_natural_repetition_is_kept(text: str, reason: str | None) -> None:
    assert InTurn()(ASK, text) == reason


def test_the_limits_of_repetition_are_parameters() -> None:
    text = "i like to swim and i like to read"
    assert InTurn(phrase=3)(ASK, text) == "says 'i like to' twice"
    assert InTurn(sentence=1)(ASK, "Yes! Yes!") == "says 'yes' twice"
    assert InTurn(in_a_row=3)(ASK, "no no no") == "says 'no' 3 times in a row"


def conversation(*texts: str) -> Ask:
    """An ask with these turns; the other speaker begins."""
    turns = tuple(Turn("bot" if i % 2 else "ana", text) for i, text in enumerate(texts))
    return Ask(Dialogue("d", turns), "bot")


def lcs_length(one: Sequence[str], other: Sequence[str]) -> int:
    """The textbook dynamic programme."""
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@given(st.lists(st.sampled_from("abcd"), max_size=80), st.lists(st.sampled_from("abcd"), max_size=80))
def test_the_bit_parallel_subsequence_length_equals_the_textbook_one(one: list[str], other: list[str]) -> None:
    assert common_subsequence(one, other) == lcs_length(one, other)


def test_repeating_either_speaker_is_dropped() -> None:
    ask = conversation("I have two big dogs at home.", "Do you like to go swimming?", "Sometimes.")
    assert CrossTurn()(ask, "do you like to go swimming") == "repeats itself (6 of 6 words)"
    assert CrossTurn()(ask, "I have two big dogs at home, too.") == "repeats the other (7 of 8 words)"
    assert CrossTurn()(ask, "What are the names of your dogs?") is None


def test_words_must_be_in_order_but_need_not_be_adjacent() -> None:
    ask = conversation("hi", "i really like my new red car a lot", "nice")
    assert CrossTurn()(ask, "i like my red car") == "repeats itself (5 of 5 words)"
    assert CrossTurn()(ask, "car red my like i") is None


def test_the_share_is_a_parameter() -> None:
    ask = conversation("we went to the sea last summer")
    candidate = "they went to the hills last winter"  # went to the .. last: 4 of 7
    assert CrossTurn()(ask, candidate) is None
    assert CrossTurn(max_share=0.5)(ask, candidate) == "repeats the other (4 of 7 words)"
    assert CrossTurn(max_share=4 / 7)(ask, candidate) is None


def test_short_turns_may_be_repeated_unless_the_bot_said_them_recently() -> None:
    ask = conversation("Me too!", "That is great.", "me too", "Oh no.", "Hm.", "Really?", "Yes.", "I see.", "So?")
    assert CrossTurn()(ask, "me too") is None
    assert CrossTurn()(ask, "i see!") == "says the same as before"
    assert CrossTurn()(ask, "that is great") is None  # long ago
    assert CrossTurn(recent=4)(ask, "that is great") == "says the same as before"
    assert CrossTurn(recent=0)(ask, "i see") is None


@pytest.mark.parametrize("text", ["", "?!", "anything goes when nothing was said"])
def test_nothing_is_repeated_in_an_empty_conversation(text: str) -> None:
    assert CrossTurn()(conversation(), text) is None
