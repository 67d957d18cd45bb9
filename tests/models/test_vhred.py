"""VHRED: Gaussians, the bound, importance sampling, word drop."""

import copy
import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from tertulia.models.generator import Talk
from tertulia.models.seq2seq import pack
from tertulia.models.tokenizer import END, OWN, UNKNOWN, WordTokenizer
from tertulia.models.vhred import VHRED, Gaussian, VHREDConfig

TALKS = [
    Talk(("hi", "hello , who are you ?", "a baker", "i like bread"), (False, True, False, True)),
    Talk(("do you like tea ?", "no , i like coffee !"), (False, True)),
    Talk(("hello",), (True,)),
]
WORDS = WordTokenizer.learn(text for talk in TALKS for text in talk.turns)


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


def exact(model: VHRED, talk: Talk) -> float:
    """-log p(last turn), one latent variable integrated out on a grid."""
    z = torch.linspace(-12, 12, 1201)[:, None]
    context = Talk(talk.turns[:-1], talk.own[:-1])
    state = model.start([context]).fan(len(z))
    prior = model.prior(state.seed)
    total = prior.log_density(z) + math.log(float(z[1] - z[0]))
    state = type(state)(state.seed, model._outset(torch.cat([state.seed, z], -1)))
    ids = (OWN, *WORDS.encode(talk.turns[-1]), END)
    for before, after in pairwise(ids):
        logits, state = model.step(state, torch.full((len(z),), before))
        total += logits.log_softmax(-1)[:, after]
    return -float(total.logsumexp(0))


@torch.no_grad()
def test_importance_sampling_comes_to_the_true_likelihood_and_the_bound_stays_above() -> None:
    model = wide_awake(made(latent=1))
    for talk in TALKS:
        truth = exact(model, talk)
        few, many = (float(model.importance_nll([talk], scored="last", samples=n).total) for n in (5, 400))
        torch.manual_seed(0)
        bound = float(model.nll([talk] * 400, scored="last").total.mean())
        assert many == pytest.approx(truth, abs=0.05)
        assert abs(few - truth) < 1.5
        assert bound > truth - 0.01
    assert bound > truth + 0.01  # with another posterior than the true one, there is a gap


@torch.no_grad()
def test_more_samples_come_closer_from_above() -> None:
    model = wide_awake(made())
    seeds = range(30)
    means = []
    for samples in (1, 4, 30):
        found = [float(model.importance_nll(TALKS, samples=samples, generator=seed).total.sum()) for seed in seeds]
        means.append(sum(found) / len(found))
    torch.manual_seed(0)
    bound = sum(float(model.nll(TALKS).total.sum()) for _ in range(200)) / 200
    assert means[0] > means[1] > means[2]
    assert means[0] == pytest.approx(bound, rel=0.05)  # one sample is the bound
    assert means[2] < bound


def test_the_seed_decides_what_is_drawn() -> None:
    model = wide_awake(made())
    one, same, other = (model.importance_nll(TALKS, samples=3, generator=seed).total for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.allclose(one, other)
    assert model.importance_nll(TALKS).tokens.tolist() == model.nll(TALKS).tokens.tolist()


def test_each_sample_of_a_reply_imagines_something_of_its_own() -> None:
    model = wide_awake(made())
    torch.manual_seed(0)
    logits, state = model.step(model.start(TALKS[:1]).fan(3), None)
    assert not torch.allclose(logits[0], logits[1])
    model.draws = False
    logits, state = model.step(model.start(TALKS[:1]).fan(3), None)
    assert torch.allclose(logits[0], logits[1])
    one, _ = model.step(state.keep(torch.tensor([2, 0])), torch.tensor([OWN, OWN]))
    assert torch.allclose(one[0], one[1])


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
