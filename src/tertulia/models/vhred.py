"""VHRED (Serban et al. 2017): HRED with a latent variable for each utterance, drawn before its first word.

Before a turn, a Gaussian prior is made from the state of the conversation; in training the variable is drawn from a
posterior that has also heard the turn, and the KL divergence between the two is part of the loss. Lest the decoder do
without it, the trainer weighs the divergence in slowly (`kl_weight`), and words that the decoder sees are left out
(word drop; Bowman et al. 2016), as in Ghandeharioun et al. (2019). Differences from the paper: those of
`tertulia.models.hred`; the variable reaches the decoder through its first state alone, as in the code of the latter.

What `nll` gives is a bound; `importance_nll` comes the closer to the likelihood the more samples it draws:

    log p(x) ~ log mean_k p(x | z_k) p(z_k) / q(z_k | x),   z_k drawn from q
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from pydantic import Field
from torch import nn
from torch.nn.functional import softplus
from torch.nn.utils.rnn import PackedSequence

from tertulia.models.generator import Nll, Scored, Talk
from tertulia.models.hred import HRED, HREDConfig, Imagined, Layout, Run
from tertulia.models.seq2seq import summed, with_data
from tertulia.models.tokenizer import UNKNOWN, Tokenizer

NARROWEST = 1e-3
"""Least standard deviation: densities stay finite."""


class VHREDConfig(HREDConfig):
    """What latent variables add."""

    latent: int = Field(100, ge=1)
    """Numbers in the latent variable of an utterance."""
    word_drop: float = Field(0.25, ge=0, lt=1)
    """Share of the words that the decoder does not see in training."""


class Importance(NamedTuple):
    """What draws from the posterior tell of some talks."""

    nll: Nll
    """Negative log-likelihood of the turns that count, as far as the draws come to it."""
    bound: torch.Tensor  # (n,): the negative ELBO, which stays above it
    kl: torch.Tensor  # (n,): of the latent variables, in nats, part of the bound


class Gaussian(NamedTuple):
    """Independent normal distributions."""

    mean: torch.Tensor  # (n, latent)
    std: torch.Tensor  # (n, latent)

    def draw(self, dice: torch.Generator | None) -> torch.Tensor:
        """One draw of each, through which gradients flow: (n, latent)."""
        noise = torch.randn(self.mean.shape, generator=dice, device=self.mean.device)
        return self.mean + self.std * noise

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """(n, latent) as (n,)."""
        off = ((z - self.mean) / self.std).square()
        return -(off / 2 + self.std.log() + math.log(2 * math.pi) / 2).sum(-1)

    def kl(self, prior: "Gaussian") -> torch.Tensor:
        """How far this is from a prior, KL(this || prior): (n,)."""
        ratio = (self.std / prior.std).square()
        off = ((self.mean - prior.mean) / prior.std).square()
        return ((ratio + off - 1 - ratio.log()) / 2).sum(-1)


class GaussianNet(nn.Module):
    """Something known as a distribution."""

    def __init__(self, known: int, hidden: int, latent: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(known, hidden)
        self.mean = nn.Linear(hidden, latent)
        self.spread = nn.Linear(hidden, latent)

    def forward(self, known: torch.Tensor) -> Gaussian:
        """(n, known)"""
        hidden = torch.tanh(self.hidden(known))
        # Densities want single precision, whatever the rest is computed in.
        return Gaussian(self.mean(hidden).float(), softplus(self.spread(hidden).float()) + NARROWEST)


class VHRED(HRED):
    """HRED that imagines what a turn will be before it writes it."""

    config: VHREDConfig
    config_type = VHREDConfig
    draws = True
    """Where this is False, latent variables are their means, and a turn depends on what was said alone."""
    noise: Callable[[torch.Tensor], torch.Tensor] | None = None
    """Where this is given, what is imagined before a turn is written comes from it; else from torch's own dice."""

    def __init__(self, config: VHREDConfig, tokenizer: Tokenizer, *, conversation: int = 0) -> None:
        super().__init__(config, tokenizer, conversation=conversation, latent=config.latent)
        self.prior = GaussianNet(self.seed_size, config.context, config.latent)
        self.posterior = GaussianNet(self.seed_size + self.heard_size, config.context, config.latent)

    def importance_nll(
        self,
        talks: Sequence[Talk],
        /,
        *,
        scored: Scored = "all",
        samples: int = 10,
        generator: torch.Generator | None = None,
        seed: int = 0,
    ) -> Nll:
        """How improbable the turns that count are, by importance sampling."""
        return self.importance(talks, scored=scored, samples=samples, generator=generator, seed=seed).nll

    @torch.no_grad()
    def importance(
        self,
        talks: Sequence[Talk],
        /,
        *,
        scored: Scored = "all",
        samples: int = 10,
        generator: torch.Generator | None = None,
        seed: int = 0,
    ) -> Importance:
        """The same with the bound; all is drawn by the generator, or by one with the seed."""
        dice = generator or torch.Generator(self._device).manual_seed(seed)
        layout = self._lay(talks, scored)
        heard = self._hear(layout)
        runs = [self._run(layout, heard, dice) for _ in range(samples)]
        weights = torch.stack([self._weights(layout, run) for run in runs])  # (samples, drawn together)
        found = math.log(samples) - weights.logsumexp(0)
        kl = torch.stack([self._kl(layout, run) for run in runs]).mean(0)
        told = torch.stack([self._told(layout, run.losses).total for run in runs]).mean(0)
        nll = Nll(summed(found, self._drawn_for(layout), layout.talks), self._tokens(layout))
        return Importance(nll, told + kl, kl)

    def _weights(self, layout: Layout, run: Run) -> torch.Tensor:
        """log p(x | z) p(z) / q(z | x) of what is drawn together: here, of each turn (r,)."""
        return run.imagined.log_weight - run.losses

    def _drawn_for(self, layout: Layout) -> torch.Tensor:
        """The talk of each of those: (r,)."""
        return layout.owner[layout.window]

    def _drawn(self, known: Gaussian, dice: torch.Generator | None) -> torch.Tensor:
        """A draw by some dice, by the noise that is there, or by torch's own dice; none where drawing is left off."""
        if dice is None and not self.draws:
            return known.mean
        if dice is None and self.noise is not None:
            return known.mean + known.std * self.noise(known.mean)
        return known.draw(dice)

    def _imagine(self, seeds: torch.Tensor, said: torch.Tensor, dice: torch.Generator | None) -> Imagined:
        prior: Gaussian = self.prior(seeds)
        posterior: Gaussian = self.posterior(torch.cat([seeds, said], -1))
        z = self._drawn(posterior, dice)  # (r, latent)
        log_weight = prior.log_density(z) - posterior.log_density(z)
        return Imagined(torch.cat([seeds, z], -1), posterior.kl(prior), log_weight)

    def _foresee(self, *known: torch.Tensor) -> torch.Tensor:
        (seeds,) = known  # (rows, seed)
        prior: Gaussian = self.prior(seeds)
        return torch.cat([seeds, self._drawn(prior, None)], -1)

    def _shown(self, inputs: PackedSequence) -> PackedSequence:
        if not (self.training and self.config.word_drop):
            return inputs
        dropped = torch.rand(inputs.data.shape, device=inputs.data.device) < self.config.word_drop
        dropped[: int(inputs.batch_sizes[0])] = False  # the marks
        return with_data(inputs, inputs.data.masked_fill(dropped, UNKNOWN))
