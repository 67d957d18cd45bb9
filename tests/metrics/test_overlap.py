import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.metrics.overlap import f1, normalised


@pytest.mark.parametrize(
    ("said", "reference", "expected"),
    [
        ("I like tea", "i like tea!", 1.0),
        ("a dog", "the dog", 1.0),
        ("tea tea tea", "tea", 0.5),
        ("tea coffee", "milk juice", 0.0),
        ("i don't know", "i don t care", 2 * 3 / 8),
        ("", "tea", 0.0),
        ("", "", 0.0),
        ("the", "an", 0.0),
        ("it’s fine", "it's fine", 1.0),
    ],
)
def test_by_hand(said: str, reference: str, expected: float) -> None:
    assert f1(said, reference) == pytest.approx(expected)


def test_each_ascii_mark_parts_words_and_nothing_else_does() -> None:
    marks = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    assert normalised("x".join(marks)) == ["x"] * (len(marks) - 1)
    assert normalised("naïve 3 🙂 theatre an-a") == ["naïve", "3", "🙂", "theatre"]


@given(st.text(max_size=30), st.text(max_size=30))
def test_both_ways_round_it_is_the_same(one: str, other: str) -> None:
    assert f1(one, other) == f1(other, one)
    assert 0 <= f1(one, other) <= 1
    assert f1(one, one) == (1.0 if normalised(one) else 0.0)
