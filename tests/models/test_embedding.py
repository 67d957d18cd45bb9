"""Tied embeddings: pretrained vectors, and losses."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from tertulia.core.errors import ConfigError
from tertulia.models.embedding import LOSS_CHUNK, TiedEmbedding
from tertulia.models.tokenizer import SPECIAL_TOKENS, SubwordTokenizer, WordTokenizer

WORDS = WordTokenizer(["i", "tea", ".", "dog"])


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    file = tmp_path / "glove.txt"
    file.write_text("tea 1 2 3\n. 0.5 -1 0\ndog 4 5 6\nzebra 7 8 9\n", encoding="utf-8")
    return file


def test_pretrained_vectors_are_copied_to_the_rows_of_their_words(vectors: Path) -> None:
    torch.manual_seed(0)
    embedding = TiedEmbedding(len(WORDS), 3, hidden=2)
    embedding.load_vectors(WORDS, vectors)
    first = len(SPECIAL_TOKENS)
    pretrained = [[1, 2, 3], [0.5, -1, 0], [4, 5, 6]]
    assert embedding(torch.tensor([first + 1, first + 2, first + 3])).tolist() == pretrained
    others = embedding(torch.tensor([0, 1, 2, 3, 4, 5, first])).detach()
    assert 0.5 < float(others.std() / torch.tensor(pretrained).square().mean().sqrt()) < 1.5


def test_vectors_that_do_not_fit_are_refused(vectors: Path) -> None:
    with pytest.raises(ConfigError, match="have 3 dimensions, the model has 5") as caught:
        TiedEmbedding(len(WORDS), 5, hidden=2).load_vectors(WORDS, vectors)
    assert caught.value.hint == "Set dim = 3."
    subwords = SubwordTokenizer.learn(["i like tea and a dog"] * 9, size=300)
    with pytest.raises(ConfigError, match="need a word tokenizer"):
        TiedEmbedding(len(subwords), 3, hidden=2).load_vectors(subwords, vectors)


def test_losses_do_not_depend_on_the_chunks() -> None:
    torch.manual_seed(0)
    embedding = TiedEmbedding(11, 3, hidden=4).double()
    size = 2 * LOSS_CHUNK + 7
    states, targets = torch.randn(size, 4, dtype=torch.float64), torch.randint(0, 11, (size,))
    expected = cross_entropy(embedding.logits(states), targets, reduction="none")
    torch.testing.assert_close(embedding.losses(states, targets), expected, atol=1e-12, rtol=0)
