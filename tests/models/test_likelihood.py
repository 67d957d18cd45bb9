"""Log-likelihoods of given turns: many in one pass are the same as one by one."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from tertulia.models.generator import DialogueView, Generator, LatentGenerator
from tertulia.models.likelihood import log_likelihoods
from tertulia.models.registry import GENERATORS

from .conftest import WORDS

GRU = {"dim": 8, "encoder": 8, "context": 8, "decoder": 8}
BLOCKS = {"d_model": 16, "heads": 2, "max_length": 128}
TINY: dict[str, dict[str, Any]] = {
    "seq2seq": {"dim": 8, "hidden": 8},
    "generative-profile-memory": {"dim": 8, "hidden": 8},
    "hred": {**GRU, "personas": True},
    "vhred": {**GRU, "latent": 4},
    "vhcr": {**GRU, "latent": 4, "conversation": 4},
    "transformer": {**BLOCKS, "decoder_layers": 2},
    "evolved": {**BLOCKS, "decoder_blocks": 1},
}
CONTEXTS = [
    DialogueView(("hi",), (False,)),
    DialogueView(("hi", "hello , who are you ?", "a baker"), (False, True, False), ("i like bread",), ("i like tea",)),
    DialogueView((), ()),
    DialogueView(("do you like tea ?",), (False,), ("i like coffee !",)),
]
REPLIES = ("no , i like coffee !", "", "hello", "i like bread , you like tea ?", "a", "who are you ?", "hello")


def make(name: str) -> Generator:
    torch.manual_seed(3)
    kind = GENERATORS.get(name)
    model: Generator = kind.untrained(kind.config_type(**TINY[name]), WORDS).eval()
    return model


def one_by_one(model: Generator, views: Sequence[DialogueView]) -> list[float]:
    scores = []
    for view in views:
        if isinstance(model, LatentGenerator):
            nll = model.nll([view], target_turns="last", latent="mean")
        else:
            nll = model.nll([view], target_turns="last")
        scores.append(float(-nll.total[0] / max(1, int(nll.tokens[0]))))
    return scores


@torch.no_grad()
@pytest.mark.parametrize("name", TINY)
def test_turns_that_share_a_context_have_the_likelihood_they_have_alone(name: str) -> None:
    model = make(name)
    views = [context.with_turn(reply) for context in CONTEXTS for reply in REPLIES]
    views += [CONTEXTS[1].with_turn("hello", own=False), replace(CONTEXTS[0], partner=("a",)).with_turn("hello")]
    random.Random(0).shuffle(views)
    expected = one_by_one(model, views)
    assert log_likelihoods(model, views) == pytest.approx(expected, abs=1e-4)
    assert log_likelihoods(model, views[:2]) == pytest.approx(expected[:2], abs=1e-4)
    assert log_likelihoods(model, []) == []


def test_a_context_is_encoded_once_for_all_of_its_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("transformer")
    encoded: list[DialogueView] = []
    rows: list[int] = []
    start, step = model.start, model.step
    monkeypatch.setattr(model, "start", lambda views: (encoded.extend(views), start(views))[1])
    monkeypatch.setattr(
        model, "step", lambda state, last: (last is None or rows.append(len(last)), step(state, last))[1]
    )
    monkeypatch.setattr("tertulia.models.likelihood.ROWS_AT_ONCE", 10)
    sums = log_likelihoods(model, [c.with_turn(reply) for c in CONTEXTS for reply in REPLIES], score="sum")
    assert sorted(encoded, key=repr) == sorted(CONTEXTS, key=repr)
    assert max(rows) <= 10
    monkeypatch.setattr("tertulia.models.likelihood.ROWS_AT_ONCE", 3)
    again = log_likelihoods(model, [c.with_turn(reply) for c in CONTEXTS for reply in REPLIES], score="sum")
    assert again == pytest.approx(sums, abs=1e-4)
    assert sums[0] < sums[1]  # every word lowers the sum
