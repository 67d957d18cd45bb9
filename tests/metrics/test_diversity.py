import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.metrics.diversity import distinct

sayings = st.lists(st.lists(st.sampled_from("abcd"), max_size=6).map(" ".join), max_size=5)


@settings(max_examples=100, deadline=None)
@given(sayings, st.integers(1, 3))
def test_it_is_types_over_tokens(texts: list[str], n: int) -> None:
    grams = []
    for text in texts:
        found = text.split()
        grams += ["-".join(found[i : i + n]) for i in range(len(found)) if i + n <= len(found)]
    estimate = distinct(iter(texts), n)
    assert estimate.n == len(grams)
    if grams:
        assert estimate.value == pytest.approx(len(set(grams)) / len(grams))
    else:
        assert math.isnan(estimate.value)


def test_runs_do_not_reach_over_the_end_of_a_text() -> None:
    assert distinct(["one two", "three four"], 2).n == 2


def test_it_never_has_an_interval() -> None:
    assert math.isnan(distinct(["a b a b"], 2).low)


def test_saying_one_thing_all_the_time_is_not_diverse() -> None:
    assert distinct(["I don't know."] * 50, 2).value == pytest.approx(2 / 100)
    assert distinct(["Ok!", "ok", "OK..."], 1).value == pytest.approx(1 / 3)
