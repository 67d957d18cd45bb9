"""Log-probabilities in the OpenAI-compatible API: small real models behind a real server, called by OpenAI's client."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from openai.types.chat import ChatCompletionTokenLogprob  # noqa: E402

from tertulia.core.reply import Reply  # noqa: E402
from tertulia.core.text import clean  # noqa: E402
from tertulia.models.generators.transformer import Transformer, TransformerConfig  # noqa: E402
from tertulia.models.hf.chat_model import ChatModel  # noqa: E402
from tertulia.models.tokenizer import WordTokenizer  # noqa: E402
from tertulia.store import Database  # noqa: E402
from tertulia.talk.bot import Bot, BotTraits  # noqa: E402
from tertulia.talk.bots.generative import GenerativeBot, GenerativeOptions  # noqa: E402
from tertulia.talk.bots.generic import GenericBot  # noqa: E402
from tertulia.talk.bots.huggingface import HuggingFaceBot, HuggingFaceOptions  # noqa: E402
from tertulia.talk.bots.openai import OpenAIBot, OpenAIOptions  # noqa: E402
from tertulia.web.app import create_app  # noqa: E402
from tertulia.web.openai.schemas import ChatRequest, asks_for  # noqa: E402
from tertulia.web.server import running  # noqa: E402

TOLERANCE = 1e-4
"""Of a sum of a few log-probabilities in float32."""
MESSAGES: list[Any] = [{"role": "user", "content": "d e f ?"}]
Tokens = list[ChatCompletionTokenLogprob]


@pytest.fixture(scope="module")
def bots(tiny_models: Any) -> dict[str, Bot]:
    chat = ChatModel.load(str(tiny_models.make("chat")))
    torch.manual_seed(1)
    model, tiny = (
        Transformer.untrained(TransformerConfig(d_model=16, decoder_layers=2), WordTokenizer(words.split()))
        for words in ("a b c d ( ) ! ?", "a b")
    )
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    options: dict[str, Any] = {"filters": "none", "score": "sum", "min_tokens": 4, "max_tokens": 9}
    return {
        "hf-sample": HuggingFaceBot(chat, HuggingFaceOptions(temperature=1.2, top_p=0.95, max_tokens=30)),
        "hf-ranked": HuggingFaceBot(chat, HuggingFaceOptions(method="sample-and-rank", samples=4, **options)),
        "hf-beam": HuggingFaceBot(chat, HuggingFaceOptions(method="beam", length_penalty=0, beams=3, **options)),
        "ranked": GenerativeBot(model, GenerativeOptions(samples=5, **options)),
        "greedy": GenerativeBot(
            model, GenerativeOptions(method="greedy", repetition_penalty=3, filters="none", max_tokens=9)
        ),
        "fallback": GenerativeBot(tiny, GenerativeOptions(filters="empty", fallback="Well.")),
        "generic": GenericBot.build("", GenericBot.Options()),
    }


@pytest.fixture(scope="module")
def client(bots: dict[str, Bot], tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """A client of a server whose bot `remote` calls another of our servers."""
    folder = tmp_path_factory.mktemp("logprobs")
    with (
        Database.open(f"sqlite:///{folder / 'a.db'}") as far,
        Database.open(f"sqlite:///{folder / 'b.db'}") as near,
        running(create_app(bots, far)) as url,
    ):
        remote = {n: OpenAIBot(n, OpenAIOptions(base_url=f"{url}/v1", retries=0)) for n in ("hf-sample", "generic")}
        every = bots | {"remote": remote["hf-sample"], "remote generic": remote["generic"]}
        with (
            running(create_app(every, near)) as url,
            openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=30) as connected,
        ):
            yield connected


def complete(client: openai.OpenAI, model: str, **options: Any) -> tuple[str, Tokens, Any]:
    """Text, tokens and the completion; checks what holds for all replies with log-probabilities."""
    completion = client.chat.completions.create(model=model, messages=MESSAGES, logprobs=True, **options)
    (choice,) = completion.choices
    assert choice.logprobs is not None
    assert choice.logprobs.refusal is None
    check(choice.message.content or "", choice.logprobs.content or [])
    return choice.message.content or "", choice.logprobs.content or [], completion


def check(text: str, tokens: Tokens) -> None:
    assert "".join(token.token for token in tokens) == text
    for token in [*tokens, *(alternative for each in tokens for alternative in each.top_logprobs)]:
        assert bytes(token.bytes or []) == token.token.encode()
        assert -100 < token.logprob <= 0


def reply_of(bot: Bot, **options: Any) -> Reply:
    """What the bot itself replies to the same request."""
    request = ChatRequest.model_validate({"model": "", "messages": MESSAGES, "logprobs": True, **options})
    (reply,) = bot.reply(asks_for(request, BotTraits(logprobs=True)))
    return reply


@pytest.mark.parametrize("name", ["hf-ranked", "hf-beam", "ranked"])
def test_their_sum_is_the_score_of_the_candidate(client: openai.OpenAI, bots: dict[str, Bot], name: str) -> None:
    for seed in range(5):
        reply = reply_of(bots[name], seed=seed)
        text, tokens, completion = complete(client, name, seed=seed)
        assert text == clean(reply.text)  # the model generates control characters, too
        assert sum(token.logprob for token in tokens) == pytest.approx(reply.score, abs=TOLERANCE)
        assert reply.score == next(c.score for c in reply.candidates if c.text == reply.text)
        assert completion.usage.completion_tokens == len(tokens)
        assert all(token.top_logprobs == [] for token in tokens)


@pytest.mark.parametrize("name", ["hf-sample", "hf-ranked", "ranked", "greedy", "remote"])
def test_a_stream_has_the_same_ones(client: openai.OpenAI, name: str) -> None:
    for seed in range(3):
        text, tokens, _ = complete(client, name, seed=seed, top_logprobs=2)
        chunks = list(
            client.chat.completions.create(
                model=name, messages=MESSAGES, logprobs=True, top_logprobs=2, seed=seed, stream=True
            )
        )
        streamed = [t for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content or []]
        check("".join(chunk.choices[0].delta.content or "" for chunk in chunks), streamed)
        assert [token.token for token in streamed] == [token.token for token in tokens]
        assert [token.logprob for token in streamed] == pytest.approx([t.logprob for t in tokens], abs=TOLERANCE)
        assert "".join(token.token for token in streamed) == text


@pytest.mark.parametrize("name", ["hf-sample", "hf-beam", "ranked", "remote"])
def test_alternatives_are_the_most_probable_tokens(client: openai.OpenAI, name: str) -> None:
    _, tokens, _ = complete(client, name, seed=1, top_logprobs=20)
    for token in tokens:
        values = [alternative.logprob for alternative in token.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert len(values) == (14 if name == "ranked" else 20)  # its vocabulary, special tokens included
        assert token.logprob <= values[0] + TOLERANCE
        if token.logprob > values[-1] + TOLERANCE:
            assert any(abs(token.logprob - value) < TOLERANCE for value in values)


def test_greedy_tokens_are_the_first_alternatives(client: openai.OpenAI) -> None:
    _, tokens, _ = complete(client, "hf-sample", temperature=0, top_logprobs=1, max_tokens=1)
    assert [token.top_logprobs[0].logprob for token in tokens] == pytest.approx([token.logprob for token in tokens])
    warm = complete(client, "hf-sample", temperature=2, top_logprobs=1, max_tokens=1)[1]
    assert warm[0].top_logprobs[0].logprob == pytest.approx(tokens[0].top_logprobs[0].logprob, abs=TOLERANCE)


@pytest.mark.parametrize("name", ["greedy", "ranked", "hf-sample", "remote"])
def test_tokens_end_where_the_reply_does(client: openai.OpenAI, name: str) -> None:
    text, tokens, _ = complete(client, name, seed=2)
    stop = text[1:]
    assert not text.startswith(stop)
    cut, kept, completion = complete(client, name, seed=2, stop=[stop])
    assert text.startswith(cut)
    assert stop not in cut
    assert 0 < len(kept) < len(tokens)
    assert [token.logprob for token in kept] == pytest.approx([t.logprob for t in tokens[: len(kept)]], abs=TOLERANCE)
    assert completion.choices[0].finish_reason == "stop"


def test_several_choices_have_their_own(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(model="hf-sample", messages=MESSAGES, logprobs=True, n=3, seed=1)
    for choice in completion.choices:
        assert choice.logprobs is not None
        check(choice.message.content or "", choice.logprobs.content or [])
    assert len({choice.message.content for choice in completion.choices}) == 3


@pytest.mark.parametrize("name", ["hf-sample", "ranked", "remote"])
def test_none_are_reported_unless_asked_for(client: openai.OpenAI, bots: dict[str, Bot], name: str) -> None:
    completion = client.chat.completions.create(model=name, messages=MESSAGES, logprobs=False, top_logprobs=0)
    assert completion.choices[0].logprobs is None
    if name in bots:
        assert reply_of(bots[name], logprobs=False).logprobs is None


@pytest.mark.parametrize("name", ["fallback", "remote generic"])
def test_a_reply_without_tokens_has_none(client: openai.OpenAI, name: str) -> None:
    if name == "fallback":  # with these stop sequences, every candidate is empty
        completion = client.chat.completions.create(model=name, messages=MESSAGES, logprobs=True, stop=["a", "b"])
        assert (completion.choices[0].message.content, completion.choices[0].logprobs) == ("Well.", None)
    else:  # the endpoint refuses, and says so to the operator only
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model=name, messages=MESSAGES, logprobs=True)


@pytest.mark.parametrize(
    ("model", "options", "param", "message"),
    [
        ("generic", {"logprobs": True}, "logprobs", "logprobs is not available for this model."),
        ("generic", {"top_logprobs": 3}, "top_logprobs", "top_logprobs is not available for this model."),
        ("greedy", {"top_logprobs": 3}, "top_logprobs", "top_logprobs needs logprobs: set logprobs to true."),
        ("greedy", {"logprobs": True, "top_logprobs": 21}, "top_logprobs", "less than or equal to 20"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_others_are_refused(
    client: openai.OpenAI, model: str, options: dict[str, Any], param: str, message: str, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError, match=message) as caught:
        client.chat.completions.create(model=model, messages=MESSAGES, stream=stream, **options)
    assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")
