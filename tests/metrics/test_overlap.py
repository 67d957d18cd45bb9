import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.metrics.overlap import f1, normalised


@pytest.mark.parametrize(
    ("reply", "reference", "expected"),
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
def test_f1_by_hand(reply: str, reference: str, expected: float) -> None:
    assert f1(reply, reference) == pytest.approx(expected)


def test_only_punctuation_splits_words() -> None:
    punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    assert normalised("x".join(punctuation)) == ["x"] * (len(punctuation) - 1)
    assert normalised("naïve 3 🙂 theatre an-a") == ["naïve", "3", "🙂", "theatre"]


@given(st.text(max_size=30), st.text(max_size=30))
def test_f1_is_symmetric(one: str, other: str) -> None:
    assert f1(one, other) == f1(other, one)
    assert 0 <= f1(one, other) <= 1
    assert f1(one, one) == (1.0 if normalised(one) else 0.0)
