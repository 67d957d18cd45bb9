import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.metrics.overlap import common_subsequence, f1, normalised, rouge_l


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


def longest_common(one: list[str], other: list[str]) -> int:
    """The textbook table."""
    row = [0] * (len(other) + 1)
    for item in one:
        before = row
        row = [0]
        for j, another in enumerate(other):
            row.append(before[j] + 1 if item == another else max(before[j + 1], row[j]))
    return row[-1]


@given(st.lists(st.sampled_from("abc"), max_size=70), st.lists(st.sampled_from("abcd"), max_size=70))
def test_rouge_l_against_the_textbook_table(one: list[str], other: list[str]) -> None:
    assert common_subsequence(one, other) == longest_common(one, other)
    value = rouge_l(" ".join(one), " ".join(other))
    if other:
        assert value == pytest.approx(2 * longest_common(one, other) / (len(one) + len(other)))
    else:
        assert math.isnan(value)


def test_rouge_l_by_hand() -> None:
    reference = "Police killed the gunman."
    assert rouge_l("police kill the gunman", reference) == pytest.approx(3 / 4)
    assert rouge_l("the gunman kill police", reference) == pytest.approx(1 / 2)  # the same words in another order
    assert rouge_l("", reference) == 0
