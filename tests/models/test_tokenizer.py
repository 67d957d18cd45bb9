"""Text to tokens and back, and dialogues as streams of tokens."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st

from tertulia.core.errors import DataError
from tertulia.core.text import squash
from tertulia.models.generator import DialogueView, stream, target_mask
from tertulia.models.tokenizer import (
    END,
    OTHER,
    OWN,
    PERSONA,
    SPECIAL_TOKENS,
    UNKNOWN,
    SubwordTokenizer,
    WordTokenizer,
    count_words,
    has_case,
    learn_tokenizer,
    load_tokenizer,
)

TEXTS = ["i like tea .", "do you like tea ?", "no , i like coffee !"] * 5


@pytest.fixture(scope="module")
def subwords() -> SubwordTokenizer:
    return SubwordTokenizer.learn(TEXTS, size=300)


@pytest.fixture(scope="module")
def cased() -> SubwordTokenizer:
    return SubwordTokenizer.learn([text.capitalize() for text in TEXTS], size=300)


def test_words_are_decoded_with_normal_spacing() -> None:
    words = WordTokenizer.learn(TEXTS)
    assert words.decode(words.encode("No, I like tea!")) == "no, i like tea!"
    assert words.encode("zebra tea")[0] == UNKNOWN
    assert words.decode([*words.encode("tea"), END, OWN]) == "tea"
    assert words.decode([UNKNOWN]) == "<unknown>"


def test_the_size_includes_the_special_tokens() -> None:
    assert len(WordTokenizer.learn(TEXTS, size=9)) == 9
    assert len(SubwordTokenizer.learn(TEXTS, size=300)) <= 300


def test_subwords_decode_to_the_same_text(subwords: SubwordTokenizer) -> None:
    for text in TEXTS:
        assert subwords.decode(subwords.encode(text)) == text
    assert all(i >= len(SPECIAL_TOKENS) for text in TEXTS for i in subwords.encode(text))
    assert subwords.decode([OWN, *subwords.encode("i like tea ."), END]) == "i like tea ."


@given(st.text())
def test_no_text_encodes_to_a_special_token(subwords: SubwordTokenizer, text: str) -> None:
    words = WordTokenizer.learn(TEXTS)
    for tokenizer in (words, subwords):
        ids = tokenizer.encode(text)
        assert all(i == UNKNOWN or i >= len(SPECIAL_TOKENS) for i in ids)
        assert all(i < len(tokenizer) for i in ids)


@given(st.text())
@example("I keep Bees: na\u00efve caf\u00e9, \u043f\u0440\u0438\u0432\u0435\u0442, \u4f60\u597d, \U0001f600")
@example("<own> <0x41> \ufb01 \u2460 \uff21 \x00 \u0130 \u1e9e")
def test_any_text_survives(subwords: SubwordTokenizer, cased: SubwordTokenizer, text: str) -> None:
    """Up to the width of spaces, and case where the training text has none."""
    expected = squash(text.replace("\u2581", " "))
    assert cased.decode(cased.encode(text)) == expected
    assert subwords.decode(subwords.encode(text)) == squash("".join(map(str.lower, expected)))
    assert UNKNOWN not in (*cased.encode(text), *subwords.encode(text))


def test_case_follows_the_training_text_unless_told(tmp_path: Path) -> None:
    folded = SubwordTokenizer.learn(["I like tea."] * 9, size=300, lower_case=True)
    folded.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, SubwordTokenizer)
    assert loaded.lower_case, "the saved model says so itself"
    assert loaded.encode("I LIKE TEA.") == folded.encode("i like tea.")
    assert not has_case(["plain text " * 200, "One"])


def test_subwords_without_bytes_are_refused(tmp_path: Path) -> None:
    """As earlier versions learned them."""
    out = io.BytesIO()
    special = {
        "pad_piece": "<pad>",
        "unk_piece": "<unknown>",
        "eos_piece": "<end>",
        "pad_id": 0,
        "unk_id": 1,
        "eos_id": 2,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=out, model_type="bpe", vocab_size=60, hard_vocab_limit=False,
        bos_id=-1, control_symbols=["<own>", "<other>", "<persona>"], minloglevel=2, **special,
    )  # fmt: skip
    (tmp_path / "subwords.model").write_bytes(out.getvalue())
    with pytest.raises(DataError, match=r"earlier version: they cannot read characters.*\nTrain the model again"):
        load_tokenizer(tmp_path)


def test_rare_words_are_unknown_in_training() -> None:
    words = WordTokenizer.learn([*TEXTS, "a zebra , a zebra", "once"], min_count=2)
    assert UNKNOWN not in words.encode("a zebra")
    assert words.encode("once") == (UNKNOWN,)


@pytest.mark.parametrize("kind", ["words", "subwords"])
def test_a_saved_tokenizer_is_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer = learn_tokenizer(kind, TEXTS, size=300)  # type: ignore[arg-type]
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert len(loaded) == len(tokenizer)
    assert [loaded.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]


def test_errors_say_what_cannot_be_learned_or_loaded(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No words"):
        WordTokenizer.learn([" "])
    with pytest.raises(DataError, match="Cannot learn subwords"):
        SubwordTokenizer.learn([])
    with pytest.raises(DataError, match="No tokenizer"):
        load_tokenizer(tmp_path)


VIEW = DialogueView(("hi", "tea ?", "yes"), (False, True, False), ("i like tea",))


def test_a_stream_has_special_tokens_and_a_loss_mask() -> None:
    words = WordTokenizer(("hi", "tea", "?", "yes", "i", "like"))
    own = stream(VIEW, words, target_turns="own")
    assert own.ids == (PERSONA, 10, 11, 7, END, OTHER, 6, END, OWN, 7, 8, END, OTHER, 9, END)
    assert [i for i, predicted in zip(own.ids, own.loss_mask, strict=True) if predicted] == [7, 8, END]
    assert sum(stream(VIEW, words, target_turns="all").loss_mask) == 7
    assert sum(stream(VIEW, words, target_turns="last").loss_mask) == 2
    assert target_mask(VIEW, "last") == (False, False, True)
    both = stream(replace(VIEW, partner=("hi", "yes")), words, target_turns="own")
    assert both.ids == (*own.ids[:5], PERSONA, PERSONA, 6, END, PERSONA, PERSONA, 9, END, *own.ids[5:])
    assert sum(both.loss_mask) == sum(own.loss_mask)


def test_the_oldest_turns_are_dropped_first_and_the_persona_stays() -> None:
    words = WordTokenizer(("hi", "tea", "?", "yes", "i", "like"))
    short = stream(VIEW, words, max_length=13)
    assert short.ids[0] == PERSONA
    assert short.ids[5] == OWN
    assert stream(VIEW, words, max_length=1).ids[-3:] == (OTHER, 9, END)


def test_a_word_count_includes_the_end_of_the_turn() -> None:
    assert count_words("i like tea .") == 5
    assert count_words("") == 1
