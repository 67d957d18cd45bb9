"""The Generative Profile Memory network (Zhang et al. 2018, arXiv 1801.07243): the decoder attends to the persona.

An encoder reads the turns, as in `tertulia.models.seq2seq`, but not the persona. A persona sentence is the sum of its
words' vectors, each weighted by 1 / (1 + log(1 + tf)), where tf = 1e6 * idx ** -1.07 guesses a word's frequency from
its rank in the vocabulary (Zipf's law). With those sentences as the rows of F, the decoder's input at each token is

    x^_t = tanh(Wc [c_(t-1), x_t]),   c_t = a_t' F,   a_t = softmax(F Wa h_t)

The first token looks for its c with the state that the encoder left. Without a persona x^ is x: a plain Seq2Seq.

Differences from the paper: those of `tertulia.models.seq2seq`, attention to the turns excepted, which is not here. An
unknown word counts as the rarest one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from pydantic import Field
from torch import nn
from torch.nn.functional import embedding_bag

from tertulia.models.generator import Nll, Scored, State, Talk
from tertulia.models.seq2seq import (
    RecurrentConfig,
    RecurrentWriter,
    context_of,
    marks_in,
    read_forward,
    rows_of,
    streams_of,
    turns_in,
    without_persona,
)
from tertulia.models.tokenizer import MARKS, OWN, Tokenizer
from tertulia.models.vectors import WordTable


class GenerativeProfileMemoryConfig(RecurrentConfig):
    """Sizes."""

    hidden: int = Field(512, ge=1)
    """Numbers in the states of encoder and decoder."""
    longest: int = Field(512, ge=8)
    """Tokens of turns in one go, at most. The oldest turns go first."""


class Profile(NamedTuple):
    """Persona sentences as a memory, for each row."""

    sentences: torch.Tensor  # (r, k, dim): F
    keys: torch.Tensor  # (r, k, hidden): F Wa
    there: torch.Tensor  # (r, k)

    def of(self, rows: torch.Tensor | slice) -> "Profile":
        """Those of some rows."""
        return Profile(*(part[rows] for part in self))


@dataclass(frozen=True, slots=True)
class ProfileState:
    """Where the decoder is, and what it attends to."""

    hidden: torch.Tensor  # (rows, hidden)
    cell: torch.Tensor  # (rows, hidden)
    profile: Profile

    def fan(self, count: int, /) -> "ProfileState":
        """Each row so many times."""
        return self.keep(torch.arange(len(self.hidden), device=self.hidden.device).repeat_interleave(count))

    def keep(self, rows: torch.Tensor, /) -> "ProfileState":
        """Only these rows."""
        return ProfileState(self.hidden[rows], self.cell[rows], self.profile.of(rows))


class GenerativeProfileMemory(RecurrentWriter[GenerativeProfileMemoryConfig]):
    """Encoder of turns, and a decoder that attends to persona sentences."""

    config_type = GenerativeProfileMemoryConfig
    weights: torch.Tensor  # (tokens,)

    def __init__(self, config: GenerativeProfileMemoryConfig, tokenizer: Tokenizer) -> None:
        super().__init__(config, tokenizer)
        self.words = WordTable(len(tokenizer), config.dim, hidden=config.hidden)
        self.register_buffer("weights", profile_weights(len(tokenizer)), persistent=False)
        self.encoder = nn.LSTM(config.dim, config.hidden)
        self.outset = nn.Linear(config.hidden, config.hidden)
        self.ask = nn.Linear(config.dim, config.hidden, bias=False)  # Wa
        self.join = nn.Linear(2 * config.dim, config.dim)  # Wc
        self.decoder = nn.LSTMCell(config.dim, config.hidden)

    def nll(self, talks: Sequence[Talk], /, *, scored: Scored = "all") -> Nll:
        """How improbable the turns that count are; all of them are written side by side."""
        bare = [without_persona(talk) for talk in talks]
        streams, owners = streams_of(bare, self.tokenizer, scored, self.config.longest)
        if not streams:
            return self._nll(self.words.bias[:0], torch.zeros(0, dtype=torch.long), len(talks))
        turns = turns_in(streams, self._device)
        heads = [found.ids[: marks_in(found)[-1]] for found in streams]
        read = read_forward(self.encoder, self.words, self.dropout, heads)  # (n, t + 1, hidden)
        talk_of = torch.tensor(owners, device=self._device)[turns.stream]  # (r,)
        order = turns.inputs.sorted_indices
        assert order is not None
        profile = self._profile([(*talk.persona, *talk.partner) for talk in talks]).of(talk_of[order])
        hidden = read[turns.stream, turns.place][order]  # (r, hidden), longest turns first
        cell = self.outset(hidden)
        states = []
        for x in torch.split(self._embed(turns.inputs).data, turns.inputs.batch_sizes.tolist()):  # (still written, dim)
            hidden, cell = self._next(x, hidden[: len(x)], cell[: len(x)], profile.of(slice(len(x))))
            states.append(hidden)
        losses = self._losses(torch.cat(states), turns.targets.data)
        return self._nll(losses, talk_of[rows_of(turns.inputs)], len(talks))

    @torch.no_grad()
    def start(self, talks: Sequence[Talk], /) -> ProfileState:
        """Read turns and personas, and the mark of the turn to be written."""
        contexts = [context_of(without_persona(talk), self.tokenizer, self.config.longest) for talk in talks]
        rows = torch.arange(len(talks), device=self._device)
        lengths = torch.tensor([len(ids) for ids in contexts], device=self._device)
        hidden = read_forward(self.encoder, self.words, self.dropout, contexts)[rows, lengths]
        profile = self._profile([(*talk.persona, *talk.partner) for talk in talks])
        marks = self.words(torch.full_like(rows, OWN))
        return ProfileState(*self._next(marks, hidden, self.outset(hidden), profile), profile)

    @torch.no_grad()
    def step(self, state: State, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, ProfileState]:
        """Logits of the next token; the mark before the first one is read already."""
        if not isinstance(state, ProfileState):
            raise TypeError(f"not a state of this model: {type(state).__name__}")
        if tokens is not None:
            after = self._next(self.words(tokens), state.hidden, state.cell, state.profile)
            state = ProfileState(*after, state.profile)
        return self.words.logits(state.hidden), state

    def _next(
        self, x: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, profile: Profile
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One token further. x: (r, dim); hidden, cell: (r, hidden)"""
        if profile.there.shape[1]:
            scores = (profile.keys @ hidden[:, :, None])[:, :, 0]  # (r, k)
            shares = scores.masked_fill(~profile.there, -1e9).softmax(-1)
            found = (shares[:, None] @ profile.sentences)[:, 0]  # (r, dim)
            joined = torch.tanh(self.join(torch.cat([found, x], -1)))
            x = torch.where(profile.there.any(1, keepdim=True), joined, x)
        return self.decoder(x, (hidden, cell))  # type: ignore[no-any-return]

    def _profile(self, personas: Sequence[tuple[str, ...]]) -> Profile:
        """Each persona's sentences. A sentence without words is a vector of zeros."""
        texts = [sentence for persona in personas for sentence in persona]
        ids = [torch.tensor(self.tokenizer.encode(text), dtype=torch.long) for text in texts]
        there = torch.zeros(len(personas), max((len(p) for p in personas), default=0), dtype=torch.bool)
        for row, persona in enumerate(personas):
            there[row, : len(persona)] = True
        there = there.to(self._device)
        sentences = self.words.bias.new_zeros(*there.shape, self.config.dim)  # (n, k, dim)
        if texts:
            flat = torch.cat(ids).to(self._device)
            starts = torch.tensor([0, *(len(row) for row in ids[:-1])], device=self._device).cumsum(0)
            table = self.words.embedding.weight
            summed_up = embedding_bag(flat, table, starts, mode="sum", per_sample_weights=self.weights[flat])
            sentences = sentences.index_put((there,), summed_up)
        return Profile(sentences, self.ask(sentences), there)


def profile_weights(tokens: int) -> torch.Tensor:
    """The weight of each token in a persona sentence, by its rank: (tokens,)."""
    places = torch.arange(tokens)
    ranks = torch.where(places < len(MARKS), tokens - len(MARKS), places - len(MARKS) + 1).clamp(min=1)
    frequency = 1e6 * ranks.double() ** -1.07
    return (1 / (1 + torch.log1p(frequency))).float()
