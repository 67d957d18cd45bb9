"""Server-sent events: how they look on the wire, and JSON as bytes for them and for everything else we answer."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
from fastapi.responses import Response, StreamingResponse

KEEP_ALIVE = b": keep-alive\n\n"


def to_json(value: Any) -> bytes:
    """JSON as bytes. All text that comes in is cleaned at the border, so that it is sure to be encodable here."""
    return orjson.dumps(value)


def event(name: str, data: Any) -> bytes:
    """One event with a JSON value; JSON has no raw line breaks, so that it always is one `data:` line.

    >>> event("piece", {"text": "a\\nb"})
    b'event: piece\\ndata: {"text":"a\\\\nb"}\\n\\n'
    """
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data))


def data_line(data: Any) -> bytes:
    """An event without a name, as OpenAI's API sends them."""
    return b"data: %b\n\n" % orjson.dumps(data)


class Json(Response):
    """A JSON answer from plain values, encoded once and not validated again."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The value as bytes."""
        return orjson.dumps(content)


class EventStream(StreamingResponse):
    """A stream of events that nothing on its way may keep or hold back."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
