"""Applying several filters to candidates, and choosing among what is left."""

from dataclasses import replace

import pytest

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import ConfigError, UnknownName, UsageError
from tertulia.core.reply import Ask, Candidate
from tertulia.talk.filters.base import ALL, FILTERS, apply_filters, choose, make_filters, suffices
from tertulia.talk.filters.rules import Empty, TooLong
from tertulia.talk.filters.safety import Safety

ASK = Ask(Dialogue("d", (Turn("ana", "do you have any pets at home ?"), Turn("bot", "yes"))), "bot")
FALLBACK = "Let us talk about something else."


def candidates(*texts: str) -> list[Candidate]:
    return [Candidate(text, -float(i)) for i, text in enumerate(texts)]


def test_every_candidate_lists_all_reasons_against_it() -> None:
    long_loop = "i have a dog named rex and " * 12
    filtered = apply_filters(
        make_filters(ALL), ASK, candidates("i have a cat", "do you have any pets", long_loop, "i will kill you")
    )
    assert [one.candidate.dropped for one in filtered] == [
        None,
        "repeats the other (5 of 5 words)",
        "too long (84 words); says 'i have a dog' 12 times",
        "unsafe: threat",
    ]
    assert (filtered[0].candidate.text, filtered[0].candidate.score) == ("i have a cat", 0.0)


def test_the_best_kept_candidate_is_chosen_and_later_attempts_take_the_next() -> None:
    filtered = apply_filters(
        make_filters("empty,too-long:max_words=2"), ASK, candidates("one two three", "one two", "one")
    )
    assert choose(filtered, fallback=FALLBACK)[:2] == (1, "one two")
    assert choose(filtered, fallback=FALLBACK, attempt=2)[:2] == (2, "one")
    assert choose(filtered, fallback=FALLBACK, attempt=3)[:2] == (1, "one two")
    assert choose(filtered, fallback=FALLBACK).note is None
    assert choose(filtered, fallback=FALLBACK).score == -1.0


def test_if_all_are_dropped_the_least_bad_one_is_chosen_with_a_note() -> None:
    filters = make_filters("too-long:max_words=3,in-turn,cross-turn,safety")
    filtered = apply_filters(
        filters, ASK, candidates("i will kill you", "no no no no no", "do you have any pets", "a b c d")
    )
    assert [one.weight for one in filtered] == [float("inf"), 4.0, 3.0, 1.0]
    choice = choose(filtered, fallback=FALLBACK)
    assert choice.text == "a b c d"
    assert choice.note == "every candidate was dropped: used the least bad one (too long (4 words))"


def test_unsafe_and_empty_candidates_are_never_chosen() -> None:
    for texts in (("i will kill you", "..."), ()):
        choice = choose(apply_filters((Empty(), Safety()), ASK, candidates(*texts)), fallback=FALLBACK)
        assert (choice.candidate_index, choice.text, choice.score) == (None, FALLBACK, None)
        assert choice.note == "no candidate could be used: used the fallback text"


def test_a_reason_from_before_filtering_is_kept() -> None:
    (filtered,) = apply_filters((TooLong(max_words=1),), ASK, [Candidate("and then he", -1.0, "cut off")])
    assert filtered.candidate.dropped == "cut off; too long (3 words)"
    assert filtered.weight == 2.0


def test_what_suffices() -> None:
    filters = make_filters("too-long:max_words=2")
    good, bad = Candidate("one two"), Candidate("one two three")
    cut, cut_and_bad = (replace(one, dropped="cut off") for one in (good, bad))
    for some, expected in (
        ((bad, good), True),
        ((bad,), False),
        ((cut, cut_and_bad), True),  # others would be cut off, too
        ((cut, bad), False),
        ((), True),
    ):
        assert suffices(filters, ASK, apply_filters(filters, ASK, some)) == expected, some


def test_a_filter_may_want_more_than_a_candidate_that_is_kept() -> None:
    persona = {"bot": Persona(("i have a cat.",))}
    asked = Ask(Dialogue("d", (Turn("ana", "do you have any pets ?"),), persona), "bot")
    filters = make_filters("empty,consistent")
    kept = apply_filters(filters, asked, candidates("it rains", "no pets", "yes"))
    assert [one.weight == 0 for one in kept] == [True, False, True]
    assert not suffices(filters, asked, kept)
    assert suffices(filters, asked, [*kept, *apply_filters(filters, asked, candidates("my cat is asleep"))])
    assert suffices(filters, replace(asked, dialogue=Dialogue("d", (Turn("ana", "hello"),), persona)), kept)
    unasked = make_filters("empty,consistent:prefer=false")
    assert suffices(unasked, asked, apply_filters(unasked, asked, candidates("it rains")))


def test_filters_are_made_from_names_and_parameters() -> None:
    assert make_filters("none") == make_filters("") == ()
    assert set(ALL.split(",")) <= set(FILTERS)
    assert [type(one) for one in make_filters(ALL)] == [FILTERS.get(name) for name in ALL.split(",")]
    with pytest.raises(UnknownName, match="no filter called 'safty'") as unknown:
        make_filters("safty")
    assert "safety" in unknown.value.hint
    with pytest.raises(ConfigError, match="In the filter 'too-long': unknown option 'max_word'"):
        make_filters("too-long:max_word=3")
    with pytest.raises(UsageError, match="'30' is not of the form key=value"):
        make_filters("too-long:30")
