"""LSTM Seq2Seq in its three architectures, and what the recurrent generators share."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_packed_sequence

from tertulia.models.checkpoint import seal
from tertulia.models.generator import DialogueView
from tertulia.models.generators.recurrent import pack, row_indices, sum_by_owner, target_batch
from tertulia.models.generators.segments import stream_segments
from tertulia.models.generators.seq2seq import Seq2Seq, Seq2SeqConfig
from tertulia.models.tokenizer import OTHER, OWN, SPECIAL_TOKENS, WordTokenizer

from ..conftest import assert_batch_independent, assert_close, assert_steps_match_full_pass, stepwise_nll

VIEWS = [
    DialogueView(
        ("hi", "hello , who are you ?", "a baker", "i like bread"), (False, True, False, True), ("i eat a lot",)
    ),
    DialogueView(("do you like tea ?", "no , i like coffee !"), (False, True), ("i drink coffee", "i have a dog")),
    DialogueView(("hello",), (True,)),
    DialogueView(("you", "i", "", "no"), (True, True, False, True)),
]
REPLIES = ["bread", "i like coffee , you ?", "", "no no no"]
TEXTS = [text for view in VIEWS for text in (*view.turns, *view.persona)]
WORDS = WordTokenizer.learn([*TEXTS, *REPLIES])
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "language model": {"encoder": False},
    "encoder": {"attention": False},
    "attention": {},
}
architectures = pytest.mark.parametrize("architecture", list(ARCHITECTURES))


def build(architecture: str, **settings: Any) -> Seq2Seq:
    torch.manual_seed(1)
    sizes = {"dim": 12, "hidden": 16, "dropout": 0.0, **ARCHITECTURES[architecture], **settings}
    model = Seq2Seq.untrained(Seq2SeqConfig(**sizes), WORDS).double().eval()
    torch.nn.init.normal_(model.embedding.bias)
    return model


@architectures
def test_steps_match_the_full_pass(architecture: str) -> None:
    assert_steps_match_full_pass(build(architecture), VIEWS, REPLIES)


@architectures
def test_a_likelihood_does_not_depend_on_the_batch(architecture: str) -> None:
    assert_batch_independent(build(architecture), VIEWS)


@architectures
def test_a_dialogue_is_the_sum_of_its_turns(architecture: str) -> None:
    model = build(architecture)
    for view in VIEWS:
        parts = [view.before(n + 1) for n in range(len(view.turns))]
        with torch.no_grad():
            turns = model.nll(parts, target_turns="last").total
            assert float(model.nll([view]).total) == pytest.approx(float(turns.sum()), abs=1e-9)
            own = float(turns[torch.tensor(view.own)].sum())
            assert float(model.nll([view], target_turns="own").total) == pytest.approx(own, abs=1e-9)


@architectures
def test_each_turn_of_a_long_dialogue_is_predicted_once(architecture: str) -> None:
    model = build(architecture, max_length=12)
    long = DialogueView(VIEWS[0].turns * 3, VIEWS[0].own * 3)
    with torch.no_grad():
        nll = model.nll([long, VIEWS[2]])
    expected = sum(len(WORDS.encode(turn)) + 1 for turn in long.turns)
    assert nll.tokens.tolist() == [expected, 2]
    full = model.nll([long.with_turn("bread")], target_turns="last").total.detach()
    assert_close(stepwise_nll(model, [long], ["bread"], copies=1)[0], full)


@architectures
def test_dialogues_without_target_turns_have_zero_nll(architecture: str) -> None:
    model = build(architecture)
    assert model.nll([]).total.shape == (0,)
    nll = model.nll([DialogueView(("hi",), (False,)), DialogueView((), ())], target_turns="own")
    assert nll.total.tolist() == [0, 0]
    assert nll.tokens.tolist() == [0, 0]


@architectures
def test_the_persona_matters(architecture: str) -> None:
    model = build(architecture)
    bare = DialogueView(VIEWS[1].turns, VIEWS[1].own)
    total = model.nll([VIEWS[1], bare], target_turns="last").total.detach()
    assert abs(float(total[0] - total[1])) > 1e-3


@architectures
def test_it_can_overfit_a_few_dialogues(architecture: str) -> None:
    model = build(architecture, hidden=32).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        optimizer.zero_grad()
        nll = model.nll(VIEWS)
        (nll.total.sum() / nll.tokens.sum()).backward()
        optimizer.step()
    with torch.no_grad():
        nll = model.eval().nll(VIEWS)
    assert math.exp(float(nll.total.sum() / nll.tokens.sum())) < 1.5


@architectures
def test_a_saved_model_is_the_same_model(architecture: str, tmp_path: Path) -> None:
    model = build(architecture).float()
    seal(tmp_path, bot="seq2seq", model="seq2seq", files=model.save(tmp_path), training={})
    loaded = Seq2Seq.load(tmp_path)
    assert loaded.config == model.config
    assert_close(loaded.double().nll(VIEWS).total, model.double().nll(VIEWS).total)


def test_it_starts_from_pretrained_vectors(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("tea 1 2\ndog 3 4\n", encoding="utf-8")
    model = Seq2Seq.untrained(Seq2SeqConfig(dim=2, hidden=3, vectors=tmp_path / "glove.txt"), WORDS)
    ids = [len(SPECIAL_TOKENS) + WORDS.words.index(word) for word in ("tea", "dog")]
    assert model.embedding.table.weight[ids].tolist() == [[1, 2], [3, 4]]
    model.save(tmp_path)
    assert Seq2Seq.load(tmp_path).config.vectors is None


def test_forget_gates_start_open() -> None:
    model = build("encoder").float()
    bias = model.decoder.bias_ih_l0.reshape(4, 16)
    assert bias[1].tolist() == [1.0] * 16
    assert bias[[0, 2, 3]].abs().sum() == 0
    gate = model.decoder.weight_hh_l0[:16]
    assert torch.allclose(gate @ gate.T, torch.eye(16), atol=1e-5)


def test_packed_positions_know_their_rows() -> None:
    rows = [[7], [8, 9, 10], [11, 12]]
    packed = pack(rows, torch.device("cpu"))
    padded, lengths = pad_packed_sequence(packed, batch_first=True)
    assert [padded[i, : lengths[i]].tolist() for i in range(3)] == rows
    owners = row_indices(packed)
    assert [packed.data[owners == i].tolist() for i in range(3)] == rows
    assert sum_by_owner(packed.data, owners, 4).tolist() == [7, 27, 23, 0]


def test_target_turns_are_collected_from_segments() -> None:
    segments = list(stream_segments([VIEWS[0], VIEWS[2]], WORDS, "own", max_length=512, context_length=512))
    turns = target_batch(segments, torch.device("cpu"))
    assert [one.view for one in segments] == [0, 1]
    assert turns.segment.tolist() == [0, 0, 1]
    starts = zip(turns.segment.tolist(), turns.position.tolist(), strict=True)
    firsts = [segments[i].ids[position] for i, position in starts]
    assert firsts == [OWN] * 3
    words, lengths = pad_packed_sequence(turns.targets, batch_first=True)
    texts = [WORDS.decode(row[:n].tolist()) for row, n in zip(words, lengths.tolist(), strict=True)]
    assert texts == ["hello, who are you?", "i like bread", "hello"]
    assert OTHER not in turns.inputs.data.tolist()
