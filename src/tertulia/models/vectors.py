"""Vectors of words: read from GloVe's format (Pennington et al. 2014), and the table in which a model keeps its own.

The models that write have one table for what they read and what they write (Press and Wolf 2017): a token's score is
the dot product of its vector with the state, brought to the vectors' size. Scores of a whole vocabulary are what costs
most, so losses are computed for a few hundred tokens at a time, which keeps the scores in the processor's cache.
"""

import zipfile
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from tertulia.core.errors import ConfigError, DataError
from tertulia.models.tokenizer import MARKS, Tokenizer, WordTokenizer

AT_ONCE = 256
"""Tokens whose scores are computed together."""

Floats = NDArray[np.float32]


def read_vectors(path: Path, wanted: Collection[str]) -> dict[str, Floats]:
    """The vectors of the wanted words, as far as the file has them: text, or `words` and `vectors` in .npz."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                words, vectors = arrays["words"].tolist(), arrays["vectors"]
            found = {word: vectors[k].astype(np.float32) for k, word in enumerate(words) if word in wanted}
        else:
            with path.open(encoding="utf-8") as lines:
                found = parse_vectors(lines, wanted, source=str(path))
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(
            f"The word vectors in {path} cannot be read ({error}).", hint="Wanted: GloVe's text, or .npz."
        ) from None
    if not found:
        raise DataError(f"{path} has a vector for none of the words.", hint="Wanted: GloVe's text, or .npz.")
    return found


def parse_vectors(lines: Iterable[str], wanted: Collection[str], *, source: str = "<vectors>") -> dict[str, Floats]:
    """The vectors in lines of a word and its numbers.

    >>> parse_vectors(["the 0.5 1", "tea 1 2"], {"tea"})["tea"].tolist()
    [1.0, 2.0]
    """
    found: dict[str, Floats] = {}
    size = 0
    for number, line in enumerate(lines, 1):
        word, _, rest = line.partition(" ")
        if word not in wanted:
            continue
        try:
            vector = np.array(rest.split(), np.float32)
        except ValueError:
            raise DataError(f"{source}, line {number}: a vector is a word and numbers, parted by blanks.") from None
        size = size or len(vector)
        if len(vector) != size:
            raise DataError(f"{source}, line {number}: {len(vector)} numbers, where the lines before have {size}.")
        found[word] = vector
    return found


class WordTable(nn.Module):
    """A vector for each token, to read with and to write with."""

    def __init__(self, tokens: int, dim: int, *, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, dim)
        self.project = nn.Linear(hidden, dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(tokens))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Vectors of tokens: (...) as (..., dim)."""
        return self.embedding(ids)  # type: ignore[no-any-return]

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Scores of all tokens: (n, hidden) as (n, tokens)."""
        return functional.linear(self.project(states), self.embedding.weight, self.bias)

    def losses(self, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Negative log-likelihood of each target: (n, hidden) and (n,) as (n,)."""
        parts = zip(torch.split(states, AT_ONCE), torch.split(targets, AT_ONCE), strict=True)
        return torch.cat([functional.cross_entropy(self.logits(h), t, reduction="none") for h, t in parts])

    @torch.no_grad()
    def fill(self, tokenizer: Tokenizer, path: Path) -> None:
        """Begin with the vectors of a file, as they are; tokens it does not have are drawn as wide as those are."""
        if not isinstance(tokenizer, WordTokenizer):
            raise ConfigError("Vectors of words need a tokenizer of words.", hint='Set tokenizer = "words".')
        vectors = read_vectors(path, set(tokenizer.words))
        rows = [i for i, word in enumerate(tokenizer.words, start=len(MARKS)) if word in vectors]
        known = torch.from_numpy(np.stack([vectors[tokenizer.words[i - len(MARKS)]] for i in rows]))
        weight = self.embedding.weight
        if known.shape[1] != weight.shape[1]:
            raise ConfigError(
                f"The vectors in {path} have {known.shape[1]} numbers, the model's {weight.shape[1]}.",
                hint=f"Set dim = {known.shape[1]}.",
            )
        nn.init.normal_(weight, std=float(known.square().mean().sqrt()))
        weight[rows] = known.to(weight)
