"""Candidates through several filters, and the choice among them."""

import pytest

from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.errors import ConfigError, UnknownName, UsageError
from tertulia.core.reply import Ask, Candidate
from tertulia.talk.filters.empty import Empty
from tertulia.talk.filters.safety import Safety
from tertulia.talk.filters.sift import apply, choose, sift
from tertulia.talk.filters.table import ALL, FILTERS, make_filters
from tertulia.talk.filters.too_long import TooLong

ASK = Ask(Dialogue("d", (Turn("ana", "do you have any pets at home ?"), Turn("bot", "yes"))), "bot")
FALLBACK = "Let us talk about something else."


def candidates(*texts: str) -> list[Candidate]:
    return [Candidate(text, -float(i)) for i, text in enumerate(texts)]


def test_every_candidate_hears_all_that_speaks_against_it() -> None:
    long_loop = "i have a dog named rex and " * 12
    found = apply(
        make_filters(ALL), ASK, candidates("i have a cat", "do you have any pets", long_loop, "i will kill you")
    )
    assert [c.dropped for c in found] == [
        None,
        "repeats the other (5 of 5 words)",
        "too long (84 words); says 'i have a dog' 12 times",
        "unsafe: threat",
    ]
    assert next((c.text, c.score) for c in found) == ("i have a cat", 0.0)


def test_the_best_that_nothing_speaks_against_is_said_and_then_the_next() -> None:
    sifted = sift(make_filters("empty,too-long:max_words=2"), ASK, candidates("one two three", "one two", "one"))
    assert choose(sifted, fallback=FALLBACK)[:2] == (1, "one two")
    assert choose(sifted, fallback=FALLBACK, attempt=2)[:2] == (2, "one")
    assert choose(sifted, fallback=FALLBACK, attempt=3)[:2] == (1, "one two")
    assert choose(sifted, fallback=FALLBACK).note is None
    assert choose(sifted, fallback=FALLBACK).score == -1.0


def test_where_all_are_dropped_the_least_bad_one_is_said_and_a_note_tells() -> None:
    filters = make_filters("too-long:max_words=3,in-turn,cross-turn,safety")
    sifted = sift(filters, ASK, candidates("i will kill you", "no no no no no", "do you have any pets", "a b c d"))
    assert [one.weight for one in sifted] == [float("inf"), 4.0, 3.0, 1.0]
    choice = choose(sifted, fallback=FALLBACK)
    assert choice.text == "a b c d"
    assert choice.note == "every candidate was dropped: used the least bad one (too long (4 words))"


def test_what_must_not_be_said_never_is() -> None:
    for texts in (("i will kill you", "..."), ()):
        choice = choose(sift((Empty(), Safety()), ASK, candidates(*texts)), fallback=FALLBACK)
        assert (choice.place, choice.text, choice.score) == (None, FALLBACK, None)
        assert choice.note == "no candidate could be said: used the fallback text"


def test_a_reason_from_before_the_filters_stays() -> None:
    (found,) = sift((TooLong(max_words=1),), ASK, [Candidate("and then he", -1.0, "cut off")])
    assert found.candidate.dropped == "cut off; too long (3 words)"
    assert found.weight == 2.0


def test_filters_are_made_from_their_names_and_parameters() -> None:
    assert make_filters("none") == make_filters("") == ()
    assert set(FILTERS) == set(ALL.split(","))
    assert [type(one) for one in make_filters(ALL)] == [FILTERS.get(name) for name in ALL.split(",")]
    with pytest.raises(UnknownName, match="no filter called 'safty'") as unknown:
        make_filters("safty")
    assert "safety" in unknown.value.hint
    with pytest.raises(ConfigError, match="In the filter 'too-long': unknown option 'max_word'"):
        make_filters("too-long:max_word=3")
    with pytest.raises(UsageError, match="'30' is no parameter"):
        make_filters("too-long:30")
