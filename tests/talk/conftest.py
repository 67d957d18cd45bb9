"""A small real ranker: sums of fixed word vectors, and persona sentences as a memory that candidates attend to."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import pytest
import torch
from torch import nn

from tertulia import sample
from tertulia.core.text import words
from tertulia.models.checkpoint import load_weights, save_weights, seal
from tertulia.models.rankers.base import Floats, Queries, Query
from tertulia.models.registry import ARCHITECTURES, Architecture
from tertulia.talk.pool import ReplyPool

ROWS, DIM = 4096, 64


class WordsRanker(nn.Module):
    symmetric = False

    def __init__(self) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(1)
        self.table = nn.Parameter(torch.randn(ROWS, DIM, generator=rng) / DIM**0.5, requires_grad=False)

    def vector(self, text: str) -> Floats:
        total = np.zeros(DIM, dtype=np.float32)
        for word in words(text):
            total += self.table.numpy()[zlib.crc32(word.encode()) % ROWS]
        return total / max(float(np.linalg.norm(total)), 1e-9)

    def replies(self, texts: Sequence[str], /) -> Floats:
        return np.array([self.vector(text) for text in texts], dtype=np.float32).reshape(-1, DIM)

    def queries(self, queries: Sequence[Query], /) -> Queries:
        vectors = self.replies([" ".join(query.turns[-1:]) for query in queries])
        max_sentences = max((len(query.persona) for query in queries), default=0)
        if not max_sentences:
            return Queries(vectors)
        memory = np.zeros((len(queries), max_sentences, DIM), dtype=np.float32)
        for row, query in enumerate(queries):
            memory[row, : len(query.persona)] = self.replies(query.persona)
        return Queries(vectors, memory)

    def scores(self, queries: Queries, replies: Floats, /) -> Floats:
        scores = np.einsum("nd,nmd->nm", queries.vectors, replies)
        if queries.memory is not None:
            scores = scores + np.einsum("nkd,nmd->nkm", queries.memory, replies).max(axis=1)
        return scores

    def save(self, folder: Path) -> list[str]:
        save_weights(folder, self, {})
        return []

    @classmethod
    def load(cls, folder: Path) -> Self:
        ranker = cls()
        load_weights(folder, ranker)
        return ranker


@pytest.fixture(scope="session")
def ranker() -> WordsRanker:
    return WordsRanker()


@pytest.fixture
def ranker_run(ranker: WordsRanker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder a training run of this ranker would leave, and its row in the table."""
    row = Architecture(
        "words", "ranker", f"{__name__}:WordsRanker", "tertulia.train.recipes.rankers:sentence_recipe", ""
    )
    monkeypatch.setitem(ARCHITECTURES._rows, "words", row)
    folder = tmp_path / "run"
    files = ranker.save(folder)
    files += ReplyPool.of(sample.dialogues("train"), ranker).save(folder)
    (folder / "config.toml").write_text("max_turns = 3\n")
    seal(folder, bot="starspace", model="words", files=[*files, "config.toml"], training={})
    return folder
