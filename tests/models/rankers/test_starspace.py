"""Starspace: sums by hand, independence of the batch, losses, saving and loading."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from tertulia.core.errors import DataError
from tertulia.models.checkpoint import WEIGHTS, seal
from tertulia.models.rankers.base import Floats, Query, TrainablePairModel, TrainingPair
from tertulia.models.rankers.starspace import Starspace, StarspaceConfig, margin_loss

PERSONA = ("i keep bees", "i paint boats")
PAIRS = [
    TrainingPair(Query(("hello , who are you ?",), PERSONA), "i am the one who keeps bees", 0),
    TrainingPair(Query(("hello there", "hi !", "do you like honey ?"), PERSONA), "yes , bees and honey", 1),
    TrainingPair(Query(("what do you paint ?",)), "boats , blue boats", 2),
    TrainingPair(
        Query(("good morning", "is it ?", "what is your dog called ?", "rex", "and the other ?"), PERSONA[:1]), "max", 3
    ),
]
QUERIES = [pair.query for pair in PAIRS]
DOUBLED = Query(("good morning", "is it ?", "do you like honey ?"), own=(True, False, False))
"""The partner sends two messages in a row."""
REPLIES = [pair.reply for pair in PAIRS]


def make(**options: object) -> Starspace:
    """A model whose every weight is drawn, so that none can hide."""
    torch.manual_seed(1)
    config = StarspaceConfig.model_validate({"dim": 6, "turns": 3, "min_count": 1} | options)
    model = Starspace.untrained(config, PAIRS).eval()
    with torch.no_grad():
        for weight in (model.input_vectors, model.output_vectors, model.turns, model.sides):
            weight.normal_()
        model.persona_weight.fill_(0.7)
    return model


def by_hand(model: Starspace, table: torch.Tensor, text: str) -> Floats:
    """The weighted sum of a text's words over the root of their weights."""
    words = model.vocabulary.ids(text)[: model.config.max_tokens]
    weights = [model.weights[word].item() for word in words]
    total = sum(w * table[word].detach().numpy() for w, word in zip(weights, words, strict=True))
    return np.asarray(total / math.sqrt(sum(map(abs, weights))), dtype=np.float32)


def unit(vector: Floats) -> Floats:
    return vector / np.linalg.norm(vector)


def test_speakers_alternate_unless_told_otherwise() -> None:
    assert [Query(("a",) * n).own for n in range(4)] == [(), (False,), (True, False), (False, True, False)]
    model = make()
    doubled, alternating = model.queries([DOUBLED, Query(DOUBLED.turns)]).vectors
    assert not np.allclose(doubled, alternating, atol=1e-3)
    with pytest.raises(ValueError, match="3 turns, but 2"):
        Query(DOUBLED.turns, own=(True, False))


@pytest.mark.parametrize("query", [*QUERIES, DOUBLED])
def test_a_query_is_the_sum_of_its_turns_and_persona(query: Query) -> None:
    model = make()
    wanted = np.zeros(6, np.float32)
    for ago, text in enumerate(reversed(query.turns[-3:])):
        side = model.sides[int(query.own[-1 - ago])].detach().numpy()
        wanted += model.turns[ago].item() * by_hand(model, model.input_vectors, text) @ side
    for sentence in query.persona:
        wanted += 0.7 * by_hand(model, model.output_vectors, sentence) / math.sqrt(len(query.persona))
    np.testing.assert_allclose(model.queries([query]).vectors[0], unit(wanted), atol=1e-5)


def test_scores_are_cosines() -> None:
    model = make(max_tokens=4)
    replies = model.replies(REPLIES)
    np.testing.assert_allclose(
        replies, [unit(by_hand(model, model.output_vectors, text)) for text in REPLIES], atol=1e-5
    )
    queries = model.queries(QUERIES)
    scores = model.scores(queries, np.broadcast_to(replies, (len(QUERIES), *replies.shape)))
    np.testing.assert_allclose(scores, queries.vectors @ replies.T, atol=1e-6)
    assert np.abs(scores).max() <= 1 + 1e-6
    assert isinstance(model, TrainablePairModel)


def test_vectors_do_not_depend_on_the_batch() -> None:
    model = make()
    together, alone = model.queries(QUERIES).vectors, [model.queries([query]).vectors[0] for query in QUERIES]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    many = model.replies(REPLIES * 700)  # more than go at once
    np.testing.assert_allclose(many[-4:], model.replies(REPLIES), atol=1e-6)


def test_empty_and_unknown_texts_are_encoded() -> None:
    model = make()
    assert model.replies([]).shape == model.queries([]).vectors.shape == (0, 6)
    odd = model.queries([Query(()), Query(("",)), Query((), PERSONA), Query(("zyx",), ("",))]).vectors
    assert np.isfinite(odd).all()
    assert odd[0].tolist() == [0] * 6
    np.testing.assert_allclose(np.linalg.norm(odd[1:], axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(model.replies(["", "zyx"]), axis=1), 1, atol=1e-5)


def test_rare_words_have_larger_initial_weights() -> None:
    model = make()
    weight = {word: model.weights[model.vocabulary.index(word)].item() for word in model.vocabulary.words}
    assert weight["rex"] > weight["bees"] > weight["?"]
    texts = {text for pair in PAIRS for text in (*pair.query.turns, *pair.query.persona, pair.reply)}
    assert weight["rex"] == pytest.approx(math.log(len(texts)) / 5)


def test_pretrained_word_vectors() -> None:
    model = make()
    before = model.output_vectors.detach().clone()
    model.load_word_vectors({"bees": np.array([3, 4, 0, 0], np.float32)})
    index = model.vocabulary.index("bees")
    for table in (model.input_vectors, model.output_vectors):
        torch.testing.assert_close(table[index, :4].detach(), torch.tensor([0.6, 0.8, 0, 0]))
    torch.testing.assert_close(model.output_vectors[index, 4:].detach(), before[index, 4:] * 0.3)
    assert torch.equal(model.output_vectors[index - 1], before[index - 1])


def test_word_dropout_applies_in_training_only() -> None:
    model = make(word_dropout=0.5)
    assert torch.equal(model.loss(PAIRS), model.loss(PAIRS))
    model.train()
    assert not torch.equal(model.loss(PAIRS), model.loss(PAIRS))
    assert torch.isfinite(make(word_dropout=0.999).train().loss(PAIRS))


def test_the_softmax_masks_false_negatives() -> None:
    model = make()
    pairs = [*PAIRS, TrainingPair(QUERIES[2], "max", 4), TrainingPair(QUERIES[1], "boats", 0)]
    logits = 8 * model.queries([p.query for p in pairs]).vectors @ model.replies([p.reply for p in pairs]).T
    for i, j in ((3, 4), (0, 5)):
        logits[i, j] = logits[j, i] = -np.inf
    wanted = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits.diagonal())
    assert model.loss(pairs).item() == pytest.approx(wanted, abs=1e-4)


def test_the_margin_loss_by_hand() -> None:
    cosines = torch.tensor([[0.9, 0.5, 0.85], [0.0, 0.1, 0.3], [-1.0, -1.0, 0.2]])
    pairs = [TrainingPair(Query((str(i),)), f"reply {i}", i) for i in range(3)]
    loss = margin_loss(cosines, pairs, margin=0.2, negatives=2)
    assert float(loss) == pytest.approx((0.15 + 0.1 + 0.4) / 6)
    together = [
        TrainingPair(pairs[0].query, "a", 0),
        TrainingPair(pairs[1].query, "b", 0),
        TrainingPair(pairs[2].query, "c", 1),
    ]
    loss = margin_loss(cosines, together, margin=0.2, negatives=2)
    assert float(loss) == pytest.approx((0.15 + 0.4) / 4), "a reply of the same dialogue is no distractor"
    alone = [TrainingPair(pair.query, pair.reply, 0) for pair in pairs]
    assert float(margin_loss(cosines, alone, margin=0.2, negatives=2)) == 0


def test_the_margin_loss_samples_uniformly() -> None:
    cosines = torch.zeros(40, 40)
    cosines[:, :20] = 0.5  # half of the false replies are 0.5 too near
    cosines.fill_diagonal_(0.5)
    pairs = [TrainingPair(Query((str(i),)), f"reply {i}", i) for i in range(40)]
    torch.manual_seed(0)
    drawn = torch.stack([margin_loss(cosines, pairs, margin=0.1, negatives=3) for _ in range(200)])
    assert float(drawn.mean()) == pytest.approx(0.1 * 19.5 / 39, rel=0.05)
    assert float(drawn.std()) > 0


@pytest.mark.parametrize("loss", ["softmax", "margin"])
def test_every_weight_gets_a_gradient(loss: str) -> None:
    model = make(loss=loss, margin=3.0)
    model.loss(PAIRS).backward()
    still = {name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()}
    assert still == ({"scale"} if loss == "margin" else set())


def test_a_loaded_model_equals_the_saved_one(tmp_path: Path) -> None:
    model = make(loss="margin")
    files = model.save(tmp_path)
    seal(tmp_path, bot="starspace", model="starspace", files=files, training={})
    again = Starspace.load(tmp_path)
    assert (again.config, again.vocabulary.words) == (model.config, model.vocabulary.words)
    assert not again.training
    np.testing.assert_array_equal(again.queries(QUERIES).vectors, model.queries(QUERIES).vectors)
    np.testing.assert_array_equal(again.replies(REPLIES), model.replies(REPLIES))
    (tmp_path / WEIGHTS).write_bytes(b"")
    with pytest.raises(DataError, match="damaged"):
        Starspace.load(tmp_path)
