"""Losses that teach a model what people prefer, relative to a frozen reference: DPO and KTO. Pure functions of tensors.

Everything here is about log-probabilities of whole replies in nats, ends included, under the model that is trained (the
policy) and under the reference. beta times the log-ratio of the two is the implicit reward of a reply.
"""

import torch
from torch.nn.functional import logsigmoid


def dpo_loss(
    policy: torch.Tensor, reference: torch.Tensor, *, beta: float, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Direct preference optimisation (Rafailov et al. 2023): (n,) from log-probabilities (n, 2), the chosen one first.

    With label smoothing (conservative DPO, Mitchell 2023) each label is wrong with that probability.

    >>> policy, reference = torch.tensor([[-2.0, -3.0]]), torch.tensor([[-2.5, -2.5]])
    >>> round(float(dpo_loss(policy, reference, beta=1.0)), 4)  # -log sigmoid(1)
    0.3133
    """
    ratios = policy - reference
    margin = beta * (ratios[:, 0] - ratios[:, 1])
    return -(1 - label_smoothing) * logsigmoid(margin) - label_smoothing * logsigmoid(-margin)


def kto_kl(policy: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """KTO's estimate of the KL divergence between policy and reference, from replies to other contexts (n,): a scalar.

    It is a point of comparison, not a target: no gradient flows through it, and it is not negative.
    """
    return (policy - reference).mean().clamp(min=0).detach()


def kto_loss(
    policy: torch.Tensor,
    reference: torch.Tensor,
    desirable: torch.Tensor,
    kl: torch.Tensor,
    *,
    beta: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> torch.Tensor:
    """Kahneman-Tversky optimisation (Ethayarajh et al. 2024): (n,) from log-probabilities (n,) and labels (n,).

    >>> even = torch.zeros(2)
    >>> kto_loss(even, even, torch.tensor([True, False]), torch.tensor(0.0), beta=0.1).tolist()
    [0.5, 0.5]
    """
    reward = policy - reference
    gain, loss = torch.sigmoid(beta * (reward - kl)), torch.sigmoid(beta * (kl - reward))
    return torch.where(desirable, desirable_weight * (1 - gain), undesirable_weight * (1 - loss))
