"""LSTM Seq2Seq (Sutskever et al. 2014), as in Persona-Chat (Zhang et al. 2018): the persona comes before the turns.

An encoder reads persona and turns, a decoder generates the next turn. As the encoder reads forward only, its state
before each turn is the context of that turn: a dialogue is encoded once, however many target turns it has. Without an
encoder the decoder reads everything itself: a language model over the dialogue as one stream, several times as fast.

Differences from the paper: input and output embeddings are tied, the decoder may attend to all encoder states (Luong et
al. 2015, without input feeding), special tokens tell whose turn it is, and the decoder's cell starts at a linear
function of the encoder's hidden state, since torch does not return the cells at intermediate positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from pydantic import Field
from torch import nn
from torch.nn.functional import pad

from tertulia.models.embedding import TiedEmbedding
from tertulia.models.generator import DialogueView, Nll, State, TargetTurns
from tertulia.models.generators.recurrent import (
    RecurrentConfig,
    RecurrentGenerator,
    pack,
    prefix_states,
    row_indices,
    target_batch,
    target_starts,
)
from tertulia.models.generators.segments import Segment, context_ids, stream_segments
from tertulia.models.token_logits import TokenLogits
from tertulia.models.tokenizer import OWN, Tokenizer

MASKED = -1e9
"""Score of positions that must not be attended to; finite, so that a row without any position is not NaN."""


class Seq2SeqConfig(RecurrentConfig):
    """Sizes and architecture."""

    hidden: int = Field(default=512, ge=1)
    """Size of the hidden states of encoder and decoder."""
    encoder: bool = True
    """Read persona and turns with an encoder; otherwise the decoder reads everything as one stream."""
    attention: bool = True
    """Attend to the encoder states, if there is an encoder."""
    max_length: int = Field(default=512, ge=8)
    """Maximum number of tokens of persona and turns in one pass. The oldest turns are dropped first."""


@dataclass(frozen=True, slots=True)
class EncoderMemory:
    """Encoder states to attend to, one row per context."""

    states: torch.Tensor  # (contexts, length, hidden)
    lengths: torch.Tensor  # (contexts,)

    def select(self, contexts: torch.Tensor) -> "EncoderMemory":
        """Only these contexts, without the padding that only longer ones needed."""
        lengths = self.lengths[contexts]
        return EncoderMemory(self.states[contexts, : int(lengths.max())], lengths)

    def join(self, other: "EncoderMemory") -> "EncoderMemory":
        """The contexts of both, the shorter ones padded at their end."""
        longest = max(self.states.shape[1], other.states.shape[1])
        states = [pad(one.states, (0, 0, 0, longest - one.states.shape[1])) for one in (self, other)]
        return EncoderMemory(torch.cat(states), torch.cat([self.lengths, other.lengths]))


@dataclass(frozen=True, slots=True)
class LSTMState:
    """The decoder's state."""

    hidden: torch.Tensor  # (rows, hidden)
    cell: torch.Tensor  # (rows, hidden)
    context: torch.Tensor  # (rows,): index of the context in the memory that each row attends to
    memory: EncoderMemory | None = None

    def expand(self, count: int, /) -> "LSTMState":
        """Repeat each row; the memory is shared."""
        return self.select(torch.arange(len(self.hidden), device=self.hidden.device).repeat_interleave(count))

    def select(self, rows: torch.Tensor, /) -> "LSTMState":
        """Only these rows. Contexts without rows are removed once they are at least half of all contexts."""
        context, memory = self.context[rows], self.memory
        used = torch.unique(context)
        if memory is not None and len(used) and 2 * len(used) <= len(memory.lengths):
            memory, context = memory.select(used), torch.searchsorted(used, context)
        return LSTMState(self.hidden[rows], self.cell[rows], context, memory)

    def join(self, other: "LSTMState", /) -> "LSTMState":
        """The rows of both."""
        hidden, cell = (torch.cat(pair) for pair in ((self.hidden, other.hidden), (self.cell, other.cell)))
        if self.memory is None or other.memory is None:
            return LSTMState(hidden, cell, torch.arange(len(hidden), device=hidden.device))
        context = torch.cat([self.context, other.context + len(self.memory.lengths)])
        return LSTMState(hidden, cell, context, self.memory.join(other.memory))


class Predictions(NamedTuple):
    """The decoder's states at target tokens; positions of one row are in the order of the text."""

    states: torch.Tensor  # (positions, hidden, twice that with attention)
    targets: torch.Tensor  # (positions,): the tokens to predict
    segment: torch.Tensor  # (positions,): index of the segment
    row: torch.Tensor  # (positions,): index of the decoder's row, a segment or a target turn


class Seq2Seq(RecurrentGenerator[Seq2SeqConfig]):
    """Encoder and decoder, or a decoder alone."""

    config_type = Seq2SeqConfig

    def __init__(self, config: Seq2SeqConfig, tokenizer: Tokenizer) -> None:
        super().__init__(config, tokenizer)
        attends = config.encoder and config.attention
        self.embedding = TiedEmbedding(len(tokenizer), config.dim, hidden=config.hidden * (2 if attends else 1))
        self.encoder = nn.LSTM(config.dim, config.hidden) if config.encoder else None
        self.init_cell = nn.Linear(config.hidden, config.hidden) if config.encoder else None
        self.query = nn.Linear(config.hidden, config.hidden, bias=False) if attends else None
        self.decoder = nn.LSTM(config.dim, config.hidden)

    def nll(self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all") -> Nll:
        """Negative log-likelihood of the target turns, in one pass."""
        segments = self._segments(views, target_turns)
        if not segments:
            return self._zero_nll(len(views))
        predictions = self._predict(segments)
        losses = self._losses(predictions.states, predictions.targets)
        return self._nll(losses, self.indices([one.view for one in segments])[predictions.segment], len(views))

    def token_logits(self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all") -> TokenLogits:
        """Logits at all target tokens, in the order of the text."""
        segments = self._segments(views, target_turns)
        if not segments:
            return TokenLogits(self.embedding.bias.new_zeros(0, len(self.tokenizer)), self.indices([]))
        predictions = self._predict(segments)
        in_text_order = sorted(range(len(segments)), key=lambda i: (segments[i].view, segments[i].turn))
        rank = torch.empty(len(segments), dtype=torch.long, device=self.device)
        rank[self.indices(in_text_order)] = torch.arange(len(segments), device=self.device)
        order = (rank[predictions.segment] * (int(predictions.row.max()) + 1) + predictions.row).argsort(stable=True)
        return TokenLogits(self.embedding.logits(self.dropout(predictions.states[order])), predictions.targets[order])

    @torch.no_grad()
    def start(self, views: Sequence[DialogueView], /) -> LSTMState:
        """Read the dialogues and the special token of the turn to generate."""
        contexts = [context_ids(view, self.tokenizer, self.config.max_length) for view in views]
        rows = torch.arange(len(views), device=self.device)
        if self.encoder is None:
            _, (hidden, cell) = self.decoder(self._embed(pack([(*ids, OWN) for ids in contexts], self.device)))
            return LSTMState(hidden[0], cell[0], rows)
        lengths = self.indices([len(ids) for ids in contexts])
        encoded = self._encode(contexts)  # (n, length + 1, hidden)
        first = self.embedding(torch.full_like(rows, OWN))  # (n, dim)
        _, (hidden, cell) = self.decoder(first[None], self._init_decoder(encoded[rows, lengths]))
        memory = EncoderMemory(encoded[:, 1:], lengths) if self.query else None
        return LSTMState(hidden[0], cell[0], rows, memory)

    @torch.no_grad()
    def step(self, state: State, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, LSTMState]:
        """Logits of the next token; `start` has already read the special token before the first one."""
        if not isinstance(state, LSTMState):
            raise TypeError(f"not a state of this model: {type(state).__name__}")
        if tokens is not None:
            _, (hidden, cell) = self.decoder(self.embedding(tokens)[None], (state.hidden[None], state.cell[None]))
            state = replace(state, hidden=hidden[0], cell=cell[0])
        states = state.hidden
        if state.memory is not None:
            memory, lengths = state.memory.states[state.context], state.memory.lengths[state.context]
            states = self._attend(states[:, None], memory, lengths[:, None])[:, 0]
        return self.embedding.logits(states), state

    def _segments(self, views: Sequence[DialogueView], target_turns: TargetTurns) -> list[Segment]:
        length = self.config.max_length
        return list(stream_segments(views, self.tokenizer, target_turns, max_length=length, context_length=length))

    def _predict(self, segments: Sequence[Segment]) -> Predictions:
        return self._decode_turns(segments) if self.encoder else self._decode_streams(segments)

    def _decode_streams(self, segments: Sequence[Segment]) -> Predictions:
        """Without an encoder: the decoder reads each segment from its start, context included."""
        inputs = pack([one.ids[:-1] for one in segments], self.device)
        targets = pack([one.ids[1:] for one in segments], self.device)
        loss_mask = pack([one.loss_mask[1:] for one in segments], self.device).data.bool()  # (positions,)
        states = self.decoder(self._embed(inputs))[0].data  # (positions, hidden)
        segment = row_indices(inputs)[loss_mask]
        return Predictions(states[loss_mask], targets.data[loss_mask], segment, segment)

    def _decode_turns(self, segments: Sequence[Segment]) -> Predictions:
        """With an encoder: each target turn is a row of the decoder, and starts from the encoder's state before it."""
        turns = target_batch(segments, self.device)
        encoded = self._encode([one.ids[: target_starts(one)[-1]] for one in segments])  # (n, length + 1, hidden)
        initial = self._init_decoder(encoded[turns.segment, turns.position])
        states = self.decoder(self._embed(turns.inputs), initial)[0].data  # (positions, hidden)
        row = row_indices(turns.inputs)
        segment = turns.segment[row]
        if self.query:
            # A turn attends to what comes before it: the first `position` encoder states of its segment.
            grid = _Grid.by_owner(segment)
            queries = grid.scatter(states)  # (owners, most, hidden)
            limits = grid.scatter(turns.position[row])  # (owners, most)
            states = grid.gather(self._attend(queries, encoded[grid.owners, 1:], limits))
        return Predictions(states, turns.targets.data, segment, row)

    def _encode(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        """The encoder's state after each prefix: (n, longest + 1, hidden)."""
        assert self.encoder is not None
        return prefix_states(self.encoder, self.embedding, self.dropout, rows)

    def _init_decoder(self, encoded: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden state and cell of the decoder from the encoder's state: (r, hidden) -> two of (1, r, hidden)."""
        assert self.init_cell is not None
        return encoded[None], self.init_cell(encoded)[None]

    def _attend(self, states: torch.Tensor, memory: torch.Tensor, limits: torch.Tensor) -> torch.Tensor:
        """States next to their attention over the first `limits` positions of the memory; zeros where that is none.

        states: (n, t, hidden); memory: (n, length, hidden); limits: (n, t); result: (n, t, 2 * hidden)
        """
        assert self.query is not None
        scores = self.query(states) @ memory.transpose(1, 2) * self.config.hidden**-0.5  # (n, t, length)
        positions = torch.arange(memory.shape[1], device=memory.device)
        scores = scores.masked_fill(positions >= limits[..., None], MASKED)
        attended = scores.softmax(-1) @ memory * (limits > 0)[..., None]
        return torch.cat([states, attended], -1)


class _Grid(NamedTuple):
    """Packed positions as a padded matrix, one line per owner: all positions of a segment then share one memory."""

    line: torch.Tensor  # (positions,)
    column: torch.Tensor  # (positions,)
    owners: torch.Tensor  # (lines,): the segments that have positions

    @classmethod
    def by_owner(cls, owner: torch.Tensor) -> "_Grid":
        owners, line, counts = torch.unique(owner, return_inverse=True, return_counts=True)
        order = line.argsort(stable=True)
        firsts = (counts.cumsum(0) - counts)[line[order]]
        column = torch.empty_like(line)
        column[order] = torch.arange(len(line), device=line.device) - firsts
        return cls(line, column, owners)

    def scatter(self, values: torch.Tensor) -> torch.Tensor:
        """(positions, ...) -> (lines, most, ...), padded with zeros."""
        grid = values.new_zeros(len(self.owners), int(self.column.max()) + 1, *values.shape[1:])
        return grid.index_put((self.line, self.column), values)

    def gather(self, grid: torch.Tensor) -> torch.Tensor:
        """(lines, most, ...) -> (positions, ...)."""
        return grid[self.line, self.column]
