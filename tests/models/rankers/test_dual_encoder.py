"""The dual encoder: scores, independence of padding and batch, saving and loading."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.models.checkpoint import count_parameters, seal
from tertulia.models.rankers.base import Query, TrainablePairModel, TrainingPair
from tertulia.models.rankers.dual_encoder import (
    END_OF_TURN,
    END_OF_UTTERANCE,
    DualEncoder,
    DualEncoderConfig,
    binary_loss,
    share_prefixes,
    split_tags,
)
from tertulia.models.rankers.vocabulary import UNKNOWN, Vocabulary

TEXTS = [
    "how do i mount a disk",
    "sudo mount /dev/sda1 , then look into __path__",
    "thanks",
    "it says permission denied\nwhat now ?",
    "read __url__ please",
    "ok " * 60,
]
QUERIES = [Query(tuple(TEXTS[:n])) for n in range(1, 7)] + [Query(("thanks",)), Query(tuple(TEXTS[3:5]), ("i am",))]


def make(**options: object) -> DualEncoder:
    torch.manual_seed(1)
    without_tags, tags = split_tags(TEXTS, min_count=1)
    config = DualEncoderConfig.model_validate({"hidden": 8, "dim": 6, "max_tokens": 40, **options})
    return DualEncoder(config, Vocabulary.count(without_tags, min_count=1), tags).eval()


def pairs() -> list[TrainingPair]:
    return [TrainingPair(query, text, group) for group, (query, text) in enumerate(zip(QUERIES, TEXTS, strict=False))]


@pytest.mark.parametrize("cell", ["rnn", "lstm"])
def test_the_score_is_the_papers_up_to_b(cell: str) -> None:
    model = make(cell=cell)
    with torch.no_grad():
        model.match.copy_(torch.randn(8, 8))
        model.bias.fill_(3.0)
        contexts, replies = model._contexts(QUERIES), model._replies(TEXTS)
        wanted = torch.einsum("ni,ij,mj->nm", contexts, model.match, replies) + model.bias
    encoded = np.broadcast_to(model.replies(TEXTS), (len(QUERIES), len(TEXTS), 8))
    scores = model.scores(model.queries(QUERIES), encoded)
    np.testing.assert_allclose(scores + 3.0, wanted.numpy(), rtol=1e-4, atol=1e-5)
    assert isinstance(model, TrainablePairModel)


@pytest.mark.parametrize(("cell", "summary"), [("rnn", "last"), ("lstm", "last"), ("lstm", "mean")])
def test_vectors_do_not_depend_on_the_batch(cell: str, summary: str) -> None:
    model = make(cell=cell, summary=summary)
    together, alone = model.queries(QUERIES).vectors, [model.queries([query]).vectors[0] for query in QUERIES]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(model.replies(TEXTS), [model.replies([text])[0] for text in TEXTS], atol=1e-6)
    assert not np.allclose(together[0], together[1], atol=1e-3), "otherwise the test shows nothing"


def test_the_state_is_that_of_a_plain_lstm_after_the_last_token() -> None:
    model, mean = make(), make(summary="mean")
    ids = torch.from_numpy(model._turn_ids("how do i mount"))[None]
    with torch.no_grad():
        states, (last, _) = model.cells[0](model.words(ids))
    np.testing.assert_allclose(model.replies(["how do i mount"]), last[0].numpy(), atol=1e-6)
    np.testing.assert_allclose(mean.replies(["how do i mount"]), states.mean(dim=1).numpy(), atol=1e-6)


def test_tags_are_single_tokens() -> None:
    model = make()
    names = (*("<pad>", "<unknown>"), *model.vocabulary.words, *model.tags)
    said = [names[i] for i in model._turn_ids("Read __url__ please\nthanks __never__")]
    end, turn = END_OF_UTTERANCE, END_OF_TURN
    assert said == ["read", "__url__", "please", end, "thanks", "<unknown>", end, turn]
    assert model.tags == (end, turn, "__path__", "__url__")
    assert not {"_", "url", "path"} & set(model.vocabulary.words)
    assert [names[i] for i in model._turn_ids("")] == [end, turn]


def test_a_long_context_keeps_its_last_turns() -> None:
    model = make(max_tokens=12)
    said = [f"{word} {word} {word}" for word in ("how", "do", "i", "mount", "disk")]  # five tokens each, with tags
    turns = [model._turn_ids(text).tolist() for text in said]
    contexts = [model._context_ids(Query(tuple(said[:n]))).tolist() for n in range(1, 6)]
    assert contexts == [turns[0], turns[0] + turns[1], turns[2], turns[2] + turns[3], turns[4]]
    long = model._context_ids(Query(("how", "ok " * 60)))
    assert long.tolist() == model._turn_ids("ok " * 60)[-12:].tolist()
    assert len(model._context_ids(Query(()))) == 1
    assert model.replies(["ok " * 60]).tolist() == model.replies(["ok " * 70]).tolist(), "a reply keeps its first"


rows_of_tokens = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), max_size=12)


@given(rows_of_tokens)
@settings(deadline=None)
def test_every_row_is_a_prefix_of_one_sequence_and_no_sequence_of_another(rows: Sequence[Sequence[int]]) -> None:
    shared = share_prefixes([np.array(row, dtype=np.int64) for row in rows])
    for row, owner, end in zip(rows, shared.owner, shared.end, strict=True):
        assert shared.sequences[owner][: end + 1].tolist() == list(row)
    sequences = [tuple(sequence.tolist()) for sequence in shared.sequences]
    assert sorted(map(len, sequences), reverse=True) == list(map(len, sequences))
    for i, one in enumerate(sequences):
        assert not any(other[: len(one)] == one for k, other in enumerate(sequences) if k != i)


def test_tied_encoders_share_their_weights() -> None:
    tied, free = make(), make(tied=False)
    assert tied.cells[0] is tied.cells[-1]
    assert free.cells[0] is not free.cells[-1]
    assert count_parameters(free) - count_parameters(tied) == count_parameters(tied.cells[0])
    tied.train()
    with torch.no_grad():
        before = tied._replies(TEXTS)
        for weight in tied.cells[0].parameters():
            weight.add_(0.1)
        assert not torch.allclose(tied._replies(TEXTS), before)


@pytest.mark.parametrize("cell", ["rnn", "lstm"])
def test_recurrent_weights_are_initialised_orthogonal(cell: str) -> None:
    model = make(cell=cell)
    gates = model.cells[0].weight_hh_l0.detach().split(8)
    assert len(gates) == (4 if cell == "lstm" else 1)
    for gate in gates:
        torch.testing.assert_close(gate @ gate.T, torch.eye(8), atol=1e-5, rtol=0)


def test_pretrained_word_vectors() -> None:
    model = make()
    vectors = {"mount": np.arange(6, dtype=np.float32), "disk": -np.arange(6, dtype=np.float32)}
    model.load_word_vectors(vectors)
    mount, disk = (model.words.weight[model.vocabulary.index(word)].detach() for word in ("mount", "disk"))
    assert torch.equal(mount, -disk)
    torch.testing.assert_close(mount / mount[1], torch.arange(6.0))
    with pytest.raises(RuntimeError):
        model.load_word_vectors({"mount": np.ones(5, dtype=np.float32), "disk": np.zeros(5, dtype=np.float32)})


def test_losses_of_known_logits() -> None:
    some = pairs()
    right, wrong = 20 * torch.eye(len(some)) - 10, 10 - 20 * torch.eye(len(some))
    assert binary_loss(right, some) < 1e-3 < 9 < binary_loss(wrong, some)
    torch.testing.assert_close(binary_loss(torch.zeros(6, 6), some), torch.tensor(2.0).log())
    # Where all are of one dialogue there is no false reply, and only the true ones count.
    alone = [TrainingPair(pair.query, pair.reply, 0) for pair in some]
    torch.testing.assert_close(binary_loss(torch.zeros(6, 6), alone), torch.tensor(2.0).log())
    model = make(loss="softmax", hidden=4)
    with torch.no_grad():
        model.match.zero_()
    torch.testing.assert_close(model.loss(some), torch.tensor(float(len(some))).log())


@pytest.mark.parametrize("loss", ["binary", "softmax"])
def test_every_weight_gets_a_gradient(loss: str) -> None:
    model = make(loss=loss, tied=False)
    model.loss(pairs()).backward()
    still = {name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()}
    assert still <= ({"bias"} if loss == "softmax" else set()), "only b says nothing about which of several is best"


def test_dropout_applies_in_training_only() -> None:
    model = make(dropout=0.5, word_dropout=0.5)
    assert torch.equal(model.loss(pairs()), model.loss(pairs()))
    model.train()
    assert not torch.equal(model.loss(pairs()), model.loss(pairs()))
    words = make(word_dropout=0.999).train()
    unknown = words.words(torch.tensor([UNKNOWN]))
    with torch.no_grad():
        wanted = words.cells[0](unknown.expand(3, -1)[None])[0][0, -1]
        torch.testing.assert_close(words._replies(["thanks"])[0], wanted)


def test_a_loaded_model_equals_the_saved_one(tmp_path: Path) -> None:
    model = make(cell="rnn", tied=False)
    seal(tmp_path, bot="dual-encoder", model="dual-encoder", files=model.save(tmp_path), training={})
    again = DualEncoder.load(tmp_path)
    assert (again.config, again.tags, again.vocabulary.words) == (model.config, model.tags, model.vocabulary.words)
    assert not again.training
    np.testing.assert_array_equal(again.queries(QUERIES).vectors, model.queries(QUERIES).vectors)
    np.testing.assert_array_equal(again.replies(TEXTS), model.replies(TEXTS))


def test_empty_input_gives_empty_output() -> None:
    model = make()
    assert model.replies([]).shape == (0, 8)
    assert model.queries([]).vectors.shape == (0, 8)
