"""Messages, the requests that the server gets most, answered without FastAPI's routing and dependencies in between.

On the event loop these take longer than all the rest of a message. `DirectMessages` is the innermost middleware: all
checks, limits, headers, the log and the metrics are around it. The route of FastAPI stays the definition. It has the
documentation and the validation errors: whatever is not plainly a valid message goes there, together with its body.
"""

import re

from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tertulia.core.errors import TertuliaError
from tertulia.web.errors import error_response, public_error
from tertulia.web.page import routes
from tertulia.web.page.schemas import NewMessage
from tertulia.web.services import Services

_PATH = re.compile(r"/api/conversations/([A-Za-z0-9]{32})/messages")
_ROUTE = next(route for route in routes.router.routes if isinstance(route, APIRoute) and route.endpoint is routes.say)


class DirectMessages:
    """Answers valid messages, and passes all other requests on."""

    def __init__(self, app: ASGIApp, *, services: Services) -> None:
        self.app = app
        self.services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a message, or pass the request on."""
        if scope["type"] != "http" or scope["method"] != "POST" or not (match := _PATH.fullmatch(scope["path"])):
            await self.app(scope, receive, send)
            return
        if not _is_plain(scope):
            await self.app(scope, receive, send)
            return
        received = await _receive_body(receive)
        try:
            message = NewMessage.model_validate_json(b"".join(each.get("body", b"") for each in received))
        except ValidationError:
            await self.app(scope, _again(received, receive), send)
            return
        scope["route"] = _ROUTE  # for the log and the metrics
        try:
            response = await routes.answer(self.services, scope["state"]["owner"], match[1], message)
        except TertuliaError as error:
            response = error_response(scope["path"], public_error(error, path=scope["path"]))
        await response(scope, receive, send)


def _is_plain(scope: Scope) -> bool:
    """Whether the body is JSON of a known length, which the middleware around this has compared with the limit."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    return headers.get(b"content-type") == b"application/json" and b"content-length" in headers


async def _receive_body(receive: Receive) -> list[Message]:
    """All messages with parts of the body; the last one says that the client has gone if it has."""
    received = [await receive()]
    while received[-1].get("more_body", False):
        received.append(await receive())
    return received


def _again(received: list[Message], receive: Receive) -> Receive:
    """Receive the same messages again, then what follows them."""
    messages = iter(received)

    async def receiving() -> Message:
        return next(messages, None) or await receive()

    return receiving
