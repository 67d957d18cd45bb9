"""The Generative Profile Memory network (Zhang et al. 2018, arXiv 1801.07243): the decoder attends to the persona.

An encoder reads the turns, as in `seq2seq`, but not the persona. A persona sentence is the sum of its words' vectors,
each weighted by 1 / (1 + log(1 + tf)), where tf = 1e6 * idx ** -1.07 estimates a word's frequency from its rank (Zipf's
law): in the vocabulary, or as in the paper in GloVe's (`ranks`). With those sentences as the rows of F, the decoder's
input at each token is

    x^_t = tanh(Wc [c_(t-1), x_t]),   c_t = a_t' F,   a_t = softmax(F Wa h_t)

For the first token, c comes from the encoder's last state. Without a persona x^ is x: a plain Seq2Seq.

Differences from the paper: those of `seq2seq`, and there is no attention to the turns. An unknown word gets the weight
of the rarest one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from pydantic import Field
from torch import nn
from torch.nn.functional import embedding_bag, pad

from tertulia.artefacts.word_vectors import read_word_ranks
from tertulia.core.errors import ConfigError
from tertulia.models.embedding import TiedEmbedding
from tertulia.models.generator import DialogueView, Nll, State, TargetTurns
from tertulia.models.generators.recurrent import (
    RecurrentConfig,
    RecurrentGenerator,
    prefix_states,
    row_indices,
    target_batch,
    target_starts,
)
from tertulia.models.generators.segments import context_ids, stream_segments
from tertulia.models.tokenizer import OWN, SPECIAL_TOKENS, Tokenizer, WordTokenizer

MASKED = -1e9
"""Score of missing sentences; finite, so that a row without any sentence is not NaN."""


class GenerativeProfileMemoryConfig(RecurrentConfig):
    """Sizes."""

    hidden: int = Field(default=512, ge=1)
    """Size of the hidden states of encoder and decoder."""
    max_length: int = Field(default=512, ge=8)
    """Maximum number of tokens of turns in one pass. The oldest turns are dropped first."""
    ranks: Path | None = None
    """A file of word vectors in order of frequency, such as GloVe's, from which the ranks of words in tf are taken, as
    in the paper; by default they are those of the vocabulary."""


class EncodedProfile(NamedTuple):
    """Persona sentences as a memory, one line per row; k is the largest number of sentences."""

    sentences: torch.Tensor  # (r, k, dim): F
    keys: torch.Tensor  # (r, k, hidden): F Wa
    mask: torch.Tensor  # (r, k): whether there is a sentence

    def select(self, rows: torch.Tensor | slice) -> "EncodedProfile":
        """Only these rows."""
        return EncodedProfile(*(part[rows] for part in self))

    def join(self, other: "EncodedProfile") -> "EncodedProfile":
        """The rows of both; missing sentences are zeros that the mask excludes."""
        most = max(self.mask.shape[1], other.mask.shape[1])
        sides = []
        for one in (self, other):
            missing = most - one.mask.shape[1]
            sentences, keys = (pad(part, (0, 0, 0, missing)) for part in (one.sentences, one.keys))
            sides.append((sentences, keys, pad(one.mask, (0, missing))))
        return EncodedProfile(*(torch.cat(parts) for parts in zip(*sides, strict=True)))


@dataclass(frozen=True, slots=True)
class ProfileState:
    """The decoder's state, and the persona it attends to."""

    hidden: torch.Tensor  # (rows, hidden)
    cell: torch.Tensor  # (rows, hidden)
    profile: EncodedProfile

    def expand(self, count: int, /) -> "ProfileState":
        """Repeat each row."""
        return self.select(torch.arange(len(self.hidden), device=self.hidden.device).repeat_interleave(count))

    def select(self, rows: torch.Tensor, /) -> "ProfileState":
        """Only these rows."""
        return ProfileState(self.hidden[rows], self.cell[rows], self.profile.select(rows))

    def join(self, other: "ProfileState", /) -> "ProfileState":
        """The rows of both."""
        hidden, cell = (torch.cat(pair) for pair in ((self.hidden, other.hidden), (self.cell, other.cell)))
        return ProfileState(hidden, cell, self.profile.join(other.profile))


class GenerativeProfileMemory(RecurrentGenerator[GenerativeProfileMemoryConfig]):
    """An encoder for the turns, and a decoder that attends to persona sentences."""

    config_type = GenerativeProfileMemoryConfig
    layout = 2
    word_weights: torch.Tensor  # (tokens,)

    def __init__(self, config: GenerativeProfileMemoryConfig, tokenizer: Tokenizer) -> None:
        super().__init__(config, tokenizer)
        self.embedding = TiedEmbedding(len(tokenizer), config.dim, hidden=config.hidden)
        self.register_buffer("word_weights", zipf_weights(_ranks(len(tokenizer))))
        self.encoder = nn.LSTM(config.dim, config.hidden)
        self.init_cell = nn.Linear(config.hidden, config.hidden)
        self.profile_key = nn.Linear(config.dim, config.hidden, bias=False)  # Wa
        self.combine = nn.Linear(2 * config.dim, config.dim)  # Wc
        self.decoder = nn.LSTMCell(config.dim, config.hidden)

    def init_weights(self) -> None:
        """As all recurrent generators; ranks of words in another vocabulary are read here."""
        super().init_weights()
        if self.config.ranks is not None:
            self.word_weights.copy_(zipf_weights(_ranks_in_file(self.tokenizer, self.config.ranks)))

    def saved_config(self) -> GenerativeProfileMemoryConfig:
        """Without the file of ranks: the weights that follow from it are saved."""
        return super().saved_config().model_copy(update={"ranks": None})

    def nll(self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all") -> Nll:
        """Negative log-likelihood of the target turns; all of them are decoded side by side."""
        length = self.config.max_length
        turns_only = [_without_persona(view) for view in views]
        segments = list(
            stream_segments(turns_only, self.tokenizer, target_turns, max_length=length, context_length=length)
        )
        if not segments:
            return self._zero_nll(len(views))
        turns = target_batch(segments, self.device)
        contexts = [one.ids[: target_starts(one)[-1]] for one in segments]
        encoded = prefix_states(self.encoder, self.embedding, self.dropout, contexts)  # (n, length + 1, hidden)
        owner = self.indices([one.view for one in segments])[turns.segment]  # (r,)
        # Packed rows are sorted by length: at each step the rows that have not ended are the first ones.
        order = turns.inputs.sorted_indices
        assert order is not None
        profile = self._encode_profiles([(*view.persona, *view.partner) for view in views]).select(owner[order])
        hidden = encoded[turns.segment, turns.position][order]  # (r, hidden), longest turns first
        cell = self.init_cell(hidden)
        states = []
        for x in torch.split(self._embed(turns.inputs).data, turns.inputs.batch_sizes.tolist()):  # (rows left, dim)
            hidden, cell = self._decode_token(x, hidden[: len(x)], cell[: len(x)], profile.select(slice(len(x))))
            states.append(hidden)
        losses = self._losses(torch.cat(states), turns.targets.data)
        return self._nll(losses, owner[row_indices(turns.inputs)], len(views))

    @torch.no_grad()
    def start(self, views: Sequence[DialogueView], /) -> ProfileState:
        """Read turns and personas, and the special token of the turn to generate."""
        contexts = [context_ids(_without_persona(view), self.tokenizer, self.config.max_length) for view in views]
        rows = torch.arange(len(views), device=self.device)
        lengths = self.indices([len(ids) for ids in contexts])
        hidden = prefix_states(self.encoder, self.embedding, self.dropout, contexts)[rows, lengths]
        profile = self._encode_profiles([(*view.persona, *view.partner) for view in views])
        first = self.embedding(torch.full_like(rows, OWN))
        return ProfileState(*self._decode_token(first, hidden, self.init_cell(hidden), profile), profile)

    @torch.no_grad()
    def step(self, state: State, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, ProfileState]:
        """Logits of the next token; `start` has already read the special token before the first one."""
        if not isinstance(state, ProfileState):
            raise TypeError(f"not a state of this model: {type(state).__name__}")
        if tokens is not None:
            hidden, cell = self._decode_token(self.embedding(tokens), state.hidden, state.cell, state.profile)
            state = ProfileState(hidden, cell, state.profile)
        return self.embedding.logits(state.hidden), state

    def _decode_token(
        self, x: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, profile: EncodedProfile
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The next hidden state and cell. x: (r, dim); hidden, cell: (r, hidden)"""
        if profile.mask.shape[1]:
            scores = (profile.keys @ hidden[:, :, None])[:, :, 0]  # (r, k)
            attention = scores.masked_fill(~profile.mask, MASKED).softmax(-1)
            attended = (attention[:, None] @ profile.sentences)[:, 0]  # (r, dim)
            combined = torch.tanh(self.combine(torch.cat([attended, x], -1)))
            x = torch.where(profile.mask.any(1, keepdim=True), combined, x)
        return self.decoder(x, (hidden, cell))  # type: ignore[no-any-return]

    def _encode_profiles(self, personas: Sequence[tuple[str, ...]]) -> EncodedProfile:
        """The memory of each persona. A sentence without words is a vector of zeros."""
        ids = [self.tokenizer.encode(sentence) for persona in personas for sentence in persona]
        counts = self.indices([len(persona) for persona in personas])
        most = max(map(len, personas), default=0)
        mask = torch.arange(most, device=self.device) < counts[:, None]  # (n, k)
        sentences = self.embedding.bias.new_zeros(*mask.shape, self.config.dim)  # (n, k, dim)
        if ids:
            flat = self.indices([token for row in ids for token in row])
            starts = self.indices([0, *(len(row) for row in ids[:-1])]).cumsum(0)
            weights = self.word_weights[flat]
            bags = embedding_bag(flat, self.embedding.table.weight, starts, mode="sum", per_sample_weights=weights)
            sentences = sentences.index_put((mask,), bags)
        return EncodedProfile(sentences, self.profile_key(sentences), mask)


def zipf_weights(ranks: torch.Tensor) -> torch.Tensor:
    """The weight of each token in a persona sentence, by its rank, 1 for the most frequent word: (tokens,)."""
    frequency = 1e6 * ranks.double() ** -1.07
    return (1 / (1 + torch.log1p(frequency))).float()


def _ranks(tokens: int) -> torch.Tensor:
    """Ranks in the vocabulary; special tokens, among them that of unknown words, have the last one."""
    ids = torch.arange(tokens)
    words = tokens - len(SPECIAL_TOKENS)
    return torch.where(ids < len(SPECIAL_TOKENS), words, ids - len(SPECIAL_TOKENS) + 1).clamp(min=1)


def _ranks_in_file(tokenizer: Tokenizer, path: Path) -> torch.Tensor:
    """Ranks in a file of word vectors; words that it lacks, and special tokens, come after all others."""
    if not isinstance(tokenizer, WordTokenizer):
        raise ConfigError("Ranks of words need a word tokenizer.", hint='Set tokenizer = "words".')
    ranks, count = read_word_ranks(path, set(tokenizer.words))
    return torch.tensor([count + 1] * len(SPECIAL_TOKENS) + [ranks.get(word, count + 1) for word in tokenizer.words])


def _without_persona(view: DialogueView) -> DialogueView:
    return replace(view, persona=(), partner=())
