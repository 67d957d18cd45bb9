"""The scores of all tokens at every place that counts: what a model teaches another one (`tertulia.train`)."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch

from tertulia.models.generator import Scored, Talk


class TokenLogits(NamedTuple):
    """Every token that counts: talk by talk, and in the order of the text."""

    logits: torch.Tensor  # (n, vocabulary)
    tokens: torch.Tensor  # (n,): what stands in the text


@runtime_checkable
class GivesLogits(Protocol):
    """A model that writes and predicts each token of a turn by itself; the order is the same for all such models."""

    def token_logits(self, talks: Sequence[Talk], /, *, scored: Scored = "all") -> TokenLogits:
        """Of the turns that count, each given all before it (and the persona)."""
        ...
