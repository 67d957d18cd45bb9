"""Responses: JSON, and streams of server-sent events."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
from fastapi.responses import Response, StreamingResponse

KEEP_ALIVE = b": keep-alive\n\n"
_BREAKS = [(b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029")]


def event(name: str, data: Any) -> bytes:
    """A named event with a JSON value; JSON has no raw line breaks, so it always is one `data:` line.

    >>> event("piece", {"text": "a\\nb"})
    b'event: piece\\ndata: {"text":"a\\\\nb"}\\n\\n'
    """
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _one_line(data))


def data_line(data: Any) -> bytes:
    """An event without a name, as in OpenAI's API."""
    return b"data: %b\n\n" % _one_line(data)


def _one_line(data: Any) -> bytes:
    """JSON without Unicode line breaks: by the standard events end at newlines only, but some clients split at all."""
    line = orjson.dumps(data)
    for raw, escaped in _BREAKS:
        line = line.replace(raw, escaped)
    return line


class Json(Response):
    """A JSON response from plain values, encoded once and not validated again."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The value as bytes."""
        return orjson.dumps(content)


class CompleteEvents(Response):
    """A stream of events that is already complete."""

    media_type = "text/event-stream"


class EventStream(StreamingResponse):
    """A stream of events that proxies must neither cache nor buffer."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


EVENT_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The reply, or its events",
        "content": {
            "text/event-stream": {
                "itemSchema": {
                    "type": "object",
                    "required": ["data"],
                    "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
                }
            }
        },
    }
}
"""The documentation of a route that can answer with a stream."""
