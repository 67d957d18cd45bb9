"""HRED, the hierarchical recurrent encoder-decoder (Serban et al. 2016), with EI (Ghandeharioun et al. 2019).

A bidirectional GRU encodes each utterance as a vector, a second GRU reads those vectors in turn, and from its state a
third one generates the next utterance. With the heads of `ei` the state also learns to predict emotion and meaning of
the utterance just read. VHRED and VHCR are this model with latent variables, which enter where the conversation is read
(`encode_contexts`, `encode_next`) and where a turn starts (`sample_posterior`, `sample_prior`).

Differences from the papers: a special token tells whose utterance it is; the first turn is a target like any other,
after a state of zeros; input and output embeddings are tied, whatever the sizes. A long dialogue is read in windows
(see `hred_batch`). Utterances are truncated to `max_length` tokens where they are encoded and where they are learned
from; likelihoods of an evaluated model are those of complete turns. A persona, which the papers do not have, is read
like utterances before the first, if `personas` is set.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import torch
from pydantic import Field
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from tertulia.models.embedding import TiedEmbedding
from tertulia.models.generator import DialogueView, Nll, State, TargetTurns
from tertulia.models.generators.ei import IN_PROCESS, EIConfig, EIHeads, load_teachers
from tertulia.models.generators.gaussian import Sampler, random_sampler, take_mean
from tertulia.models.generators.hred_batch import HREDBatch, collate
from tertulia.models.generators.recurrent import RecurrentConfig, RecurrentGenerator, row_indices, sum_by_owner
from tertulia.models.generators.teachers import TextTeacher
from tertulia.models.tokenizer import OWN, Tokenizer

TEACHER_CACHE = 10_000
"""Texts whose teacher outputs a loaded model caches."""


class HREDConfig(RecurrentConfig):
    """Sizes; the paper's range from 300 to 600 (dim), and from 400 to 1250 (the rest)."""

    encoder: int = Field(default=400, ge=1)
    """Size of the utterance encoder's state, in each direction."""
    context: int = Field(default=1000, ge=1)
    """Size of the context GRU's state."""
    decoder: int = Field(default=400, ge=1)
    """Size of the decoder's state."""
    max_length: int = Field(default=30, ge=1)
    """Maximum number of tokens of an utterance that are encoded and learned from."""
    max_turns: int = Field(default=10, ge=2)
    """Maximum number of turns of a dialogue that are read in one window."""
    personas: bool = False
    """Whether personas are read; a recipe sets it to whether they are shown in training."""
    ei: EIConfig = EIConfig()
    """Emotion and semantics heads, and their teachers."""


class Elbo(NamedTuple):
    """The parts of the training loss; zeros for parts that a model does not have."""

    nll: Nll
    """Of the target turns, given a sample of the latent variables, if any."""
    kl: torch.Tensor  # (n,): KL divergence of each dialogue's latent variables in nats, unweighted
    distillation: torch.Tensor  # (): weighted loss of the EI heads

    def loss(self, kl_weight: float = 1.0) -> torch.Tensor:
        """The sum over the batch."""
        return self.nll.total.sum() + kl_weight * self.kl.sum() + self.distillation


class ContextStates(NamedTuple):
    """States of the conversation before each turn of a window, and after the last one."""

    condition: torch.Tensor  # (p, l + 1, condition): what the next turn is conditioned on
    states: torch.Tensor  # (p, l + 1, context): of the context GRU alone
    kl: torch.Tensor  # (p,): KL divergence of the window's own latent variable
    log_ratio: torch.Tensor  # (p,): log p(z) - log q(z | x) of its sample


class TurnLatents(NamedTuple):
    """What the decoder starts from, for each target turn."""

    features: torch.Tensor  # (r, condition + latent)
    kl: torch.Tensor  # (r,): KL divergence of the turn's latent variable
    log_ratio: torch.Tensor  # (r,): log p(z) - log q(z | x) of its sample


class ForwardPass(NamedTuple):
    """One pass over a batch, with one sample of all latent variables."""

    turn_nll: torch.Tensor  # (r,): negative log-likelihood of each target turn
    latents: TurnLatents
    contexts: ContextStates


@dataclass(frozen=True, slots=True)
class HREDState:
    """The decoder's state; latent variables are sampled before, in `start`."""

    hidden: torch.Tensor  # (rows, decoder)
    started: bool = False
    """Whether the special token of the turn has been read."""

    def expand(self, count: int, /) -> "HREDState":
        """Repeat each row."""
        return HREDState(self.hidden.repeat_interleave(count, 0), self.started)

    def select(self, rows: torch.Tensor, /) -> "HREDState":
        """Only these rows."""
        return HREDState(self.hidden[rows], self.started)

    def join(self, other: "HREDState", /) -> "HREDState | None":
        """The rows of both, if both have read the special token or neither has."""
        return (
            HREDState(torch.cat([self.hidden, other.hidden]), self.started) if self.started == other.started else None
        )


class HRED(RecurrentGenerator[HREDConfig]):
    """Utterance encoder, context GRU, decoder."""

    config_type = HREDConfig

    def __init__(self, config: HREDConfig, tokenizer: Tokenizer, *, conversation: int = 0, latent: int = 0) -> None:
        """`conversation` and `latent` are the sizes of latent variables of a conversation and of a turn."""
        super().__init__(config, tokenizer)
        self.embedding = TiedEmbedding(len(tokenizer), config.dim, hidden=config.decoder)
        self.ei = EIHeads(config.ei, config.context)
        self.utterance_size = 2 * config.encoder + self.ei.input_size
        self.condition_size = config.context + conversation
        self.encoder = nn.GRU(config.dim, config.encoder, bidirectional=True)
        self.context = nn.GRU(self.utterance_size + conversation, config.context, batch_first=True)
        self.decoder_init = nn.Linear(self.condition_size + latent, config.decoder)
        self.decoder = nn.GRU(config.dim, config.decoder)

    def set_teachers(self, *, emotion: TextTeacher | None = None, semantics: TextTeacher | None = None) -> None:
        """Provide the teachers that `ei` needs: for training, or with `input`, whenever something is read.

        A teacher provided this way has no name: a loaded model that needs it must be given it again.
        """
        self.ei.set_teachers(emotion=emotion, semantics=semantics)
        given = {"emotion_teacher": emotion, "semantics_teacher": semantics}
        unnamed = {field: IN_PROCESS for field, teacher in given.items() if teacher is not None}
        self.config = self.config.model_copy(update={"ei": self.config.ei.model_copy(update=unnamed)})

    @classmethod
    def load(cls, folder: Path, /) -> Self:
        """Load what `save` wrote, and the teachers whose outputs the model reads."""
        model = super().load(folder)
        if model.config.ei.kind == "input":
            teachers = load_teachers(model.config.ei, cache_size=TEACHER_CACHE)
            model.ei.set_teachers(emotion=teachers.emotion, semantics=teachers.semantics)
        return model

    def losses(self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all") -> Elbo:
        """All parts of the training loss; this calls the teachers. Samples are from torch's global generator."""
        batch = self.collate(views, target_turns)
        one = self._forward(batch, self.encode_utterances(batch), random_sampler())
        present = torch.arange(batch.windows.shape[1], device=self.device) < batch.lengths[:, None]  # (p, l)
        distilled = self.ei.distil(one.contexts.states[:, 1:][present], batch.texts, batch.windows[present])
        return Elbo(self._nll_by_view(batch, one.turn_nll), self._kl(batch, one), self.ei.weighted(distilled))

    def nll(self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all") -> Nll:
        """Negative log-likelihood of the target turns."""
        return self._bound(views, target_turns, take_mean)

    @torch.no_grad()
    def start(self, views: Sequence[DialogueView], /) -> HREDState:
        """Encode the dialogues."""
        return self._start(views, take_mean)

    @torch.no_grad()
    def step(self, state: State, tokens: torch.Tensor | None, /) -> tuple[torch.Tensor, HREDState]:
        """Logits of the next token; the first step takes None and reads the special token of the turn."""
        if not isinstance(state, HREDState):
            raise TypeError(f"not a state of this model: {type(state).__name__}")
        if (tokens is None) == state.started:
            raise ValueError("the first step takes None as its tokens, later steps take tokens")
        if tokens is None:
            tokens = torch.full((len(state.hidden),), OWN, device=self.device)
        hidden = self.decoder(self.embedding(tokens)[None], state.hidden[None])[1][0]  # (rows, decoder)
        return self.embedding.logits(hidden), HREDState(hidden, started=True)

    def collate(self, views: Sequence[DialogueView], target_turns: TargetTurns | None) -> HREDBatch:
        """The dialogues as a batch; without `target_turns`, to generate their next turns."""
        return collate(
            views,
            self.tokenizer,
            target_turns,
            max_length=self.config.max_length,
            max_turns=self.config.max_turns,
            personas=self.config.personas,
            truncate_targets=self.training,
            device=self.device,
        )

    def encode_utterances(self, batch: HREDBatch) -> torch.Tensor:
        """A vector for each distinct utterance, with `ei.kind = "input"` its teachers' outputs too: (u, utterance)."""
        if batch.utterances is None:
            return self.embedding.bias.new_zeros(0, self.utterance_size)
        last = self.encoder(self._embed(batch.utterances))[1]  # (2, u, encoder)
        vectors = torch.cat([last[0], last[1], self.ei.teacher_inputs(batch.texts, last)], -1)
        return self.dropout(vectors)  # type: ignore[no-any-return]

    def encode_contexts(self, batch: HREDBatch, utterances: torch.Tensor, sampler: Sampler) -> ContextStates:
        """The state of the conversation before each turn; HRED has no latent variable here, and samples nothing."""
        initial = utterances.new_zeros(len(batch.lengths), self.config.context)
        states = self._context_states(utterances[batch.windows], initial)
        zeros = utterances.new_zeros(len(batch.lengths))
        return ContextStates(states, states, zeros, zeros)

    def encode_next(self, batch: HREDBatch, utterances: torch.Tensor, sampler: Sampler, copies: int) -> torch.Tensor:
        """What the turn to generate is conditioned on, `copies` rows per dialogue: (n * copies, condition)."""
        condition = self.encode_contexts(batch, utterances, sampler).condition
        return last_states(condition, batch.lengths).repeat_interleave(copies, 0)

    def sample_posterior(self, condition: torch.Tensor, turns: torch.Tensor, sampler: Sampler) -> TurnLatents:
        """What the decoder starts from, given the target turns (r, utterance): in HRED the condition (r, condition)."""
        zeros = condition.new_zeros(len(condition))
        return TurnLatents(condition, zeros, zeros)

    def sample_prior(self, condition: torch.Tensor, sampler: Sampler) -> torch.Tensor:
        """What the decoder starts from when the turn is to be generated: in HRED the condition (rows, condition)."""
        return condition

    def init_decoder(self, features: torch.Tensor) -> torch.Tensor:
        """The decoder's initial state: (rows, condition + latent) -> (rows, decoder)."""
        return torch.tanh(self.decoder_init(features))

    def _start(self, views: Sequence[DialogueView], sampler: Sampler, copies: int = 1) -> HREDState:
        batch = self.collate(views, None)
        condition = self.encode_next(batch, self.encode_utterances(batch), sampler, copies)
        return HREDState(self.init_decoder(self.sample_prior(condition, sampler)))

    def _bound(self, views: Sequence[DialogueView], target_turns: TargetTurns, sampler: Sampler) -> Nll:
        """The negative ELBO; without latent variables, the negative log-likelihood."""
        batch = self.collate(views, target_turns)
        one = self._forward(batch, self.encode_utterances(batch), sampler)
        nll = self._nll_by_view(batch, one.turn_nll)
        return Nll(nll.total + self._kl(batch, one), nll.tokens)

    def _forward(self, batch: HREDBatch, utterances: torch.Tensor, sampler: Sampler) -> ForwardPass:
        """Read all conversations and predict all target turns in one pass."""
        contexts = self.encode_contexts(batch, utterances, sampler)
        condition = contexts.condition[batch.target_window, batch.target_position]  # (r, condition)
        turns = utterances[batch.windows[batch.target_window, batch.target_position]]  # (r, utterance)
        latents = self.sample_posterior(condition, turns, sampler)
        if batch.inputs is None or batch.targets is None:
            return ForwardPass(latents.kl, latents, contexts)  # no target turns: all (0,)
        hidden = self.init_decoder(latents.features)  # (r, decoder)
        states = self.decoder(self._embed(self._drop_words(batch.inputs)), hidden[None])[0].data  # (tokens, decoder)
        losses = self._losses(states, batch.targets.data)  # (tokens,)
        return ForwardPass(sum_by_owner(losses, row_indices(batch.targets), len(hidden)), latents, contexts)

    def _context_states(self, inputs: torch.Tensor, initial: torch.Tensor) -> torch.Tensor:
        """Context states before the first input, after it, and so on: (p, l, input), (p, context) -> (p, l + 1, ...)"""
        if not inputs.shape[0] * inputs.shape[1]:
            return initial[:, None]
        return torch.cat([initial[:, None], self.context(inputs, initial[None])[0]], 1)

    def _drop_words(self, inputs: PackedSequence) -> PackedSequence:
        """The decoder's inputs in training; VHRED hides some words."""
        return inputs

    def _nll_by_view(self, batch: HREDBatch, turn_nll: torch.Tensor) -> Nll:
        """Sum the losses of turns by dialogue."""
        owners = batch.window_view[batch.target_window]
        return Nll(sum_by_owner(turn_nll, owners, batch.size), self._count_tokens(batch))

    def _count_tokens(self, batch: HREDBatch) -> torch.Tensor:
        """Number of target tokens of each dialogue: (n,)."""
        sizes = batch.target_window if batch.targets is None else row_indices(batch.targets).bincount()  # (r,)
        return sum_by_owner(sizes, batch.window_view[batch.target_window], batch.size)

    def _kl(self, batch: HREDBatch, one: ForwardPass) -> torch.Tensor:
        """KL divergence of all latent variables of each dialogue: (n,)."""
        turns = sum_by_owner(one.latents.kl, batch.window_view[batch.target_window], batch.size)
        return turns + sum_by_owner(one.contexts.kl, batch.window_view, batch.size)


def last_states(states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The state after the last turn of each row: (p, l + 1, d) and (p,) -> (p, d)."""
    return states[torch.arange(len(lengths), device=lengths.device), lengths]
