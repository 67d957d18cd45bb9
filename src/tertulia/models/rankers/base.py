"""What a ranker is: it encodes queries and replies as vectors and scores how well they fit.

Replies have vectors of their own, so that a pool of them is encoded once. A query is one vector for the search, and may
have more (of persona sentences, for example) that count when the few replies found by the search are scored. Texts in,
arrays out: only the model knows about its tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Query:
    """What a ranker sees of a conversation."""

    turns: tuple[str, ...]
    """The texts of the turns, oldest first."""
    persona: tuple[str, ...] = ()
    """Persona sentences; the caller decides whose."""
    own: tuple[bool, ...] = ()
    """Which turns are by the speaker who replies; if it is not given, speakers alternate, the partner last."""

    def __post_init__(self) -> None:
        if not self.own:
            count = len(self.turns)
            object.__setattr__(self, "own", tuple((count - i) % 2 == 0 for i in range(count)))
        elif len(self.own) != len(self.turns):
            raise ValueError(f"{len(self.turns)} turns, but {len(self.own)} say whose they are")


@dataclass(frozen=True, slots=True)
class TrainingPair:
    """A query and the reply it got."""

    query: Query
    reply: str
    group: int = 0
    """The dialogue it is from: replies of one dialogue are not used as each other's distractors."""


class Queries(NamedTuple):
    """Encoded queries."""

    vectors: Floats  # (n, d): what the search looks for
    memory: Floats | None = None  # (n, k, d): sentences that count when candidates are scored, padded with zero rows

    def rows(self, start: int, stop: int) -> "Queries":
        """A slice of them."""
        return Queries(self.vectors[start:stop], None if self.memory is None else self.memory[start:stop])


@runtime_checkable
class Ranker(Protocol):
    """Encodes and scores."""

    symmetric: bool
    """Whether messages and replies are encoded alike: the best match of a message is then the message itself."""

    def queries(self, queries: Sequence[Query], /) -> Queries:
        """Encode queries."""
        ...

    def replies(self, texts: Sequence[str], /) -> Floats:
        """Encode replies: (n, d)."""
        ...

    def scores(self, queries: Queries, replies: Floats, /) -> Floats:
        """Score replies (n, m, d) against their queries: (n, m), higher is better."""
        ...


@runtime_checkable
class PairScorer(Protocol):
    """Scores a query and a reply together: a re-ranker."""

    def score_pairs(self, queries: Sequence[Query], candidates: Sequence[Sequence[str]], /) -> list[list[float]]:
        """For each query, the score of each of its candidates."""
        ...


@runtime_checkable
class TrainablePairModel(Protocol):
    """A torch module that is trained on pairs."""

    def loss(self, pairs: Sequence[TrainingPair], /) -> torch.Tensor:
        """Mean loss of a batch."""
        ...

    def parameter_groups(self, learning_rate: float, /) -> list[dict[str, Any]]:
        """Groups of trainable parameters as torch.optim takes them, each with its `lr`."""
        ...


class PairModule(nn.Module):
    """Base of the rankers and re-rankers: defaults, and the device their tensors are made on."""

    symmetric: ClassVar[bool] = False

    def parameter_groups(self, learning_rate: float, /) -> list[dict[str, Any]]:
        """All trainable parameters, at the same learning rate."""
        return [{"params": [p for p in self.parameters() if p.requires_grad], "lr": learning_rate}]

    @property
    def device(self) -> torch.device:
        """The device of its weights."""
        return next(self.parameters()).device


def as_array(tensor: torch.Tensor) -> Floats:
    """A tensor of any device as an array."""
    return np.asarray(tensor.detach().cpu().numpy(), dtype=np.float32)


def dot_scores(queries: Queries, replies: Floats) -> Floats:
    """Dot products of queries and replies."""
    return np.asarray(np.einsum("nd,nmd->nm", queries.vectors, replies), dtype=np.float32)


class CandidateSet:
    """Candidates of many queries; a text that is a candidate several times is encoded once."""

    def __init__(self, candidates: Sequence[Sequence[str]]) -> None:
        index: dict[str, int] = {}
        for texts in candidates:
            for text in texts:
                index.setdefault(text, len(index))
        self.texts = list(index)
        """The texts to encode."""
        self._indices = [[index[text] for text in texts] for texts in candidates]

    def scores(self, ranker: Ranker, queries: Queries, replies: Floats, *, at_once: int = 512) -> list[list[float]]:
        """The score of each candidate; `replies` are the encoded `texts`."""
        scores: list[list[float]] = []
        width = max((len(indices) for indices in self._indices), default=0)
        for start in range(0, len(self._indices), at_once):
            part = self._indices[start : start + at_once]
            padded = np.array([indices + [0] * (width - len(indices)) for indices in part], dtype=np.int64)
            rows = ranker.scores(queries.rows(start, start + len(part)), replies[padded])
            scores += [row[: len(indices)].tolist() for row, indices in zip(rows, part, strict=True)]
        return scores


def score_candidates(
    ranker: Ranker, queries: Sequence[Query], candidates: Sequence[Sequence[str]]
) -> list[list[float]]:
    """For each query, the score of each of its candidates."""
    if not queries:
        return []
    candidate_set = CandidateSet(candidates)
    return candidate_set.scores(ranker, ranker.queries(queries), ranker.replies(candidate_set.texts))


def false_negative_mask(pairs: Sequence[TrainingPair], device: torch.device | None = None) -> torch.Tensor:
    """Replies of a batch (columns) that must not be distractors of a query (rows): same text or same dialogue.

    The diagonal, each query's own reply, is False.
    """
    groups = torch.tensor([pair.group for pair in pairs], device=device)
    text_ids: dict[str, int] = {}
    texts = torch.tensor([text_ids.setdefault(pair.reply, len(text_ids)) for pair in pairs], device=device)
    same = (groups[:, None] == groups[None]) | (texts[:, None] == texts[None])
    return same & ~torch.eye(len(pairs), dtype=torch.bool, device=device)


def in_batch_loss(scores: torch.Tensor, pairs: Sequence[TrainingPair]) -> torch.Tensor:
    """Cross-entropy of each query's own reply among the replies of the batch (n, n), false negatives masked."""
    masked = scores.masked_fill(false_negative_mask(pairs, scores.device), -1e4)
    return torch.nn.functional.cross_entropy(masked, torch.arange(len(pairs), device=scores.device))
