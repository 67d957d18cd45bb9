"""Server-sent events: how they look on the wire, and JSON as bytes for them and for everything else we answer."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
from fastapi.responses import Response, StreamingResponse

KEEP_ALIVE = b": keep-alive\n\n"
_BREAKS = [(b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029")]


def event(name: str, data: Any) -> bytes:
    """One event with a JSON value; JSON has no raw line breaks, so that it always is one `data:` line.

    >>> event("piece", {"text": "a\\nb"})
    b'event: piece\\ndata: {"text":"a\\\\nb"}\\n\\n'
    """
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _one_line(data))


def data_line(data: Any) -> bytes:
    """An event without a name, as OpenAI's API sends them."""
    return b"data: %b\n\n" % _one_line(data)


def _one_line(data: Any) -> bytes:
    """JSON without Unicode's own line breaks: events end at newlines alone, but some clients split at all of them."""
    line = orjson.dumps(data)
    for raw, escaped in _BREAKS:
        line = line.replace(raw, escaped)
    return line


class Json(Response):
    """A JSON answer from plain values, encoded once and not validated again."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The value as bytes."""
        return orjson.dumps(content)


class AtOnce(Response):
    """A stream of events that is over before it began."""

    media_type = "text/event-stream"


class EventStream(StreamingResponse):
    """A stream of events that nothing on its way may keep or hold back."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
