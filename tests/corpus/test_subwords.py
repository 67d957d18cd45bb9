from pathlib import Path

import pytest
import sentencepiece

from tertulia import sample
from tertulia.core.errors import DataError
from tertulia.corpus.subwords import SubwordCounter, train_subwords


@pytest.fixture(scope="module")
def counter() -> SubwordCounter:
    return train_subwords((m.text for m in sample.messages()), vocabulary=1000)


def test_the_vocabulary_has_at_most_the_requested_size(counter: SubwordCounter) -> None:
    assert counter.vocabulary == 1000
    assert 256 < train_subwords(["so few words", "so very few"], vocabulary=8000).vocabulary < 400


def test_common_words_are_one_subword_and_rare_ones_several(counter: SubwordCounter) -> None:
    assert counter("the") == 1
    assert counter("and the") == 2
    assert counter("xylophonistically") > 4


def test_an_empty_text_has_no_subwords(counter: SubwordCounter) -> None:
    assert counter("") == 0


@pytest.mark.parametrize("text", ["🙂", "नमस्ते", "a\x00b", "שָׁלוֹם"])
def test_unseen_characters_fall_back_to_bytes(counter: SubwordCounter, text: str) -> None:
    assert counter(text) >= 1


def test_sentencepiece_reads_the_saved_model(counter: SubwordCounter, tmp_path: Path) -> None:
    file = tmp_path / "subwords.model"
    counter.save(file)
    again = sentencepiece.SentencePieceProcessor(model_file=str(file))
    text = "The dog carried a slice around for an hour"
    assert len(again.encode(text)) == counter(text) == SubwordCounter(file.read_bytes())(text)


@pytest.mark.parametrize("texts", [[], [""], ["", ""]])
def test_learning_from_no_text_is_a_clear_error(texts: list[str]) -> None:
    with pytest.raises(DataError, match="Cannot learn subwords"):
        train_subwords(texts)
