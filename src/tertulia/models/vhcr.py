"""VHCR (Park et al. 2018): VHRED with a second latent variable above, one for the whole conversation.

The variable of the conversation is part of everything: of the state from which the conversation is read, of each step
of the reading, of prior and posterior of each utterance's variable, and of what the decoder begins with. Its prior is
N(0, I); its posterior comes from a bidirectional GRU over the vectors of all utterances. Utterance drop hides some of
those vectors from the reading in training, so that the variable has something to tell.

Before a turn is written, the variable is drawn from the posterior of the turns so far, anew for each sample.
Likelihoods follow the same rule: the prior is what the posterior net makes of what comes before the first turn that
counts, and N(0, I) where nothing does, as in training on all turns. So `nll` of a last turn is about the way in which
turns are in fact written.
"""

import torch
from pydantic import Field
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from tertulia.models.hred import Contexts, Layout, Run, last_of
from tertulia.models.seq2seq import summed
from tertulia.models.tokenizer import Tokenizer
from tertulia.models.vhred import VHRED, Gaussian, GaussianNet, VHREDConfig


class VHCRConfig(VHREDConfig):
    """What the variable of the conversation adds."""

    conversation: int = Field(100, ge=1)
    """Numbers in the latent variable of a conversation."""
    utterance_drop: float = Field(0.25, ge=0, lt=1)
    """Share of the utterances that are not read in training."""


class VHCR(VHRED):
    """VHRED that also has an idea of the conversation as a whole."""

    config: VHCRConfig
    config_type = VHCRConfig

    def __init__(self, config: VHCRConfig, tokenizer: Tokenizer) -> None:
        super().__init__(config, tokenizer, conversation=config.conversation)
        self.survey = nn.GRU(self.heard_size, config.encoder, batch_first=True, bidirectional=True)
        self.conversation = GaussianNet(2 * config.encoder, config.context, config.conversation)
        self.wake = nn.Linear(config.conversation, config.context)
        self.unheard = nn.Parameter(torch.zeros(self.heard_size))

    def _contexts(self, layout: Layout, heard: torch.Tensor, dice: torch.Generator | None) -> Contexts:
        turns = heard[layout.turns]  # (p, l, heard)
        posterior = self._surveyed(turns, layout.lengths)
        prior = self._surveyed(turns, layout.given)
        z = self._drawn(posterior, dice)  # (p, conversation)
        if self.training and self.config.utterance_drop:
            dropped = torch.rand(turns.shape[:2], device=turns.device) < self.config.utterance_drop
            turns = torch.where(dropped[..., None], self.unheard, turns)
        states = self._read(turns, z)
        seeds = torch.cat([states, z[:, None].expand(-1, states.shape[1], -1)], -1)
        return Contexts(seeds, states, posterior.kl(prior), prior.log_density(z) - posterior.log_density(z))

    def _known(self, layout: Layout, heard: torch.Tensor) -> tuple[torch.Tensor, ...]:
        turns = heard[layout.turns]  # (n, l, heard)
        return (turns, layout.lengths, *self._surveyed(turns, layout.lengths))

    def _foresee(self, *known: torch.Tensor) -> torch.Tensor:
        turns, lengths, mean, std = known
        z = self._drawn(Gaussian(mean, std), None)  # (rows, conversation)
        state = last_of(self._read(turns, z), lengths)
        return super()._foresee(torch.cat([state, z], -1))

    def _read(self, turns: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """States of the conversation, its variable known. (p, l, heard) and (p, conversation) as (p, l + 1, context)"""
        inputs = torch.cat([turns, z[:, None].expand(-1, turns.shape[1], -1)], -1)
        return self._walk(inputs, torch.tanh(self.wake(z)))

    def _surveyed(self, turns: torch.Tensor, lengths: torch.Tensor) -> Gaussian:
        """What the first turns say of the conversation; N(0, I) where there are none. (p, l, heard) and (p,)"""
        mean = torch.zeros(len(turns), self.config.conversation, device=turns.device)
        std = torch.ones_like(mean)
        rows = lengths.nonzero()[:, 0]
        if not len(rows):
            return Gaussian(mean, std)
        packed = pack_padded_sequence(turns[rows], lengths[rows].cpu(), batch_first=True, enforce_sorted=False)
        last = self.survey(packed)[1]  # (2, rows, encoder)
        found: Gaussian = self.conversation(torch.cat([last[0], last[1]], -1))
        return Gaussian(mean.index_copy(0, rows, found.mean), std.index_copy(0, rows, found.std))

    def _weights(self, layout: Layout, run: Run) -> torch.Tensor:
        """Of each window (p,), as its turns share a draw."""
        turns = run.imagined.log_weight - run.losses
        return run.contexts.log_weight + summed(turns, layout.window, len(layout.owner))

    def _drawn_for(self, layout: Layout) -> torch.Tensor:
        return layout.owner
