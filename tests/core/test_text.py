import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core.text import clean, is_question, ngrams, sentences, squash, tokens, words, words_of_each

quick = settings(max_examples=150, deadline=None)
anything = st.text(alphabet=st.one_of(st.characters(exclude_categories=()), st.sampled_from(" .!?…'’-_\n\r\t\0\ufeff")))


@quick
@given(anything)
def test_clean_is_idempotent_and_leaves_only_storable_characters(text: str) -> None:
    once = clean(text)
    assert clean(once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert {c for c in once if unicodedata.category(c) in ("Cc", "Cs")} <= {"\t", "\n"}
    once.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a\x00b", "ab"),
        ("a\r\nb\rc\nd", "a\nb\nc\nd"),
        ("e\u0301", "é"),
        ("e\x00\u0301", "é"),
        ("\ufeffhello", "hello"),
        ("half \ud83d a pair", "half ? a pair"),
        ("bell\x07, delete\x7f, next line\x85", "bell, delete, next line"),
        ("tab\tstays", "tab\tstays"),
        ("👩‍👩‍👧", "👩‍👩‍👧"),
    ],
)
def test_clean_removes_what_cannot_be_shown(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@quick
@given(anything)
def test_squash_leaves_single_spaces(text: str) -> None:
    squashed = squash(text)
    assert squashed.split() == text.split()
    assert squashed == " ".join(squashed.split(" "))
    assert "  " not in squashed
    assert squashed == squashed.strip()


@quick
@given(anything)
def test_words_have_letters_and_no_white_space(text: str) -> None:
    for word in words(text):
        assert not any(c.isspace() for c in word)
        assert word[0].isalnum()
        assert "_" not in word
        assert word == word.lower()


@quick
@given(anything)
def test_every_letter_and_digit_is_in_a_word(text: str) -> None:
    text = text.lower()
    assert [c for c in text if c.isalnum()] == [c for w in words(text) for c in w if c.isalnum()]


@quick
@given(anything)
def test_tokens_keep_every_character_but_white_space(text: str) -> None:
    text = text.lower().replace("’", "'")
    assert "".join(tokens(text)) == "".join(text.split())


@quick
@given(anything)
def test_words_are_the_tokens_that_are_not_punctuation(text: str) -> None:
    assert words(text) == [t for t in tokens(text) if t[0].isalnum()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("... !? 🙂", []),
        ("Hi🙂there", ["hi", "there"]),
        ("i ❤️ u", ["i", "u"]),
        ("don’t DON'T", ["don't", "don't"]),
        ("'quoted' -dash- well-known-fact", ["quoted", "dash", "well-known-fact"]),
        ("snake_case __init__", ["snake", "case", "init"]),
        ("3.50 x 4", ["3", "50", "x", "4"]),
        ("a\x00b", ["a", "b"]),
        ("cafe\u0301 café", ["cafe\u0301", "café"]),
        ("שָׁלוֹם עוֹלָם", ["שָׁלוֹם", "עוֹלָם"]),
        ("مَرْحَبًا بك", ["مَرْحَبًا", "بك"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("বাংলা ভাষা", ["বাংলা", "ভাষা"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("မြန်မာ", ["မြန်မာ"]),
        ("สวัสดี", ["สวัสดี"]),
    ],
)
def test_words_in_many_scripts(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@quick
@given(st.lists(anything | st.text("aB1'- .\0"), max_size=6), st.integers(1, 300))
def test_words_of_each_text_are_those_of_the_text(texts: list[str], times: int) -> None:
    assert words_of_each(texts * times) == [words(text) for text in texts] * times


@quick
@given(anything)
def test_sentences_lose_only_white_space(text: str) -> None:
    assert "".join("".join(s.split()) for s in sentences(text)) == "".join(text.split())


@quick
@given(anything)
def test_sentences_are_squashed_and_never_empty(text: str) -> None:
    for sentence in sentences(text):
        assert sentence
        assert sentence == squash(sentence)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  \n ", []),
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("J. R. R. Tolkien wrote it. Yes.", ["J. R. R. Tolkien wrote it.", "Yes."]),
        ("So did I. You too?", ["So did I.", "You too?"]),
        ("It costs 3.50 here.", ["It costs 3.50 here."]),
        ("See www.example.org for it.", ["See www.example.org for it."]),
        ("Really?!? No way...", ["Really?!?", "No way..."]),
        ("Well… I see.", ["Well…", "I see."]),
        ('He said "stop." Then left.', ['He said "stop."', "Then left."]),
        ("No. I won't.", ["No.", "I won't."]),
        ("Look at no. 5 there.", ["Look at no. 5 there."]),
        ("first line\nsecond line", ["first line", "second line"]),
        ("I like tea, coffee etc.", ["I like tea, coffee etc."]),
        ("你好。我很好！你呢？", ["你好。", "我很好！", "你呢？"]),
        ("هل أنت بخير؟ نعم.", ["هل أنت بخير؟", "نعم."]),
        ("Hi 🙂. Bye 👋🏽!", ["Hi 🙂.", "Bye 👋🏽!"]),
    ],
)
def test_sentence_boundaries(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@quick
@given(st.lists(st.integers(0, 3), max_size=8), st.integers(1, 10))
def test_ngrams_are_all_runs_of_adjacent_items(items: list[int], n: int) -> None:
    runs = list(ngrams(items, n))
    assert len(runs) == max(0, len(items) - n + 1)
    assert all(list(run) == items[i : i + n] for i, run in enumerate(runs))


def test_ngrams_of_length_zero_raise() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ngrams([1, 2], 0)


@pytest.mark.parametrize(
    "text",
    [
        "How are you",
        "you like tea?",
        "I see. And you?",
        'He asked "why?"',
        "(really?)",
        "What?!",
        "so... what's up",
        "Do you swim",
        "isn't it nice",
        "元気ですか？",
        "هل أنت بخير؟",
        "¿Cómo estás?",
        "you ok? 🙂?",
    ],
)
def test_questions_are_recognised(text: str) -> None:
    assert is_question(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "🙂",
        "Why? I know now.",
        "I know what you did.",
        "What a day!",
        "can opener",
        "Nice! ok.",
        "\0",
    ],
)
def test_statements_are_not_questions(text: str) -> None:
    assert not is_question(text)


@given(st.text("aB9'-_. ", max_size=15))
def test_words_of_ascii_texts_are_those_of_any_text(text: str) -> None:
    assert words(f"{text} é") == [*words(text), "é"]  # the accent makes it take the general way
