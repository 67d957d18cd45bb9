"""The OpenAI-compatible API: any client or chat UI that speaks it can talk with our bots. It stores nothing.

A client that hangs up cancels its replies: unlike on the page, nobody could ever come back for them.
"""

import hmac
import time
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from tertulia.web import openai_schemas as schemas
from tertulia.web.completion import Replies
from tertulia.web.deps import AtDesk
from tertulia.web.errors import Unauthorized
from tertulia.web.openai_schemas import ChatRequest, asks_of, errors
from tertulia.web.schemas import STREAM
from tertulia.web.sse import Json

STARTED = int(time.time())


async def _check_key(request: Request, desk: AtDesk) -> None:
    key = desk.settings.api_key
    if key is None:
        return
    given = request.headers.get("authorization", "").encode()
    if not hmac.compare_digest(given, f"Bearer {key.get_secret_value()}".encode()):
        raise Unauthorized("Incorrect API key provided.", hint="Send it as 'Authorization: Bearer KEY'.")


router = APIRouter(prefix="/v1", tags=["openai"], dependencies=[Depends(_check_key)])


@router.get("/models", response_model=schemas.ModelsOut, responses=errors())
async def models(desk: AtDesk) -> Response:
    """The bots, as models."""
    return Json({"object": "list", "data": [_model(name) for name in desk.workers]})


@router.get("/models/{id:path}", response_model=schemas.ModelOut, responses=errors(404))
async def model(id: str, desk: AtDesk) -> Response:  # noqa: A002 - the name in the path
    """One bot."""
    desk.worker(id)
    return Json(_model(id))


@router.post(
    "/chat/completions",
    response_model=schemas.CompletionOut,
    responses=errors(400, 404, 413, 502, 503) | STREAM,
)
async def complete(body: ChatRequest, request: Request, desk: AtDesk) -> Response:
    """Reply to a dialogue, whole or as a stream."""
    replies = Replies(desk.worker(body.model), body, asks_of(body))
    if body.stream:
        return await replies.stream(desk.settings.keep_alive_seconds)
    return Json(await replies.whole(request))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": STARTED, "owned_by": "tertulia"}
