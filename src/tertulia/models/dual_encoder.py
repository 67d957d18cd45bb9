"""The dual encoder of the Ubuntu Dialogue Corpus (Lowe et al. 2015, arXiv 1506.08909): p = sigmoid(c'Mr + b).

One recurrent network, an RNN or an LSTM with the same weights on both sides, reads the context to a vector c and the
reply to a vector r; M says which of the replies' vectors belong to which contexts. The query of a context is c'M, so
that a dot product ranks. Tags end utterances and turns, as in version 2 of the corpus; of a long context the last part
is read. Recurrent weights begin orthogonal.

Beside the paper's binary loss, with one false reply for each true one, there is the softmax over the replies of a
batch, which learns more from as much reading. Where the paper's contexts are cut to the token, these lose whole turns,
several in one go: the contexts of one dialogue then begin at the same places, and are read in one run.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from tertulia.core.config import Config
from tertulia.core.text import squash
from tertulia.models.checkpoint import load_weights, read_model, save_weights
from tertulia.models.ranker import Floats, Pair, Queries, Query, dot_scores, in_batch_loss, unfair
from tertulia.models.vocabulary import PAD, UNKNOWN, Vocabulary

END_OF_UTTERANCE, END_OF_TURN = "__eou__", "__eot__"
WORDS = "words.txt"
AT_ONCE = 32
"""Rows that are read side by side: of like length, few enough to stay in the cache."""
SPREAD = 0.4
"""Standard deviation of the numbers that word vectors begin with: that of GloVe's own."""
_TAG = re.compile(r"(__[a-z]+__)")

Ids = NDArray[np.int64]


class DualEncoderConfig(Config):
    """What the network is like."""

    cell: Literal["rnn", "lstm"] = "lstm"
    """What reads; the paper has an RNN of 50 and an LSTM of 200."""
    hidden: int = Field(200, ge=1)
    """Numbers in its state."""
    dim: int = Field(100, ge=1)
    """Numbers in a word's vector."""
    tied: bool = True
    """Read contexts and replies with the same weights."""
    summary: Literal["last", "mean"] = "last"
    """What becomes the vector of a text: the last state, as in the paper, or the mean of all states."""
    max_tokens: int = Field(160, ge=4)
    """Tokens read of a context (the last ones) or a reply (the first ones)."""
    loss: Literal["binary", "softmax"] = "softmax"
    """The paper's, each true reply beside one false one; or each true reply among all of the batch."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the numbers of word vectors and final states that are left out in training."""
    word_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of words that are made unknown in training."""


class DualEncoder(nn.Module):
    """Reads contexts and replies, and tells how well they fit."""

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
        self._turn_ids = lru_cache(maxsize=200_000)(self._make_turn_ids)  # training asks for the same again and again
        self._begin()

    @torch.no_grad()
    def _begin(self) -> None:
        """Where learning starts: like fits like, and what is recurrent neither grows nor fades."""
        nn.init.normal_(self.words.weight, std=SPREAD)
        self.words.weight[PAD] = 0
        nn.init.eye_(self.match)
        nn.init.zeros_(self.bias)
        for cell in self.cells:
            for name, weight in cell.named_parameters():
                if name.startswith("bias"):
                    nn.init.zeros_(weight)
                    if name.startswith("bias_ih") and self.config.cell == "lstm":
                        weight[self.config.hidden : 2 * self.config.hidden] = 1.0  # the forget gate begins open
                    continue
                for gate in weight.split(self.config.hidden):  # type: ignore[no-untyped-call]
                    (nn.init.orthogonal_ if name.startswith("weight_hh") else nn.init.xavier_uniform_)(gate)

    @torch.no_grad()
    def fill(self, vectors: Mapping[str, Floats]) -> None:
        """Begin with the given vectors of words, scaled to the length that the others have."""
        if not vectors:
            return
        scale = SPREAD / float(np.stack(list(vectors.values())).std())
        for word, vector in vectors.items():
            self.words.weight[self.vocabulary.number(word)] = torch.from_numpy(vector) * scale

    def queries(self, queries: Sequence[Query], /) -> Queries:
        """Encode contexts."""
        with torch.no_grad():
            return Queries((self._contexts(queries) @ self.match).numpy())

    def replies(self, texts: Sequence[str], /) -> Floats:
        """Encode replies: (n, hidden)."""
        with torch.no_grad():
            return np.asarray(self._replies(texts).numpy(), dtype=np.float32)

    def scores(self, queries: Queries, replies: Floats, /) -> Floats:
        """c'Mr: (n, m). The constant b changes no order."""
        return dot_scores(queries, replies)

    def loss(self, pairs: Sequence[Pair], /) -> torch.Tensor:
        """How wrong the model is about a batch."""
        contexts = self.dropout(self._contexts([pair.query for pair in pairs]))
        replies = self.dropout(self._replies([pair.reply for pair in pairs]))
        logits = contexts @ self.match @ replies.T + self.bias  # (n, n)
        return in_batch_loss(logits, pairs) if self.config.loss == "softmax" else binary_loss(logits, pairs)

    def save(self, folder: Path, /) -> Sequence[str]:
        """Write the model; its words are a file beside weights and config."""
        config = {name: getattr(self.config, name) for name in DualEncoderConfig.model_fields}
        save_weights(folder, self, {"config": config, "tags": list(self.tags)})
        self.vocabulary.save(folder / WORDS)
        return [WORDS]

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """What `save` wrote, ready to rank."""
        about = read_model(folder)
        found = cls(DualEncoderConfig(**about["config"]), Vocabulary.load(folder / WORDS), about["tags"])
        load_weights(folder, found)
        return found.eval()

    def _contexts(self, queries: Sequence[Query]) -> torch.Tensor:
        return self._read([self._context_ids(query) for query in queries], self.cells[0])

    def _replies(self, texts: Sequence[str]) -> torch.Tensor:
        return self._read([self._turn_ids(text)[: self.config.max_tokens] for text in texts], self.cells[-1])

    def _context_ids(self, query: Query) -> Ids:
        """The last turns (persona sentences count as the first); too many tokens lose the older half of them."""
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
        """A turn as numbers: its lines are its utterances."""
        found: list[Ids] = []
        for line in text.splitlines() or [""]:
            found += [self._piece_ids(piece) for piece in _TAG.split(squash(line)) if piece.strip()]
            found.append(np.array([self._tag[END_OF_UTTERANCE]]))
        return np.concatenate([*found, np.array([self._tag[END_OF_TURN]])])

    def _piece_ids(self, piece: str) -> Ids:
        if _TAG.fullmatch(piece):
            return np.array([self._tag.get(piece, UNKNOWN)])
        return self.vocabulary.ids(piece)

    def _read(self, rows: Sequence[Ids], cell: nn.Module) -> torch.Tensor:
        """The state after the last token of each row, or the mean of its states: (n, hidden)."""
        if not rows:
            return torch.zeros(0, self.config.hidden)
        plan = shared_runs(rows)
        places = np.argsort(plan.run, kind="stable")
        found, start = [], 0
        for first in range(0, len(plan.runs), AT_ONCE):
            runs = plan.runs[first : first + AT_ONCE]
            stop = start + int((plan.run[places[start:]] < first + len(runs)).sum())
            part = places[start:stop]
            states = self._states(runs, cell)
            found.append(states[plan.run[part] - first, plan.end[part]])  # (rows of these runs, hidden)
            start = stop
        return torch.cat(found)[torch.from_numpy(np.argsort(places))]

    def _states(self, runs: Sequence[Ids], cell: nn.Module) -> torch.Tensor:
        """The states of a few runs: (runs, longest, hidden). What follows a run's end is never looked at."""
        ids = np.full((len(runs), max(map(len, runs))), PAD, dtype=np.int64)
        for row, run in zip(ids, runs, strict=True):
            row[: len(run)] = run
        tokens = torch.from_numpy(ids)  # (runs, longest)
        if self.training and self.config.word_dropout:
            tokens = tokens.masked_fill(torch.rand(tokens.shape) < self.config.word_dropout, UNKNOWN)
        states: torch.Tensor = cell(self.dropout(self.words(tokens)))[0]
        if self.config.summary == "mean":
            return states.cumsum(dim=1) / torch.arange(1, ids.shape[1] + 1)[:, None]
        return states


class Runs(NamedTuple):
    """Rows of tokens as runs: a row that is the beginning of another is read together with it."""

    runs: list[Ids]
    """The longest first."""
    run: NDArray[np.int64]
    """Which run each row is in."""
    end: NDArray[np.int64]
    """The place of its last token."""


def shared_runs(rows: Sequence[Ids]) -> Runs:
    """Find out which rows are beginnings of others.

    >>> found = shared_runs([np.array([5]), np.array([5, 6, 7]), np.array([6]), np.array([5, 6])])
    >>> [run.tolist() for run in found.runs], found.run.tolist(), found.end.tolist()
    ([[5, 6, 7], [6]], [0, 0, 1, 0], [0, 2, 0, 1])
    """
    # In the order of their bytes a row stands right before those that begin with it.
    keys = [np.ascontiguousarray(row, dtype=">i8").tobytes() for row in rows]
    runs: list[int] = []
    run = np.empty(len(rows), dtype=np.int64)
    for place in sorted(range(len(rows)), key=keys.__getitem__, reverse=True):
        if not runs or not keys[runs[-1]].startswith(keys[place]):
            runs.append(place)
        run[place] = len(runs) - 1
    order = sorted(range(len(runs)), key=lambda i: -len(rows[runs[i]]))
    moved = np.empty(len(runs), dtype=np.int64)
    moved[order] = np.arange(len(runs))
    return Runs([rows[runs[i]] for i in order], moved[run], np.array([len(row) - 1 for row in rows], dtype=np.int64))


def binary_loss(logits: torch.Tensor, pairs: Sequence[Pair]) -> torch.Tensor:
    """The paper's: cross-entropy of true and false, each query with its own reply and one drawn from the batch."""
    fair = ~unfair(pairs) & ~torch.eye(len(pairs), dtype=torch.bool)
    able = fair.any(dim=1)
    drawn = torch.multinomial(fair[able].float(), 1)  # (those with a fair distractor, 1)
    values = torch.cat([logits.diagonal(), logits[able].gather(1, drawn)[:, 0]])
    truth = torch.zeros_like(values)
    truth[: len(pairs)] = 1
    return binary_cross_entropy_with_logits(values, truth)


def split_tags(texts: Iterable[str], *, min_count: int = 2) -> tuple[list[str], list[str]]:
    """The texts without their tags (`__url__`), to count words in; and the tags that occur often enough."""
    counts: Counter[str] = Counter()
    bare = []
    for text in texts:
        parts = _TAG.split(text)
        counts.update(parts[1::2])
        bare.append(" ".join(parts[::2]))
    return bare, sorted(tag for tag, n in counts.items() if n >= min_count)
