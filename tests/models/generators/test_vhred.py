"""VHRED: Gaussians, the bound, importance sampling, word drop."""

import copy
import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from tertulia.models.decoding import DecodingConfig, decode
from tertulia.models.generator import DialogueView
from tertulia.models.generators.gaussian import Gaussian, take_mean
from tertulia.models.generators.hred import HREDState
from tertulia.models.generators.recurrent import pack
from tertulia.models.generators.vhred import VHRED, VHREDConfig
from tertulia.models.sampling import row_keys
from tertulia.models.tokenizer import END, OWN, UNKNOWN

from ..conftest import VIEWS, WORDS, assert_close


def build(**settings: Any) -> VHRED:
    torch.manual_seed(1)
    sizes = {"dim": 10, "encoder": 8, "context": 12, "decoder": 14, "dropout": 0.0, "latent": 2, "word_drop": 0.0}
    return VHRED.untrained(VHREDConfig(**{**sizes, **settings}), WORDS).double().eval()


def with_strong_latents(model: VHRED) -> VHRED:
    """Latent variables that change the logits, and that depend on the turn."""
    with torch.no_grad():
        model.decoder_init.weight[:, model.condition_size :] *= 4
        model.embedding.table.weight *= 3
        model.posterior.mean.weight *= 2
    return model


def test_gaussians_agree_with_torch_distributions() -> None:
    torch.manual_seed(0)
    one, other = (Gaussian(torch.randn(5, 3).double(), torch.rand(5, 3).double() + 0.1) for _ in range(2))
    expected = kl_divergence(Normal(*one), Normal(*other)).sum(-1)
    assert_close(one.kl(other), expected)
    assert_close(one.kl(one), torch.zeros(5))
    z = torch.randn(5, 3).double()
    assert_close(one.log_density(z), Normal(*one).log_prob(z).sum(-1))
    samples = one.repeat(4000).sample(torch.Generator().manual_seed(3)).reshape(5, 4000, 3)
    assert torch.allclose(samples.mean(1), one.mean, atol=0.1)
    assert torch.allclose(samples.std(1), one.std, rtol=0.1)


def test_the_bound_is_reconstruction_plus_kl_divergence() -> None:
    model = with_strong_latents(build())
    torch.manual_seed(5)
    losses = model.losses(VIEWS)
    torch.manual_seed(5)
    bound = model.nll(VIEWS)
    assert_close(bound.total, losses.nll.total + losses.kl)
    assert bool((losses.kl > 0).all())
    assert float(losses.distillation) == 0
    expected = losses.nll.total.sum() + 0.5 * losses.kl.sum()
    assert float(losses.loss(0.5).detach()) == pytest.approx(float(expected.detach()))


def log_likelihood(model: VHRED, features: torch.Tensor, text: str) -> torch.Tensor:
    """log p(text | features), by steps: (rows, condition + latent) -> (rows,)."""
    state = HREDState(model.init_decoder(features), started=True)
    total = torch.zeros(len(features), dtype=torch.float64)
    for before, after in pairwise((OWN, *WORDS.encode(text), END)):
        logits, state = model.step(state, torch.full((len(features),), before))
        total += logits.log_softmax(-1)[:, after]
    return total


def exact(model: VHRED, view: DialogueView) -> float:
    """-log p(last turn), the latent variable integrated out on a grid."""
    batch = model.collate([view.before(len(view.turns) - 1)], None)
    condition = model.encode_next(batch, model.encode_utterances(batch), take_mean, 1)
    z = torch.linspace(-8, 8, 1601, dtype=torch.float64)[:, None]
    density = model.prior(condition).log_density(z) + math.log(float(z[1] - z[0]))
    return -float(
        (density + log_likelihood(model, torch.cat([condition.expand(len(z), -1), z], -1), view.turns[-1])).logsumexp(0)
    )


def with_wide_posterior(model: VHRED, *, bias: float = 1.2) -> VHRED:
    """A posterior wider than the prior: no sample gets a huge weight, so estimates converge quickly."""
    with torch.no_grad():
        model.posterior.std.weight.zero_()
        model.posterior.std.bias.fill_(bias)
    return model


@torch.no_grad()
def test_importance_sampling_converges_to_the_likelihood_and_the_bound_stays_above() -> None:
    model = with_wide_posterior(with_strong_latents(build(latent=1)))
    for view in VIEWS:
        truth = exact(model, view)
        estimate = model.importance([view] * 200, samples=50, seed=0, target_turns="last")
        combined = math.log(200) - float((-estimate.nll.total).logsumexp(0))  # 10,000 samples
        assert combined == pytest.approx(truth, abs=0.03)
        assert float(estimate.nll.total.mean()) == pytest.approx(truth, abs=0.1)
        assert float(estimate.bound.mean()) > truth + 0.2
        assert model.nll([view], target_turns="last").tokens.tolist() == estimate.nll.tokens[:1].tolist()


@torch.no_grad()
def test_one_sample_is_exact_where_the_posterior_is_the_true_one() -> None:
    """Nothing depends on the variable: prior, posterior and true posterior are equal, and the bound is tight."""
    model = build(latent=1)
    model.decoder_init.weight[:, model.condition_size :] = 0
    model.posterior.hidden.weight.zero_()
    model.posterior.hidden.weight[:, : model.condition_size] = model.prior.hidden.weight
    model.posterior.mean.load_state_dict(model.prior.mean.state_dict())
    model.posterior.std.load_state_dict(model.prior.std.state_dict())
    estimate = model.importance(VIEWS, samples=1, seed=0, target_turns="last")
    assert estimate.nll.total.tolist() == pytest.approx([exact(model, view) for view in VIEWS], abs=1e-3)
    assert_close(estimate.bound, estimate.nll.total)
    assert_close(estimate.kl, torch.zeros(3))


@torch.no_grad()
def test_more_samples_tighten_the_bound() -> None:
    model = with_strong_latents(build())
    views = VIEWS * 150
    means = [float(model.importance(views, samples=n, seed=n).nll.total.mean()) for n in (1, 3, 12)]
    bound = float(model.importance(views, samples=3, seed=0).bound.mean())
    assert means[0] > means[1] + 0.1
    assert means[1] > means[2] + 0.1
    assert means[0] == pytest.approx(bound, rel=0.03)  # one sample is the bound
    torch.manual_seed(0)
    assert float(model.nll(views).total.mean()) == pytest.approx(bound, rel=0.03)


def test_importance_sampling_depends_on_the_seed_alone() -> None:
    model = with_strong_latents(build())

    def total(seed: int) -> torch.Tensor:
        return model.importance(VIEWS, samples=3, seed=seed).nll.total

    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert_close(total(1), total(1))
    assert not torch.allclose(total(1), total(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert model.importance(VIEWS, samples=1, seed=0).nll.tokens.tolist() == model.nll(VIEWS).tokens.tolist()


def test_each_key_has_a_prior_sample_of_its_own_and_without_keys_it_is_the_mean() -> None:
    model = with_strong_latents(build())
    logits, _ = model.step(model.start(VIEWS[:1], keys=row_keys([5], 3)), None)
    assert float((logits[0] - logits[1]).abs().max()) > 0.05
    assert float((logits[1] - logits[2]).abs().max()) > 0.05
    logits, state = model.step(model.start(VIEWS[:1]).expand(3), None)
    assert_close(logits[0], logits[1])
    one, _ = model.step(state.select(torch.tensor([2, 0])), torch.tensor([OWN, OWN]))
    assert_close(one[0], one[1])


@torch.no_grad()
def test_prior_samples_depend_on_the_key_alone() -> None:
    model = with_strong_latents(build())
    keys = row_keys([5, 6, 7], 2)
    together = model.start(VIEWS, keys=keys)
    assert len(together.hidden) == 6
    for i, view in enumerate(VIEWS):
        for row in (2 * i, 2 * i + 1):
            assert_close(model.start([view], keys=keys[row : row + 1]).hidden, together.hidden[row : row + 1])
    with pytest.raises(ValueError, match="4 keys for 3 dialogues"):
        model.start(VIEWS, keys=keys[:4])


@torch.no_grad()
def test_at_the_mean_the_bound_is_not_random() -> None:
    model = with_strong_latents(build())
    assert_close(model.nll(VIEWS, latent="mean").total, model.nll(VIEWS, latent="mean").total)
    assert not torch.allclose(model.nll(VIEWS).total, model.nll(VIEWS).total)


@pytest.mark.parametrize("method", ["sample-and-rank", "beam", "greedy"])
def test_replies_do_not_depend_on_the_batch(method: str) -> None:
    model = with_strong_latents(build())
    config = DecodingConfig(method=method, samples=4, beams=2, max_tokens=6)  # type: ignore[arg-type]
    together = decode(model, VIEWS, config, [5, 6, 7])
    alone = [decode(model, [view], config, [seed])[0] for view, seed in zip(VIEWS, (5, 6, 7), strict=True)]
    assert [[w.tokens for w in one] for one in together] == [[w.tokens for w in one] for one in alone]
    others = [decode(model, [VIEWS[0]], config, [seed])[0][0].tokens for seed in range(20, 30)]
    assert len(set(others)) > 1  # another seed, another prior sample


def test_word_drop_hides_words_but_no_special_tokens() -> None:
    model = build(word_drop=0.5).train()
    rows = [(OWN, *range(10, 60))] * 40
    inputs = pack(rows, torch.device("cpu"))
    torch.manual_seed(0)
    shown = model._drop_words(inputs).data
    hidden = shown != inputs.data
    assert set(shown[hidden].tolist()) == {UNKNOWN}
    assert not hidden[:40].any()
    assert 0.45 < float(hidden[40:].float().mean()) < 0.55
    assert model.eval()._drop_words(inputs).data is inputs.data


def test_gradients_reach_prior_and_posterior() -> None:
    model = build().train()
    model.losses(VIEWS).loss(0.5).backward()
    for net in (model.prior, model.posterior):
        assert all(float(weight.grad.abs().sum()) > 0 for weight in net.parameters() if weight.grad is not None)
        assert all(weight.grad is not None for weight in net.parameters())


def test_it_can_overfit_a_few_dialogues() -> None:
    model = build(context=24, decoder=24).train()
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(100):
        optimizer.zero_grad()
        losses = model.losses(VIEWS)
        (losses.loss() / losses.nll.tokens.sum()).backward()
        optimizer.step()
    nll = model.eval().importance(VIEWS, samples=10, seed=0).nll
    assert math.exp(float(nll.total.sum() / nll.tokens.sum())) < 1.5
    model.load_state_dict(before)
    nll = model.importance(VIEWS, samples=10, seed=0).nll
    assert math.exp(float(nll.total.sum() / nll.tokens.sum())) > 5
