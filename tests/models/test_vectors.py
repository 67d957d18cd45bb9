"""Vectors of words from files, and the table of a model's words."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from tertulia.core.errors import ConfigError, DataError
from tertulia.models.tokenizer import MARKS, SubwordTokenizer, WordTokenizer
from tertulia.models.vectors import AT_ONCE, WordTable, parse_vectors, read_vectors

LINES = ["tea 1 2 3\n", ". 0.5 -1 0\n", "dog 4 5 6\n", "zebra 7 8 9\n"]
WORDS = WordTokenizer(["i", "tea", ".", "dog"])


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "glove.txt"
    file.write_text("".join(LINES), encoding="utf-8")
    return file


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    rows = [line.split() for line in LINES]
    vectors = np.array([[float(number) for number in row[1:]] for row in rows], np.float16)
    np.savez(tmp_path / "glove.npz", words=np.array([row[0] for row in rows]), vectors=vectors)
    return tmp_path / "glove.npz"


def test_both_formats_give_the_wanted_words(text: Path, arrays: Path) -> None:
    for file in (text, arrays):
        found = read_vectors(file, {"dog", "tea", "cat"})
        assert {word: vector.tolist() for word, vector in found.items()} == {"tea": [1, 2, 3], "dog": [4, 5, 6]}
        assert found["tea"].dtype == np.float32


def test_what_is_no_vector_is_told_with_its_line() -> None:
    with pytest.raises(DataError, match="here, line 2: a vector is"):
        parse_vectors(["a 1 2", "b 1 x"], {"a", "b"}, source="here")
    with pytest.raises(DataError, match="here, line 3: 1 numbers, where the lines before have 2"):
        parse_vectors(["a 1 2", "c 1", "b 1"], {"a", "b"}, source="here")


def test_files_that_do_not_serve_are_told(tmp_path: Path, text: Path) -> None:
    (tmp_path / "broken.npz").write_bytes(b"PK")
    np.savez(tmp_path / "other.npz", names=np.array(["a"]))
    for file in (tmp_path / "none.txt", tmp_path / "broken.npz", tmp_path / "other.npz"):
        with pytest.raises(DataError, match="cannot be read"):
            read_vectors(file, {"tea"})
    with pytest.raises(DataError, match="none of the words"):
        read_vectors(text, {"cat"})


def test_a_table_begins_with_the_right_rows(text: Path) -> None:
    torch.manual_seed(0)
    table = WordTable(len(WORDS), 3, hidden=2)
    table.fill(WORDS, text)
    first = len(MARKS)
    assert table(torch.tensor([first + 1, first + 2, first + 3])).tolist() == [[1, 2, 3], [0.5, -1, 0], [4, 5, 6]]
    other = table(torch.tensor([0, 1, 2, 3, 4, 5, first])).detach()
    known = torch.tensor([[1, 2, 3], [0.5, -1, 0], [4, 5, 6]])
    assert 0.5 < float(other.std() / known.square().mean().sqrt()) < 1.5


def test_vectors_that_do_not_fit_are_told(text: Path) -> None:
    with pytest.raises(ConfigError, match="have 3 numbers, the model's 5") as caught:
        WordTable(len(WORDS), 5, hidden=2).fill(WORDS, text)
    assert caught.value.hint == "Set dim = 3."
    subwords = SubwordTokenizer.learn(["i like tea and a dog"] * 9, size=40)
    with pytest.raises(ConfigError, match="tokenizer of words"):
        WordTable(len(subwords), 3, hidden=2).fill(subwords, text)


def test_losses_are_the_same_however_many_at_once() -> None:
    torch.manual_seed(0)
    table = WordTable(11, 3, hidden=4)
    states, targets = torch.randn(2 * AT_ONCE + 7, 4), torch.randint(0, 11, (2 * AT_ONCE + 7,))
    expected = cross_entropy(table.logits(states), targets, reduction="none")
    assert torch.allclose(table.losses(states, targets), expected, atol=1e-6)
