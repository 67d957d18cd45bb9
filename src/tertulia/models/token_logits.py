"""Logits at every target token: what one model can learn from another (distillation, `tertulia.train`)."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch

from tertulia.models.generator import DialogueView, TargetTurns


class TokenLogits(NamedTuple):
    """Logits and targets of all target tokens: dialogue by dialogue, in the order of the text."""

    logits: torch.Tensor  # (n, vocabulary)
    tokens: torch.Tensor  # (n,): the target tokens


@runtime_checkable
class GivesLogits(Protocol):
    """A generator that predicts each token of a turn separately; all such models return the same order."""

    def token_logits(self, views: Sequence[DialogueView], /, *, target_turns: TargetTurns = "all") -> TokenLogits:
        """Logits at the target turns, each given everything before it (and the persona)."""
        ...
