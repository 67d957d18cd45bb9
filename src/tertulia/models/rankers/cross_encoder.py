"""A cross-encoder: reads query and candidate together, so every word of one can attend to every word of the other.

It cannot search, since nothing can be computed before the query is known: it reorders the best few of another ranker.
Token types tell the query (persona, then the last turns) from the candidate, as in BERT's sentence pairs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import nn

from tertulia.core.config import Config, validate
from tertulia.models.checkpoint import load_weights, read_model, save_weights
from tertulia.models.rankers.base import PairModule, Query, TrainingPair
from tertulia.models.sentence_encoder import MINILM, PairIds, SentenceEncoder


class CrossEncoderConfig(Config):
    """Sizes and shape."""

    encoder: str = MINILM
    """`minilm`, or a hub name or folder of a sentence encoder."""
    turns: int = Field(default=2, ge=1)
    """Turns of context that are read, the last ones."""
    max_length: int = Field(default=128, ge=16)
    """Tokens of persona, turns and candidate together; the oldest of the query are truncated."""
    max_reply_length: int = Field(default=48, ge=8)
    """Tokens of the candidate at most."""
    frozen: int = Field(default=3, ge=-1)
    """Frozen layers, counted from below; the embeddings are frozen with them. -1 freezes nothing."""
    negatives: int = Field(default=3, ge=1)
    """Distractors of each true reply, taken from the batch."""

    renamed: ClassVar[Mapping[str, str]] = {"longest": "max_length", "longest_reply": "max_reply_length"}


class CrossEncoder(PairModule):
    """A transformer with a single output."""

    config_type: ClassVar[type[CrossEncoderConfig]] = CrossEncoderConfig

    def __init__(self, config: CrossEncoderConfig, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.config, self.encoder = config, encoder
        encoder.freeze(config.frozen)
        encoder.set_dropout(0.0)
        self.head = nn.Linear(encoder.dim, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    @classmethod
    def untrained(cls, config: CrossEncoderConfig, pairs: Sequence[TrainingPair] = ()) -> "CrossEncoder":
        """The pretrained encoder with an untrained head; the pairs are not needed."""
        return cls(config, SentenceEncoder.load(config.encoder))

    @torch.no_grad()
    def score_pairs(self, queries: Sequence[Query], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        """For each query, the score of each of its candidates."""
        flat = [(query, text) for query, texts in zip(queries, candidates, strict=True) for text in texts]
        if not flat:
            return [[] for _ in queries]
        scores = iter(self(flat).tolist())
        return [[next(scores) for _ in texts] for texts in candidates]

    def forward(self, pairs: Sequence[tuple[Query, str]]) -> torch.Tensor:
        """One score for each pair of query and text: (n,)."""
        states = self.encoder.pair_states([self._sequence(query, text) for query, text in pairs])
        scores: torch.Tensor = self.head(states[:, : self.encoder.dim]).squeeze(-1)  # of the first token
        return scores

    def loss(self, pairs: Sequence[TrainingPair], /) -> torch.Tensor:
        """Softmax over each true reply and a few others of the batch: the next ones from other dialogues."""
        scored: list[tuple[Query, str]] = []
        for i, pair in enumerate(pairs):
            others = [o for o in (*pairs[i + 1 :], *pairs[:i]) if o.group != pair.group and o.reply != pair.reply]
            texts = [pair.reply, *(other.reply for other in others[: self.config.negatives])]
            scored += [(pair.query, texts[k % len(texts)]) for k in range(1 + self.config.negatives)]
        scores = self(scored).view(len(pairs), -1)  # (n, 1 + negatives), the true one first
        return nn.functional.cross_entropy(scores, torch.zeros(len(pairs), dtype=torch.long, device=scores.device))

    def parameter_groups(self, learning_rate: float, /) -> list[dict[str, Any]]:
        """The untrained head has a learning rate ten times as high."""
        encoder = [p for p in self.encoder.parameters() if p.requires_grad]
        head = list(self.head.parameters())
        return [{"params": encoder, "lr": learning_rate}, {"params": head, "lr": learning_rate * 10}]

    def save(self, folder: Path, /) -> list[str]:
        """Save weights, tokenizer and the config of the transformer."""
        save_weights(folder, self, {"config": self.config.model_dump(), "transformer": self.encoder.describe()})
        return [self.encoder.save_tokenizer(folder)]

    @classmethod
    def load(cls, folder: Path, /) -> "CrossEncoder":
        """Load what `save` wrote."""
        about = read_model(folder)
        config = validate(CrossEncoderConfig, about["config"], where=str(folder))
        model = cls(config, SentenceEncoder.from_config(about["transformer"], folder))
        load_weights(folder, model)
        return model.eval()

    def _sequence(self, query: Query, text: str) -> PairIds:
        encoder, end = self.encoder, self.encoder.end
        room = min(self.config.max_length, encoder.window)
        reply = (*encoder.ids(text)[: min(self.config.max_reply_length, room // 2) - 1], end)
        room -= len(reply)
        turns = encoder.sequence(query.turns[-self.config.turns :], max_length=room)
        persona = [token for sentence in query.persona for token in (*encoder.ids(sentence), end)]
        first = (turns[0], *persona[: max(0, room - len(turns))], *turns[1:])
        return PairIds((*first, *reply), len(first))
