"""LSTM Seq2Seq in its three shapes, and what recurrent models that write share."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_packed_sequence

from tertulia.models.checkpoint import seal
from tertulia.models.generator import Talk
from tertulia.models.seq2seq import Seq2Seq, Seq2SeqConfig, pack, rows_of, streams_of, summed, turns_in
from tertulia.models.tokenizer import MARKS, OTHER, OWN, WordTokenizer

from .conftest import assert_neighbours_do_not_matter, assert_steps_agree, stepped

TALKS = [
    Talk(("hi", "hello , who are you ?", "a baker", "i like bread"), (False, True, False, True), ("i eat a lot",)),
    Talk(("do you like tea ?", "no , i like coffee !"), (False, True), ("i drink coffee", "i have a dog")),
    Talk(("hello",), (True,)),
    Talk(("you", "i", "", "no"), (True, True, False, True)),
]
REPLIES = ["bread", "i like coffee , you ?", "", "no no no"]
TEXTS = [text for talk in TALKS for text in (*talk.turns, *talk.persona)]
WORDS = WordTokenizer.learn([*TEXTS, *REPLIES])
SHAPES: dict[str, dict[str, Any]] = {
    "language model": {"encoder": False},
    "encoder": {"attention": False},
    "attention": {},
}
shapes = pytest.mark.parametrize("shape", list(SHAPES))


def made(shape: str, **settings: Any) -> Seq2Seq:
    torch.manual_seed(1)
    sizes = {"dim": 12, "hidden": 16, "dropout": 0.0, **SHAPES[shape], **settings}
    model = Seq2Seq.untrained(Seq2SeqConfig(**sizes), WORDS).eval()
    torch.nn.init.normal_(model.words.bias)
    return model


@shapes
def test_steps_give_what_the_full_pass_gives(shape: str) -> None:
    assert_steps_agree(made(shape), TALKS, REPLIES)


@shapes
def test_nothing_depends_on_the_neighbours(shape: str) -> None:
    assert_neighbours_do_not_matter(made(shape), TALKS)


@shapes
def test_a_talk_is_the_sum_of_its_turns(shape: str) -> None:
    model = made(shape)
    for talk in TALKS:
        parts = [Talk(talk.turns[: n + 1], talk.own[: n + 1], talk.persona) for n in range(len(talk.turns))]
        with torch.no_grad():
            turns = model.nll(parts, scored="last").total
            assert float(model.nll([talk]).total) == pytest.approx(float(turns.sum()), abs=1e-4)
            own = float(turns[torch.tensor(talk.own)].sum())
            assert float(model.nll([talk], scored="own").total) == pytest.approx(own, abs=1e-4)


@shapes
def test_of_a_long_talk_each_turn_counts_once(shape: str) -> None:
    model = made(shape, longest=12)
    long = Talk(TALKS[0].turns * 3, TALKS[0].own * 3)
    with torch.no_grad():
        found = model.nll([long, TALKS[2]])
    expected = sum(len(WORDS.encode(turn)) + 1 for turn in long.turns)
    assert found.tokens.tolist() == [expected, 2]
    full = model.nll([long.said("bread")], scored="last").total.detach()
    assert stepped(model, [long], ["bread"], fan=1)[0] == pytest.approx(full, abs=1e-4)


@shapes
def test_no_turn_that_counts_costs_nothing(shape: str) -> None:
    model = made(shape)
    assert model.nll([]).total.shape == (0,)
    found = model.nll([Talk(("hi",), (False,)), Talk((), ())], scored="own")
    assert found.total.tolist() == [0, 0]
    assert found.tokens.tolist() == [0, 0]


@shapes
def test_the_persona_is_read(shape: str) -> None:
    model = made(shape)
    bare = Talk(TALKS[1].turns, TALKS[1].own)
    found = model.nll([TALKS[1], bare], scored="last").total.detach()
    assert abs(float(found[0] - found[1])) > 1e-3


@shapes
def test_it_learns_a_few_talks_by_heart(shape: str) -> None:
    model = made(shape, hidden=32).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        optimizer.zero_grad()
        nll = model.nll(TALKS)
        (nll.total.sum() / nll.tokens.sum()).backward()
        optimizer.step()
    with torch.no_grad():
        found = model.eval().nll(TALKS)
    assert math.exp(float(found.total.sum() / found.tokens.sum())) < 1.5


@shapes
def test_it_is_the_same_after_it_was_saved(shape: str, tmp_path: Path) -> None:
    model = made(shape)
    seal(tmp_path, bot="some", model="seq2seq", files=model.save(tmp_path), training={})
    again = Seq2Seq.load(tmp_path)
    assert again.config == model.config
    assert torch.equal(again.nll(TALKS).total, model.nll(TALKS).total)


def test_it_begins_with_the_vectors_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("tea 1 2\ndog 3 4\n", encoding="utf-8")
    model = Seq2Seq.untrained(Seq2SeqConfig(dim=2, hidden=3, vectors=tmp_path / "glove.txt"), WORDS)
    places = [len(MARKS) + WORDS.words.index(word) for word in ("tea", "dog")]
    assert model.words.embedding.weight[places].tolist() == [[1, 2], [3, 4]]
    model.save(tmp_path)
    assert Seq2Seq.load(tmp_path).config.vectors is None


def test_forget_gates_begin_open() -> None:
    model = made("encoder")
    bias = model.decoder.bias_ih_l0.reshape(4, 16)
    assert bias[1].tolist() == [1.0] * 16
    assert bias[[0, 2, 3]].abs().sum() == 0
    gate = model.decoder.weight_hh_l0[:16]
    assert torch.allclose(gate @ gate.T, torch.eye(16), atol=1e-5)


def test_packed_rows_know_where_they_are_from() -> None:
    rows = [[7], [8, 9, 10], [11, 12]]
    packed = pack(rows, torch.device("cpu"))
    padded, lengths = pad_packed_sequence(packed, batch_first=True)
    assert [padded[i, : lengths[i]].tolist() for i in range(3)] == rows
    of = rows_of(packed)
    assert [packed.data[of == i].tolist() for i in range(3)] == rows
    assert summed(packed.data, of, 4).tolist() == [7, 27, 23, 0]


def test_turns_that_count_are_found_in_streams() -> None:
    streams, owners = streams_of([TALKS[0], TALKS[2]], WORDS, "own", 512)
    turns = turns_in(streams, torch.device("cpu"))
    assert owners == [0, 1]
    assert turns.stream.tolist() == [0, 0, 1]
    firsts = [streams[i].ids[at] for i, at in zip(turns.stream.tolist(), turns.place.tolist(), strict=True)]
    assert firsts == [OWN] * 3
    words, lengths = pad_packed_sequence(turns.targets, batch_first=True)
    spoken = [WORDS.decode(row[:n].tolist()) for row, n in zip(words, lengths.tolist(), strict=True)]
    assert spoken == ["hello, who are you?", "i like bread", "hello"]
    assert OTHER not in turns.inputs.data.tolist()
