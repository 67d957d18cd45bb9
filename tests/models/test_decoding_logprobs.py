"""Log-probabilities of the decoded tokens: the model's own, whatever method and options drew the tokens. In float64."""

from typing import Any

import pytest
import torch

from tertulia.models.decoding import DecodingConfig, DecodingSession, decode
from tertulia.models.generator import DialogueView, Generator
from tertulia.models.generators.seq2seq import Seq2Seq, Seq2SeqConfig
from tertulia.models.generators.transformer import Transformer, TransformerConfig
from tertulia.models.hf.chat_model import ChatModel
from tertulia.models.hf.generator import HuggingFaceGenerator
from tertulia.models.sampling import TopTokens
from tertulia.models.token_logprobs import token_logprobs
from tertulia.models.tokenizer import END, SubwordTokenizer, WordTokenizer

WORDS = WordTokenizer("a b c d e f g h i j k l".split())
VIEW = DialogueView(("a b c", "d e", "f g h i"), (False, True, False))
TOLERANCE = 1e-4
"""Even in a float64 Hugging Face model, norms and rotations are float32."""
CONFIGS = {
    "sample": DecodingConfig(method="sample", temperature=0.6, top_p=0.7, max_tokens=7),
    "greedy": DecodingConfig(method="greedy", repetition_penalty=1.5, max_tokens=7),
    "beam": DecodingConfig(method="beam", beams=3, max_tokens=7),
    "sample-and-rank": DecodingConfig(method="sample-and-rank", samples=6, top_k=5, temperature=1.4, max_tokens=7),
    "unmodified": DecodingConfig(method="sample-and-rank", samples=6, max_tokens=7),
}


@pytest.fixture(params=["transformer", "seq2seq", "llama"])
def model(request: pytest.FixtureRequest, tiny_models: Any) -> Generator:
    if request.param == "llama":
        chat = ChatModel.load(str(tiny_models.make("chat")))
        chat.model.double()
        return HuggingFaceGenerator(chat)
    torch.manual_seed(1)
    if request.param == "seq2seq":
        built: Any = Seq2Seq.untrained(Seq2SeqConfig(dim=12, hidden=14), WORDS).double().eval()
    else:
        built = Transformer.untrained(TransformerConfig(d_model=16, decoder_layers=2), WORDS).double().eval()
    for weight in built.parameters():  # far from uniform
        torch.nn.init.normal_(weight, std=0.5)
    generator: Generator = built
    return generator


@torch.inference_mode()
def step_by_step(model: Generator, tokens: list[int]) -> torch.Tensor:
    """The model's distribution before each of the tokens: (tokens, vocabulary)."""
    logits, state = model.step(model.start([VIEW]), None)
    rows = [logits.log_softmax(-1)[0]]
    for token in tokens[:-1]:
        logits, state = model.step(state, torch.tensor([token]))
        rows.append(logits.log_softmax(-1)[0])
    return torch.stack(rows)


@pytest.mark.parametrize("method", CONFIGS)
def test_log_probabilities_are_those_of_the_unmodified_distribution(model: Generator, method: str) -> None:
    (generations,) = decode(model, [VIEW], CONFIGS[method], [3], top_logprobs=[4])
    for one in generations:
        tokens = [*one.tokens, *([END] if one.finished else [])]
        own = step_by_step(model, tokens)
        expected = [float(row[token]) for row, token in zip(own, tokens, strict=True)]
        assert one.logprobs == pytest.approx(expected, abs=TOLERANCE)
        assert sum(one.logprobs) == pytest.approx(one.logprob, abs=1e-9)
        assert len(one.logprobs) == one.count == len(one.top)
        for row, top in zip(own, one.top, strict=True):
            assert [value for _, value in top] == pytest.approx(row.topk(4).values.tolist(), abs=TOLERANCE)
            assert [float(row[token]) for token, _ in top] == pytest.approx([v for _, v in top], abs=TOLERANCE)


def test_turns_of_one_batch_get_as_many_alternatives_as_each_asks_for(model: Generator) -> None:
    session = DecodingSession(model)
    counts = {session.add(VIEW, CONFIGS[m], 3, top_logprobs=n): n for m in ("sample", "beam") for n in (0, 2, 5)}
    ended: set[int] = set()
    while len(ended) < len(counts):
        for progress in session.step():
            assert len(progress.logprobs) == len(progress.tokens)
            assert [len(top) for top in progress.top] == [counts[progress.handle]] * len(progress.top)
            if progress.generations is not None:
                ended.add(progress.handle)
                (best, *_) = progress.generations
                assert [len(top) for top in best.top] == [n for n in [counts[progress.handle]] if n] * best.count


def test_tokens_joined_are_the_text(tiny_models: Any) -> None:
    subwords = SubwordTokenizer.learn(["the cat sat on the mat (really)", "the dog sat, too!"] * 5, size=300)
    letters = HuggingFaceGenerator(ChatModel.load(str(tiny_models.make("chat")))).tokenizer
    words = WordTokenizer("who ( is ) , that ?".split())
    for tokenizer, text, first in (
        (subwords, "the cat, too!", "th"),
        (words, "who (is), that?", "who"),
        (letters, "né 🙂!", "n"),
    ):
        tokens = [*tokenizer.encode(text), END]
        top: list[TopTokens] = [((token, -1.0), (END, -2.0)) for token in tokens]
        scored = token_logprobs(tokenizer, tokens, [-1.0] * len(tokens), top)
        assert "".join(token.text for token in scored) == tokenizer.decode(tokens) == text
        assert text.startswith(scored[0].text)
        assert scored[0].text.startswith(first)
        assert scored[-1].text == ""
        assert all(token.top[1].text == "<end>" for token in scored)
        assert all(token.top[0].text == token.text for token in scored[:-1] if tokenizer is not letters)
    assert [token.text for token in scored] == ["n", "", "é", " ", "", "", "", "🙂", "!", ""]
