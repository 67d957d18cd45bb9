"""Repetition across turns."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.reply import Ask
from tertulia.talk.filters.cross_turn import CrossTurn, common_subsequence


def ask(*texts: str) -> Ask:
    """The other begins; the bot is "bot"."""
    turns = tuple(Turn("bot" if i % 2 else "ana", text) for i, text in enumerate(texts))
    return Ask(Dialogue("d", turns), "bot")


def slow(one: Sequence[str], other: Sequence[str]) -> int:
    """The usual table."""
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@given(st.lists(st.sampled_from("abcd"), max_size=80), st.lists(st.sampled_from("abcd"), max_size=80))
def test_the_longest_common_subsequence_is_that_of_the_usual_table(one: list[str], other: list[str]) -> None:
    assert common_subsequence(one, other) == slow(one, other)


def test_what_was_said_is_dropped_whoever_said_it() -> None:
    there = ask("I have two big dogs at home.", "Do you like to go swimming?", "Sometimes.")
    assert CrossTurn()(there, "do you like to go swimming") == "repeats itself (6 of 6 words)"
    assert CrossTurn()(there, "I have two big dogs at home, too.") == "repeats the other (7 of 8 words)"
    assert CrossTurn()(there, "What are the names of your dogs?") is None


def test_words_must_be_in_order_but_not_side_by_side() -> None:
    there = ask("hi", "i really like my new red car a lot", "nice")
    assert CrossTurn()(there, "i like my red car") == "repeats itself (5 of 5 words)"
    assert CrossTurn()(there, "car red my like i") is None


def test_the_share_is_a_parameter() -> None:
    there = ask("we went to the sea last summer")
    candidate = "they went to the hills last winter"  # went to the .. last: 4 of 7
    assert CrossTurn()(there, candidate) is None
    assert CrossTurn(max_share=0.5)(there, candidate) == "repeats the other (4 of 7 words)"
    assert CrossTurn(max_share=4 / 7)(there, candidate) is None


def test_short_turns_may_come_again_but_not_from_the_bot_in_a_row() -> None:
    there = ask("Me too!", "That is great.", "me too", "Oh no.", "Hm.", "Really?", "Yes.", "I see.", "So?")
    assert CrossTurn()(there, "me too") is None
    assert CrossTurn()(there, "i see!") == "says the same as before"
    assert CrossTurn()(there, "that is great") is None  # long ago
    assert CrossTurn(recent=4)(there, "that is great") == "says the same as before"
    assert CrossTurn(recent=0)(there, "i see") is None


@pytest.mark.parametrize("text", ["", "?!", "anything goes when nothing was said"])
def test_nothing_is_repeated_where_nothing_was_said(text: str) -> None:
    assert CrossTurn()(ask(), text) is None
