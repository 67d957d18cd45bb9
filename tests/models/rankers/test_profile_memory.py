"""Profile Memory: the attention by hand, with one hop and more, and personas of any length."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tertulia.models.rankers.base import Query, TrainablePairModel, TrainingPair
from tertulia.models.rankers.profile_memory import ProfileMemory, ProfileMemoryConfig
from tertulia.models.rankers.starspace import EncodedTexts, Starspace, StarspaceConfig

PERSONA = ("i keep bees", "i paint boats", "my dog is called rex")
PAIRS = [
    TrainingPair(Query(("hello", "hi !", "do you like honey ?"), PERSONA), "yes , i keep bees", 0),
    TrainingPair(Query(("what do you paint ?",), PERSONA[1:]), "boats , blue boats", 1),
    TrainingPair(Query(("good morning", "is it ?", "have you a dog ?"), PERSONA[2:]), "yes , rex", 2),
    TrainingPair(Query(("good morning",)), "hello there", 3),
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
        model.attention_turns.fill_(2.0)
        model.attention_sides.copy_(torch.tensor([[[0.0, 1.0], [1.0, 0.0]]] * 2))
        model.persona_weight.fill_(3.0)
    texts = EncodedTexts(
        torch.tensor([[[1.0, 0.5]]]),  # one turn: it asks with (1, 2)
        torch.tensor([[False]]),
        torch.tensor([[[0.0, 1.0], [1.0, 0.0], [9.0, 9.0]]]),  # fits 2 and 1; the third is not there
        torch.tensor([[True, True, False]]),
    )
    first = np.exp(2) / (np.exp(2) + np.exp(1))
    shares = model.attention(torch.tensor([[1.0, 2.0]]), texts)
    np.testing.assert_allclose(shares.detach().numpy(), [[first, 1 - first, 0]], atol=1e-6)
    query = model.with_persona(torch.tensor([[10.0, 20.0]]), texts)
    np.testing.assert_allclose(query.detach().numpy(), [[10 + 3 * (1 - first), 20 + 3 * first]], atol=1e-5)


@pytest.mark.parametrize("hops", [1, 3])
def test_hops_against_a_loop(hops: int) -> None:
    model = make(hops=hops)
    with torch.no_grad():
        texts = model._encode_texts(QUERIES)
        queries = model.with_persona(torch.ones(4, 5), texts).numpy()
    turns, persona = texts.turns.numpy(), texts.persona.numpy()
    weights, sides = model.attention_turns.detach().numpy(), model.attention_sides.detach().numpy()
    for row, query in enumerate(QUERIES):
        attending = sum(weights[ago] * turns[row, ago] @ sides[ago % 2] for ago in range(3))
        wanted = np.ones(5)
        for _ in range(hops):
            fits = np.exp([attending @ persona[row, i] for i in range(len(query.persona))])
            read = sum((fit / fits.sum() * persona[row, i] for i, fit in enumerate(fits)), np.zeros(5))
            wanted, attending = wanted + model.persona_weight.item() * read, attending + read
        np.testing.assert_allclose(queries[row], wanted, atol=1e-4)


def test_without_a_persona_it_is_starspace() -> None:
    model = make()
    plain = Starspace(StarspaceConfig(dim=5, turns=3), model.vocabulary).eval()
    plain.load_state_dict({name: weight for name, weight in model.state_dict().items() if "attention" not in name})
    bare = [Query(query.turns) for query in QUERIES]
    np.testing.assert_array_equal(model.queries(bare).vectors, plain.queries(bare).vectors)
    np.testing.assert_allclose(model.queries(QUERIES).vectors[3], plain.queries(bare).vectors[3], atol=1e-6)
    assert not np.allclose(model.queries(QUERIES).vectors[:3], plain.queries(bare).vectors[:3], atol=0.01)


def test_vectors_do_not_depend_on_the_batch() -> None:
    model = make()
    alone = [model.queries([query]).vectors[0] for query in QUERIES]
    np.testing.assert_allclose(model.queries(QUERIES).vectors, alone, atol=1e-6)
    assert np.isfinite(model.queries([Query(()), Query((), PERSONA)]).vectors).all()
    assert model.queries([]).vectors.shape == (0, 5)


def test_every_weight_gets_a_gradient() -> None:
    model = make()
    assert isinstance(model, TrainablePairModel)
    model.loss(PAIRS).backward()
    assert not {name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()}


def test_a_loaded_model_equals_the_saved_one(tmp_path: Path) -> None:
    model = make(hops=2)
    assert model.save(tmp_path) == ["words.txt"]
    again = ProfileMemory.load(tmp_path)
    assert again.config == model.config
    np.testing.assert_array_equal(again.queries(QUERIES).vectors, model.queries(QUERIES).vectors)
    np.testing.assert_array_equal(again.replies(REPLIES), model.replies(REPLIES))
