"""Diagonal Gaussians of latent variables, the networks that predict them, and ways to take a value from them.

A `Sampler` is passed to whatever needs a value of a latent variable, so that models keep no random state: it takes the
mean, samples from a torch generator, or samples for each row from that row's key.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import softplus

from tertulia.models.generators.base import full_precision
from tertulia.models.sampling import Keys, RowNoise

MIN_STD = 1e-3
"""Least standard deviation: densities stay finite."""


class Gaussian(NamedTuple):
    """Independent normal distributions."""

    mean: torch.Tensor  # (n, latent)
    std: torch.Tensor  # (n, latent)

    def sample(self, rng: torch.Generator | None) -> torch.Tensor:
        """One reparametrised sample per row, through which gradients flow: (n, latent)."""
        noise = torch.randn(self.mean.shape, generator=rng, device=self.mean.device, dtype=self.mean.dtype)
        return self.mean + self.std * noise

    def log_density(self, z: torch.Tensor) -> torch.Tensor:
        """(n, latent) -> (n,)."""
        squares = ((z - self.mean) / self.std).square()
        return -(squares / 2 + self.std.log() + math.log(2 * math.pi) / 2).sum(-1)

    def kl(self, prior: "Gaussian") -> torch.Tensor:
        """KL(self || prior): (n,)."""
        ratio = (self.std / prior.std).square()
        squares = ((self.mean - prior.mean) / prior.std).square()
        return ((ratio + squares - 1 - ratio.log()) / 2).sum(-1)

    def repeat(self, count: int) -> "Gaussian":
        """Each row `count` times, side by side: (n * count, latent)."""
        return Gaussian(self.mean.repeat_interleave(count, 0), self.std.repeat_interleave(count, 0))


Sampler = Callable[[Gaussian], torch.Tensor]
"""Takes a value (n, latent) from n distributions."""


def take_mean(distribution: Gaussian) -> torch.Tensor:
    """No randomness: the mean."""
    return distribution.mean


def random_sampler(rng: torch.Generator | None = None) -> Sampler:
    """Samples from `rng`, or from torch's global generator."""
    return lambda distribution: distribution.sample(rng)


def keyed_sampler(keys: Keys) -> Sampler:
    """Samples in which each row's values depend on its key alone, so that they are the same in any batch."""
    noise = RowNoise(keys)
    return lambda distribution: distribution.mean + distribution.std * noise(distribution.mean)


class GaussianNet(nn.Module):
    """A network that predicts a distribution from features."""

    def __init__(self, features: int, hidden: int, latent: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(features, hidden)
        self.mean = nn.Linear(hidden, latent)
        self.std = nn.Linear(hidden, latent)

    def forward(self, features: torch.Tensor) -> Gaussian:
        """(n, features)"""
        hidden = torch.tanh(self.hidden(features))
        # Densities need at least single precision, whatever the rest is computed in.
        return Gaussian(full_precision(self.mean(hidden)), softplus(full_precision(self.std(hidden))) + MIN_STD)
