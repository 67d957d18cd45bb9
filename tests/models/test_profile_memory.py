"""Profile Memory: the attention told by hand, with one hop and more, and personas of any length."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tertulia.models.profile_memory import ProfileMemory, ProfileMemoryConfig
from tertulia.models.ranker import Pair, Query, TrainableRanker
from tertulia.models.starspace import Heard, Starspace, StarspaceConfig

PERSONA = ("i keep bees", "i paint boats", "my dog is called rex")
PAIRS = [
    Pair(Query(("hello", "hi !", "do you like honey ?"), PERSONA), "yes , i keep bees", 0),
    Pair(Query(("what do you paint ?",), PERSONA[1:]), "boats , blue boats", 1),
    Pair(Query(("good morning", "is it ?", "have you a dog ?"), PERSONA[2:]), "yes , rex", 2),
    Pair(Query(("good morning",)), "hello there", 3),
]
QUERIES = [pair.query for pair in PAIRS]
REPLIES = [pair.reply for pair in PAIRS]


def make(**options: object) -> ProfileMemory:
    torch.manual_seed(1)
    config = ProfileMemoryConfig.model_validate({"dim": 5, "turns": 3, "min_count": 1} | options)
    model = ProfileMemory.untrained(config, PAIRS).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name not in ("weights", "scale"):
                weight.normal_()
    return model


def test_attention_by_hand() -> None:
    model = make(dim=2, turns=1)
    with torch.no_grad():
        model.asking_turns.fill_(2.0)
        model.asking_sides.copy_(torch.tensor([[[0.0, 1.0], [1.0, 0.0]]] * 2))
        model.lean.fill_(3.0)
    heard = Heard(
        torch.tensor([[[1.0, 0.5]]]),  # one turn: it asks with (1, 2)
        torch.tensor([[[0.0, 1.0], [1.0, 0.0], [9.0, 9.0]]]),  # fits 2 and 1; the third is not there
        torch.tensor([[True, True, False]]),
    )
    first = np.exp(2) / (np.exp(2) + np.exp(1))
    shares = model.attention(torch.tensor([[1.0, 2.0]]), heard)
    np.testing.assert_allclose(shares.detach().numpy(), [[first, 1 - first, 0]], atol=1e-6)
    found = model.with_persona(torch.tensor([[10.0, 20.0]]), heard)
    np.testing.assert_allclose(found.detach().numpy(), [[10 + 3 * (1 - first), 20 + 3 * first]], atol=1e-5)


@pytest.mark.parametrize("hops", [1, 3])
def test_hops_against_a_loop(hops: int) -> None:
    model = make(hops=hops)
    with torch.no_grad():
        heard = model._hear(QUERIES)
        found = model.with_persona(torch.ones(4, 5), heard).numpy()
    turns, persona = heard.turns.numpy(), heard.persona.numpy()
    weights, sides = model.asking_turns.detach().numpy(), model.asking_sides.detach().numpy()
    for row, query in enumerate(QUERIES):
        asking = sum(weights[ago] * turns[row, ago] @ sides[ago % 2] for ago in range(3))
        wanted = np.ones(5)
        for _ in range(hops):
            fits = np.exp([asking @ persona[row, i] for i in range(len(query.persona))])
            read = sum((fit / fits.sum() * persona[row, i] for i, fit in enumerate(fits)), np.zeros(5))
            wanted, asking = wanted + model.lean.item() * read, asking + read
        np.testing.assert_allclose(found[row], wanted, atol=1e-4)


def test_without_a_persona_it_is_starspace() -> None:
    model = make()
    plain = Starspace(StarspaceConfig(dim=5, turns=3), model.vocabulary).eval()
    plain.load_state_dict({name: weight for name, weight in model.state_dict().items() if "asking" not in name})
    bare = [Query(query.turns) for query in QUERIES]
    np.testing.assert_array_equal(model.queries(bare).vectors, plain.queries(bare).vectors)
    np.testing.assert_allclose(model.queries(QUERIES).vectors[3], plain.queries(bare).vectors[3], atol=1e-6)
    assert not np.allclose(model.queries(QUERIES).vectors[:3], plain.queries(bare).vectors[:3], atol=0.01)


def test_a_batch_is_encoded_as_one_by_one() -> None:
    model = make()
    alone = [model.queries([query]).vectors[0] for query in QUERIES]
    np.testing.assert_allclose(model.queries(QUERIES).vectors, alone, atol=1e-6)
    assert np.isfinite(model.queries([Query(()), Query((), PERSONA)]).vectors).all()
    assert model.queries([]).vectors.shape == (0, 5)


def test_every_weight_gets_a_gradient() -> None:
    model = make()
    assert isinstance(model, TrainableRanker)
    model.loss(PAIRS).backward()
    assert not {name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()}


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    model = make(hops=2)
    assert model.save(tmp_path) == ["words.txt"]
    again = ProfileMemory.load(tmp_path)
    assert again.config == model.config
    np.testing.assert_array_equal(again.queries(QUERIES).vectors, model.queries(QUERIES).vectors)
    np.testing.assert_array_equal(again.replies(REPLIES), model.replies(REPLIES))
