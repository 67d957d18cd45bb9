"""Every generator can overfit fifty dialogues; one that cannot has a wrong gradient somewhere."""

from dataclasses import replace

import pytest
import torch

from tertulia import sample
from tertulia.core.config import Config, validate
from tertulia.models.generator import DialogueView
from tertulia.models.likelihood import likelihoods, perplexity, views_of
from tertulia.models.registry import GENERATORS
from tertulia.models.tokenizer import WordTokenizer

TESTED_ELSEWHERE = {"hred", "vhred", "vhcr", "finetune"}
"""Models that overfit in the tests of their recipes: VHRED and VHCR need annealing, fine-tuning a pretrained base."""
SIZES = {
    "dim": 48,
    "hidden": 96,
    "d_model": 64,
    "heads": 4,
    "decoder_layers": 2,
    "decoder_blocks": 1,
    "dropout": 0.0,
}
"""Small sizes, by config field."""
DIALOGUES, TURNS, WORDS, SENTENCES = 50, 4, 8, 2
UPDATES = 90


def shorten(view: DialogueView) -> DialogueView:
    """The first words of the first turns, and part of the persona."""
    turns = tuple(" ".join(text.split()[:WORDS]) for text in view.turns[:TURNS])
    return replace(view, turns=turns, own=view.own[:TURNS], persona=view.persona[:SENTENCES])


def small_config(config_type: type[Config]) -> Config:
    sizes = {name: size for name, size in SIZES.items() if name in config_type.model_fields}
    return validate(config_type, sizes, where="the test")


@pytest.fixture(scope="module")
def views() -> list[DialogueView]:
    """From the view of the second speaker: nothing predicts the first turn of a dialogue."""
    chosen = sample.dialogues("train")[:DIALOGUES]
    views = [shorten(view) for one in chosen for view in views_of(one, "own", speaker=one.turns[1].speaker)]
    assert len(views) == DIALOGUES
    assert all(view.own == (False, True, False, True) for view in views)
    return views


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in GENERATORS if name not in TESTED_ELSEWHERE])
def test_every_generator_can_overfit_fifty_dialogues(name: str, views: list[DialogueView]) -> None:
    words = WordTokenizer.learn(text for view in views for text in (*view.turns, *view.persona))
    model_type = GENERATORS.get(name)
    torch.manual_seed(0)
    model = model_type.untrained(small_config(model_type.config_type), words)
    before = perplexity(likelihoods(model.eval(), views))["perplexity"]
    assert before > 100
    model.train()
    learning_rate = 0.006 if "d_model" in model_type.config_type.model_fields else 0.02  # recurrent ones need more
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=UPDATES)
    for _ in range(UPDATES):
        nll = model.nll(views, target_turns="own")
        optimizer.zero_grad()
        (nll.total.sum() / nll.tokens.sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    assert perplexity(likelihoods(model.eval(), views))["perplexity"] < 1.5
