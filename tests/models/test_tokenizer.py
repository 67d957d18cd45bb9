"""Text as tokens and back, and dialogues as streams of them."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.errors import DataError
from tertulia.models.generator import Talk, counted, stream
from tertulia.models.tokenizer import (
    END,
    MARKS,
    OTHER,
    OWN,
    PERSONA,
    UNKNOWN,
    SubwordTokenizer,
    WordTokenizer,
    count_words,
    learn_tokenizer,
    load_tokenizer,
)

TEXTS = ["i like tea .", "do you like tea ?", "no , i like coffee !"] * 5


@pytest.fixture(scope="module")
def subwords() -> SubwordTokenizer:
    return SubwordTokenizer.learn(TEXTS, size=60)


def test_words_come_back_as_people_write_them() -> None:
    words = WordTokenizer.learn(TEXTS)
    assert words.decode(words.encode("No, I like tea!")) == "no, i like tea!"
    assert words.encode("zebra tea")[0] == UNKNOWN
    assert words.decode([*words.encode("tea"), END, OWN]) == "tea"
    assert words.decode([UNKNOWN]) == "<unknown>"


def test_the_size_counts_the_marks() -> None:
    assert len(WordTokenizer.learn(TEXTS, size=9)) == 9
    assert len(SubwordTokenizer.learn(TEXTS, size=60)) <= 60


def test_subwords_give_the_text_back(subwords: SubwordTokenizer) -> None:
    for text in TEXTS:
        assert subwords.decode(subwords.encode(text)) == text
    assert all(i >= len(MARKS) for text in TEXTS for i in subwords.encode(text))
    assert subwords.decode([OWN, *subwords.encode("i like tea ."), END]) == "i like tea ."


@given(st.text())
def test_no_text_makes_a_mark(subwords: SubwordTokenizer, text: str) -> None:
    words = WordTokenizer.learn(TEXTS)
    for tokenizer in (words, subwords):
        found = tokenizer.encode(text)
        assert all(i == UNKNOWN or i >= len(MARKS) for i in found)
        assert all(i < len(tokenizer) for i in found)


@pytest.mark.parametrize("kind", ["words", "subwords"])
def test_it_is_the_same_after_it_was_saved(kind: str, tmp_path: Path) -> None:
    made = learn_tokenizer(kind, TEXTS, size=60)  # type: ignore[arg-type]
    made.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert len(again) == len(made)
    assert [again.encode(text) for text in TEXTS] == [made.encode(text) for text in TEXTS]


def test_what_cannot_be_learned_or_loaded_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="single word"):
        WordTokenizer.learn([" "])
    with pytest.raises(DataError, match="No subwords"):
        SubwordTokenizer.learn([])
    with pytest.raises(DataError, match="no tokenizer"):
        load_tokenizer(tmp_path)


TALK = Talk(("hi", "tea ?", "yes"), (False, True, False), ("i like tea",))


def test_a_stream_has_marks_and_counts_turns() -> None:
    words = WordTokenizer(("hi", "tea", "?", "yes", "i", "like"))
    found = stream(TALK, words, scored="own")
    assert found.ids == (PERSONA, 10, 11, 7, END, OTHER, 6, END, OWN, 7, 8, END, OTHER, 9, END)
    assert [i for i, counts in zip(found.ids, found.counts, strict=True) if counts] == [7, 8, END]
    assert sum(stream(TALK, words, scored="all").counts) == 7
    assert sum(stream(TALK, words, scored="last").counts) == 2
    assert counted(TALK, "last") == (False, False, True)
    both = stream(replace(TALK, partner=("hi", "yes")), words, scored="own")
    assert both.ids == (*found.ids[:5], PERSONA, PERSONA, 6, END, PERSONA, PERSONA, 9, END, *found.ids[5:])
    assert sum(both.counts) == sum(found.counts)


def test_the_oldest_turns_go_first_and_the_persona_stays() -> None:
    words = WordTokenizer(("hi", "tea", "?", "yes", "i", "like"))
    found = stream(TALK, words, longest=13)
    assert found.ids[0] == PERSONA
    assert found.ids[5] == OWN
    assert stream(TALK, words, longest=1).ids[-3:] == (OTHER, 9, END)


def test_words_are_counted_with_the_end() -> None:
    assert count_words("i like tea .") == 5
    assert count_words("") == 1
