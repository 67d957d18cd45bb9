"""What a ranker is: it turns queries and replies into vectors, and tells how well they fit.

Replies are vectors of their own, so that a pool of them is encoded once and searched ever after. A query is a vector
too, for the search, and may bring more vectors along (those of persona sentences, say), which count when the few that
the search found are scored. Texts in, arrays out: nobody but the model knows of its tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Query:
    """What a ranker sees of a conversation."""

    turns: tuple[str, ...]
    """What was said, oldest first."""
    persona: tuple[str, ...] = ()
    """The sentences it may lean on: of whom they are is decided by who asks."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A query and the reply it got: what a ranker is trained on."""

    query: Query
    reply: str
    group: int = 0
    """The dialogue it is from: replies of one dialogue are no fair distractors for each other."""


class Queries(NamedTuple):
    """Encoded queries."""

    vectors: Floats  # (n, d): what the search looks for
    memory: Floats | None = None  # (n, k, d): sentences that count when candidates are scored, zero rows for none

    def rows(self, start: int, stop: int) -> "Queries":
        """A part of them."""
        return Queries(self.vectors[start:stop], None if self.memory is None else self.memory[start:stop])


@runtime_checkable
class Ranker(Protocol):
    """Encodes and scores."""

    def queries(self, queries: Sequence[Query], /) -> Queries:
        """Encode queries."""
        ...

    def replies(self, texts: Sequence[str], /) -> Floats:
        """Encode replies: (n, d)."""
        ...

    def scores(self, queries: Queries, replies: Floats, /) -> Floats:
        """How well replies (n, m, d) fit their queries: (n, m), higher is better."""
        ...


@runtime_checkable
class TrainableRanker(Ranker, Protocol):
    """A ranker that is a torch module: it says how wrong it is about a batch of pairs."""

    def loss(self, pairs: Sequence[Pair], /) -> torch.Tensor:
        """Mean loss of a batch, each reply among the others' (or whatever the paper has instead)."""
        ...


def dot_scores(queries: Queries, replies: Floats) -> Floats:
    """The plain case: the product of query and reply."""
    return np.asarray(np.einsum("nd,nmd->nm", queries.vectors, replies), dtype=np.float32)


class Game:
    """Candidates for many queries; a text that is a candidate several times is encoded once."""

    def __init__(self, candidates: Sequence[Sequence[str]]) -> None:
        place: dict[str, int] = {}
        for texts in candidates:
            for text in texts:
                place.setdefault(text, len(place))
        self.texts = list(place)
        """What has to be encoded."""
        self._places = [[place[text] for text in texts] for texts in candidates]

    def scores(self, ranker: Ranker, queries: Queries, replies: Floats, *, at_once: int = 512) -> list[list[float]]:
        """The score of each candidate; `replies` are the encoded `texts`."""
        found: list[list[float]] = []
        width = max((len(places) for places in self._places), default=0)
        for start in range(0, len(self._places), at_once):
            part = self._places[start : start + at_once]
            padded = np.array([places + [0] * (width - len(places)) for places in part], dtype=np.int64)
            scores = ranker.scores(queries.rows(start, start + len(part)), replies[padded])
            found += [row[: len(places)].tolist() for row, places in zip(scores, part, strict=True)]
        return found


def score_candidates(
    ranker: Ranker, queries: Sequence[Query], candidates: Sequence[Sequence[str]]
) -> list[list[float]]:
    """For each query, the score of each of its candidates."""
    if not queries:
        return []
    game = Game(candidates)
    return game.scores(ranker, ranker.queries(queries), ranker.replies(game.texts))


def unfair(pairs: Sequence[Pair]) -> torch.Tensor:
    """Which replies of a batch (columns) are no distractors for which query (rows): the same text, the same dialogue.

    The true reply itself, on the diagonal, stays.
    """
    groups = torch.tensor([pair.group for pair in pairs])
    names: dict[str, int] = {}
    texts = torch.tensor([names.setdefault(pair.reply, len(names)) for pair in pairs])
    same = (groups[:, None] == groups[None]) | (texts[:, None] == texts[None])
    return same & ~torch.eye(len(pairs), dtype=torch.bool)


def in_batch_loss(scores: torch.Tensor, pairs: Sequence[Pair]) -> torch.Tensor:
    """Cross-entropy of each query's own reply among the replies of the batch (n, n), the unfair ones left out."""
    masked = scores.masked_fill(unfair(pairs), -1e4)
    return torch.nn.functional.cross_entropy(masked, torch.arange(len(pairs)))
