"""The dual encoder of the Ubuntu Dialogue Corpus (Lowe et al. 2015, arXiv 1506.08909): p = sigmoid(c'Mr + b).

One recurrent network, an RNN or an LSTM with the same weights on both sides, reads the context into a vector c and the
reply into a vector r; the matrix M maps contexts to replies. The query of a context is c'M, so that ranking is a dot
product. Tags end utterances and turns, as in version 2 of the corpus; of a long context the last part is read.
Recurrent weights are initialised orthogonal.

Besides the paper's binary loss, with one false reply for each true one, there is the softmax over the replies of a
batch, which learns more from the same reading. Where the paper truncates contexts to the token, here complete turns are
dropped, several at once: the contexts of one dialogue then start at the same positions, and are prefixes of each other
that are read in one pass.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from tertulia.core.config import Config, validate
from tertulia.core.text import squash
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
from tertulia.models.rankers.vocabulary import PAD, UNKNOWN, Vocabulary

END_OF_UTTERANCE, END_OF_TURN = "__eou__", "__eot__"
WORDS = "words.txt"
ROWS_AT_ONCE = 32
"""Sequences read in parallel: of similar length, few enough to stay in the CPU's cache."""
INITIAL_STD = 0.4
"""Standard deviation of untrained word vectors: that of GloVe's."""
_TAG = re.compile(r"(__[a-z]+__)")

Ids = NDArray[np.int64]


class DualEncoderConfig(Config):
    """Sizes and shape."""

    cell: Literal["rnn", "lstm"] = "lstm"
    """The recurrent network; the paper has an RNN of size 50 and an LSTM of size 200."""
    hidden: int = Field(default=200, ge=1)
    """Size of its state."""
    dim: int = Field(default=100, ge=1)
    """Size of the word vectors."""
    min_count: int = Field(default=2, ge=1)
    """Minimum count of a word in the vocabulary."""
    max_words: int | None = Field(default=None, ge=1)
    """Size of the vocabulary at most: the most frequent words."""
    tied: bool = True
    """Read contexts and replies with the same weights."""
    summary: Literal["last", "mean"] = "last"
    """The vector of a text: the last state, as in the paper, or the mean of all states."""
    max_tokens: int = Field(default=160, ge=4)
    """Tokens read of a context (the last ones) or a reply (the first ones)."""
    loss: Literal["binary", "softmax"] = "softmax"
    """The paper's, each true reply against one false one; or the softmax over the replies of the batch."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout of word vectors and final states."""
    word_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the words that are replaced by the unknown word in training."""


class DualEncoder(PairModule):
    """Reads contexts and replies with a recurrent network."""

    config_type: ClassVar[type[DualEncoderConfig]] = DualEncoderConfig

    def __init__(self, config: DualEncoderConfig, vocabulary: Vocabulary, tags: Sequence[str] = ()) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.tags = tuple(dict.fromkeys((END_OF_UTTERANCE, END_OF_TURN, *tags)))
        self._tag = {tag: len(vocabulary) + i for i, tag in enumerate(self.tags)}
        kind = nn.LSTM if config.cell == "lstm" else nn.RNN
        self.words = nn.Embedding(len(vocabulary) + len(self.tags), config.dim, padding_idx=PAD)
        self.cells = nn.ModuleList(
            kind(config.dim, config.hidden, batch_first=True) for _ in range(1 if config.tied else 2)
        )
        self.match = nn.Parameter(torch.empty(config.hidden, config.hidden))  # M
        self.bias = nn.Parameter(torch.empty(()))  # b
        self.dropout = nn.Dropout(config.dropout)
        self._turn_ids = lru_cache(maxsize=200_000)(
            self._make_turn_ids
        )  # training reads the same texts again and again
        self.init_weights()

    @torch.no_grad()
    def init_weights(self) -> None:
        """M is the identity, and recurrent matrices are orthogonal, so that states neither explode nor vanish."""
        nn.init.normal_(self.words.weight, std=INITIAL_STD)
        self.words.weight[PAD] = 0
        nn.init.eye_(self.match)
        nn.init.zeros_(self.bias)
        for cell in self.cells:
            for name, weight in cell.named_parameters():
                if name.startswith("bias"):
                    nn.init.zeros_(weight)
                    if name.startswith("bias_ih") and self.config.cell == "lstm":
                        weight[self.config.hidden : 2 * self.config.hidden] = 1.0  # the forget gate is open at first
                    continue
                for gate in weight.split(self.config.hidden):  # type: ignore[no-untyped-call]
                    (nn.init.orthogonal_ if name.startswith("weight_hh") else nn.init.xavier_uniform_)(gate)

    @classmethod
    def untrained(cls, config: DualEncoderConfig, pairs: Sequence[TrainingPair]) -> Self:
        """A model with the vocabulary of the replies, of the turns that open dialogues, and of the personas."""
        openings = {pair.group: pair.query.turns[0] for pair in reversed(pairs) if pair.query.turns}
        personas = {text for pair in pairs for text in pair.query.persona}
        texts = [pair.reply for pair in pairs] + [*openings.values(), *sorted(personas)]
        without_tags, tags = split_tags(texts, min_count=config.min_count)
        vocabulary = Vocabulary.count(without_tags, min_count=config.min_count, max_words=config.max_words)
        return cls(config, vocabulary, tags)

    @torch.no_grad()
    def load_word_vectors(self, vectors: Mapping[str, Floats]) -> None:
        """Initialise words with pretrained vectors, scaled to the standard deviation of the others."""
        if not vectors:
            return
        scale = INITIAL_STD / float(np.stack(list(vectors.values())).std())
        for word, vector in vectors.items():
            self.words.weight[self.vocabulary.index(word)] = torch.from_numpy(vector) * scale

    def queries(self, queries: Sequence[Query], /) -> Queries:
        """Encode contexts."""
        with torch.no_grad():
            return Queries(as_array(self._contexts(queries) @ self.match))

    def replies(self, texts: Sequence[str], /) -> Floats:
        """Encode replies: (n, hidden)."""
        with torch.no_grad():
            return as_array(self._replies(texts))

    def scores(self, queries: Queries, replies: Floats, /) -> Floats:
        """c'Mr: (n, m); b is constant and changes no order."""
        return dot_scores(queries, replies)

    def loss(self, pairs: Sequence[TrainingPair], /) -> torch.Tensor:
        """The loss of a batch."""
        contexts = self.dropout(self._contexts([pair.query for pair in pairs]))
        replies = self.dropout(self._replies([pair.reply for pair in pairs]))
        logits = contexts @ self.match @ replies.T + self.bias  # (n, n)
        return in_batch_loss(logits, pairs) if self.config.loss == "softmax" else binary_loss(logits, pairs)

    def save(self, folder: Path, /) -> Sequence[str]:
        """Save weights, config and vocabulary."""
        save_weights(folder, self, {"config": self.config.model_dump(mode="json"), "tags": list(self.tags)})
        self.vocabulary.save(folder / WORDS)
        return [WORDS]

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """Load what `save` wrote."""
        about = read_model(folder)
        config = validate(DualEncoderConfig, about["config"], where=str(folder))
        model = cls(config, Vocabulary.load(folder / WORDS), about["tags"])
        load_weights(folder, model)
        return model.eval()

    def _contexts(self, queries: Sequence[Query]) -> torch.Tensor:
        return self._read([self._context_ids(query) for query in queries], self.cells[0])

    def _replies(self, texts: Sequence[str]) -> torch.Tensor:
        return self._read([self._turn_ids(text)[: self.config.max_tokens] for text in texts], self.cells[-1])

    def _context_ids(self, query: Query) -> Ids:
        """The last turns (persona sentences count as the first ones); past the maximum, the older half is dropped."""
        kept: list[Ids] = []
        size, most = 0, self.config.max_tokens
        for text in (*query.persona, *query.turns):
            kept.append(self._turn_ids(text)[-most:])
            size += len(kept[-1])
            if size > most:
                while size > most // 2 and len(kept) > 1:
                    size -= len(kept.pop(0))
        return np.concatenate(kept) if kept else np.array([self._tag[END_OF_TURN]])

    def _make_turn_ids(self, text: str) -> Ids:
        """The ids of a turn; its lines are its utterances."""
        ids: list[Ids] = []
        for line in text.splitlines() or [""]:
            ids += [self._piece_ids(piece) for piece in _TAG.split(squash(line)) if piece.strip()]
            ids.append(np.array([self._tag[END_OF_UTTERANCE]]))
        return np.concatenate([*ids, np.array([self._tag[END_OF_TURN]])])

    def _piece_ids(self, piece: str) -> Ids:
        if _TAG.fullmatch(piece):
            return np.array([self._tag.get(piece, UNKNOWN)])
        return self.vocabulary.ids(piece)

    def _read(self, rows: Sequence[Ids], cell: nn.Module) -> torch.Tensor:
        """The state after the last token of each row, or the mean of its states: (n, hidden).

        Rows that are prefixes of others are not read again: their state is picked from the longer row.
        """
        if not rows:
            return torch.zeros(0, self.config.hidden, device=self.device)
        shared = share_prefixes(rows)
        order = np.argsort(shared.owner, kind="stable")  # rows by the sequence they are part of
        vectors, start = [], 0
        for first in range(0, len(shared.sequences), ROWS_AT_ONCE):
            sequences = shared.sequences[first : first + ROWS_AT_ONCE]
            stop = start + int((shared.owner[order[start:]] < first + len(sequences)).sum())
            part = order[start:stop]
            states = self._states(sequences, cell)
            vectors.append(states[shared.owner[part] - first, shared.end[part]])  # (rows of these sequences, hidden)
            start = stop
        return torch.cat(vectors)[torch.from_numpy(np.argsort(order))]

    def _states(self, sequences: Sequence[Ids], cell: nn.Module) -> torch.Tensor:
        """The states of a few sequences: (sequences, longest, hidden). States of padding are never used."""
        ids = np.full((len(sequences), max(map(len, sequences))), PAD, dtype=np.int64)
        for row, sequence in zip(ids, sequences, strict=True):
            row[: len(sequence)] = sequence
        tokens = torch.from_numpy(ids).to(self.device)  # (sequences, longest)
        if self.training and self.config.word_dropout:
            dropped = torch.rand(tokens.shape, device=self.device) < self.config.word_dropout
            tokens = tokens.masked_fill(dropped, UNKNOWN)
        states: torch.Tensor = cell(self.dropout(self.words(tokens)))[0]
        if self.config.summary == "mean":
            return states.cumsum(dim=1) / torch.arange(1, ids.shape[1] + 1, device=self.device)[:, None]
        return states


class SharedPrefixes(NamedTuple):
    """Rows of tokens as sequences: a row that is a prefix of another is read together with it."""

    sequences: list[Ids]
    """The longest first."""
    owner: NDArray[np.int64]
    """Which sequence each row is part of."""
    end: NDArray[np.int64]
    """The position of its last token."""


def share_prefixes(rows: Sequence[Ids]) -> SharedPrefixes:
    """Find rows that are prefixes of others.

    >>> shared = share_prefixes([np.array([5]), np.array([5, 6, 7]), np.array([6]), np.array([5, 6])])
    >>> [sequence.tolist() for sequence in shared.sequences], shared.owner.tolist(), shared.end.tolist()
    ([[5, 6, 7], [6]], [0, 0, 1, 0], [0, 2, 0, 1])
    """
    # Sorted by their bytes (big-endian), a row comes right before those it is a prefix of.
    keys = [np.ascontiguousarray(row, dtype=">i8").tobytes() for row in rows]
    longest: list[int] = []  # rows that are prefixes of no other
    owner = np.empty(len(rows), dtype=np.int64)
    for i in sorted(range(len(rows)), key=keys.__getitem__, reverse=True):
        if not longest or not keys[longest[-1]].startswith(keys[i]):
            longest.append(i)
        owner[i] = len(longest) - 1
    order = sorted(range(len(longest)), key=lambda i: -len(rows[longest[i]]))
    position = np.empty(len(longest), dtype=np.int64)
    position[order] = np.arange(len(longest))
    ends = np.array([len(row) - 1 for row in rows], dtype=np.int64)
    return SharedPrefixes([rows[longest[i]] for i in order], position[owner], ends)


def binary_loss(logits: torch.Tensor, pairs: Sequence[TrainingPair]) -> torch.Tensor:
    """The paper's binary cross-entropy: each query with its own reply, and with one sampled from the batch."""
    device = logits.device
    allowed = ~false_negative_mask(pairs, device) & ~torch.eye(len(pairs), dtype=torch.bool, device=device)
    has_distractor = allowed.any(dim=1)
    sampled = torch.multinomial(allowed[has_distractor].float(), 1)  # (queries with a distractor, 1)
    values = torch.cat([logits.diagonal(), logits[has_distractor].gather(1, sampled)[:, 0]])
    truth = torch.zeros_like(values)
    truth[: len(pairs)] = 1
    return binary_cross_entropy_with_logits(values, truth)


def split_tags(texts: Iterable[str], *, min_count: int = 2) -> tuple[list[str], list[str]]:
    """The texts without their tags (such as `__url__`), to count words in; and the tags that occur often enough."""
    counts: Counter[str] = Counter()
    without_tags = []
    for text in texts:
        parts = _TAG.split(text)
        counts.update(parts[1::2])
        without_tags.append(" ".join(parts[::2]))
    return without_tags, sorted(tag for tag, n in counts.items() if n >= min_count)
