"""Every tensor that a ranker or a classifier of pairs creates is on the device of its weights, or moved there.

As for generators (tests/models/generators/test_device.py), a default device without data stands in for the wrong one.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tertulia.models.classifiers.pair_classifier import PairClassifier, PairClassifierConfig, PairExample, TextPair
from tertulia.models.rankers.base import Query, TrainingPair
from tertulia.models.registry import RANKERS, RERANKERS

PERSONA = ("i love cats", "i hate dogs")
PAIRS = [
    TrainingPair(Query(("cats", "i love"), PERSONA), "i love dogs", 0),
    TrainingPair(Query(("dogs",), PERSONA[:1]), "i hate cats", 1),
    TrainingPair(Query(("i", "dogs", "love")), "cats", 2),
]
QUERIES, REPLIES = [pair.query for pair in PAIRS], [pair.reply for pair in PAIRS]
WORDS = {"dim": 6, "turns": 2, "min_count": 1}
OPTIONS: dict[str, dict[str, Any]] = {
    "starspace": WORDS,
    "profile-memory": WORDS,
    "kv-memory": WORDS,
    "dual-encoder": {"dim": 6, "hidden": 6, "max_tokens": 12},
    "minilm": {},
    "cross-encoder": {},
}


def test_every_ranker_is_tested() -> None:
    assert set(OPTIONS) == {*RANKERS, *RERANKERS}


@pytest.mark.parametrize("name", OPTIONS)
def test_tensors_are_created_on_the_device_of_the_weights(name: str, tiny_models: Any) -> None:
    kind = (RANKERS if name in RANKERS else RERANKERS).get(name)
    encoder = {"encoder": str(tiny_models.make_classifier("pairs", ("x", "y")))} if not OPTIONS[name] else {}
    torch.manual_seed(0)
    model = kind.untrained(kind.config_type.model_validate({**OPTIONS[name], **encoder}), PAIRS)
    if name == "kv-memory":
        model.store(PAIRS)
    with torch.device("meta"):
        model.train().loss(PAIRS).backward()
    assert any(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in model.parameters())
    model.eval()
    score: Callable[[], Any] = lambda: model.score_pairs(QUERIES, [REPLIES] * 3)  # noqa: E731
    if name in RANKERS:
        score = lambda: model.scores(model.queries(QUERIES), np.stack([model.replies(REPLIES)] * 3))  # noqa: E731
    expected = np.asarray(score())
    model.train().eval()  # forget what was encoded before
    with torch.device("meta"):
        np.testing.assert_allclose(np.asarray(score()), expected, atol=1e-5)


def test_a_classifier_of_pairs_creates_its_tensors_there_too(tiny_models: Any) -> None:
    torch.manual_seed(0)
    config = PairClassifierConfig(encoder=str(tiny_models.make_classifier("pairs", ("x", "y"))), max_length=32)
    model = PairClassifier.untrained(config, ("x", "y")).eval()
    pairs = [TextPair(("i love cats",), "i hate dogs"), TextPair(("cats", "dogs"), "love")]
    expected = model.label_probabilities(pairs)
    with torch.device("meta"):
        np.testing.assert_allclose(model.label_probabilities(pairs), expected, atol=1e-5)
        assert model([]).shape == (0, 2)
        assert model([]).device == model.head.weight.device
        model.loss([PairExample(pair, (0,)) for pair in pairs]).backward()
