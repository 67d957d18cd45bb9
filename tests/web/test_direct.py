"""Messages that bypass FastAPI are answered exactly as those that do not."""

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from tertulia.web.page.direct import DirectMessages

PLAIN = {"Content-Type": "application/json"}
BY_FASTAPI = {"Content-Type": "application/json; charset=utf-8"}
"""The same to a client, but not plain enough to be answered directly."""
MOMENTARY = ("id", "created", "seconds")


class Passed:
    """An app that notes the bodies it gets."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.bodies.append(body)


def answer(page: Any, headers: dict[str, str], body: str) -> tuple[int, str, Any]:
    conversation = page.begin()
    answer = page.http.post(f"/api/conversations/{conversation}/messages", content=body, headers=headers)
    value = answer.json() if answer.headers["content-type"] == "application/json" else answer.text
    for turn in value.values() if isinstance(value, dict) and "user" in value else ():
        for name in MOMENTARY:
            turn.pop(name)
    return answer.status_code, answer.headers["content-type"], value


@pytest.mark.parametrize(
    "body",
    [
        '{"text": "hi", "key": "k"}',
        '{"text": "  é\\u0000 ", "key": "k", "stream": false}',
        '{"text": "\\ud800 half", "key": "k"}',
        '{"text": "", "key": "k"}',
        '{"text": "%s", "key": "k"}' % ("x" * 16_001),
        '{"text": "hi"}',
        '{"text": "hi", "key": ""}',
        '{"text": 1, "key": "k"}',
        '{"text": "hi", "key": "k", "more": 1}',
        '{"text": "hi", "key": "k", "stream": "yes"}',
        '{"text": "hi", "key"',
        "",
        "[]",
        "null",
    ],
)
def test_the_same_response_either_way(page: Any, body: str) -> None:
    assert answer(page, PLAIN, body) == answer(page, BY_FASTAPI, body)


def test_an_unknown_conversation_is_not_found_either_way(page: Any) -> None:
    page.begin()
    for id_ in ("0" * 32, "short", "%C3%A9" * 16):
        path = f"/api/conversations/{id_}/messages"
        body = {"content": json.dumps({"text": "hi", "key": "k"})}
        direct, other = (page.http.post(path, headers=headers, **body) for headers in (PLAIN, BY_FASTAPI))
        assert (direct.status_code, direct.json()) == (other.status_code, other.json())
        assert direct.status_code == 404


def test_what_is_passed_on_keeps_its_body_in_all_its_parts() -> None:
    async def send(message: Message) -> None:
        raise AssertionError(message)

    passed = Passed()
    direct = DirectMessages(passed, services=None)  # type: ignore[arg-type]
    parts: list[Message] = [
        {"type": "http.request", "body": b'{"text": ', "more_body": True},
        {"type": "http.request", "body": b"1}", "more_body": False},
    ]
    headers = [(b"content-type", b"application/json"), (b"content-length", b"11")]
    path = f"/api/conversations/{'0' * 32}/messages"
    for method, name in (("POST", path), ("PUT", path), ("POST", path + "/")):
        messages = iter(parts)

        async def receive(messages: Any = messages) -> Message:
            return next(messages)

        asyncio.run(direct({"type": "http", "method": method, "path": name, "headers": headers}, receive, send))
    assert passed.bodies == [b'{"text": 1}'] * 3
