"""A cross-encoder: reads query and candidate together, so every word of one can attend to every word of the other.

It cannot search, as nothing of it can be computed before the query is known: it puts the best few of another ranker in
order. Segment marks tell the query (persona, then the last turns) from the candidate, as BERT's sentence pairs have it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import nn

from tertulia.core.config import Config, validate
from tertulia.models.checkpoint import load_weights, read_model, save_weights
from tertulia.models.ranker import Pair, Query
from tertulia.models.sentence_encoder import MINILM, Ids, SentenceEncoder, chunks


class CrossEncoderConfig(Config):
    """What it is made of."""

    encoder: str = MINILM
    """`minilm`, or a hub name or folder of a sentence encoder."""
    turns: int = Field(2, ge=1)
    """Turns of context that are read, the last ones."""
    longest: int = Field(128, ge=16)
    """Tokens of persona, turns and candidate together; the oldest of the query are cut off."""
    longest_reply: int = Field(48, ge=8)
    """Tokens of the candidate at most."""
    frozen: int = Field(3, ge=-1)
    """Layers that learn no more, from below, and the embeddings with them; -1 for none."""
    negatives: int = Field(3, ge=1)
    """Replies of the batch that each true one is set against."""


class CrossEncoder(nn.Module):
    """A transformer with one number on top."""

    def __init__(self, config: CrossEncoderConfig, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.config, self.encoder = config, encoder
        encoder.freeze(config.frozen)
        encoder.set_dropout(0.0)
        self.head = nn.Linear(encoder.dim, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    @classmethod
    def untrained(cls, config: CrossEncoderConfig) -> "CrossEncoder":
        """On the encoder as it comes; it knows nothing until it is trained."""
        return cls(config, SentenceEncoder.load(config.encoder))

    @torch.no_grad()
    def score_pairs(self, queries: Sequence[Query], candidates: Sequence[Sequence[str]]) -> list[list[float]]:
        """For each query, the score of each of its candidates."""
        flat = [(query, text) for query, texts in zip(queries, candidates, strict=True) for text in texts]
        if not flat:
            return [[] for _ in queries]
        scores = iter(self(flat).tolist())
        return [[next(scores) for _ in texts] for texts in candidates]

    def forward(self, pairs: Sequence[tuple[Query, str]]) -> torch.Tensor:
        """One score for each query and text (n,)."""
        sequences = [self._sequence(query, text) for query, text in pairs]
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i][0]))
        lengths = [ids for ids, _ in sequences]
        parts = [self._scored([sequences[i] for i in part]) for part in chunks(order, lengths)]
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return torch.cat(parts)[back]

    def loss(self, pairs: Sequence[Pair], /) -> torch.Tensor:
        """Each true reply among a few others of the batch: the next ones that are from other dialogues."""
        asked: list[tuple[Query, str]] = []
        for i, pair in enumerate(pairs):
            others = [o for o in (*pairs[i + 1 :], *pairs[:i]) if o.group != pair.group and o.reply != pair.reply]
            texts = [pair.reply, *(other.reply for other in others[: self.config.negatives])]
            asked += [(pair.query, texts[k % len(texts)]) for k in range(1 + self.config.negatives)]
        scores = self(asked).view(len(pairs), -1)  # (n, 1 + negatives), the true one first
        return nn.functional.cross_entropy(scores, torch.zeros(len(pairs), dtype=torch.long))

    def groups(self, rate: float) -> list[dict[str, Any]]:
        """The new head learns ten times faster."""
        encoder = [p for p in self.encoder.parameters() if p.requires_grad]
        return [{"params": encoder, "lr": rate}, {"params": list(self.head.parameters()), "lr": rate * 10}]

    def save(self, folder: Path, /) -> list[str]:
        """Weights, tokenizer, and how the transformer is built."""
        save_weights(folder, self, {"config": self.config.model_dump(), "transformer": self.encoder.describe()})
        return [self.encoder.save_tokenizer(folder)]

    @classmethod
    def load(cls, folder: Path, /) -> "CrossEncoder":
        """What `save` wrote."""
        model = read_model(folder)
        config = validate(CrossEncoderConfig, model["config"], where=str(folder))
        made = cls(config, SentenceEncoder.blank(model["transformer"], folder))
        load_weights(folder, made)
        return made.eval()

    def _sequence(self, query: Query, text: str) -> tuple[Ids, int]:
        """Tokens of both, and how many are the query's."""
        encoder, end = self.encoder, self.encoder.end
        room = min(self.config.longest, encoder.window)
        reply = (*encoder.ids(text)[: min(self.config.longest_reply, room // 2) - 1], end)
        room -= len(reply)
        turns = encoder.sequence(query.turns[-self.config.turns :], longest=room)
        persona = [token for sentence in query.persona for token in (*encoder.ids(sentence), end)]
        first = (turns[0], *persona[: max(0, room - len(turns))], *turns[1:])
        return (*first, *reply), len(first)

    def _scored(self, sequences: Sequence[tuple[Ids, int]]) -> torch.Tensor:
        width = max(len(ids) for ids, _ in sequences)
        ids, mask, segment = (torch.zeros(len(sequences), width, dtype=torch.long) for _ in range(3))
        for row, (sequence, first) in enumerate(sequences):
            ids[row, : len(sequence)] = torch.tensor(sequence)
            mask[row, : len(sequence)] = 1
            segment[row, first : len(sequence)] = 1
        found = self.encoder.transformer(input_ids=ids, attention_mask=mask, token_type_ids=segment)
        scores: torch.Tensor = self.head(found.last_hidden_state[:, 0]).squeeze(-1)
        return scores
