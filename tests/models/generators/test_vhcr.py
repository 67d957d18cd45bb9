"""VHCR: the conversation's latent variable, its prior and posterior, and utterance drop."""

import math
from itertools import pairwise
from typing import Any, Literal

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from tertulia.models.decoding import DecodingConfig, decode
from tertulia.models.generator import DialogueView
from tertulia.models.generators.gaussian import random_sampler, take_mean
from tertulia.models.generators.hred import HREDState
from tertulia.models.generators.hred_batch import HREDBatch
from tertulia.models.generators.vhcr import VHCR, VHCRConfig
from tertulia.models.sampling import row_keys
from tertulia.models.tokenizer import END, OTHER, OWN

from ..conftest import VIEWS, WORDS, assert_close


def build(**settings: Any) -> VHCR:
    torch.manual_seed(1)
    sizes = {"dim": 10, "encoder": 8, "context": 12, "decoder": 14, "dropout": 0.0, "latent": 2, "word_drop": 0.0}
    sizes |= {"conversation": 2, "utterance_drop": 0.0}
    return VHCR.untrained(VHCRConfig(**{**sizes, **settings}), WORDS).double().eval()


def encode_turns(model: VHCR, views: list[DialogueView]) -> tuple[torch.Tensor, HREDBatch]:
    """The utterance vectors of each window, (p, l, utterance)."""
    batch = model.collate(views, "all")
    return model.encode_utterances(batch)[batch.windows], batch


@torch.no_grad()
def test_the_posterior_sees_the_first_turns_and_no_padding() -> None:
    model = build()
    together = model.encode_conversation(encode_turns(model, VIEWS)[0], torch.tensor([4, 2, 1]))
    for row, view in enumerate(VIEWS):
        turns, batch = encode_turns(model, [view])
        alone = model.encode_conversation(turns, batch.lengths)
        assert_close(together.mean[row], alone.mean[0])
        assert_close(together.std[row], alone.std[0])
    none = model.encode_conversation(encode_turns(model, VIEWS)[0], torch.tensor([0, 1, 0]))
    assert none.mean[[0, 2]].abs().sum() == 0
    assert none.std[[0, 2]].tolist() == [[1.0, 1.0]] * 2
    assert not torch.allclose(none.std[1], torch.ones(2).double(), atol=1e-3)


@torch.no_grad()
def test_the_kl_divergence_has_a_part_for_turns_and_one_for_the_conversation() -> None:
    model = build()
    batch = model.collate(VIEWS, "all")
    utterances = model.encode_utterances(batch)
    contexts = model.encode_contexts(batch, utterances, random_sampler(torch.Generator().manual_seed(0)))
    posterior = model.encode_conversation(utterances[batch.windows], batch.lengths)
    expected = kl_divergence(Normal(*posterior), Normal(0.0, 1.0)).sum(-1)
    assert_close(contexts.kl, expected)
    torch.manual_seed(4)
    total = model.losses(VIEWS).kl
    torch.manual_seed(4)
    one = model._forward(batch, utterances, random_sampler())
    parts = [one.latents.kl[batch.target_window == i].sum() + expected[i] for i in range(3)]
    assert_close(total, torch.stack(parts))


@torch.no_grad()
def test_the_prior_of_a_last_turn_is_the_posterior_given_the_turns_before() -> None:
    model = build()
    batch = model.collate(VIEWS, "last")
    assert batch.context_lengths.tolist() == [3, 1, 0]
    utterances = model.encode_utterances(batch)
    turns = utterances[batch.windows]
    expected = model.encode_conversation(turns, batch.lengths).kl(
        model.encode_conversation(turns, batch.context_lengths)
    )
    assert_close(model.encode_contexts(batch, utterances, take_mean).kl, expected)


def exact(model: VHCR, view: DialogueView, target_turns: Literal["all", "last"]) -> float:
    """-log p(target turns), integrated on grids: of the conversation's variable, and within it of each turn's."""
    batch = model.collate([view], target_turns)
    turns = model.encode_utterances(batch)[batch.windows]  # (1, l, utterance)
    prior = model.encode_conversation(turns, batch.context_lengths)
    z = torch.linspace(-6, 6, 97, dtype=torch.float64)[:, None]
    total = prior.log_density(z) + math.log(float(z[1] - z[0]))  # (97,)
    states = model._run_context(turns.expand(len(z), -1, -1), z)
    u = torch.linspace(-5, 5, 61, dtype=torch.float64)
    weight = Normal(0.0, 1.0).log_prob(u) + math.log(float(u[1] - u[0]))
    for position in batch.target_position.tolist():
        condition = torch.cat([states[:, position], z], -1)  # (97, condition)
        turn_prior = model.prior(condition)
        turn_z = turn_prior.mean[:, None] + turn_prior.std[:, None] * u[:, None]  # (97, 61, 1)
        features = torch.cat([condition[:, None].expand(-1, len(u), -1), turn_z], -1).flatten(0, 1)
        state = HREDState(model.init_decoder(features), started=True)
        log_likelihood = torch.zeros(len(features), dtype=torch.float64)
        speaker = OWN if view.own[position] else OTHER
        for before, after in pairwise((speaker, *WORDS.encode(view.turns[position]), END)):
            logits, state = model.step(state, torch.full((len(features),), before))
            log_likelihood += logits.log_softmax(-1)[:, after]
        total += (log_likelihood.reshape(len(z), len(u)) + weight).logsumexp(1)
    return -float(total.logsumexp(0))


@torch.no_grad()
@pytest.mark.parametrize("target_turns", ["all", "last"])
def test_importance_sampling_converges_to_the_likelihood(target_turns: Literal["all", "last"]) -> None:
    """Turns of a conversation share its variable: their likelihood is one integral, not a product of several."""
    model = build(latent=1, conversation=1)
    model.decoder_init.weight[:, model.config.context :] *= 3
    model.embedding.table.weight *= 2
    model.conversation.mean.weight *= 4  # the turns make a difference
    for net in (model.posterior, model.conversation):  # wider than the priors, so that no sample gets a huge weight
        net.std.weight.zero_()
        net.std.bias.fill_(0.9)
    view = DialogueView(("tea ?", "no , i like coffee !", "hello"), (False, True, False))
    truth = exact(model, view, target_turns)
    estimate = model.importance([view] * 400, samples=40, seed=0, target_turns=target_turns)
    combined = math.log(400) - float((-estimate.nll.total).logsumexp(0))  # 16,000 samples
    assert combined == pytest.approx(truth, abs=0.04)
    assert float(estimate.bound.mean()) > truth + 0.2


def test_each_key_samples_the_conversation_variable_for_itself() -> None:
    model = build()
    with torch.no_grad():
        model.decoder_init.weight[:, model.condition_size :] = 0  # the turn's own variable does not matter
        model.embedding.table.weight *= 3
    logits, _ = model.step(model.start(VIEWS[:1], keys=row_keys([5], 3)), None)
    assert float((logits[0] - logits[1]).abs().max()) > 0.02
    logits, _ = model.step(model.start(VIEWS[:1]).expand(3), None)
    assert_close(logits[0], logits[1])


@pytest.mark.parametrize("method", ["sample-and-rank", "beam"])
def test_replies_do_not_depend_on_the_batch(method: str) -> None:
    model = build()
    config = DecodingConfig(method=method, samples=4, beams=2, max_tokens=6)  # type: ignore[arg-type]
    together = decode(model, VIEWS, config, [5, 6, 7])
    alone = [decode(model, [view], config, [seed])[0] for view, seed in zip(VIEWS, (5, 6, 7), strict=True)]
    assert [[w.tokens for w in one] for one in together] == [[w.tokens for w in one] for one in alone]


@torch.no_grad()
def test_a_reply_is_generated_from_the_posterior_of_the_turns_so_far() -> None:
    model = build()
    batch = model.collate(VIEWS, None)
    utterances = model.encode_utterances(batch)
    posterior = model.encode_conversation(utterances[batch.windows], torch.tensor([4, 2, 1]))
    condition = model.encode_next(batch, utterances, take_mean, copies=2)
    assert_close(condition[::2, model.config.context :], posterior.mean)
    assert_close(condition[::2], condition[1::2])
    moved = model.encode_next(batch, utterances, lambda gaussian: gaussian.mean + gaussian.std, copies=1)
    assert_close(moved[:, model.config.context :], posterior.mean + posterior.std)


def test_utterance_drop_hides_turns_from_the_context_gru_alone() -> None:
    model = build(utterance_drop=0.9999)
    pair = [DialogueView(("hi", "hello"), (False, True)), DialogueView(("do you like tea ?", "hello"), (False, True))]
    batch = model.collate(pair, "all")
    utterances = model.encode_utterances(batch).detach()
    same = torch.stack([utterances[0]] * len(utterances))
    with torch.no_grad():
        model.train()
        dropped = model.encode_contexts(batch, utterances, take_mean)
        model.init_context.weight.zero_()
        model.context.weight_ih_l0[:, model.utterance_size :] = 0  # leave the conversation's variable out
        assert not torch.allclose(dropped.kl[0], dropped.kl[1], atol=1e-4)
        states = model.encode_contexts(batch, utterances, take_mean).states
        assert_close(states[0], states[1])
        model.eval()
        states = model.encode_contexts(batch, utterances, take_mean).states
        assert not torch.allclose(states[0], states[1], atol=1e-4)
        assert not torch.allclose(utterances, same)


def test_gradients_reach_everything() -> None:
    model = build(utterance_drop=0.5).train()
    torch.manual_seed(2)
    model.losses(VIEWS).loss(0.5).backward()
    missing = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.abs().sum()]
    assert missing == []


def test_it_can_overfit_a_few_dialogues() -> None:
    model = build(context=24, decoder=24).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(100):
        optimizer.zero_grad()
        losses = model.losses(VIEWS)
        (losses.loss() / losses.nll.tokens.sum()).backward()
        optimizer.step()
    nll = model.eval().importance(VIEWS, samples=10, seed=0).nll
    assert math.exp(float(nll.total.sum() / nll.tokens.sum())) < 1.5
