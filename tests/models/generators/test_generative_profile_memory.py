"""The Generative Profile Memory network: word weights, attention to the persona, and the decoder."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tertulia.models.checkpoint import seal
from tertulia.models.generator import DialogueView
from tertulia.models.generators.generative_profile_memory import (
    GenerativeProfileMemory,
    GenerativeProfileMemoryConfig,
    zipf_weights,
)
from tertulia.models.tokenizer import OWN, SPECIAL_TOKENS, UNKNOWN, WordTokenizer

from ..conftest import assert_batch_independent, assert_close, assert_steps_match_full_pass

VIEWS = [
    DialogueView(
        ("hi", "hello , who are you ?", "a baker", "i like bread"), (False, True, False, True), ("i eat a lot",)
    ),
    DialogueView(("do you like tea ?", "no , i like coffee !"), (False, True), ("i drink coffee", "", "i have a dog")),
    DialogueView(("hello",), (True,)),
    DialogueView(("you", "i", "", "no"), (True, True, False, True), ("tea tea",)),
]
REPLIES = ["bread", "i like coffee , you ?", "", "no no no"]
WORDS = WordTokenizer.learn([text for view in VIEWS for text in (*view.turns, *view.persona)])


def build(**settings: Any) -> GenerativeProfileMemory:
    torch.manual_seed(1)
    sizes = {"dim": 12, "hidden": 16, "dropout": 0.0, **settings}
    model = GenerativeProfileMemory.untrained(GenerativeProfileMemoryConfig(**sizes), WORDS).double().eval()
    torch.nn.init.normal_(model.embedding.bias)
    torch.nn.init.normal_(model.embedding.table.weight)
    return model


def test_steps_match_the_full_pass() -> None:
    assert_steps_match_full_pass(build(), VIEWS, REPLIES)


def test_a_likelihood_does_not_depend_on_the_batch() -> None:
    assert_batch_independent(build(), VIEWS)
    assert build().nll([DialogueView(("hi",), (False,))], target_turns="own").total.tolist() == [0]


def test_word_weights_follow_the_formula() -> None:
    config = GenerativeProfileMemoryConfig(dim=8, hidden=16)
    weights = GenerativeProfileMemory.untrained(config, WordTokenizer(("a", "b", "c"))).word_weights
    expected = [1 / (1 + math.log(1 + 1e6 * rank**-1.07)) for rank in (1, 2, 3)]
    assert weights[len(SPECIAL_TOKENS) :].tolist() == pytest.approx(expected)
    assert float(weights[UNKNOWN]) == pytest.approx(expected[-1])  # as rare as the rarest
    assert expected[0] == pytest.approx(0.06749, abs=1e-5)


def test_ranks_may_come_from_a_file_in_order_of_frequency(tmp_path: Path) -> None:
    """As in the paper, whose index is GloVe's; the weights are saved with the model, the file is not needed again."""
    (tmp_path / "glove.txt").write_text("the 0.1\nc 0.2\n, 0.3\na 0.4\n")
    config = GenerativeProfileMemoryConfig(dim=8, hidden=16, ranks=tmp_path / "glove.txt")
    model = GenerativeProfileMemory.untrained(config, WordTokenizer(("a", "b", "c")))
    expected = zipf_weights(torch.tensor([4, 5, 2])).tolist()  # b is not in the file
    assert model.word_weights[len(SPECIAL_TOKENS) :].tolist() == pytest.approx(expected)
    assert float(model.word_weights[UNKNOWN]) == pytest.approx(expected[1])
    model.save(tmp_path / "run")
    (tmp_path / "glove.txt").unlink()
    assert_close(GenerativeProfileMemory.load(tmp_path / "run").word_weights, model.word_weights)


def test_a_sentence_is_the_weighted_sum_of_its_words() -> None:
    model = build()
    profile = model._encode_profiles([view.persona for view in VIEWS])
    assert profile.mask.tolist() == [[True, False, False], [True, True, True], [False] * 3, [True, False, False]]
    weights, table = model.word_weights, model.embedding.table.weight
    for row, column, text in ((0, 0, "i eat a lot"), (1, 2, "i have a dog"), (3, 0, "tea tea")):
        expected = sum(weights[i] * table[i] for i in WORDS.encode(text))
        assert_close(profile.sentences[row, column], expected)
    assert profile.sentences[1, 1].abs().sum() == 0


def test_a_step_follows_the_formula() -> None:
    model = build()
    hidden, cell = torch.randn(2, 1, 16, dtype=torch.float64)
    profile = model._encode_profiles([VIEWS[1].persona])
    x = model.embedding(torch.tensor([OWN]))
    sentences = profile.sentences[0]  # F
    attention = torch.softmax(sentences @ model.profile_key.weight.T @ hidden[0], 0)
    combined = torch.tanh(model.combine(torch.cat([attention @ sentences, x[0]])))
    expected = model.decoder(combined[None], (hidden, cell))
    for actual, by_hand in zip(model._decode_token(x, hidden, cell, profile), expected, strict=True):
        assert_close(actual, by_hand)


def test_without_a_persona_the_decoder_reads_plain_embeddings() -> None:
    model = build()
    hidden, cell = torch.randn(2, 4, 16, dtype=torch.float64)
    x = model.embedding(torch.tensor([OWN] * 4))
    plain = model.decoder(x, (hidden, cell))[0]
    output = model._decode_token(x, hidden, cell, model._encode_profiles([view.persona for view in VIEWS]))[0]
    same = [torch.allclose(output[i], plain[i], atol=1e-9) for i in range(4)]
    assert same == [False, False, True, False]


def test_it_learns_to_use_the_persona() -> None:
    """Only the persona predicts these replies."""
    pairs = (("i like tea", "tea"), ("i like coffee", "coffee"), ("i have a dog", "dog"), ("i like bread", "bread"))
    views = [DialogueView(("what do you like ?", text), (False, True), (fact,)) for fact, text in pairs]
    model = build(hidden=24).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(100):
        optimizer.zero_grad()
        nll = model.nll(views)
        (nll.total.sum() / nll.tokens.sum()).backward()
        optimizer.step()
    with torch.no_grad():
        nll = model.eval().nll(views, target_turns="own")
    assert math.exp(float(nll.total.sum() / nll.tokens.sum())) < 1.5


def test_a_saved_model_is_the_same_model(tmp_path: Path) -> None:
    model = build().float()
    seal(tmp_path, bot="x", model="x", files=model.save(tmp_path), training={})
    loaded = GenerativeProfileMemory.load(tmp_path)
    # The buffer of word weights is float32, in both models.
    assert_close(loaded.double().nll(VIEWS).total, model.double().nll(VIEWS).total)
