"""Word embeddings shared by input and output layer (Press and Wolf 2017), optionally initialised from GloVe.

A token's logit is the dot product of its vector with the hidden state, projected to the size of the vectors. The logits
of a complete vocabulary are what costs most, so losses are computed for a few hundred tokens at a time, which keeps the
logits in the processor's cache.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tertulia.artefacts.word_vectors import read_word_vectors
from tertulia.core.errors import ConfigError
from tertulia.models.tokenizer import SPECIAL_TOKENS, Tokenizer, WordTokenizer

LOSS_CHUNK = 256
"""Tokens whose losses are computed at once."""


class TiedEmbedding(nn.Module):
    """One vector per token, for the input and for the output layer."""

    def __init__(self, tokens: int, dim: int, *, hidden: int) -> None:
        super().__init__()
        self.table = nn.Embedding(tokens, dim)
        self.project = nn.Linear(hidden, dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(tokens))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Vectors of tokens: (...) -> (..., dim)."""
        return self.table(ids)  # type: ignore[no-any-return]

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Logits of all tokens: (n, hidden) -> (n, tokens)."""
        return functional.linear(self.project(states), self.table.weight, self.bias)

    def losses(self, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Negative log-likelihood of each target: (n, hidden) and (n,) -> (n,)."""
        chunks = zip(torch.split(states, LOSS_CHUNK), torch.split(targets, LOSS_CHUNK), strict=True)
        return torch.cat([functional.cross_entropy(self.logits(h), t, reduction="none") for h, t in chunks])

    @torch.no_grad()
    def load_vectors(self, tokenizer: Tokenizer, path: Path) -> None:
        """Copy pretrained vectors from a file; tokens it lacks get random vectors of the same scale."""
        if not isinstance(tokenizer, WordTokenizer):
            raise ConfigError("Pretrained word vectors need a word tokenizer.", hint='Set tokenizer = "words".')
        vectors = read_word_vectors(path, set(tokenizer.words))
        rows = [i for i, word in enumerate(tokenizer.words, start=len(SPECIAL_TOKENS)) if word in vectors]
        pretrained = torch.from_numpy(np.stack([vectors[tokenizer.words[i - len(SPECIAL_TOKENS)]] for i in rows]))
        weight = self.table.weight
        if pretrained.shape[1] != weight.shape[1]:
            raise ConfigError(
                f"The vectors in {path} have {pretrained.shape[1]} dimensions, the model has {weight.shape[1]}.",
                hint=f"Set dim = {pretrained.shape[1]}.",
            )
        nn.init.normal_(weight, std=float(pretrained.square().mean().sqrt()))
        weight[rows] = pretrained.to(weight)
