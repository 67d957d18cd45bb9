"""A ranker on a sentence encoder: a bi-encoder for context and reply, with persona sentences as a memory beside them.

The last turns, joined, and the reply are encoded by the same transformer. Persona sentences are encoded on their own,
once however long the dialogue, and each *candidate* attends to them: its score is

    scale * (q . r + weight * logsumexp_i(sharpness * p_i . r) / sharpness)

a soft maximum over the sentences p_i, since a reply mostly relies on one of them. (In Persona-Chat's Profile Memory the
query attends, which must guess which sentence the reply will need. Joining persona and turns into one long text costs
four times as much and scored lower.) All four numbers are trained, the persona's weight included.

Distractors are the other replies of the batch (in-batch negatives). Turns of one dialogue share a persona, so batches
with several pairs per dialogue encode each persona once.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import nn

from tertulia.core.config import Config, validate
from tertulia.models.checkpoint import load_weights, read_model, save_weights
from tertulia.models.rankers.base import (
    Floats,
    PairModule,
    Queries,
    Query,
    TrainingPair,
    as_array,
    in_batch_loss,
)
from tertulia.models.sentence_encoder import MINILM, Ids, SentenceEncoder

TEXTS_AT_ONCE = 1024
"""Texts tokenized and encoded together."""
CACHED_PERSONAS = 5000
"""Personas whose vectors are cached."""


class SentenceRankerConfig(Config):
    """Sizes and shape."""

    encoder: str = MINILM
    """`minilm`, or a hub name or folder of a sentence encoder."""
    turns: int = Field(default=2, ge=1)
    """Turns of context that are read, the last ones."""
    max_context_length: int = Field(default=96, ge=8)
    """Tokens of context at most; the oldest are truncated."""
    max_reply_length: int = Field(default=48, ge=8)
    """Tokens of a reply or a persona sentence at most."""
    frozen: int = Field(default=3, ge=-1)
    """Frozen layers, counted from below; the embeddings are frozen with them. -1 freezes nothing."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout in training."""

    renamed: ClassVar[Mapping[str, str]] = {
        "longest_context": "max_context_length",
        "longest_reply": "max_reply_length",
    }


class SentenceRanker(PairModule):
    """Bi-encoder with a memory of persona sentences."""

    config_type: ClassVar[type[SentenceRankerConfig]] = SentenceRankerConfig
    symmetric: ClassVar[bool] = True  # one encoder for messages and replies

    def __init__(self, config: SentenceRankerConfig, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.config, self.encoder = config, encoder
        encoder.freeze(config.frozen)
        encoder.set_dropout(config.dropout)
        self.scale = nn.Parameter(torch.tensor(20.0))
        self.weight = nn.Parameter(torch.tensor(1.0))
        self.sharpness = nn.Parameter(torch.tensor(8.0))
        self._personas: dict[tuple[str, ...], Floats] = {}

    @classmethod
    def untrained(cls, config: SentenceRankerConfig, pairs: Sequence[TrainingPair] = ()) -> "SentenceRanker":
        """The pretrained encoder, which ranks fairly well already; the pairs are not needed."""
        return cls(config, SentenceEncoder.load(config.encoder))

    @torch.no_grad()
    def queries(self, queries: Sequence[Query], /) -> Queries:
        """Encode the turns as one vector, and persona sentences as a memory."""
        context = self._encode([self._context(query) for query in queries])
        max_length = max((len(query.persona) for query in queries), default=0)
        if not max_length:
            return Queries(context)
        memory = np.zeros((len(queries), max_length, self.encoder.dim), np.float32)
        for row, query in enumerate(queries):
            if query.persona:
                memory[row, : len(query.persona)] = self._persona(query.persona)
        return Queries(context, memory)

    def _persona(self, sentences: tuple[str, ...]) -> Floats:
        """A persona's vectors (k, d), cached: the same one comes with every turn of its conversations."""
        vectors = self._personas.get(sentences)
        if vectors is None:
            if len(self._personas) >= CACHED_PERSONAS:
                self._personas.clear()
            vectors = self._personas[sentences] = self._encode([self._single(text) for text in sentences])
        return vectors

    def train(self, mode: bool = True) -> Self:
        """Switch the mode, and drop vectors encoded with earlier weights."""
        self._personas.clear()
        return super().train(mode)

    @torch.no_grad()
    def replies(self, texts: Sequence[str], /) -> Floats:
        """Encode replies."""
        return self._encode([self._single(text) for text in texts])

    @torch.no_grad()
    def scores(self, queries: Queries, replies: Floats, /) -> Floats:
        """Score replies against their queries and the personas."""
        vectors, candidates = (torch.from_numpy(array).to(self.device) for array in (queries.vectors, replies))
        scores = torch.einsum("nd,nmd->nm", vectors, candidates)
        if queries.memory is not None:
            memory = torch.from_numpy(queries.memory).to(self.device)  # (n, k, d)
            similarity = torch.einsum("nkd,nmd->nkm", memory, candidates)
            mask = memory.abs().sum(-1, keepdim=True) > 0  # (n, k, 1): zero rows are padding
            scores = scores + self.weight * self._soft_maximum(similarity, mask, 1)
        return as_array(self.scale * scores)

    def loss(self, pairs: Sequence[TrainingPair], /) -> torch.Tensor:
        """In-batch softmax; each persona of the batch is encoded once."""
        context = self.encoder([self._context(pair.query) for pair in pairs])  # (n, d)
        replies = self.encoder([self._single(pair.reply) for pair in pairs])  # (n, d)
        scores = context @ replies.T  # (n, n)
        personas: dict[tuple[str, ...], int] = {}
        for pair in pairs:
            personas.setdefault(pair.query.persona, len(personas))
        if any(personas):
            bonus = self._persona_scores(list(personas), replies)  # (u, n)
            scores = scores + self.weight * bonus[[personas[pair.query.persona] for pair in pairs]]
        return in_batch_loss(self.scale * scores, pairs)

    def parameter_groups(self, learning_rate: float, /) -> list[dict[str, Any]]:
        """The scalars beside the encoder have a learning rate 100 times as high, and no weight decay."""
        scalars = [self.scale, self.weight, self.sharpness]
        encoder = [p for p in self.encoder.parameters() if p.requires_grad]
        return [
            {"params": encoder, "lr": learning_rate},
            {"params": scalars, "lr": learning_rate * 100, "weight_decay": 0.0},
        ]

    def save(self, folder: Path, /) -> list[str]:
        """Save weights, tokenizer and the config of the transformer."""
        save_weights(folder, self, {"config": self.config.model_dump(), "transformer": self.encoder.describe()})
        return [self.encoder.save_tokenizer(folder)]

    @classmethod
    def load(cls, folder: Path, /) -> "SentenceRanker":
        """Load what `save` wrote."""
        about = read_model(folder)
        config = validate(SentenceRankerConfig, about["config"], where=str(folder))
        model = cls(config, SentenceEncoder.from_config(about["transformer"], folder))
        load_weights(folder, model)
        return model.eval()

    def _context(self, query: Query) -> Ids:
        return self.encoder.sequence(query.turns[-self.config.turns :], max_length=self.config.max_context_length)

    def _single(self, text: str) -> Ids:
        return (*self.encoder.sequence([text], max_length=self.encoder.window)[: self.config.max_reply_length],)

    def _encode(self, sequences: Sequence[Ids]) -> Floats:
        if not sequences:
            return np.zeros((0, self.encoder.dim), np.float32)
        starts = range(0, len(sequences), TEXTS_AT_ONCE)
        return np.concatenate([as_array(self.encoder(sequences[i : i + TEXTS_AT_ONCE])) for i in starts])

    def _persona_scores(self, personas: Sequence[tuple[str, ...]], replies: torch.Tensor) -> torch.Tensor:
        """Each reply's soft maximum over each persona's sentences; zero for the empty persona. (u, n)"""
        sentences = list(dict.fromkeys(sentence for persona in personas for sentence in persona))
        index = {sentence: i for i, sentence in enumerate(sentences)}
        similarity = self.encoder([self._single(text) for text in sentences]) @ replies.T  # (sentences, n)
        width = max(len(persona) for persona in personas)
        rows = torch.zeros(len(personas), width, dtype=torch.long, device="cpu")
        mask = torch.zeros(len(personas), width, 1, dtype=torch.bool, device="cpu")
        for i, persona in enumerate(personas):
            rows[i, : len(persona)] = torch.tensor([index[s] for s in persona], dtype=torch.long, device="cpu")
            mask[i, : len(persona)] = True
        return self._soft_maximum(similarity[rows.to(self.device)], mask.to(self.device), 1)  # of (u, k, n)

    def _soft_maximum(self, similarity: torch.Tensor, mask: torch.Tensor, axis: int) -> torch.Tensor:
        """A soft maximum over the sentences that the mask keeps, 0 if it keeps none."""
        sharp = (self.sharpness * similarity).masked_fill(~mask, -1e4)
        empty = ~mask.any(axis)
        return (torch.logsumexp(sharp, axis) / self.sharpness).masked_fill(empty, 0.0)
