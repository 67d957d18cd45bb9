"""Starspace as Persona-Chat ranks with it (Zhang et al. 2018, arXiv 1801.07243; Wu et al. 2017, arXiv 1709.03856).

A query and a reply are sums of their words' vectors, compared by their cosine. The persona is added to the query's
sum. Differences from the paper:

- Words have trained weights, initialised with inverse document frequencies; turns have trained weights by their age.
  The partner's turns and the speaker's own turns each go through a matrix, initialised as identity; whose a turn is,
  the dialogue says, as people often send two messages in a row.
- Words have two vectors, one as input (in queries) and one as output (in replies). A persona is looked up in the output
  table: it is what its owner will say. With one table for queries and personas, hits@1 is two points lower.
- Distractors of a reply are all others of its batch (softmax). The paper's margin loss with `negatives` sampled false
  replies is available as `loss = "margin"`; it learns more slowly.

Texts differ in length, and queries in the number of turns and sentences. Nothing is padded: the words of a whole batch
form one row (an embedding bag), summed from one text's offset to the next.
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
from tertulia.models.rankers.base import (
    Floats,
    PairModule,
    Queries,
    Query,
    TrainingPair,
    as_array,
    dot_scores,
    false_negative_mask,
    in_batch_loss,
)
from tertulia.models.rankers.vocabulary import Vocabulary

WORDS = "words.txt"
BATCH = 1024
"""Queries or replies encoded together."""

Ids = NDArray[np.int64]
_EMPTY: Ids = np.zeros(0, dtype=np.int64)


class StarspaceConfig(Config):
    """Sizes and shape."""

    dim: int = Field(default=128, ge=1)
    """Size of the word vectors."""
    turns: int = Field(default=4, ge=1)
    """Turns of context that are read, the last ones."""
    max_tokens: int = Field(default=60, ge=1)
    """Words read of a turn, a persona sentence or a reply, the first ones."""
    min_count: int = Field(default=2, ge=1)
    """Minimum count of a word in the vocabulary; identical texts are counted once."""
    max_words: int | None = Field(default=None, ge=1)
    """Size of the vocabulary at most: the most frequent words."""
    word_dropout: float = Field(default=0.3, ge=0, lt=1)
    """Share of the words that are dropped in training."""
    loss: Literal["softmax", "margin"] = "softmax"
    """Softmax over the replies of the batch; or, as in the paper, a margin to sampled false replies."""
    margin: float = Field(default=0.2, gt=0)
    """The margin, in cosines."""
    negatives: int = Field(default=10, ge=1)
    """False replies sampled per true one, for the margin loss."""


class EncodedTexts(NamedTuple):
    """The texts of a batch of queries as vectors."""

    turns: torch.Tensor  # (n, turns, d): the latest first, padded with zeros
    own: torch.Tensor  # (n, turns): True for turns of the speaker who replies
    persona: torch.Tensor  # (n, sentences, d)
    mask: torch.Tensor  # (n, sentences): False for padding


class Starspace(PairModule):
    """Sums of word vectors, persona in the sum."""

    config_type: ClassVar[type[StarspaceConfig]] = StarspaceConfig
    config: StarspaceConfig

    def __init__(self, config: StarspaceConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        words, dim = len(vocabulary), config.dim
        self.input_vectors = nn.Parameter(torch.empty(words, dim))  # of words in queries
        self.output_vectors = nn.Parameter(torch.empty(words, dim))  # of words in replies and personas
        self.weights = nn.Parameter(torch.ones(words))
        self.turns = nn.Parameter(0.2 * torch.ones(config.turns))
        self.sides = nn.Parameter(torch.eye(dim).repeat(2, 1, 1))  # of the partner's turns, of the speaker's own
        self.persona_weight = nn.Parameter(torch.tensor(1.0))
        self.scale = nn.Parameter(torch.tensor(8.0))
        self.init_weights()

    @torch.no_grad()
    def init_weights(self) -> None:
        """Both vectors of a word are equal at first, and the last turn counts most."""
        nn.init.normal_(self.output_vectors, std=self.config.dim**-0.5)
        self.input_vectors.copy_(self.output_vectors)
        self.turns[:2] = torch.tensor([1.0, 0.5])[: self.config.turns]

    @classmethod
    def untrained(cls, config: StarspaceConfig, pairs: Sequence[TrainingPair]) -> Self:
        """A model with the vocabulary of these pairs and the inverse document frequencies of its words."""
        texts = list(dict.fromkeys(text for pair in pairs for text in _texts(pair)))
        vocabulary = Vocabulary.count(texts, min_count=config.min_count, max_words=config.max_words)
        model = cls(config, vocabulary)
        frequency = Counter(word for text in texts for word in set(vocabulary.ids(text).tolist()))
        idf = torch.tensor([math.log(len(texts) / max(1, frequency[word])) for word in range(len(vocabulary))])
        with torch.no_grad():
            model.weights.copy_(idf.clamp(min=0.5) / 5)  # most are then about 1
        return model

    @torch.no_grad()
    def load_word_vectors(self, vectors: Mapping[str, Floats]) -> None:
        """Initialise words with pretrained vectors, scaled to unit length; further dimensions start small."""
        for word, vector in vectors.items():
            given = torch.from_numpy(vector / np.linalg.norm(vector))
            for table in (self.input_vectors, self.output_vectors):
                row = table[self.vocabulary.index(word)]
                row *= 0.3
                row[: len(given)] = given

    def queries(self, queries: Sequence[Query], /) -> Queries:
        """Encode queries: (n, d), of unit length."""
        with torch.no_grad():
            return Queries(self._concatenate(self._queries(queries[part]) for part in _slices(len(queries))))

    def replies(self, texts: Sequence[str], /) -> Floats:
        """Encode replies: (n, d), of unit length."""
        with torch.no_grad():
            return self._concatenate(self._replies(texts[part]) for part in _slices(len(texts)))

    def scores(self, queries: Queries, replies: Floats, /) -> Floats:
        """Cosines: (n, m)."""
        return dot_scores(queries, replies)

    def loss(self, pairs: Sequence[TrainingPair], /) -> torch.Tensor:
        """The loss of a batch."""
        cosines = self._queries([pair.query for pair in pairs]) @ self._replies([pair.reply for pair in pairs]).T
        if self.config.loss == "margin":
            return margin_loss(cosines, pairs, margin=self.config.margin, negatives=self.config.negatives)
        return in_batch_loss(self.scale * cosines, pairs)

    def save(self, folder: Path, /) -> list[str]:
        """Save weights, config and vocabulary."""
        save_weights(folder, self, self.describe())
        self.vocabulary.save(folder / WORDS)
        return [WORDS]

    def describe(self) -> dict[str, Json]:
        """What is needed to build the module again."""
        return {"config": self.config.model_dump(mode="json")}

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """Load what `save` wrote."""
        config = validate(cls.config_type, read_model(folder)["config"], where=str(folder))
        model = cls(config, Vocabulary.load(folder / WORDS))
        load_weights(folder, model)
        return model.eval()

    def with_persona(self, query: torch.Tensor, texts: EncodedTexts) -> torch.Tensor:
        """Add all persona sentences to the query (n, d), divided by the root of their number."""
        count = texts.mask.sum(1, keepdim=True).clamp(min=1)
        return query + self.persona_weight * texts.persona.sum(1) / count.sqrt()

    def _queries(self, queries: Sequence[Query]) -> torch.Tensor:
        texts = self._encode_texts(queries)
        query = mix_turns(texts, self.turns, self.sides)
        return normalize(self.with_persona(query, texts) if texts.persona.shape[1] else query, dim=-1)

    def _replies(self, texts: Sequence[str]) -> torch.Tensor:
        return normalize(self._sums(self.output_vectors, [self._ids(text) for text in texts]), dim=-1)

    def _encode_texts(self, queries: Sequence[Query]) -> EncodedTexts:
        n, turns, dim = len(queries), self.config.turns, self.config.dim
        sentences = max((len(query.persona) for query in queries), default=0)
        turn_ids = [self._row(query.turns[: -turns - 1 : -1], turns) for query in queries]
        persona_ids = [self._row(query.persona, sentences) for query in queries]
        own = [[*query.own[: -turns - 1 : -1], *(False,) * (turns - len(query.own))] for query in queries]
        mask = [[i < len(query.persona) for i in range(sentences)] for query in queries]
        return EncodedTexts(
            self._sums(self.input_vectors, [ids for row in turn_ids for ids in row]).view(n, turns, dim),
            torch.tensor(own, dtype=torch.bool, device=self.device).view(n, turns),
            self._sums(self.output_vectors, [ids for row in persona_ids for ids in row]).view(n, sentences, dim),
            torch.tensor(mask, dtype=torch.bool, device=self.device).view(n, sentences),
        )

    def _row(self, texts: Sequence[str], length: int) -> list[Ids]:
        return [self._ids(text) for text in texts] + [_EMPTY] * (length - len(texts))

    def _ids(self, text: str) -> Ids:
        return self.vocabulary.ids(text)[: self.config.max_tokens]

    def _sums(self, table: torch.Tensor, texts: Sequence[Ids]) -> torch.Tensor:
        """Each text as the weighted sum of its words' vectors, divided by the root of its weights' sum: (n, d)."""
        device = self.device
        if not texts:
            return torch.zeros(0, self.config.dim, device=device)
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        words = torch.from_numpy(np.concatenate(texts)).to(device)
        offsets = torch.from_numpy(np.cumsum(lengths) - lengths).to(device)
        weights = self.weights[words]
        if self.training:
            weights = weights * (torch.rand(len(words), device=device) >= self.config.word_dropout)
        owner = torch.from_numpy(np.repeat(np.arange(len(texts)), lengths)).to(device)
        total = torch.zeros(len(texts), device=device, dtype=weights.dtype).index_add(0, owner, weights.abs())
        summed = embedding_bag(words, table, offsets, mode="sum", per_sample_weights=weights)
        return summed / total.clamp(min=1e-3).sqrt()[:, None]

    def _concatenate(self, parts: Iterator[torch.Tensor]) -> Floats:
        arrays = [as_array(part) for part in parts]
        return np.concatenate(arrays) if arrays else np.zeros((0, self.config.dim), np.float32)


def mix_turns(texts: EncodedTexts, weights: torch.Tensor, sides: torch.Tensor) -> torch.Tensor:
    """The turns as one vector (n, d): a sum weighted by age, each speaker's turns through their matrix."""
    weighted = texts.turns * weights[:, None]
    own = texts.own[:, :, None]
    mix: torch.Tensor = weighted.masked_fill(own, 0).sum(1) @ sides[0] + weighted.masked_fill(~own, 0).sum(1) @ sides[1]
    return mix


def margin_loss(cosines: torch.Tensor, pairs: Sequence[TrainingPair], *, margin: float, negatives: int) -> torch.Tensor:
    """Hinge loss: true replies should beat sampled false replies of the batch by the margin."""
    device = cosines.device
    allowed = ~false_negative_mask(pairs, device) & ~torch.eye(len(pairs), dtype=torch.bool, device=device)
    # The largest of uniform numbers are a sample without replacement; rows with too few distractors draw masked ones.
    sampled = (
        torch.rand(cosines.shape, device=device).masked_fill(~allowed, -1.0).topk(min(negatives, len(pairs)), dim=1)
    )
    hinge = (margin - cosines.diagonal()[:, None] + cosines.gather(1, sampled.indices)).clamp(min=0)  # (n, k)
    mask = sampled.values >= 0
    return (hinge * mask).sum() / mask.sum().clamp(min=1)


def _texts(pair: TrainingPair) -> tuple[str, ...]:
    return (*pair.query.turns, *pair.query.persona, pair.reply)


def _slices(count: int) -> Iterator[slice]:
    return (slice(start, start + BATCH) for start in range(0, count, BATCH))
