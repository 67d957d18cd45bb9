"""VHCR: the variable of the conversation, its prior, its posterior, and what is hidden from the reading."""

import math
from itertools import pairwise
from typing import Any, Literal

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from tertulia.models.decoding import DecodingConfig, decode
from tertulia.models.generator import Talk
from tertulia.models.hred import HREDState
from tertulia.models.tokenizer import END, OTHER, OWN
from tertulia.models.vhcr import VHCR, VHCRConfig

from .conftest import TALKS, WORDS


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


def exact(model: VHCR, talk: Talk, scored: Literal["all", "last"]) -> float:
    """-log p(turns that count), by grids: of the conversation's variable, and within it of each turn's own."""
    layout = model._lay([talk], scored)
    turns = model._hear(layout)[layout.turns]  # (1, l, heard)
    above = model._surveyed(turns, layout.given)
    z = torch.linspace(-6, 6, 97)[:, None]
    total = above.log_density(z) + math.log(float(z[1] - z[0]))  # (97,)
    states = model._read(turns.expand(len(z), -1, -1), z)
    u = torch.linspace(-5, 5, 61)
    weight = Normal(0.0, 1.0).log_prob(u) + math.log(float(u[1] - u[0]))
    for place in layout.place.tolist():
        seed = torch.cat([states[:, place], z], -1)  # (97, seed)
        prior = model.prior(seed)
        own = prior.mean[:, None] + prior.std[:, None] * u[:, None]  # (97, 61, 1)
        begin = torch.cat([seed[:, None].expand(-1, len(u), -1), own], -1).flatten(0, 1)
        state, told = HREDState((), model._outset(begin)), torch.zeros(len(begin))
        mark = OWN if talk.own[place] else OTHER
        for before, after in pairwise((mark, *WORDS.encode(talk.turns[place]), END)):
            logits, state = model.step(state, torch.full((len(begin),), before))
            told += logits.log_softmax(-1)[:, after]
        total += (told.reshape(len(z), len(u)) + weight).logsumexp(1)
    return -float(total.logsumexp(0))


@torch.no_grad()
@pytest.mark.parametrize("scored", ["all", "last"])
def test_importance_sampling_comes_to_the_true_likelihood(scored: Literal["all", "last"]) -> None:
    """Turns of a conversation share its variable: their likelihood is one integral, not a product of several."""
    model = made(latent=1, conversation=1)
    model.outset.weight[:, model.config.context :] *= 3
    model.words.embedding.weight *= 2
    model.conversation.mean.weight *= 4  # what is said makes a difference
    for net in (model.posterior, model.conversation):  # wider than the priors, so that no draw weighs too much
        net.spread.weight.zero_()
        net.spread.bias.fill_(0.9)
    talk = Talk(("tea ?", "no , i like coffee !", "hello"), (False, True, False))
    truth = exact(model, talk, scored)
    found = model.importance([talk] * 400, scored=scored, samples=40)
    many = math.log(400) - float((-found.nll.total).logsumexp(0))  # 16,000 draws
    assert many == pytest.approx(truth, abs=0.04)
    assert float(found.bound.mean()) > truth + 0.2


def test_each_sample_has_its_own_idea_of_the_conversation() -> None:
    model = made()
    with torch.no_grad():
        model.outset.weight[:, model.seed_size :] = 0  # what is imagined of the turn does not matter
        model.words.embedding.weight *= 3
    torch.manual_seed(0)
    logits, _ = model.step(model.start(TALKS[:1]).fan(3), None)
    assert float((logits[0] - logits[1]).abs().max()) > 0.02
    model.draws = False
    logits, _ = model.step(model.start(TALKS[:1]).fan(3), None)
    assert torch.allclose(logits[0], logits[1], atol=1e-5)


@pytest.mark.parametrize("method", ["sample-and-rank", "beam"])
def test_replies_do_not_depend_on_the_batch(method: str) -> None:
    model = made()
    config = DecodingConfig(method=method, samples=4, beams=2, max_tokens=6)  # type: ignore[arg-type]
    together = decode(model, TALKS, config, [5, 6, 7])
    alone = [decode(model, [talk], config, [seed])[0] for talk, seed in zip(TALKS, (5, 6, 7), strict=True)]
    assert [[w.tokens for w in one] for one in together] == [[w.tokens for w in one] for one in alone]


@torch.no_grad()
def test_what_is_written_comes_from_the_posterior_of_the_turns_so_far() -> None:
    model = made()
    layout = model._lay(TALKS, None)
    expected = model._surveyed(model._hear(layout)[layout.turns], torch.tensor([4, 2, 1]))
    mean, std = model.start(TALKS).known[2:]
    assert torch.allclose(mean, expected.mean, atol=1e-5)
    assert torch.allclose(std, expected.std, atol=1e-5)


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
