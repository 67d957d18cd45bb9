"""Word vectors: read from GloVe's text, compressed or not, and from .npz; damaged files are refused."""

import gzip
from pathlib import Path

import pytest

from tertulia.artefacts.word_vectors import parse_word_vectors, read_word_vectors, save_word_vectors
from tertulia.core.errors import DataError


def test_vectors_are_read_and_written(tmp_path: Path) -> None:
    text = "the 0.1 0.2\ntea 1 2\n"
    (tmp_path / "glove.txt").write_text(text)
    (tmp_path / "glove.txt.gz").write_bytes(gzip.compress(text.encode()))
    vectors = read_word_vectors(tmp_path / "glove.txt", {"tea", "milk"})
    save_word_vectors(vectors, tmp_path / "vectors.npz")
    for name in ("glove.txt", "glove.txt.gz", "vectors.npz"):
        assert read_word_vectors(tmp_path / name, {"tea"})["tea"].tolist() == [1, 2]


def test_a_byte_that_is_not_utf_8_spoils_only_its_word(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_bytes(b"caf\xe9 3 4\ntea 1 2\n")
    assert read_word_vectors(tmp_path / "glove.txt", {"tea"})["tea"].tolist() == [1, 2]


def test_unreadable_vectors_are_refused(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("tea 1 2\n")
    (tmp_path / "damaged.npz").write_bytes(b"PK")
    with pytest.raises(DataError, match="none of the words"):
        read_word_vectors(tmp_path / "glove.txt", {"milk"})
    with pytest.raises(DataError, match="line 2"):
        parse_word_vectors(["a 1 2", "b 1"], {"a", "b"})
    with pytest.raises(DataError, match="Cannot read"):
        read_word_vectors(tmp_path / "damaged.npz", {"tea"})
    with pytest.raises(DataError, match="File not found"):
        read_word_vectors(tmp_path / "missing.npz", {"tea"})
