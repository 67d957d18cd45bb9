"""Starspace as Persona-Chat ranks with it (Zhang et al. 2018, arXiv 1801.07243; Wu et al. 2017, arXiv 1709.03856).

A query and a reply are sums of their words' vectors; the cosine of the two says how well they fit. The persona goes
into the query's sum. What is different from the paper:

- Words count by weights, which begin as inverse document frequencies and are learned; so do the turns, by how long ago
  they were. What the partner said and what one said oneself each go through a matrix, which begins as identity.
- Words have two vectors, one where they are answered and one where they are said. A persona is looked up among the
  latter: it is what its owner will say. With one table for queries and personas hits@1 is two points lower.
- Each reply is set against all others of its batch (softmax). The paper's margin to `negatives` false replies is there
  too, as `loss = "margin"`; it learns more slowly.

Texts differ in length, and queries in the number of their turns and sentences. Nothing is padded: all words of a batch
stand in one row, and are summed up to where the next text begins.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn
from torch.nn.functional import embedding_bag, normalize

from tertulia.core.config import Config, validate
from tertulia.core.dialogue import Json
from tertulia.models.checkpoint import load_weights, read_model, save_weights
from tertulia.models.ranker import Floats, Pair, Queries, Query, dot_scores, in_batch_loss, unfair
from tertulia.models.vocabulary import Vocabulary

WORDS = "words.txt"
AT_ONCE = 1024
"""Queries or replies that are encoded in one go."""

Ids = NDArray[np.int64]
_NOTHING: Ids = np.zeros(0, dtype=np.int64)


class StarspaceConfig(Config):
    """What it is made of."""

    dim: int = Field(128, ge=1)
    """Numbers in a word's vector."""
    turns: int = Field(4, ge=1)
    """Turns of context that are read, the last ones."""
    max_tokens: int = Field(60, ge=1)
    """Words read of a turn, a persona sentence or a reply, the first ones."""
    min_count: int = Field(2, ge=1)
    """Times a word must occur to be known; what was said several times in the same words counts once."""
    max_words: int | None = Field(None, ge=1)
    """Know so many words at most, the most frequent ones."""
    word_dropout: float = Field(0.3, ge=0, lt=1)
    """Share of the words that are left out in training."""
    loss: Literal["softmax", "margin"] = "softmax"
    """Each true reply among all of the batch; or, as in the paper, better by a margin than some false ones."""
    margin: float = Field(0.2, gt=0)
    """How much better, in cosines."""
    negatives: int = Field(10, ge=1)
    """False replies drawn for each true one, for the margin."""


class Heard(NamedTuple):
    """A batch of queries as vectors of texts."""

    turns: torch.Tensor  # (n, turns, d): the latest first, zero where there are fewer
    persona: torch.Tensor  # (n, sentences, d)
    there: torch.Tensor  # (n, sentences): whether there is such a sentence


class Starspace(nn.Module):
    """Sums of word vectors, persona in the sum."""

    Config: ClassVar[type[StarspaceConfig]] = StarspaceConfig
    config: StarspaceConfig

    def __init__(self, config: StarspaceConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        words, dim = len(vocabulary), config.dim
        self.answered = nn.Parameter(torch.empty(words, dim))
        self.said = nn.Parameter(torch.empty(words, dim))
        self.weights = nn.Parameter(torch.ones(words))
        self.turns = nn.Parameter(0.2 * torch.ones(config.turns))
        self.sides = nn.Parameter(torch.eye(dim).repeat(2, 1, 1))  # the partner's, one's own
        self.lean = nn.Parameter(torch.tensor(1.0))
        self.scale = nn.Parameter(torch.tensor(8.0))
        self._begin()

    @torch.no_grad()
    def _begin(self) -> None:
        """Where learning starts: a word is near itself, answered and said, and the last turn counts most."""
        nn.init.normal_(self.said, std=self.config.dim**-0.5)
        self.answered.copy_(self.said)
        self.turns[:2] = torch.tensor([1.0, 0.5])[: self.config.turns]

    @classmethod
    def untrained(cls, config: StarspaceConfig, pairs: Sequence[Pair]) -> Self:
        """A model that knows the words of these pairs, and how rare they are."""
        texts = list(dict.fromkeys(text for pair in pairs for text in _texts(pair)))
        vocabulary = Vocabulary.count(texts, min_count=config.min_count, max_words=config.max_words)
        model = cls(config, vocabulary)
        found = Counter(word for text in texts for word in set(vocabulary.ids(text).tolist()))
        idf = torch.tensor([math.log(len(texts) / max(1, found[word])) for word in range(len(vocabulary))])
        with torch.no_grad():
            model.weights.copy_(idf.clamp(min=0.5) / 5)  # so that most are about 1
        return model

    @torch.no_grad()
    def fill(self, vectors: Mapping[str, Floats]) -> None:
        """Begin with the given vectors of words, as long as the others are; further numbers begin small."""
        for word, vector in vectors.items():
            given = torch.from_numpy(vector / np.linalg.norm(vector))
            for table in (self.answered, self.said):
                row = table[self.vocabulary.number(word)]
                row *= 0.3
                row[: len(given)] = given

    def queries(self, queries: Sequence[Query], /) -> Queries:
        """Encode queries: (n, d), of length 1."""
        with torch.no_grad():
            return Queries(self._arrays(self._queries(queries[part]) for part in _parts(len(queries))))

    def replies(self, texts: Sequence[str], /) -> Floats:
        """Encode replies: (n, d), of length 1."""
        with torch.no_grad():
            return self._arrays(self._replies(texts[part]) for part in _parts(len(texts)))

    def scores(self, queries: Queries, replies: Floats, /) -> Floats:
        """Cosines: (n, m)."""
        return dot_scores(queries, replies)

    def loss(self, pairs: Sequence[Pair], /) -> torch.Tensor:
        """How wrong the model is about a batch."""
        cosines = self._queries([pair.query for pair in pairs]) @ self._replies([pair.reply for pair in pairs]).T
        if self.config.loss == "margin":
            return margin_loss(cosines, pairs, margin=self.config.margin, negatives=self.config.negatives)
        return in_batch_loss(self.scale * cosines, pairs)

    def save(self, folder: Path, /) -> list[str]:
        """Weights and config, and the words beside them."""
        save_weights(folder, self, self.describe())
        self.vocabulary.save(folder / WORDS)
        return [WORDS]

    def describe(self) -> dict[str, Json]:
        """What is needed to build the module again."""
        return {"config": self.config.model_dump(mode="json")}

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """What `save` wrote, ready to rank."""
        config = validate(cls.Config, read_model(folder)["config"], where=str(folder))
        made = cls(config, Vocabulary.load(folder / WORDS))
        load_weights(folder, made)
        return made.eval()

    def with_persona(self, query: torch.Tensor, heard: Heard) -> torch.Tensor:
        """The query (n, d) and all sentences of the persona; their number changes the sum's length only slowly."""
        count = heard.there.sum(1, keepdim=True).clamp(min=1)
        return query + self.lean * heard.persona.sum(1) / count.sqrt()

    def _queries(self, queries: Sequence[Query]) -> torch.Tensor:
        heard = self._hear(queries)
        query = mixed(heard.turns, self.turns, self.sides)
        return normalize(self.with_persona(query, heard) if heard.persona.shape[1] else query, dim=-1)

    def _replies(self, texts: Sequence[str]) -> torch.Tensor:
        return normalize(self._sums(self.said, [self._ids(text) for text in texts]), dim=-1)

    def _hear(self, queries: Sequence[Query]) -> Heard:
        n, turns, dim = len(queries), self.config.turns, self.config.dim
        sentences = max((len(query.persona) for query in queries), default=0)
        told = [self._row(query.turns[: -turns - 1 : -1], turns) for query in queries]
        known = [self._row(query.persona, sentences) for query in queries]
        there = [[i < len(query.persona) for i in range(sentences)] for query in queries]
        return Heard(
            self._sums(self.answered, [ids for row in told for ids in row]).view(n, turns, dim),
            self._sums(self.said, [ids for row in known for ids in row]).view(n, sentences, dim),
            torch.tensor(there, dtype=torch.bool).view(n, sentences),
        )

    def _row(self, texts: Sequence[str], length: int) -> list[Ids]:
        return [self._ids(text) for text in texts] + [_NOTHING] * (length - len(texts))

    def _ids(self, text: str) -> Ids:
        return self.vocabulary.ids(text)[: self.config.max_tokens]

    def _sums(self, table: torch.Tensor, texts: Sequence[Ids]) -> torch.Tensor:
        """Each text as the weighted sum of its words, shorter by the root of the weights: (n, d)."""
        if not texts:
            return torch.zeros(0, self.config.dim)
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        words = torch.from_numpy(np.concatenate(texts))
        starts = torch.from_numpy(np.cumsum(lengths) - lengths)
        weights = self.weights[words]
        if self.training:
            weights = weights * (torch.rand(len(words)) >= self.config.word_dropout)
        of = torch.from_numpy(np.repeat(np.arange(len(texts)), lengths))
        total = torch.zeros(len(texts)).index_add(0, of, weights.abs())
        summed = embedding_bag(words, table, starts, mode="sum", per_sample_weights=weights)
        return summed / total.clamp(min=1e-3).sqrt()[:, None]

    def _arrays(self, parts: Iterator[torch.Tensor]) -> Floats:
        found = [part.numpy() for part in parts]
        return np.concatenate(found) if found else np.zeros((0, self.config.dim), np.float32)


def mixed(turns: torch.Tensor, weights: torch.Tensor, sides: torch.Tensor) -> torch.Tensor:
    """Turns (n, t, d), the latest first, as one vector (n, d): weighted, the partner's and one's own each turned."""
    weighted = turns * weights[:, None]
    mix: torch.Tensor = weighted[:, 0::2].sum(1) @ sides[0] + weighted[:, 1::2].sum(1) @ sides[1]
    return mix


def margin_loss(cosines: torch.Tensor, pairs: Sequence[Pair], *, margin: float, negatives: int) -> torch.Tensor:
    """How far true replies are from being better by the margin than false ones, drawn from the fair of the batch."""
    fair = ~unfair(pairs) & ~torch.eye(len(pairs), dtype=torch.bool)
    lots = torch.rand(cosines.shape).masked_fill(~fair, -1.0)
    drawn = lots.topk(min(negatives, len(pairs)), dim=1)  # (n, k): a row with fewer fair ones draws unfair ones too
    short = (margin - cosines.diagonal()[:, None] + cosines.gather(1, drawn.indices)).clamp(min=0)
    counted = drawn.values >= 0
    return (short * counted).sum() / counted.sum().clamp(min=1)


def _texts(pair: Pair) -> tuple[str, ...]:
    return (*pair.query.turns, *pair.query.persona, pair.reply)


def _parts(count: int) -> Iterator[slice]:
    return (slice(start, start + AT_ONCE) for start in range(0, count, AT_ONCE))
