"""Words as numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.errors import DataError
from tertulia.core.text import tokens
from tertulia.models.vocabulary import PAD, UNKNOWN, Vocabulary

TEXTS = ("a b b c c c .", "c b a a")


def test_frequent_words_come_first_and_rare_ones_are_unknown() -> None:
    words = Vocabulary.count(TEXTS, min_count=3)
    assert words.words == ("c", "a", "b")
    assert words.ids("c x a").tolist() == [2, UNKNOWN, 3]
    assert len(words) == 5
    assert "x" not in words
    assert "a" in words
    assert Vocabulary.count(TEXTS, min_count=1, max_words=2).words == ("c", "a")


def test_padding_and_cutting() -> None:
    words = Vocabulary(("a", "b", "c"))
    assert words.padded(["a b c", "", "c"], longest=2).tolist() == [[2, 3], [UNKNOWN, PAD], [4, PAD]]
    assert words.padded(["a b c"], longest=2, keep="last").tolist() == [[3, 4]]
    assert words.padded(["a"], longest=9).shape == (1, 1)


def test_nothing_to_learn_from_is_an_error() -> None:
    with pytest.raises(DataError, match="not a single word"):
        Vocabulary.count(["", " "])


@given(st.lists(st.text(), min_size=1))
def test_any_text_survives_the_file(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    if not any(tokens(text) for text in texts):
        return
    made = Vocabulary.count(texts, min_count=1)
    file = tmp_path_factory.mktemp("words") / "words.txt"
    made.save(file)
    again = Vocabulary.load(file)
    assert again.words == made.words
    assert again.fingerprint == made.fingerprint
    assert all((again.ids(text) == made.ids(text)).all() for text in texts)
