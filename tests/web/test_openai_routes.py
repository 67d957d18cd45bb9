"""The OpenAI-compatible API, through OpenAI's own client, and on the wire where the client hides it."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tertulia.store import Database
from tertulia.web.openai.schemas import ChatRequest

FAILED = r"The bot could not answer\. Reference: [0-9a-f]{6}\. Try again, or choose another bot\."
HI: list[Any] = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=20) as completion:
        yield completion


def ask(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def wire(url: str, **body: Any) -> list[Any]:
    """The raw contents of a stream: JSON values, and "[DONE]"."""
    answer = httpx.post(f"{url}/v1/chat/completions", json={"stream": True, **body}, timeout=20)
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
    lines = [line for line in answer.text.split("\n\n") if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines)
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["echo", "inspect", "count", "nap", "broken"]
    model = client.models.retrieve("echo")
    assert (model.id, model.object, model.owned_by) == ("echo", "model", "tertulia")
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("ecko")
    assert caught.value.code == "model_not_found"


def test_a_reply_is_returned(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(model="echo", messages=ask("Hello, world!"))
    assert completion.choices[0].message.content == "Hello, world!"
    assert (completion.choices[0].message.role, completion.choices[0].finish_reason) == ("assistant", "stop")
    assert (completion.object, completion.model) == ("chat.completion", "echo")
    assert completion.id.startswith("chatcmpl-")
    assert abs(completion.created - time.time()) < 60
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens, completion.usage.total_tokens) == (
        4,
        4,
        8,
    )


def test_usage_is_the_bots_own_count(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(model="count", messages=ask("5 0"), n=2)
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens, completion.usage.total_tokens) == (
        7,
        10,
        17,
    )


def test_a_reply_is_streamed(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="count", messages=ask("4 0.01"), stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "1 2 3 4 "
    assert [chunk.choices[0].delta.role for chunk in chunks].count("assistant") == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.object == "chat.completion.chunk" for chunk in chunks)


def test_a_complete_reply_is_streamed_in_the_right_chunks(url: str) -> None:
    chunks = wire(url, model="echo", messages=ask("a\n\nb"))
    assert [chunk if chunk == "[DONE]" else chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "a\n\nb"},
        {},
        "[DONE]",
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None, None, "stop"]
    assert all("usage" not in chunk for chunk in chunks[:-1])


def test_usage_comes_last_without_choices_and_only_on_request(url: str, client: openai.OpenAI) -> None:
    chunks = wire(url, model="count", messages=ask("2 0"), stream_options={"include_usage": True})
    assert chunks[-1] == "[DONE]"
    assert chunks[-2]["choices"] == []
    assert chunks[-2]["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks[:-2])
    stream = client.chat.completions.create(
        model="echo", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    usages = [chunk.usage for chunk in stream]
    assert usages[-1] is not None
    assert usages[-1].completion_tokens == 1
    assert usages[:-1] == [None] * (len(usages) - 1)


def test_several_replies_have_different_seeds(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(model="inspect", messages=HI, n=3, seed=40)
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert [json.loads(choice.message.content or "")["seed"] for choice in completion.choices] == [40, 41, 42]
    free = client.chat.completions.create(model="inspect", messages=HI, n=2)
    again = client.chat.completions.create(model="inspect", messages=HI, n=2)
    seeds = [
        json.loads(choice.message.content or "")["seed"]
        for completion in (free, again)
        for choice in completion.choices
    ]
    assert len(set(seeds)) == 4


def test_several_replies_share_one_stream(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="count", messages=ask("3 0.01"), n=2, stream=True))
    for index in (0, 1):
        mine = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == index]
        assert "".join(choice.delta.content or "" for choice in mine) == "1 2 3 "
        assert [choice.delta.role for choice in mine] == ["assistant"] + [None] * (len(mine) - 1)
        assert [choice.finish_reason for choice in mine] == [None] * (len(mine) - 1) + ["stop"]


def received_by_bot(client: openai.OpenAI, messages: list[Any], **options: Any) -> dict[str, Any]:
    completion = client.chat.completions.create(model="inspect", messages=messages, **options)
    received: dict[str, Any] = json.loads(completion.choices[0].message.content or "")
    return received


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_messages_set_the_persona(client: openai.OpenAI, role: str) -> None:
    received = received_by_bot(
        client,
        [
            {"role": role, "content": "I like tea. I have two dogs."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": [{"type": "text", "text": "Tea?"}, {"type": "text", "text": "Now?"}]},
        ],
    )
    assert received["persona"] == ["I like tea.", "I have two dogs."]
    assert received["meta"] == {"system": "I like tea. I have two dogs."}
    assert received["turns"] == [["user", "Hi"], ["bot", "Hello"], ["user", "Tea?\nNow?"]]


def test_the_last_message_need_not_be_the_users(client: openai.OpenAI) -> None:
    received = received_by_bot(client, [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "And"}])
    assert received["turns"] == [["user", "Hi"], ["bot", "And"]]
    assert received_by_bot(client, [{"role": "system", "content": "Be brief."}])["turns"] == []


def test_sampling_options_reach_the_bot(client: openai.OpenAI) -> None:
    options = {"temperature": 0.5, "top_p": 0.9, "max_completion_tokens": 500, "stop": ["\t\t"]}
    received = received_by_bot(
        client, HI, **options, user="u", store=True, presence_penalty=0, logit_bias={}, extra_body={"unknown": [1]}
    )
    assert received["options"] == {"temperature": 0.5, "top_p": 0.9, "max_tokens": 500, "stop": ["\t\t"]}
    assert received_by_bot(client, HI)["options"] == {}


def test_max_tokens_limits_a_reply(client: openai.OpenAI) -> None:
    counted = client.chat.completions.create(model="count", messages=ask("5 0"), max_tokens=2).choices[0]
    assert (counted.message.content, counted.finish_reason) == ("1 2 ", "length")
    choice = client.chat.completions.create(model="echo", messages=ask("One, two. THREE four"), max_tokens=5).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("One, two. THREE", "length")
    chunks = list(
        client.chat.completions.create(model="echo", messages=ask("one two three"), max_tokens=2, stream=True)
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "one two"
    assert chunks[-1].choices[0].finish_reason == "length"


@pytest.mark.parametrize("model", ["echo", "count"])
def test_stop_sequences_end_a_reply(client: openai.OpenAI, model: str) -> None:
    text = {"echo": "1 2 3 4 5 6 ", "count": "6 0.01"}[model]
    completion = client.chat.completions.create(model=model, messages=ask(text), stop="3 4").choices[0]
    assert (completion.message.content, completion.finish_reason) == ("1 2 ", "stop")
    chunks = list(client.chat.completions.create(model=model, messages=ask(text), stop=["9", "3 4"], stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "1 2 "
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="ecko", messages=HI)
    assert caught.value.body == {
        "message": "There is no bot called 'ecko'. Did you mean 'echo'?",
        "type": "invalid_request_error",
        "param": None,
        "code": "model_not_found",
    }


IMAGE = [{"type": "text", "text": "this?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]


@pytest.mark.parametrize(
    ("param", "body"),
    [
        ("messages", {"messages": []}),
        ("messages", {"messages": [{"role": "user", "content": IMAGE}]}),
        ("messages", {"messages": [{"role": "user", "content": []}]}),
        ("messages", {"messages": [{"role": "user", "content": None}]}),
        ("messages", {"messages": [{"role": "user", "content": 3}]}),
        ("messages", {"messages": [{"role": "tool", "content": "42", "tool_call_id": "x"}]}),
        ("messages", {"messages": [{"role": "narrator", "content": "Once"}]}),
        ("max_tokens", {"max_tokens": 0}),
        ("max_completion_tokens", {"max_completion_tokens": -1}),
        ("temperature", {"temperature": 2.1}),
        ("temperature", {"temperature": -0.1}),
        ("top_p", {"top_p": 1.5}),
        ("n", {"n": 0}),
        ("n", {"n": 17}),
        ("seed", {"seed": "lucky"}),
        ("stop", {"stop": ["a", "b", "c", "d", "e"]}),
        ("stream", {"stream": "perhaps"}),
    ],
)
def test_invalid_requests_name_the_field(client: openai.OpenAI, param: str, body: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{"model": "echo", "messages": HI, **body})
    error: Any = caught.value.body
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert error["message"]


@pytest.mark.parametrize("body", [b"{", b"", b"[]", b'{"model": "echo"}', b'{"messages": []}'])
def test_malformed_requests_are_refused(url: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(f"{url}/v1/chat/completions", content=body, headers=headers)
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", ["please", "crash"])
def test_an_immediate_failure_gets_a_status_code(client: openai.OpenAI, stream: bool, text: str) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="broken", messages=ask(text), stream=stream)
    assert caught.value.status_code == 502
    error: Any = caught.value.body
    assert error["type"] == "server_error"
    assert re.fullmatch(FAILED, error["message"])


def test_a_failure_during_a_stream_is_sent_as_an_error(client: openai.OpenAI, url: str) -> None:
    written: list[str] = []
    stream = client.chat.completions.create(model="count", messages=ask("9 0.01 3"), stream=True)
    with pytest.raises(openai.APIError, match=FAILED):
        written.extend(chunk.choices[0].delta.content or "" for chunk in stream)
    assert "".join(written) == "1 2 "
    chunks = wire(url, model="count", messages=ask("9 0.01 3"))
    assert chunks[-1]["error"]["type"] == "server_error"
    assert "[DONE]" not in chunks


@pytest.mark.parametrize("stream", [False, True])
def test_a_disconnected_client_frees_the_bot(url: str, stream: bool) -> None:
    body = {"model": "count", "messages": ask("1000 0.02"), "stream": stream}
    if stream:
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
            next(answer.iter_lines())
    else:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/v1/chat/completions", json=body, timeout=httpx.Timeout(20, read=0.3))
    began = time.monotonic()
    assert wire(url, model="count", messages=ask("1 0"))[-1] == "[DONE]"
    assert time.monotonic() - began < 15  # the other reply would take twenty


def test_nothing_is_stored(serve: Any, tmp_path: Path) -> None:

    with serve(tmp_path / "chat.db") as url:
        assert wire(url, model="echo", messages=ask("remember me?"))[-1] == "[DONE]"
        with openai.OpenAI(base_url=f"{url}/v1", api_key="unused") as client:
            client.chat.completions.create(model="echo", messages=ask("remember me?"))
    Database.open(f"sqlite:///{tmp_path / 'chat.db'}").close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"conversations" in kept
    assert b"remember me" not in kept


def test_an_api_key_is_required_when_set(serve: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db", api_key="s3cret") as url:
        for wrong in ("S3cret", "s3cret2", "é"):
            answer = httpx.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {wrong}".encode()})
            assert answer.status_code == 401
        with openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError) as caught:
                client.chat.completions.create(model="echo", messages=HI)
            assert caught.value.code == "invalid_api_key"
            with pytest.raises(openai.AuthenticationError):
                client.models.list()
        with openai.OpenAI(base_url=f"{url}/v1", api_key="s3cret") as client:
            assert client.chat.completions.create(model="echo", messages=HI).choices[0].message.content == "hi"
        assert httpx.get(f"{url}/v1/models").status_code == 401
        assert httpx.get(f"{url}/api/bots").status_code == 401


def tool(name: str) -> list[Any]:
    return [{"type": "function", "function": {"name": name}}]


UNSUPPORTED = [
    ("tools", tool("search"), "cannot call tools"),
    ("tool_choice", "auto", "cannot call tools"),
    ("tool_choice", {"type": "function", "function": {"name": "x"}}, "cannot call tools"),
    ("functions", [{"name": "search"}], "cannot call tools"),
    ("function_call", "auto", "cannot call tools"),
    ("response_format", {"type": "json_object"}, "except for {'type': 'text'}"),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}, "except for"),
    ("logit_bias", {"42": -100}, "not supported"),
    ("logprobs", True, "logprobs is not available for this model."),
    ("top_logprobs", 5, "top_logprobs is not available for this model."),
    ("frequency_penalty", 0.5, "set it to 0"),
    ("presence_penalty", -1, "set it to 0"),
    ("audio", {"voice": "alloy", "format": "wav"}, "reply with text"),
    ("modalities", ["text", "audio"], "reply with text"),
    ("web_search_options", {}, "do not search"),
]


@pytest.mark.parametrize(("param", "value", "message"), UNSUPPORTED)
@pytest.mark.parametrize("stream", [False, True])
def test_what_bots_cannot_do_is_refused(
    client: openai.OpenAI, param: str, value: Any, message: str, stream: bool
) -> None:
    body: dict[str, Any] = {param: value}
    with pytest.raises(openai.BadRequestError, match=re.escape(message)) as caught:
        client.chat.completions.create(model="echo", messages=HI, stream=stream, extra_body=body)
    error: Any = caught.value.body
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, None)


@pytest.mark.parametrize("value", [0, 17, 2])
def test_best_of_is_refused(client: openai.OpenAI, value: int) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="echo", messages=HI, extra_body={"best_of": value})
    assert caught.value.param == "best_of"


def test_fields_that_are_turned_off_and_unknown_ones_are_accepted(client: openai.OpenAI) -> None:
    off: dict[str, Any] = {
        "tools": [],
        "tool_choice": "none",
        "functions": [],
        "function_call": "none",
        "response_format": {"type": "text"},
        "logit_bias": {},
        "logprobs": False,
        "top_logprobs": 0,
        "frequency_penalty": 0,
        "presence_penalty": 0.0,
        "audio": None,
        "modalities": ["text"],
        "best_of": 1,
        "metadata": {"a": "b"},
        "service_tier": "auto",
        "parallel_tool_calls": True,
    }
    completion = client.chat.completions.create(model="echo", messages=HI, extra_body=off)
    assert completion.choices[0].message.content == "hi"


def test_null_means_that_a_field_is_not_set(client: openai.OpenAI) -> None:
    optional = {name: None for name, field in ChatRequest.model_fields.items() if not field.is_required()}
    assert {"tools", "tool_choice", "response_format", "logit_bias", "stream_options", "stop", "n"} <= set(optional)
    completion = client.chat.completions.create(model="echo", messages=HI, extra_body=optional)
    assert completion.choices[0].message.content == "hi"


def test_only_configured_origins_are_allowed(url: str, serve: Any, tmp_path: Path) -> None:
    headers = {"Origin": "https://chat.example", "Access-Control-Request-Method": "POST"}
    closed = httpx.options(f"{url}/v1/chat/completions", headers=headers)
    assert "access-control-allow-origin" not in closed.headers
    with serve(tmp_path / "chat.db", cors_origins=("https://chat.example",)) as open_url:
        preflight = httpx.options(f"{open_url}/v1/chat/completions", headers=headers)
        assert preflight.headers["access-control-allow-origin"] == "https://chat.example"
        got = httpx.get(f"{open_url}/v1/models", headers={"Origin": "https://chat.example"})
        assert got.headers["access-control-allow-origin"] == "https://chat.example"
        assert "cross-origin-resource-policy" not in got.headers
        own = httpx.get(f"{open_url}/api/bots", headers={"Origin": "https://chat.example"})
        assert "access-control-allow-origin" not in own.headers
