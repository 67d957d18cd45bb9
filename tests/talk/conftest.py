"""A small real ranker: sums of fixed word vectors, and the persona sentences as a memory that candidates look up."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import pytest
import torch
from torch import nn

from tertulia import sample
from tertulia.core.registry import Row
from tertulia.core.text import words
from tertulia.models.checkpoint import load_weights, save_weights, seal
from tertulia.models.ranker import Floats, Queries, Query
from tertulia.models.table import RANKERS
from tertulia.talk.pool import ReplyPool

ROWS, DIM = 4096, 64


class WordsRanker(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        made = torch.Generator().manual_seed(1)
        self.table = nn.Parameter(torch.randn(ROWS, DIM, generator=made) / DIM**0.5, requires_grad=False)

    def vector(self, text: str) -> Floats:
        found = np.zeros(DIM, dtype=np.float32)
        for word in words(text):
            found += self.table.numpy()[zlib.crc32(word.encode()) % ROWS]
        return found / max(float(np.linalg.norm(found)), 1e-9)

    def replies(self, texts: Sequence[str], /) -> Floats:
        return np.array([self.vector(text) for text in texts], dtype=np.float32).reshape(-1, DIM)

    def queries(self, queries: Sequence[Query], /) -> Queries:
        vectors = self.replies([" ".join(query.turns[-1:]) for query in queries])
        longest = max((len(query.persona) for query in queries), default=0)
        if not longest:
            return Queries(vectors)
        memory = np.zeros((len(queries), longest, DIM), dtype=np.float32)
        for row, query in enumerate(queries):
            memory[row, : len(query.persona)] = self.replies(query.persona)
        return Queries(vectors, memory)

    def scores(self, queries: Queries, replies: Floats, /) -> Floats:
        found = np.einsum("nd,nmd->nm", queries.vectors, replies)
        if queries.memory is not None:
            found = found + np.einsum("nkd,nmd->nkm", queries.memory, replies).max(axis=1)
        return found

    def save(self, folder: Path) -> list[str]:
        save_weights(folder, self, {})
        return []

    @classmethod
    def load(cls, folder: Path) -> Self:
        made = cls()
        load_weights(folder, made)
        return made


@pytest.fixture(scope="session")
def ranker() -> WordsRanker:
    return WordsRanker()


@pytest.fixture
def ranker_run(ranker: WordsRanker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder a training run of this ranker would leave, and its row in the table."""
    monkeypatch.setitem(RANKERS._rows, "words", Row("words", f"{__name__}:WordsRanker", "for tests"))
    folder = tmp_path / "run"
    files = ranker.save(folder)
    files += ReplyPool.of(sample.dialogues("train"), ranker).save(folder)
    (folder / "config.toml").write_text("max_turns = 3\n")
    seal(folder, bot="starspace", model="words", files=[*files, "config.toml"], training={})
    return folder
