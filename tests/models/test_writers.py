"""Given turns by likelihood: read once for many, the same as one by one."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from tertulia.models.generator import Generator, Talk
from tertulia.models.writers import WRITERS, log_likelihoods

from .conftest import WORDS

GRU = {"dim": 8, "encoder": 8, "context": 8, "decoder": 8}
BLOCKS = {"d_model": 16, "heads": 2, "longest": 128}
TINY: dict[str, dict[str, Any]] = {
    "seq2seq": {"dim": 8, "hidden": 8},
    "profile-memory-writer": {"dim": 8, "hidden": 8},
    "hred": {**GRU, "personas": True},
    "vhred": {**GRU, "latent": 4},
    "vhcr": {**GRU, "latent": 4, "conversation": 4},
    "transformer": {**BLOCKS, "decoder_layers": 2},
    "evolved": {**BLOCKS, "decoder_blocks": 1},
}
CONTEXTS = [
    Talk(("hi",), (False,)),
    Talk(("hi", "hello , who are you ?", "a baker"), (False, True, False), ("i like bread",), ("i like tea",)),
    Talk((), ()),
    Talk(("do you like tea ?",), (False,), ("i like coffee !",)),
]
REPLIES = ("no , i like coffee !", "", "hello", "i like bread , you like tea ?", "a", "who are you ?", "hello")


def made(name: str) -> Generator:
    torch.manual_seed(3)
    kind = WRITERS.get(name)
    model: Generator = kind.untrained(kind.config_type(**TINY[name]), WORDS).eval()
    return model


def one_by_one(model: Generator, talks: Sequence[Talk]) -> list[float]:
    found = []
    for talk in talks:
        nll = model.nll([talk], scored="last")
        found.append(float(-nll.total[0] / max(1, int(nll.tokens[0]))))
    return found


@torch.no_grad()
@pytest.mark.parametrize("name", TINY)
def test_many_turns_after_one_conversation_are_as_probable_as_one_by_one(name: str) -> None:
    model = made(name)
    talks = [context.said(reply) for context in CONTEXTS for reply in REPLIES]
    talks += [CONTEXTS[1].said("hello", own=False), replace(CONTEXTS[0], partner=("a",)).said("hello")]
    random.Random(0).shuffle(talks)
    if hasattr(model, "draws"):
        model.draws = False
    expected = one_by_one(model, talks)
    if hasattr(model, "draws"):
        model.draws = True
    assert log_likelihoods(model, talks) == pytest.approx(expected, abs=1e-4)
    assert log_likelihoods(model, talks[:2]) == pytest.approx(expected[:2], abs=1e-4)
    assert log_likelihoods(model, []) == []


def test_a_conversation_is_read_once_for_all_of_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("transformer")
    read: list[Talk] = []
    rows: list[int] = []
    start, step = model.start, model.step
    monkeypatch.setattr(model, "start", lambda talks: (read.extend(talks), start(talks))[1])
    monkeypatch.setattr(
        model, "step", lambda state, last: (last is None or rows.append(len(last)), step(state, last))[1]
    )
    monkeypatch.setattr("tertulia.models.writers.ROWS_AT_ONCE", 10)
    sums = log_likelihoods(model, [c.said(reply) for c in CONTEXTS for reply in REPLIES], score="sum")
    assert sorted(read, key=repr) == sorted(CONTEXTS, key=repr)
    assert max(rows) <= 10
    monkeypatch.setattr("tertulia.models.writers.ROWS_AT_ONCE", 3)
    again = log_likelihoods(model, [c.said(reply) for c in CONTEXTS for reply in REPLIES], score="sum")
    assert again == pytest.approx(sums, abs=1e-4)
    assert sums[0] < sums[1]  # every word costs something
