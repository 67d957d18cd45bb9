"""Scores of given texts: what a plain pass over all tokens gives, the same alone and among others."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tertulia.models.generator import Generator
from tertulia.models.generators.transformer import Transformer, TransformerConfig
from tertulia.models.hf.chat_model import ChatModel
from tertulia.models.hf.generator import HuggingFaceGenerator
from tertulia.models.likelihood_cache import LikelihoodCache
from tertulia.models.text_likelihood import BATCH_TOKENS, TextScorer

from .conftest import WORDS

PROMPTS = [("hi", "hello", "do you like tea ?"), ("a baker",), ()]
TEXTS = ["no , i like coffee !", "hello", "i like bread", "who are you ?", "hi", ""]
PAIRS = [(prompt, text) for prompt in PROMPTS for text in TEXTS]


def llama(tiny_models: Any) -> HuggingFaceGenerator:
    chat = ChatModel.load(str(tiny_models.make("chat")))
    chat.model.double()
    return HuggingFaceGenerator(chat)


def transformer() -> Generator:
    torch.manual_seed(2)
    config = TransformerConfig(d_model=16, heads=2, decoder_layers=2, max_length=128)
    return Transformer.untrained(config, WORDS).double().eval()


@pytest.mark.parametrize("kind", ["hugging face", "our own"])
def test_a_text_has_the_likelihood_it_has_alone(kind: str, tiny_models: Any) -> None:
    model = llama(tiny_models) if kind == "hugging face" else transformer()
    together = TextScorer(model).log_likelihoods(*zip(*PAIRS, strict=True))
    alone = [TextScorer(model).log_likelihoods([prompt], [text])[0] for prompt, text in PAIRS]
    assert [one.logprob for one in together] == pytest.approx([one.logprob for one in alone], abs=1e-4)
    assert [one.tokens for one in together] == [len(model.tokenizer.encode(text)) + 1 for _, text in PAIRS]
    assert len({round(one.logprob, 3) for one in together}) == len(PAIRS)  # every prompt and every text matters


def test_a_chat_model_reads_the_template_and_speaks_next(tiny_models: Any) -> None:
    model = llama(tiny_models)
    chat = "<|user|>hi<|end|><|assistant|>hello<|end|><|user|>tea?<|end|><|assistant|>"
    ids = model.chat.tokenizer(chat + "yes<|end|>", add_special_tokens=False, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        logprobs = model.model(ids).logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None])[:, 0]
    (score,) = TextScorer(model).log_likelihoods([("hi", "hello", "tea?")], ["yes"])
    assert score.tokens == 4
    assert score.logprob == pytest.approx(float(logprobs[-4:].sum()), abs=1e-4)


def test_results_are_remembered_and_only_the_last_turns_are_read(tiny_models: Any) -> None:
    scorer = TextScorer(llama(tiny_models), max_turns=2)
    prompts = [("old", "hi", "hello"), ("older", "hi", "hello"), ("hi", "hello")]
    scores = scorer.log_likelihoods(prompts, ["yes"] * 3)
    assert scores[0] == scores[1] == scores[2]
    scorer.model = None  # type: ignore[assignment]  # from here on it could compute nothing new
    with pytest.raises(AttributeError):
        scorer.log_likelihoods(prompts, ["no"] * 3)


def test_results_are_kept_on_disk_by_the_content_of_model_and_texts(tiny_models: Any, tmp_path: Path) -> None:
    prompts, texts = zip(*PAIRS, strict=True)
    first = TextScorer(llama(tiny_models))
    first.remember_in(tmp_path)
    scores = first.log_likelihoods(prompts, texts)
    (file,) = tmp_path.glob("*.bin")
    assert b"bread" not in file.read_bytes()
    with file.open("ab") as out:
        out.write(b"interrupted")
    again = TextScorer(llama(tiny_models))
    again.remember_in(tmp_path)
    again._score = None  # type: ignore[assignment, method-assign]  # from here on it could compute nothing new
    assert again.log_likelihoods(prompts, texts) == scores
    cache = LikelihoodCache(file)
    assert len(cache) == len(PAIRS)
    cache.add({(("new",), "text"): (-1.5, 3), (("too", "long"), "text"): (float("nan"), 0)})
    assert LikelihoodCache(file).get((("new",), "text")) == (-1.5, 3)
    assert LikelihoodCache(file).get((("n", "ew"), "text")) is None
    assert len(LikelihoodCache(file)) == len(PAIRS) + 1
    other = TextScorer(transformer())
    other.remember_in(tmp_path)
    assert other.log_likelihoods(prompts, texts) != scores
    assert len(list(tmp_path.glob("*.bin"))) == 2


def test_what_is_remembered_stays_bounded(tmp_path: Path) -> None:
    """A full file keeps its newer records, also those that another process wrote; the oldest files go."""
    scores = {((), str(n)): (-float(n), n) for n in range(10)}
    first, second = (LikelihoodCache(tmp_path / "a.bin", max_records=8, max_files=2) for _ in range(2))
    for n, pair in enumerate(scores):
        (first, second)[n % 2].add({pair: scores[pair]})
    kept = LikelihoodCache(tmp_path / "a.bin")
    assert len(kept) == 5  # the ninth record left room for half, and the tenth came after it
    assert {pair for pair in scores if kept.get(pair) == scores[pair]} == set(list(scores)[5:])
    assert len(first) == 4
    for n, name in enumerate("bc"):
        os.utime(tmp_path / f"{'ab'[n]}.bin", (n, n))
        LikelihoodCache(tmp_path / f"{name}.bin", max_files=2).add(scores)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["b.bin", "c.bin"]


def test_batches_hold_all_prompts_and_a_bounded_number_of_tokens(
    tiny_models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TextScorer, "_reads_beginnings_once", lambda _: False)
    scorer = TextScorer(llama(tiny_models))
    new = {(("word " * n).strip(),): ["yes", "no"] for n in range(1, 120)}
    batches = scorer._batches(new)
    assert sorted(prompt for batch in batches for prompt in batch) == sorted(new)
    sizes = [max(len(prompt[0]) + 2 for prompt in batch) * len(batch) + 7 * len(batch) for batch in batches]
    assert len(batches) > 5
    assert max(sizes) <= BATCH_TOKENS
    assert TextScorer(transformer()).log_likelihoods([], []) == []
