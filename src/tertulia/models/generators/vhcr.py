"""VHCR (Park et al. 2018): VHRED with a second latent variable above, one for the conversation.

The conversation's variable enters everything: the initial state of the context GRU, each of its steps, prior and
posterior of each utterance's variable, and the decoder's initial state. Its prior is N(0, I); its posterior comes from
a bidirectional GRU over the vectors of all utterances. In training, utterance drop hides some of those vectors from the
context GRU, so that the variable has to carry information.

Before a turn is generated, the variable is sampled from the posterior given the turns so far, separately for each row.
Likelihoods follow the same rule: the prior is the posterior network's output for the turns before the first target
turn, and N(0, I) if there are none, as in training on all turns. So `nll` of a last turn describes the way in which
turns are in fact generated.
"""

import torch
from pydantic import Field
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from tertulia.models.generators.base import full_precision
from tertulia.models.generators.gaussian import Gaussian, GaussianNet, Sampler
from tertulia.models.generators.hred import ContextStates, ForwardPass, last_states
from tertulia.models.generators.hred_batch import HREDBatch
from tertulia.models.generators.recurrent import sum_by_owner
from tertulia.models.generators.vhred import VHRED, VHREDConfig
from tertulia.models.tokenizer import Tokenizer


class VHCRConfig(VHREDConfig):
    """VHRED's options and those of the conversation's variable."""

    conversation: int = Field(default=100, ge=1)
    """Size of the latent variable of a conversation."""
    utterance_drop: float = Field(default=0.25, ge=0, lt=1)
    """Share of the utterances that are hidden from the context GRU in training."""


class VHCR(VHRED):
    """VHRED with a latent variable for the conversation."""

    config: VHCRConfig
    config_type = VHCRConfig

    def __init__(self, config: VHCRConfig, tokenizer: Tokenizer) -> None:
        super().__init__(config, tokenizer, conversation=config.conversation)
        self.conversation_encoder = nn.GRU(self.utterance_size, config.encoder, batch_first=True, bidirectional=True)
        self.conversation = GaussianNet(2 * config.encoder, config.context, config.conversation)
        self.init_context = nn.Linear(config.conversation, config.context)
        self.dropped_utterance = nn.Parameter(torch.zeros(self.utterance_size))

    def encode_contexts(self, batch: HREDBatch, utterances: torch.Tensor, sampler: Sampler) -> ContextStates:
        """Sample the conversation's posterior, then run the context GRU with that sample."""
        turns = utterances[batch.windows]  # (p, l, utterance)
        posterior = self.encode_conversation(turns, batch.lengths)
        prior = self.encode_conversation(turns, batch.context_lengths)
        z = sampler(posterior)  # (p, conversation)
        if self.training and self.config.utterance_drop:
            dropped = torch.rand(turns.shape[:2], device=turns.device) < self.config.utterance_drop
            turns = torch.where(dropped[..., None], self.dropped_utterance, turns)
        states = self._run_context(turns, z)  # (p, l + 1, context)
        condition = torch.cat([states, z[:, None].expand(-1, states.shape[1], -1)], -1)
        log_ratio = prior.log_density(z) - posterior.log_density(z)
        return ContextStates(condition, states, posterior.kl(prior), log_ratio)

    def encode_next(self, batch: HREDBatch, utterances: torch.Tensor, sampler: Sampler, copies: int) -> torch.Tensor:
        """As there is a sample for each row, the context GRU runs once per row, not once per dialogue."""
        turns = utterances[batch.windows]  # (n, l, utterance)
        posterior = self.encode_conversation(turns, batch.lengths)
        z = sampler(posterior.repeat(copies))  # (rows, conversation)
        states = self._run_context(turns.repeat_interleave(copies, 0), z)
        return torch.cat([last_states(states, batch.lengths.repeat_interleave(copies)), z], -1)

    def encode_conversation(self, turns: torch.Tensor, lengths: torch.Tensor) -> Gaussian:
        """The variable's distribution given the first `lengths` turns; N(0, I) given none. (p, l, utterance), (p,)"""
        mean = full_precision(turns.new_zeros(len(turns), self.config.conversation))
        std = torch.ones_like(mean)
        rows = lengths.nonzero()[:, 0]
        if not len(rows):
            return Gaussian(mean, std)
        packed = pack_padded_sequence(turns[rows], lengths[rows].cpu(), batch_first=True, enforce_sorted=False)
        last = self.conversation_encoder(packed)[1]  # (2, rows, encoder)
        given: Gaussian = self.conversation(torch.cat([last[0], last[1]], -1))
        return Gaussian(mean.index_copy(0, rows, given.mean), std.index_copy(0, rows, given.std))

    def _run_context(self, turns: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """(p, l, utterance) and (p, conversation) -> (p, l + 1, context)."""
        inputs = torch.cat([turns, z[:, None].expand(-1, turns.shape[1], -1)], -1)
        return self._context_states(inputs, torch.tanh(self.init_context(z)))

    def _log_weights(self, batch: HREDBatch, one: ForwardPass) -> torch.Tensor:
        """Of each window (p,): its turns share the conversation's sample, so their likelihood is one integral."""
        turns = one.latents.log_ratio - one.turn_nll  # (r,)
        return one.contexts.log_ratio + sum_by_owner(turns, batch.target_window, len(batch.lengths))

    def _group_owners(self, batch: HREDBatch) -> torch.Tensor:
        return batch.window_view
