"""Every tensor that a generator creates is on the device of its weights.

Without an accelerator, the default device stands in for the wrong one: while a model on the CPU runs, torch creates
every tensor without an explicit device on "meta", where it holds no data. Any use of it together with the weights
fails.
"""

from typing import Any

import numpy as np
import pytest
import torch

from tertulia.core.config import validate
from tertulia.models.generator import DialogueView, LatentGenerator
from tertulia.models.generators.hred import HRED
from tertulia.models.registry import GENERATORS
from tertulia.models.sampling import row_keys
from tertulia.models.token_logits import GivesLogits

from ..conftest import VIEWS, WORDS, assert_close

GRU = {"dim": 8, "encoder": 8, "context": 8, "decoder": 8, "personas": True, "max_turns": 2}
BLOCKS = {"d_model": 16, "heads": 2, "max_length": 24, "reserve": 4}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "seq2seq": ("seq2seq", {"dim": 8, "hidden": 8}),
    "seq2seq without encoder": ("seq2seq", {"dim": 8, "hidden": 8, "encoder": False}),
    "generative-profile-memory": ("generative-profile-memory", {"dim": 8, "hidden": 8}),
    "hred": ("hred", {**GRU, "ei": {"kind": "both", "emotions": 2, "semantics": 2}}),
    "hred with teacher inputs": ("hred", {**GRU, "ei": {"kind": "input", "emotions": 2, "semantics": 2}}),
    "vhred": ("vhred", {**GRU, "latent": 4}),
    "vhcr": ("vhcr", {**GRU, "latent": 4, "conversation": 4}),
    "transformer": ("transformer", {**BLOCKS, "decoder_layers": 1}),
    "transformer with encoder": ("transformer", {**BLOCKS, "encoder_layers": 1, "decoder_layers": 1}),
    "evolved": ("evolved", {**BLOCKS, "decoder_blocks": 1}),
    "evolved with encoder": ("evolved", {**BLOCKS, "encoder_blocks": 1, "decoder_blocks": 1}),
}
DIALOGUES = [
    DialogueView(("hi", "hello , who are you ?"), (False, True), ("i like tea", "a baker"), ("i like bread",)),
    DialogueView((), ()),
    *VIEWS,
]


def build(case: str) -> Any:
    name, settings = MODELS[case]
    model_type = GENERATORS.get(name)
    torch.manual_seed(0)
    model = model_type.untrained(validate(model_type.config_type, settings, where="the test"), WORDS)
    if isinstance(model, HRED):
        model.set_teachers(
            emotion=lambda texts: np.full((len(texts), 2), 0.5), semantics=lambda texts: np.zeros((len(texts), 2))
        )
    return model


def test_every_generator_is_tested() -> None:
    with_base = {"finetune"}  # tests/models/hf/test_finetuned.py
    assert {name for name, _ in MODELS.values()} | with_base == set(GENERATORS)


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("training", [True, False])
def test_tensors_are_created_on_the_device_of_the_weights(case: str, training: bool) -> None:
    model = build(case).train(training)
    tokens, rows = torch.tensor([6, 7, 8, 9, 10, 11]), torch.tensor([5, 0, 0, 3])
    with torch.device("meta"):
        for views in (DIALOGUES, DIALOGUES[1:2], []):
            nll = model.nll(views)
            assert nll.total.device == nll.tokens.device == model.device == torch.device("cpu")
        nll = model.nll(DIALOGUES, target_turns="last")
        nll.total.sum().backward()
        if isinstance(model, GivesLogits):
            assert model.token_logits(DIALOGUES).logits.device == model.device
        if isinstance(model, HRED):
            model.losses(DIALOGUES).loss().backward()
        states = [model.start(DIALOGUES[:2]).expand(3)]
        if isinstance(model, LatentGenerator):
            assert model.importance(DIALOGUES, samples=2, seed=0).bound.device == model.device
            states.append(model.start(DIALOGUES[:2], keys=row_keys([1, 2], 3)))
        for state in states:
            _, state = model.step(state, None)
            logits, state = model.step(state, tokens)
            for _ in range(30):  # longer than the sinusoids that a model starts with
                logits, _ = model.step(state.select(rows), tokens[rows])
                logits, state = model.step(state, tokens)
            assert logits.device == model.device
            assert logits.isfinite().all()


@pytest.mark.parametrize("case", MODELS)
def test_the_default_device_changes_no_value(case: str) -> None:
    """Some operations accept an index on another device, and read garbage from "meta"."""
    model = build(case).double().eval()
    logits, _ = model.step(model.start(DIALOGUES), None)
    with torch.device("meta"):
        other, _ = model.step(model.start(DIALOGUES), None)
    assert_close(other, logits)
