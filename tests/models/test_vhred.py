"""VHRED: Gaussians, the bound, importance sampling, word drop."""

import copy
import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from tertulia.models.decoding import DecodingConfig, decode
from tertulia.models.generator import Talk
from tertulia.models.hred import HREDState
from tertulia.models.seq2seq import pack
from tertulia.models.tokenizer import END, OWN, UNKNOWN
from tertulia.models.vhred import VHRED, Gaussian, VHREDConfig

from .conftest import TALKS, WORDS


def made(**settings: Any) -> VHRED:
    torch.manual_seed(1)
    sizes = {"dim": 10, "encoder": 8, "context": 12, "decoder": 14, "dropout": 0.0, "latent": 2, "word_drop": 0.0}
    return VHRED.untrained(VHREDConfig(**{**sizes, **settings}), WORDS).eval()


def wide_awake(model: VHRED) -> VHRED:
    """Latent variables that matter, and that depend on what is said."""
    with torch.no_grad():
        model.outset.weight[:, model.seed_size :] *= 4
        model.words.embedding.weight *= 3
        model.posterior.mean.weight *= 2
    return model


def test_gaussians_are_those_of_torch() -> None:
    torch.manual_seed(0)
    one, other = (Gaussian(torch.randn(5, 3), torch.rand(5, 3) + 0.1) for _ in range(2))
    expected = kl_divergence(Normal(*one), Normal(*other)).sum(-1)
    assert torch.allclose(one.kl(other), expected, atol=1e-5)
    assert torch.allclose(one.kl(one), torch.zeros(5), atol=1e-6)
    z = torch.randn(5, 3)
    assert torch.allclose(one.log_density(z), Normal(*one).log_prob(z).sum(-1), atol=1e-4)
    drawn = Gaussian(one.mean.repeat(4000, 1), one.std.repeat(4000, 1)).draw(torch.Generator().manual_seed(3))
    assert torch.allclose(drawn.reshape(4000, 5, 3).mean(0), one.mean, atol=0.1)
    assert torch.allclose(drawn.reshape(4000, 5, 3).std(0), one.std, rtol=0.1)


def test_the_bound_is_what_was_said_and_the_divergence() -> None:
    model = wide_awake(made())
    torch.manual_seed(5)
    losses = model.losses(TALKS)
    torch.manual_seed(5)
    bound = model.nll(TALKS)
    assert torch.allclose(bound.total, losses.nll.total + losses.kl)
    assert bool((losses.kl > 0).all())
    assert float(losses.extra) == 0
    expected = losses.nll.total.sum() + 0.5 * losses.kl.sum()
    assert float(losses.loss(0.5).detach()) == pytest.approx(float(expected.detach()))


def log_likelihood(model: VHRED, begin: torch.Tensor, text: str) -> torch.Tensor:
    """log p(text | begin), by steps: (rows, seed + latent) as (rows,)."""
    state, total = HREDState((), model._outset(begin)), torch.zeros(len(begin))
    for before, after in pairwise((OWN, *WORDS.encode(text), END)):
        logits, state = model.step(state, torch.full((len(begin),), before))
        total += logits.log_softmax(-1)[:, after]
    return total


def exact(model: VHRED, talk: Talk) -> float:
    """-log p(last turn), the latent variable integrated out on a grid."""
    (seed,) = model.start([Talk(talk.turns[:-1], talk.own[:-1])]).known
    z = torch.linspace(-8, 8, 1601)[:, None]
    density = model.prior(seed).log_density(z) + math.log(float(z[1] - z[0]))
    return -float(
        (density + log_likelihood(model, torch.cat([seed.expand(len(z), -1), z], -1), talk.turns[-1])).logsumexp(0)
    )


def wide(model: VHRED, *, bias: float = 1.2) -> VHRED:
    """A posterior wider than the prior: no draw weighs too much, so that estimates come quickly to what they are of."""
    with torch.no_grad():
        model.posterior.spread.weight.zero_()
        model.posterior.spread.bias.fill_(bias)
    return model


@torch.no_grad()
def test_importance_sampling_comes_to_the_true_likelihood_and_the_bound_stays_above() -> None:
    model = wide(wide_awake(made(latent=1)))
    dice = torch.Generator().manual_seed(0)
    for talk in TALKS:
        truth = exact(model, talk)
        found = model.importance([talk] * 200, scored="last", samples=50, generator=dice)
        many = math.log(200) - float((-found.nll.total).logsumexp(0))  # 10,000 draws
        assert many == pytest.approx(truth, abs=0.03)
        assert float(found.nll.total.mean()) == pytest.approx(truth, abs=0.1)
        assert float(found.bound.mean()) > truth + 0.2
        assert torch.allclose(model.nll([talk], scored="last").tokens, found.nll.tokens[:1])


@torch.no_grad()
def test_where_the_posterior_is_the_true_one_a_single_draw_is_enough() -> None:
    """Nothing depends on the variable: prior, posterior and true posterior are one, and the bound is tight."""
    model = made(latent=1)
    model.outset.weight[:, model.seed_size :] = 0
    model.posterior.hidden.weight.zero_()
    model.posterior.hidden.weight[:, : model.seed_size] = model.prior.hidden.weight
    for name in ("mean", "spread"):
        getattr(model.posterior, name).load_state_dict(getattr(model.prior, name).state_dict())
    found = model.importance(TALKS, scored="last", samples=1)
    assert found.nll.total.tolist() == pytest.approx([exact(model, talk) for talk in TALKS], abs=1e-3)
    assert torch.allclose(found.bound, found.nll.total, atol=1e-3)
    assert torch.allclose(found.kl, torch.zeros(3), atol=1e-5)


@torch.no_grad()
def test_more_samples_never_loosen_the_bound() -> None:
    model = wide_awake(made())
    dice = torch.Generator().manual_seed(0)
    talks = TALKS * 150
    means = [float(model.importance(talks, samples=n, generator=dice).nll.total.mean()) for n in (1, 3, 12)]
    bound = float(model.importance(talks, samples=3, generator=dice).bound.mean())
    assert means[0] > means[1] + 0.1
    assert means[1] > means[2] + 0.1
    assert means[0] == pytest.approx(bound, rel=0.03)  # one sample is the bound
    torch.manual_seed(0)
    assert float(model.nll(talks).total.mean()) == pytest.approx(bound, rel=0.03)


def test_the_seed_decides_what_is_drawn() -> None:
    model = wide_awake(made())

    def total(seed: int) -> torch.Tensor:
        return model.importance_nll(TALKS, samples=3, generator=torch.Generator().manual_seed(seed)).total

    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert torch.equal(total(1), total(1))
    assert not torch.allclose(total(1), total(2))
    assert torch.equal(model.importance_nll(TALKS, samples=3).total, total(0))
    assert torch.equal(torch.get_rng_state(), before)
    assert model.importance_nll(TALKS).tokens.tolist() == model.nll(TALKS).tokens.tolist()


def test_each_sample_of_a_reply_imagines_something_of_its_own() -> None:
    model = wide_awake(made())
    torch.manual_seed(0)
    logits, state = model.step(model.start(TALKS[:1]).fan(3), None)
    assert float((logits[0] - logits[1]).abs().max()) > 0.05
    assert float((logits[1] - logits[2]).abs().max()) > 0.05
    model.draws = False
    logits, state = model.step(model.start(TALKS[:1]).fan(3), None)
    assert torch.allclose(logits[0], logits[1], atol=1e-5)
    one, _ = model.step(state.keep(torch.tensor([2, 0])), torch.tensor([OWN, OWN]))
    assert torch.allclose(one[0], one[1], atol=1e-5)


@pytest.mark.parametrize("method", ["sample-and-rank", "beam", "greedy"])
def test_replies_do_not_depend_on_the_batch(method: str) -> None:
    model = wide_awake(made())
    config = DecodingConfig(method=method, samples=4, beams=2, max_tokens=6)  # type: ignore[arg-type]
    together = decode(model, TALKS, config, [5, 6, 7])
    alone = [decode(model, [talk], config, [seed])[0] for talk, seed in zip(TALKS, (5, 6, 7), strict=True)]
    assert [[w.tokens for w in one] for one in together] == [[w.tokens for w in one] for one in alone]
    others = [decode(model, [TALKS[0]], config, [seed])[0][0].tokens for seed in range(20, 30)]
    assert len(set(others)) > 1  # another seed imagines something else


def test_word_drop_hides_words_and_never_marks() -> None:
    model = made(word_drop=0.5).train()
    rows = [(OWN, *range(10, 60))] * 40
    inputs = pack(rows, torch.device("cpu"))
    torch.manual_seed(0)
    shown = model._shown(inputs).data
    hidden = shown != inputs.data
    assert set(shown[hidden].tolist()) == {UNKNOWN}
    assert not hidden[:40].any()
    assert 0.45 < float(hidden[40:].float().mean()) < 0.55
    assert model.eval()._shown(inputs).data is inputs.data


def test_gradients_reach_prior_and_posterior() -> None:
    model = made().train()
    model.losses(TALKS).loss(0.5).backward()
    for net in (model.prior, model.posterior):
        assert all(float(weight.grad.abs().sum()) > 0 for weight in net.parameters() if weight.grad is not None)
        assert all(weight.grad is not None for weight in net.parameters())


def test_it_learns_a_few_talks_by_heart() -> None:
    model = made(context=24, decoder=24).train()
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(100):
        optimizer.zero_grad()
        losses = model.losses(TALKS)
        (losses.loss() / losses.nll.tokens.sum()).backward()
        optimizer.step()
    found = model.eval().importance_nll(TALKS)
    assert math.exp(float(found.total.sum() / found.tokens.sum())) < 1.5
    model.load_state_dict(before)
    found = model.importance_nll(TALKS)
    assert math.exp(float(found.total.sum() / found.tokens.sum())) > 5
