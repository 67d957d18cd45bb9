"""A ranker on a sentence encoder: bi-encoder for context and reply, with persona sentences as a memory beside them.

The last turns, joined, and the reply are encoded by the same transformer. Persona sentences are encoded on their own,
so that they are encoded once however long the talk, and each *candidate* attends to them: its score is

    scale * (q . r + weight * logsumexp_i(sharpness * p_i . r) / sharpness)

a soft maximum over the sentences p_i, since a reply mostly leans on one of them. (Persona-Chat's Profile Memory attends
from the query instead; there the query must guess which sentence the reply will need. Joining persona and turns into
one long text costs four times as much and gave less.) All four numbers are learned, the weight of the persona included.

Training sets each reply against the others of its batch (in-batch negatives). Turns of one dialogue share a persona, so
batches of neighbours encode each persona once.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import nn

from tertulia.core.config import Config, validate
from tertulia.models.checkpoint import load_weights, read_model, save_weights
from tertulia.models.ranker import Floats, Pair, Queries, Query, in_batch_loss
from tertulia.models.sentence_encoder import MINILM, Ids, SentenceEncoder

AT_ONCE = 1024
"""Texts that are tokenised and encoded in one go."""
REMEMBERED = 5000
"""Personas whose vectors are kept."""


class SentenceRankerConfig(Config):
    """What it is made of."""

    encoder: str = MINILM
    """`minilm`, or a hub name or folder of a sentence encoder."""
    turns: int = Field(2, ge=1)
    """Turns of context that are read, the last ones."""
    longest_context: int = Field(96, ge=8)
    """Tokens of context at most; the oldest are cut off."""
    longest_reply: int = Field(48, ge=8)
    """Tokens of a reply or a persona sentence at most."""
    frozen: int = Field(3, ge=-1)
    """Layers that learn no more, from below, and the embeddings with them; -1 for none."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout while training."""


class SentenceRanker(nn.Module):
    """Bi-encoder with a memory of persona sentences."""

    reads_alike: ClassVar[bool] = True
    """One encoder for messages and replies: nothing fits a message better than the message itself."""

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
    def untrained(cls, config: SentenceRankerConfig) -> "SentenceRanker":
        """On the encoder as it comes, which ranks not badly already."""
        return cls(config, SentenceEncoder.load(config.encoder))

    @torch.no_grad()
    def queries(self, queries: Sequence[Query], /) -> Queries:
        """The turns as one vector, and the persona's sentences as a memory."""
        context = self._encoded([self._context(query) for query in queries])
        longest = max((len(query.persona) for query in queries), default=0)
        if not longest:
            return Queries(context)
        memory = np.zeros((len(queries), longest, self.encoder.dim), np.float32)
        for row, query in enumerate(queries):
            if query.persona:
                memory[row, : len(query.persona)] = self._persona(query.persona)
        return Queries(context, memory)

    def _persona(self, sentences: tuple[str, ...]) -> Floats:
        """A persona's vectors (k, d): encoded once, as the same one comes with every turn of its conversations."""
        found = self._personas.get(sentences)
        if found is None:
            if len(self._personas) >= REMEMBERED:
                self._personas.clear()
            found = self._personas[sentences] = self._encoded([self._single(text) for text in sentences])
        return found

    def train(self, mode: bool = True) -> Self:
        """What was encoded with other weights is forgotten."""
        self._personas.clear()
        return super().train(mode)

    @torch.no_grad()
    def replies(self, texts: Sequence[str], /) -> Floats:
        """One vector for each reply."""
        return self._encoded([self._single(text) for text in texts])

    @torch.no_grad()
    def scores(self, queries: Queries, replies: Floats, /) -> Floats:
        """Fit of query and reply, and the reply's fit with the persona."""
        found = torch.einsum("nd,nmd->nm", torch.from_numpy(queries.vectors), torch.from_numpy(replies))
        if queries.memory is not None:
            memory = torch.from_numpy(queries.memory)  # (n, k, d)
            fits = torch.einsum("nkd,nmd->nkm", memory, torch.from_numpy(replies))
            there = memory.abs().sum(-1, keepdim=True) > 0  # (n, k, 1)
            found = found + self.weight * self._soft_maximum(fits, there, 1)
        return np.asarray((self.scale * found).numpy(), dtype=np.float32)

    def loss(self, pairs: Sequence[Pair], /) -> torch.Tensor:
        """Each reply among those of the batch; all personas of the batch are encoded once."""
        context = self.encoder([self._context(pair.query) for pair in pairs])  # (n, d)
        replies = self.encoder([self._single(pair.reply) for pair in pairs])  # (n, d)
        scores = context @ replies.T  # (n, n)
        personas: dict[tuple[str, ...], int] = {}
        for pair in pairs:
            personas.setdefault(pair.query.persona, len(personas))
        if any(personas):
            fits = self._persona_fits(list(personas), replies)  # (u, n)
            scores = scores + self.weight * fits[[personas[pair.query.persona] for pair in pairs]]
        return in_batch_loss(self.scale * scores, pairs)

    def groups(self, rate: float) -> list[dict[str, Any]]:
        """The few numbers beside the encoder learn a hundred times faster, and are not pulled to zero."""
        few = [self.scale, self.weight, self.sharpness]
        encoder = [p for p in self.encoder.parameters() if p.requires_grad]
        return [{"params": encoder, "lr": rate}, {"params": few, "lr": rate * 100, "weight_decay": 0.0}]

    def save(self, folder: Path, /) -> list[str]:
        """Weights, tokenizer, and how the transformer is built."""
        save_weights(folder, self, {"config": self.config.model_dump(), "transformer": self.encoder.describe()})
        return [self.encoder.save_tokenizer(folder)]

    @classmethod
    def load(cls, folder: Path, /) -> "SentenceRanker":
        """What `save` wrote."""
        model = read_model(folder)
        config = validate(SentenceRankerConfig, model["config"], where=str(folder))
        made = cls(config, SentenceEncoder.blank(model["transformer"], folder))
        load_weights(folder, made)
        return made.eval()

    def _context(self, query: Query) -> Ids:
        return self.encoder.sequence(query.turns[-self.config.turns :], longest=self.config.longest_context)

    def _single(self, text: str) -> Ids:
        return (*self.encoder.sequence([text], longest=self.encoder.window)[: self.config.longest_reply],)

    def _encoded(self, sequences: Sequence[Ids]) -> Floats:
        if not sequences:
            return np.zeros((0, self.encoder.dim), np.float32)
        parts = [self.encoder(sequences[i : i + AT_ONCE]).numpy() for i in range(0, len(sequences), AT_ONCE)]
        return np.concatenate(parts)

    def _persona_fits(self, personas: Sequence[tuple[str, ...]], replies: torch.Tensor) -> torch.Tensor:
        """How well each reply fits each persona; zero for the empty one. (u, n)"""
        sentences = list(dict.fromkeys(sentence for persona in personas for sentence in persona))
        place = {sentence: i for i, sentence in enumerate(sentences)}
        fits = self.encoder([self._single(text) for text in sentences]) @ replies.T  # (sentences, n)
        longest = max(len(persona) for persona in personas)
        rows = torch.zeros(len(personas), longest, dtype=torch.long)
        there = torch.zeros(len(personas), longest, 1, dtype=torch.bool)
        for i, persona in enumerate(personas):
            rows[i, : len(persona)] = torch.tensor([place[s] for s in persona], dtype=torch.long)
            there[i, : len(persona)] = True
        return self._soft_maximum(fits[rows], there, 1)  # fits[rows]: (u, k, n)

    def _soft_maximum(self, fits: torch.Tensor, there: torch.Tensor, axis: int) -> torch.Tensor:
        """A soft maximum over sentences that are there, 0 where there are none."""
        sharp = (self.sharpness * fits).masked_fill(~there, -1e4)
        none = ~there.any(axis)
        return (torch.logsumexp(sharp, axis) / self.sharpness).masked_fill(none, 0.0)
