"""Words and their indices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.errors import DataError
from tertulia.core.text import tokens
from tertulia.models.rankers.vocabulary import UNKNOWN, Vocabulary

TEXTS = ("a b b c c c .", "c b a a")


def test_frequent_words_come_first_and_rare_ones_are_unknown() -> None:
    words = Vocabulary.count(TEXTS, min_count=3)
    assert words.words == ("c", "a", "b")
    assert words.ids("c x a").tolist() == [2, UNKNOWN, 3]
    assert len(words) == 5
    assert "x" not in words
    assert "a" in words
    assert Vocabulary.count(TEXTS, min_count=1, max_words=2).words == ("c", "a")


def test_texts_without_words_are_an_error() -> None:
    with pytest.raises(DataError, match="No word occurs"):
        Vocabulary.count(["", " "])


@given(st.lists(st.text(), min_size=1))
def test_any_vocabulary_survives_saving_and_loading(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    if not any(tokens(text) for text in texts):
        return
    vocabulary = Vocabulary.count(texts, min_count=1)
    file = tmp_path_factory.mktemp("words") / "words.txt"
    vocabulary.save(file)
    again = Vocabulary.load(file)
    assert again.words == vocabulary.words
    assert all((again.ids(text) == vocabulary.ids(text)).all() for text in texts)
