"""VHCR: the variable of the conversation, its prior, its posterior, and what is hidden from the reading."""

import math
from typing import Any

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from tertulia.models.generator import Talk
from tertulia.models.tokenizer import WordTokenizer
from tertulia.models.vhcr import VHCR, VHCRConfig
from tertulia.models.vhred import NARROWEST

TALKS = [
    Talk(("hi", "hello , who are you ?", "a baker", "i like bread"), (False, True, False, True)),
    Talk(("do you like tea ?", "no , i like coffee !"), (False, True)),
    Talk(("hello",), (True,)),
]
WORDS = WordTokenizer.learn(text for talk in TALKS for text in talk.turns)


def made(**settings: Any) -> VHCR:
    torch.manual_seed(1)
    sizes = {"dim": 10, "encoder": 8, "context": 12, "decoder": 14, "dropout": 0.0, "latent": 2, "word_drop": 0.0}
    sizes |= {"conversation": 2, "utterance_drop": 0.0}
    return VHCR.untrained(VHCRConfig(**{**sizes, **settings}), WORDS).eval()


def turns_of(model: VHCR, talks: list[Talk]) -> Any:
    layout = model._lay(talks, "all")
    return model._hear(layout)[layout.turns], layout


@torch.no_grad()
def test_the_posterior_hears_the_turns_that_are_there_and_no_others() -> None:
    model = made()
    together = model._surveyed(*[turns_of(model, TALKS)[0], torch.tensor([4, 2, 1])])
    for row, talk in enumerate(TALKS):
        turns, layout = turns_of(model, [talk])
        alone = model._surveyed(turns, layout.lengths)
        assert torch.allclose(together.mean[row], alone.mean[0], atol=1e-5)
        assert torch.allclose(together.std[row], alone.std[0], atol=1e-5)
    none = model._surveyed(turns_of(model, TALKS)[0], torch.tensor([0, 1, 0]))
    assert none.mean[[0, 2]].abs().sum() == 0
    assert none.std[[0, 2]].tolist() == [[1.0, 1.0]] * 2
    assert not torch.allclose(none.std[1], torch.ones(2), atol=1e-3)


@torch.no_grad()
def test_the_divergence_has_both_parts() -> None:
    model = made()
    layout = model._lay(TALKS, "all")
    heard = model._hear(layout)
    contexts = model._contexts(layout, heard, torch.Generator().manual_seed(0))
    posterior = model._surveyed(heard[layout.turns], layout.lengths)
    expected = kl_divergence(Normal(*posterior), Normal(0.0, 1.0)).sum(-1)
    assert torch.allclose(contexts.kl, expected, atol=1e-5)
    torch.manual_seed(4)
    whole = model.losses(TALKS).kl
    torch.manual_seed(4)
    run = model._run(layout, heard)
    parts = [run.imagined.kl[layout.window == i].sum() + expected[i] for i in range(3)]
    assert torch.allclose(whole, torch.stack(parts), atol=1e-4)


@torch.no_grad()
def test_the_prior_of_a_last_turn_is_what_the_turns_before_say() -> None:
    model = made()
    layout = model._lay(TALKS, "last")
    assert layout.given.tolist() == [3, 1, 0]
    heard = model._hear(layout)
    turns = heard[layout.turns]
    expected = model._surveyed(turns, layout.lengths).kl(model._surveyed(turns, layout.given))
    assert torch.allclose(model._contexts(layout, heard, None).kl, expected, atol=1e-5)


@torch.no_grad()
def test_two_posteriors_come_to_the_same_likelihood() -> None:
    """Importance sampling does not depend on what is drawn from, in the limit: here the posterior, or the prior."""
    model, blind = made(), made()
    for net in (model, blind):
        net.outset.weight[:, net.config.context :] *= 3
    for name in ("hidden", "mean", "spread"):
        ours, theirs = getattr(blind.posterior, name), getattr(blind.prior, name)
        ours.bias.copy_(theirs.bias)
        ours.weight.zero_()
        ours.weight[:, : theirs.weight.shape[1]] = theirs.weight
    blind.conversation.mean.weight.zero_()
    blind.conversation.spread.weight.zero_()
    blind.conversation.spread.bias.fill_(math.log(math.exp(1 - NARROWEST) - 1))
    copies, samples = 60, 30
    found = []
    for net in (model, blind):
        total = net.importance_nll([TALKS[1]] * copies, samples=samples, generator=7).total
        found.append(math.log(copies) - float((-total).logsumexp(0)))
    assert found[0] == pytest.approx(found[1], abs=0.1)
    torch.manual_seed(0)
    bound = float(model.nll([TALKS[1]] * 200).total.mean())
    assert bound > found[0] - 0.02


def test_the_conversation_reaches_reading_and_writing() -> None:
    model = made()
    torch.manual_seed(0)
    seeds = torch.cat([model.start([TALKS[0]]).seed for _ in range(2)])
    states, variables = seeds[:, : model.config.context], seeds[:, model.config.context :]
    assert not torch.allclose(states[0], states[1], atol=1e-3)
    assert not torch.allclose(variables[0], variables[1], atol=1e-3)
    model.draws = False
    once, again = model.start([TALKS[0]]).seed, model.start([TALKS[0]]).seed
    assert torch.equal(once, again)


def test_utterance_drop_hides_turns_from_the_reading_alone() -> None:
    model = made(utterance_drop=0.9999)
    model.draws = False
    pair = [Talk(("hi", "hello"), (False, True)), Talk(("do you like tea ?", "hello"), (False, True))]
    layout = model._lay(pair, "all")
    heard = model._hear(layout).detach()
    same = torch.stack([heard[0]] * len(heard))
    with torch.no_grad():
        model.train()
        dropped = model._contexts(layout, heard, None)
        model.wake.weight.zero_()
        model.context.weight_ih_l0[:, model.heard_size :] = 0  # the variable of the conversation left out
        assert not torch.allclose(dropped.kl[0], dropped.kl[1], atol=1e-4)
        states = model._contexts(layout, heard, None).states
        assert torch.allclose(states[0], states[1], atol=1e-6)
        model.eval()
        states = model._contexts(layout, heard, None).states
        assert not torch.allclose(states[0], states[1], atol=1e-4)
        assert not torch.allclose(heard, same)


def test_gradients_reach_everything() -> None:
    model = made(utterance_drop=0.5).train()
    torch.manual_seed(2)
    model.losses(TALKS).loss(0.5).backward()
    missing = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.abs().sum()]
    assert missing == []


def test_it_learns_a_few_talks_by_heart() -> None:
    model = made(context=24, decoder=24).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(100):
        optimizer.zero_grad()
        losses = model.losses(TALKS)
        (losses.loss() / losses.nll.tokens.sum()).backward()
        optimizer.step()
    found = model.eval().importance_nll(TALKS)
    assert math.exp(float(found.total.sum() / found.tokens.sum())) < 1.5
