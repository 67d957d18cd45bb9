"""DPO and KTO against what can be computed by hand, and against the figures of TRL."""

import math

import pytest

torch = pytest.importorskip("torch")

from tertulia.train.preference_losses import dpo_loss, kto_kl, kto_loss  # noqa: E402

POLICY = [[-3.5, -2.5], [-0.75, -4.0]]
"""Log-probabilities of chosen and rejected replies."""
REFERENCE = [[-4.0, -2.0], [-1.5, -3.0]]
BETA = 0.3


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_dpo_by_hand(smoothing: float) -> None:
    margins = [BETA * ((p[0] - r[0]) - (p[1] - r[1])) for p, r in zip(POLICY, REFERENCE, strict=True)]
    expected = [-(1 - smoothing) * math.log(sigmoid(m)) - smoothing * math.log(sigmoid(-m)) for m in margins]
    losses = dpo_loss(torch.tensor(POLICY), torch.tensor(REFERENCE), beta=BETA, label_smoothing=smoothing)
    assert losses.tolist() == pytest.approx(expected, rel=1e-5)


def test_the_gradient_of_dpo_is_that_of_the_paper() -> None:
    """Rafailov et al., section 4: beta * sigmoid(r(rejected) - r(chosen)) weighs both replies, with opposite signs."""
    policy = torch.tensor(POLICY, dtype=torch.double, requires_grad=True)
    dpo_loss(policy, torch.tensor(REFERENCE, dtype=torch.double), beta=BETA).sum().backward()
    assert policy.grad is not None
    for row, p, r in zip(policy.grad.tolist(), POLICY, REFERENCE, strict=True):
        weight = BETA * sigmoid(BETA * ((p[1] - r[1]) - (p[0] - r[0])))
        assert row == pytest.approx([-weight, weight])


def test_kto_by_hand() -> None:
    policy, reference, labels, kl = [-3.5, -0.75, -2.5, -4.0], [-4.0, -1.5, -2.0, -3.0], [True, True, False, False], 0.4
    expected = [
        2.0 * (1 - sigmoid(BETA * (p - r - kl))) if wanted else 1.5 * (1 - sigmoid(BETA * (kl - (p - r))))
        for p, r, wanted in zip(policy, reference, labels, strict=True)
    ]
    losses = kto_loss(
        torch.tensor(policy),
        torch.tensor(reference),
        torch.tensor(labels),
        torch.tensor(kl),
        beta=BETA,
        desirable_weight=2.0,
        undesirable_weight=1.5,
    )
    assert losses.tolist() == pytest.approx(expected, rel=1e-5)


def test_the_kl_of_kto_is_not_negative_and_has_no_gradient() -> None:
    policy = torch.tensor([-3.0, -2.0], requires_grad=True)
    kl = kto_kl(policy, torch.tensor([-4.0, -2.5]))
    assert (float(kl), kl.requires_grad) == (0.75, False)
    assert float(kto_kl(policy, torch.tensor([-1.0, -1.0]))) == 0.0


def test_the_figures_of_trl() -> None:
    """What `DPOTrainer._compute_loss` and `KTOTrainer._compute_loss` of TRL 1.16.0 return for these log-probabilities.

    The trainers were called with log-probabilities in place of a model (`pip install --no-deps trl==1.16.0`):
    two tokens per reply, beta 0.3; KTO with weights 1 and 1.5, and mismatched replies whose log-ratios are below.
    """
    policy, reference = torch.tensor(POLICY), torch.tensor(REFERENCE)
    assert float(dpo_loss(policy, reference, beta=BETA).mean()) == pytest.approx(0.5095334649085999, rel=1e-5)
    kl = kto_kl(torch.tensor([-5.0, -4.0, -6.0, -3.0]), torch.tensor([-5.5, -4.5, -6.75, -3.25]))
    assert float(kl) == 0.5
    losses = kto_loss(
        policy.T.flatten(),
        reference.T.flatten(),
        torch.tensor([True, True, False, False]),
        kl,
        beta=BETA,
        undesirable_weight=1.5,
    )
    assert float(losses.mean()) == pytest.approx(0.5509090423583984, rel=1e-5)
