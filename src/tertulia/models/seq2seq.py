"""LSTM Seq2Seq (Sutskever et al. 2014), as in Persona-Chat (Zhang et al. 2018): the persona stands before the turns.

An encoder reads persona and turns, a decoder writes the next turn. As the encoder reads forward only, what it knows
before each turn of a talk is a state on its way: a talk is read once, however many of its turns count. Without encoder
the decoder reads everything itself: a language model over the whole dialogue as one stream, several times as fast.

Differences from the paper: the table of words is also the output layer, the decoder may attend to all that the encoder
read (Luong et al. 2015, without input feeding), marks tell whose turn it is, and the decoder's cell begins at a linear
image of the encoder's state, since an LSTM's cells on the way are not to be had.

What all recurrent models that write share stands first: packed rows, and the way they begin, are saved and are loaded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from tertulia.core.config import Config, validate
from tertulia.models.checkpoint import load_weights, read_model, save_weights
from tertulia.models.generator import Nll, Scored, State, Stream, Talk, stream
from tertulia.models.token_logits import TokenLogits
from tertulia.models.tokenizer import END, OTHER, OWN, PAD, Tokenizer, load_tokenizer
from tertulia.models.vectors import WordTable


class RecurrentConfig(Config):
    """What all recurrent models that write have."""

    dim: int = Field(300, ge=1)
    """Numbers in a word's vector."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Share of the numbers of vectors and states that are left out in training."""
    vectors: Path | None = None
    """Vectors of words to begin with: GloVe's text, or `words` and `vectors` in .npz."""


R = TypeVar("R", bound=RecurrentConfig)


class RecurrentWriter(nn.Module, Generic[R]):
    """How a model begins, is saved and is loaded; its words, and what they cost."""

    config_type: type[R]
    words: WordTable

    def __init__(self, config: R, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.config, self.tokenizer = config, tokenizer
        self.dropout = nn.Dropout(config.dropout)

    @classmethod
    def untrained(cls, config: R, tokenizer: Tokenizer) -> Self:
        """A model that has learned nothing yet; its weights are drawn from torch's generator."""
        made = cls(config, tokenizer)
        made._begin()
        if config.vectors is not None:
            made.words.fill(tokenizer, config.vectors)
        return made

    @torch.no_grad()
    def _begin(self) -> None:
        """Where learning starts: what is recurrent neither grows nor fades, and all words are as good as equal."""
        for module in self.modules():
            if isinstance(module, nn.RNNBase | nn.RNNCellBase):
                _begin_recurrent(module)
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)

    def save(self, folder: Path, /) -> list[str]:
        """Weights, sizes and tokenizer; the vectors it began with are not needed again."""
        config = self.config.model_copy(update={"vectors": None})
        save_weights(folder, self, {"config": config.model_dump(mode="json")})
        return [self.tokenizer.save(folder)]

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """What `save` wrote."""
        config = validate(cls.config_type, read_model(folder)["config"], where=str(folder))
        made = cls(config, load_tokenizer(folder))
        load_weights(folder, made)
        return made.eval()

    @property
    def _device(self) -> torch.device:
        return self.words.bias.device

    def _embed(self, ids: PackedSequence) -> PackedSequence:
        return with_data(ids, self.dropout(self.words(ids.data)))

    def _losses(self, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self.words.losses(self.dropout(states), targets)

    def _nll(self, losses: torch.Tensor, owners: torch.Tensor, talks: int) -> Nll:
        """Losses of tokens (n,), by the talk that each is of."""
        return Nll(summed(losses, owners.to(losses.device), talks), owners.bincount(minlength=talks))


def pack(rows: Sequence[Sequence[int]], device: torch.device) -> PackedSequence:
    """Rows of any lengths above 0 as recurrent networks read them fastest: no place is filled up."""
    found = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int64)
    for line, row in zip(found, rows, strict=True):
        line[: len(row)] = row
    lengths = torch.tensor([len(row) for row in rows])
    return pack_padded_sequence(torch.from_numpy(found).to(device), lengths, batch_first=True, enforce_sorted=False)


def with_data(packed: PackedSequence, data: torch.Tensor) -> PackedSequence:
    """Something else in the same places."""
    return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)


def rows_of(packed: PackedSequence) -> torch.Tensor:
    """Which row each place is of: (places,)."""
    assert packed.sorted_indices is not None
    return torch.cat([packed.sorted_indices[:size] for size in packed.batch_sizes.tolist()])


def summed(values: torch.Tensor, owners: torch.Tensor, count: int) -> torch.Tensor:
    """Sums by owner: (n,) and (n,) as (count,)."""
    return values.new_zeros(count).index_add(0, owners, values)


class Seq2SeqConfig(RecurrentConfig):
    """Sizes and shape."""

    hidden: int = Field(512, ge=1)
    """Numbers in the states of encoder and decoder."""
    encoder: bool = True
    """Read persona and turns with an encoder; else the decoder reads everything as one stream."""
    attention: bool = True
    """Attend to all that the encoder read, where there is one."""
    longest: int = Field(512, ge=8)
    """Tokens of persona and turns in one go, at most. The oldest turns go first."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What can be attended to, for each context."""

    states: torch.Tensor  # (n, length, hidden)
    lengths: torch.Tensor  # (n,)


@dataclass(frozen=True, slots=True)
class LstmState:
    """Where the decoder is."""

    hidden: torch.Tensor  # (rows, hidden)
    cell: torch.Tensor  # (rows, hidden)
    context: torch.Tensor  # (rows,): the memory each row attends to
    memory: Memory | None = None

    def fan(self, count: int, /) -> "LstmState":
        """Each row so many times; the memory stays one."""
        return self.keep(torch.arange(len(self.hidden), device=self.hidden.device).repeat_interleave(count))

    def keep(self, rows: torch.Tensor, /) -> "LstmState":
        """Only these rows."""
        return replace(self, hidden=self.hidden[rows], cell=self.cell[rows], context=self.context[rows])


class Turns(NamedTuple):
    """The turns that count in some streams, one a row."""

    stream: torch.Tensor  # (r,): the stream each is of
    place: torch.Tensor  # (r,): where in it the turn begins
    inputs: PackedSequence  # the mark and the words
    targets: PackedSequence  # the words and the end


class Predicting(NamedTuple):
    """Where tokens that count are predicted; places of one row come in the order of the text."""

    states: torch.Tensor  # (places, hidden)
    tokens: torch.Tensor  # (places,): those that stand there
    stream: torch.Tensor  # (places,): the stream each is of
    row: torch.Tensor  # (places,): the stream, or the turn of all streams


class Seq2Seq(RecurrentWriter[Seq2SeqConfig]):
    """Encoder and decoder, or a decoder alone."""

    config_type = Seq2SeqConfig

    def __init__(self, config: Seq2SeqConfig, tokenizer: Tokenizer) -> None:
        attends = config.encoder and config.attention
        super().__init__(config, tokenizer)
        self.words = WordTable(len(tokenizer), config.dim, hidden=config.hidden * (2 if attends else 1))
        self.encoder = nn.LSTM(config.dim, config.hidden) if config.encoder else None
        self.cell = nn.Linear(config.hidden, config.hidden) if config.encoder else None
        self.query = nn.Linear(config.hidden, config.hidden, bias=False) if attends else None
        self.decoder = nn.LSTM(config.dim, config.hidden)

    def nll(self, talks: Sequence[Talk], /, *, scored: Scored = "all") -> Nll:
        """How improbable the turns that count are, in one pass."""
        streams, owners = streams_of(talks, self.tokenizer, scored, self.config.longest)
        if not streams:
            return self._nll(self.words.bias[:0], torch.zeros(0, dtype=torch.long), len(talks))
        found = self._written(streams) if self.encoder else self._streamed(streams)
        losses = self._losses(found.states, found.tokens)
        return self._nll(losses, torch.tensor(owners, device=self._device)[found.stream], len(talks))

    def token_logits(self, talks: Sequence[Talk], /, *, scored: Scored = "all") -> TokenLogits:
        """The scores of all tokens where one counts, in the order of the text."""
        streams, owners = streams_of(talks, self.tokenizer, scored, self.config.longest)
        if not streams:
            return TokenLogits(self.words.bias.new_zeros(0, len(self.tokenizer)), self.words.bias.new_zeros(0).long())
        found = self._written(streams) if self.encoder else self._streamed(streams)
        oldest_first = sorted(range(len(streams)), key=lambda i: (owners[i], -i))  # a talk's streams come newest first
        rank = torch.empty(len(streams), dtype=torch.long, device=self._device)
        rank[torch.tensor(oldest_first, device=self._device)] = torch.arange(len(streams), device=self._device)
        order = (rank[found.stream] * (int(found.row.max()) + 1) + found.row).argsort(stable=True)
        return TokenLogits(self.words.logits(self.dropout(found.states[order])), found.tokens[order])

    @torch.no_grad()
    def start(self, talks: Sequence[Talk], /) -> LstmState:
        """Read the talks, and the mark of the turn to be written."""
        contexts = [context_of(talk, self.tokenizer, self.config.longest) for talk in talks]
        rows = torch.arange(len(talks), device=self._device)
        if self.encoder is None:
            states = self.decoder(self._embed(pack([(*ids, OWN) for ids in contexts], self._device)))[1]
            return LstmState(states[0][0], states[1][0], rows)
        lengths = torch.tensor([len(ids) for ids in contexts], device=self._device)
        read = self._read(contexts)  # (n, t + 1, hidden)
        hidden, cell = self._outset(read[rows, lengths])
        marks = self.words(torch.full_like(rows, OWN))
        _, (hidden, cell) = self.decoder(marks[None], (hidden, cell))
        memory = Memory(read[:, 1:], lengths) if self.query else None
        return LstmState(hidden[0], cell[0], rows, memory)

    @torch.no_grad()
    def step(self, state: State, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, LstmState]:
        """Logits of the next token; the mark before the first one is read already."""
        if not isinstance(state, LstmState):
            raise TypeError(f"not a state of this model: {type(state).__name__}")
        if tokens is not None:
            _, (hidden, cell) = self.decoder(self.words(tokens)[None], (state.hidden[None], state.cell[None]))
            state = replace(state, hidden=hidden[0], cell=cell[0])
        states = state.hidden
        if state.memory is not None:
            memory, lengths = state.memory.states[state.context], state.memory.lengths[state.context]
            states = self._attended(states[:, None], memory, lengths[:, None])[:, 0]
        return self.words.logits(states), state

    def _streamed(self, streams: Sequence[Stream]) -> Predicting:
        """All that is before the tokens that count is read by the decoder."""
        inputs = pack([found.ids[:-1] for found in streams], self._device)
        targets = pack([found.ids[1:] for found in streams], self._device)
        counts = pack([found.counts[1:] for found in streams], self._device).data.bool()
        states = self.decoder(self._embed(inputs))[0].data  # (places, hidden)
        of = rows_of(inputs)[counts]
        return Predicting(states[counts], targets.data[counts], of, of)

    def _written(self, streams: Sequence[Stream]) -> Predicting:
        """The same where an encoder reads what is before a turn."""
        turns = turns_in(streams, self._device)
        read = self._read([found.ids[: marks_in(found)[-1]] for found in streams])  # (n, t + 1, hidden)
        begin = self._outset(read[turns.stream, turns.place])
        states = self.decoder(self._embed(turns.inputs), begin)[0].data  # (places, hidden)
        row = rows_of(turns.inputs)
        of = turns.stream[row]
        if self.query:
            grid = _Grid.of(of)
            queries = grid.laid_out(states)  # (n, most, hidden)
            limits = grid.laid_out(turns.place[row])  # (n, most)
            states = grid.taken_up(self._attended(queries, read[grid.owners, 1:], limits))
        return Predicting(states, turns.targets.data, of, row)

    def _read(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        """The encoder's states before the first token, after it, and so on: (n, longest + 1, hidden)."""
        assert self.encoder is not None
        return read_forward(self.encoder, self.words, self.dropout, rows)

    def _outset(self, read: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Where the decoder begins after what was read: (r, hidden) as twice (1, r, hidden)."""
        assert self.cell is not None
        return read[None], self.cell(read)[None]

    def _attended(self, states: torch.Tensor, memory: torch.Tensor, limits: torch.Tensor) -> torch.Tensor:
        """States beside what they find in the first places of the memory; zeros where there is no place.

        states: (n, t, hidden); memory: (n, length, hidden); limits: (n, t); as (n, t, 2 * hidden)
        """
        assert self.query is not None
        scores = self.query(states) @ memory.transpose(1, 2) * self.config.hidden**-0.5  # (n, t, length)
        places = torch.arange(memory.shape[1], device=memory.device)
        scores = scores.masked_fill(places >= limits[..., None], -1e9)
        found = scores.softmax(-1) @ memory * (limits > 0)[..., None]
        return torch.cat([states, found], -1)


class _Grid(NamedTuple):
    """Places by the stream they are of, side by side: so that all places of a stream share one memory."""

    row: torch.Tensor  # (places,)
    column: torch.Tensor  # (places,)
    owners: torch.Tensor  # (rows,): the streams that have places

    @classmethod
    def of(cls, owner: torch.Tensor) -> "_Grid":
        owners, row, counts = torch.unique(owner, return_inverse=True, return_counts=True)
        order = row.argsort(stable=True)
        firsts = (counts.cumsum(0) - counts)[row[order]]
        column = torch.empty_like(row)
        column[order] = torch.arange(len(row), device=row.device) - firsts
        return cls(row, column, owners)

    def laid_out(self, values: torch.Tensor) -> torch.Tensor:
        """(places, ...) as (rows, most, ...), zeros where there is none."""
        found = values.new_zeros(len(self.owners), int(self.column.max()) + 1, *values.shape[1:])
        return found.index_put((self.row, self.column), values)

    def taken_up(self, values: torch.Tensor) -> torch.Tensor:
        """(rows, most, ...) as (places, ...)."""
        return values[self.row, self.column]


def streams_of(
    talks: Sequence[Talk], tokenizer: Tokenizer, scored: Scored, longest: int
) -> tuple[list[Stream], list[int]]:
    """Talks as streams of about so many tokens, in which each turn that counts does so once; and whose each is."""
    found = [(part, i) for i, talk in enumerate(talks) for part in _parts(talk, tokenizer, scored, longest)]
    return [part for part, _ in found], [i for _, i in found]


def _parts(talk: Talk, tokenizer: Tokenizer, scored: Scored, longest: int) -> Iterator[Stream]:
    if scored == "last":
        if talk.turns:
            context = context_of(_before(talk, len(talk.turns) - 1), tokenizer, longest)
            words = (*tokenizer.encode(talk.turns[-1]), END)
            ids = (*context, OWN if talk.own[-1] else OTHER, *words)
            yield Stream(ids, (False,) * (len(context) + 1) + (True,) * len(words))
        return
    while talk.turns:
        found = stream(talk, tokenizer, scored=scored, longest=longest)
        if any(found.counts):
            yield found
        talk = _before(talk, len(talk.turns) - sum(i in (OWN, OTHER) for i in found.ids))  # what did not fit


def context_of(talk: Talk, tokenizer: Tokenizer, longest: int) -> tuple[int, ...]:
    """What is read before the next turn; of a single turn that is too long, the end."""
    return stream(talk, tokenizer, longest=longest).ids[-longest:]


def marks_in(found: Stream) -> list[int]:
    """Where the turns that count begin: with a mark, which does not."""
    return [at for at in range(len(found.ids) - 1) if found.counts[at + 1] and not found.counts[at]]


def turns_in(streams: Sequence[Stream], device: torch.device) -> Turns:
    """The turns that count."""
    of, places, rows = [], [], []
    for i, found in enumerate(streams):
        for at in marks_in(found):
            of.append(i)
            places.append(at)
            rows.append(found.ids[at : found.ids.index(END, at) + 1])
    return Turns(
        torch.tensor(of, device=device),
        torch.tensor(places, device=device),
        pack([row[:-1] for row in rows], device),
        pack([row[1:] for row in rows], device),
    )


def read_forward(encoder: nn.LSTM, words: WordTable, dropout: nn.Module, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """The states before the first token (zeros), after it, and so on: (n, longest + 1, hidden). Rows may be empty."""
    found = words.bias.new_zeros(len(rows), max(map(len, rows)) + 1, encoder.hidden_size)
    some = [i for i, row in enumerate(rows) if row]
    if some:
        ids = pack([rows[i] for i in some], words.bias.device)
        packed = encoder(with_data(ids, dropout(words(ids.data))))[0]
        states, _ = pad_packed_sequence(packed, batch_first=True)  # (some, longest, hidden)
        found = found.index_put((torch.tensor(some, device=found.device),), nn.functional.pad(states, (0, 0, 1, 0)))
    return found


def without_persona(talk: Talk) -> Talk:
    """The turns alone."""
    return replace(talk, persona=(), partner=())


def _before(talk: Talk, turn: int) -> Talk:
    return replace(talk, turns=talk.turns[:turn], own=talk.own[:turn])


def _begin_recurrent(module: nn.RNNBase | nn.RNNCellBase) -> None:
    """Orthogonal from state to state, gate by gate; an LSTM's forget gate begins open."""
    for name, weight in module.named_parameters():
        if "bias" in name:
            nn.init.zeros_(weight)
            if name.startswith("bias_ih") and isinstance(module, nn.LSTM | nn.LSTMCell):
                weight[module.hidden_size : 2 * module.hidden_size] = 1.0
            continue
        for gate in torch.split(weight, module.hidden_size):
            (nn.init.orthogonal_ if "weight_hh" in name else nn.init.xavier_uniform_)(gate)
