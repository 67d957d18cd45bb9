"""VHRED (Serban et al. 2017): HRED with a latent variable z for each utterance, sampled before its first word.

Before a turn, a network predicts a Gaussian prior p(z | context) from the state of the conversation. In training z is
sampled from a posterior q(z | context, turn) that also sees the turn, and KL(q || p) is part of the loss. To keep the
decoder from ignoring z, the training task anneals the weight of the KL divergence, and words are dropped from the
decoder's input (word drop; Bowman et al. 2016), as in Ghandeharioun et al. (2019). Differences from the paper: those of
`hred`; z reaches the decoder through its initial state alone, as in the code of the latter.

`nll` is a bound, the negative ELBO. `importance` gets closer to the likelihood the more samples it takes:

    log p(x) ~ log mean_k w_k,   w_k = p(x | z_k) p(z_k) / q(z_k | x),   z_k sampled from q

Sampling from q instead of p puts the samples where p(x | z) is large; the weight p / q corrects for it.
"""

import math
from collections.abc import Sequence

import torch
from pydantic import Field
from torch.nn.utils.rnn import PackedSequence

from tertulia.models.generator import DialogueView, Importance, Latent, Nll, TargetTurns
from tertulia.models.generators.gaussian import (
    Gaussian,
    GaussianNet,
    Sampler,
    keyed_sampler,
    random_sampler,
    take_mean,
)
from tertulia.models.generators.hred import HRED, ForwardPass, HREDConfig, HREDState, TurnLatents
from tertulia.models.generators.hred_batch import HREDBatch
from tertulia.models.generators.recurrent import replace_data, sum_by_owner
from tertulia.models.sampling import Keys
from tertulia.models.tokenizer import UNKNOWN, Tokenizer


class VHREDConfig(HREDConfig):
    """HRED's options and those of the latent variables."""

    latent: int = Field(default=100, ge=1)
    """Size of the latent variable of an utterance."""
    word_drop: float = Field(default=0.25, ge=0, lt=1)
    """Share of the words that are hidden from the decoder in training."""


class VHRED(HRED):
    """HRED with a latent variable per turn; a `LatentGenerator`."""

    config: VHREDConfig
    config_type = VHREDConfig

    def __init__(self, config: VHREDConfig, tokenizer: Tokenizer, *, conversation: int = 0) -> None:
        super().__init__(config, tokenizer, conversation=conversation, latent=config.latent)
        self.prior = GaussianNet(self.condition_size, config.context, config.latent)
        self.posterior = GaussianNet(self.condition_size + self.utterance_size, config.context, config.latent)

    def nll(
        self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all", latent: Latent = "sample"
    ) -> Nll:
        """The negative ELBO of the target turns, by one posterior sample (torch's global generator) or at the mean."""
        return self._bound(views, target_turns, take_mean if latent == "mean" else random_sampler())

    @torch.no_grad()
    def start(self, views: Sequence[DialogueView], /, *, keys: Keys | None = None) -> HREDState:
        """Encode the dialogues and sample the prior: one row per key, view by view; without keys, the prior mean."""
        if keys is None:
            return self._start(views, take_mean)
        copies = len(keys) // len(views) if views else 1
        if len(keys) != copies * len(views):
            raise ValueError(f"{len(keys)} keys for {len(views)} dialogues: each needs the same number of keys")
        return self._start(views, keyed_sampler(keys), copies)

    @torch.no_grad()
    def importance(
        self, views: Sequence[DialogueView], /, *, samples: int, seed: int, target_turns: TargetTurns = "all"
    ) -> Importance:
        """Estimate the likelihood by importance sampling; also the bound and its KL part, averaged over the samples."""
        sampler = random_sampler(torch.Generator(self.device).manual_seed(seed))
        batch = self.collate(views, target_turns)
        utterances = self.encode_utterances(batch)
        passes = [self._forward(batch, utterances, sampler) for _ in range(samples)]
        weights = torch.stack([self._log_weights(batch, one) for one in passes])  # (samples, groups)
        estimates = math.log(samples) - weights.logsumexp(0)  # (groups,)
        kl = torch.stack([self._kl(batch, one) for one in passes]).mean(0)
        reconstruction = torch.stack([self._nll_by_view(batch, one.turn_nll).total for one in passes]).mean(0)
        nll = Nll(sum_by_owner(estimates, self._group_owners(batch), batch.size), self._count_tokens(batch))
        return Importance(nll, reconstruction + kl, kl)

    def sample_prior(self, condition: torch.Tensor, sampler: Sampler) -> torch.Tensor:
        """Append a prior sample: (rows, condition) -> (rows, condition + latent)."""
        prior: Gaussian = self.prior(condition)
        return torch.cat([condition, sampler(prior)], -1)

    def sample_posterior(self, condition: torch.Tensor, turns: torch.Tensor, sampler: Sampler) -> TurnLatents:
        """Append a posterior sample; `turns` (r, utterance) are the encoded target turns."""
        prior: Gaussian = self.prior(condition)
        posterior: Gaussian = self.posterior(torch.cat([condition, turns], -1))
        z = sampler(posterior)  # (r, latent)
        log_ratio = prior.log_density(z) - posterior.log_density(z)
        return TurnLatents(torch.cat([condition, z], -1), posterior.kl(prior), log_ratio)

    def _log_weights(self, batch: HREDBatch, one: ForwardPass) -> torch.Tensor:
        """log p(x | z) p(z) / q(z | x) for each group of turns that share their samples: here each turn (r,)."""
        return one.latents.log_ratio - one.turn_nll

    def _group_owners(self, batch: HREDBatch) -> torch.Tensor:
        """The dialogue of each group: (r,)."""
        return batch.window_view[batch.target_window]

    def _drop_words(self, inputs: PackedSequence) -> PackedSequence:
        if not (self.training and self.config.word_drop):
            return inputs
        dropped = torch.rand(inputs.data.shape, device=inputs.data.device) < self.config.word_drop
        dropped[: int(inputs.batch_sizes[0])] = False  # the first position of every row: the speaker's special token
        return replace_data(inputs, inputs.data.masked_fill(dropped, UNKNOWN))
