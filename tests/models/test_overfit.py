"""Every model that writes can learn fifty dialogues by heart: what cannot do that has a gradient that goes astray."""

from dataclasses import replace

import pytest
import torch

from tertulia import sample
from tertulia.core.config import Config, validate
from tertulia.models.generator import Talk
from tertulia.models.likelihood import likelihoods, perplexity, talks_of
from tertulia.models.tokenizer import WordTokenizer
from tertulia.models.writers import WRITERS

ELSEWHERE = {"hred", "vhred", "vhcr"}
"""Models whose own tests have them overfit, as their likelihoods need care of their own."""
SIZES = {
    "dim": 48,
    "hidden": 96,
    "d_model": 64,
    "heads": 4,
    "decoder_layers": 2,
    "decoder_blocks": 1,
    "dropout": 0.0,
}
"""Small sizes, by the names of a config's fields."""
DIALOGUES, TURNS, WORDS, SENTENCES = 50, 4, 8, 2
UPDATES = 90


def short(talk: Talk) -> Talk:
    """Its first turns, of each the first words, and a part of the persona."""
    turns = tuple(" ".join(text.split()[:WORDS]) for text in talk.turns[:TURNS])
    return replace(talk, turns=turns, own=talk.own[:TURNS], persona=talk.persona[:SENTENCES])


def small(kind: type[Config]) -> Config:
    return validate(kind, {k: v for k, v in SIZES.items() if k in kind.model_fields}, where="the test")


@pytest.fixture(scope="module")
def talks() -> list[Talk]:
    """As the one who answers sees them: how a dialogue begins could not be told from anything."""
    chosen = sample.dialogues("train")[:DIALOGUES]
    found = [short(talk) for one in chosen for talk in talks_of(one, "own", speaker=one.turns[1].speaker)]
    assert len(found) == DIALOGUES
    assert all(talk.own == (False, True, False, True) for talk in found)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in WRITERS if name not in ELSEWHERE])
def test_every_model_learns_fifty_dialogues_by_heart(name: str, talks: list[Talk]) -> None:
    words = WordTokenizer.learn(text for talk in talks for text in (*talk.turns, *talk.persona))
    kind = WRITERS.get(name)
    torch.manual_seed(0)
    model = kind.untrained(small(kind.config_type), words)
    before = perplexity(likelihoods(model.eval(), talks))["perplexity"]
    assert before > 100
    model.train()
    rate = 0.006 if "d_model" in kind.config_type.model_fields else 0.02  # recurrent ones bear more
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=UPDATES)
    for _ in range(UPDATES):
        found = model.nll(talks, scored="own")
        optimizer.zero_grad()
        (found.total.sum() / found.tokens.sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    assert perplexity(likelihoods(model.eval(), talks))["perplexity"] < 1.5
