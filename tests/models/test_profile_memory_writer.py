"""The Generative Profile Memory network: its weights, its attention, and its decoder in both ways."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tertulia.models.checkpoint import seal
from tertulia.models.generator import Talk
from tertulia.models.profile_memory_writer import (
    GenerativeProfileMemory,
    GenerativeProfileMemoryConfig,
    profile_weights,
)
from tertulia.models.tokenizer import MARKS, OWN, UNKNOWN, WordTokenizer

from .conftest import assert_neighbours_do_not_matter, assert_steps_agree

TALKS = [
    Talk(("hi", "hello , who are you ?", "a baker", "i like bread"), (False, True, False, True), ("i eat a lot",)),
    Talk(("do you like tea ?", "no , i like coffee !"), (False, True), ("i drink coffee", "", "i have a dog")),
    Talk(("hello",), (True,)),
    Talk(("you", "i", "", "no"), (True, True, False, True), ("tea tea",)),
]
REPLIES = ["bread", "i like coffee , you ?", "", "no no no"]
WORDS = WordTokenizer.learn([text for talk in TALKS for text in (*talk.turns, *talk.persona)])


def made(**settings: Any) -> GenerativeProfileMemory:
    torch.manual_seed(1)
    sizes = {"dim": 12, "hidden": 16, "dropout": 0.0, **settings}
    model = GenerativeProfileMemory.untrained(GenerativeProfileMemoryConfig(**sizes), WORDS).eval()
    torch.nn.init.normal_(model.words.bias)
    torch.nn.init.normal_(model.words.embedding.weight)
    return model


def test_steps_give_what_the_full_pass_gives() -> None:
    assert_steps_agree(made(), TALKS, REPLIES)


def test_nothing_depends_on_the_neighbours() -> None:
    assert_neighbours_do_not_matter(made(), TALKS)
    assert made().nll([Talk(("hi",), (False,))], scored="own").total.tolist() == [0]


def test_the_weights_by_hand() -> None:
    found = profile_weights(len(MARKS) + 3)
    expected = [1 / (1 + math.log(1 + 1e6 * rank**-1.07)) for rank in (1, 2, 3)]
    assert found[len(MARKS) :].tolist() == pytest.approx(expected)
    assert float(found[UNKNOWN]) == pytest.approx(expected[-1])  # as rare as the rarest
    assert expected[0] == pytest.approx(0.06749, abs=1e-5)


def test_a_sentence_is_the_weighted_sum_of_its_words() -> None:
    model = made()
    profile = model._profile([talk.persona for talk in TALKS])
    assert profile.there.tolist() == [[True, False, False], [True, True, True], [False] * 3, [True, False, False]]
    weights, table = profile_weights(len(WORDS)), model.words.embedding.weight
    for row, column, text in ((0, 0, "i eat a lot"), (1, 2, "i have a dog"), (3, 0, "tea tea")):
        by_hand = sum(weights[i] * table[i] for i in WORDS.encode(text))
        assert torch.allclose(profile.sentences[row, column], by_hand, atol=1e-6)
    assert profile.sentences[1, 1].abs().sum() == 0


def test_the_first_step_by_hand() -> None:
    model = made()
    hidden, cell = torch.randn(1, 16), torch.randn(1, 16)
    profile = model._profile([TALKS[1].persona])
    x = model.words(torch.tensor([OWN]))
    sentences = profile.sentences[0]  # F
    shares = torch.softmax(sentences @ model.ask.weight.T @ hidden[0], 0)
    joined = torch.tanh(model.join(torch.cat([shares @ sentences, x[0]])))
    expected = model.decoder(joined[None], (hidden, cell))
    for found, by_hand in zip(model._next(x, hidden, cell, profile), expected, strict=True):
        assert torch.allclose(found, by_hand, atol=1e-6)


def test_without_a_persona_the_decoder_reads_the_words_as_they_are() -> None:
    model = made()
    hidden, cell = torch.randn(4, 16), torch.randn(4, 16)
    x = model.words(torch.tensor([OWN] * 4))
    plain = model.decoder(x, (hidden, cell))[0]
    found = model._next(x, hidden, cell, model._profile([talk.persona for talk in TALKS]))[0]
    same = [torch.allclose(found[i], plain[i]) for i in range(4)]
    assert same == [False, False, True, False]


def test_it_learns_to_use_the_persona() -> None:
    """Only the persona tells these replies apart."""
    pairs = (("i like tea", "tea"), ("i like coffee", "coffee"), ("i have a dog", "dog"), ("i like bread", "bread"))
    talks = [Talk(("what do you like ?", text), (False, True), (fact,)) for fact, text in pairs]
    model = made(hidden=24).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(100):
        optimizer.zero_grad()
        nll = model.nll(talks)
        (nll.total.sum() / nll.tokens.sum()).backward()
        optimizer.step()
    with torch.no_grad():
        found = model.eval().nll(talks, scored="own")
    assert math.exp(float(found.total.sum() / found.tokens.sum())) < 1.5


def test_it_is_the_same_after_it_was_saved(tmp_path: Path) -> None:
    model = made()
    seal(tmp_path, bot="some", model="some", files=model.save(tmp_path), training={})
    again = GenerativeProfileMemory.load(tmp_path)
    assert torch.equal(again.nll(TALKS).total, model.nll(TALKS).total)
