"""The OpenAI-compatible API: any client or chat UI that supports it can talk to our bots. It stores nothing.

A client that disconnects cancels its replies: unlike on the page, nobody could fetch them later.
"""

import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tertulia.talk.bot import traits_of
from tertulia.web.deps import AppServices
from tertulia.web.openai import schemas
from tertulia.web.openai.completion import Replies
from tertulia.web.openai.schemas import ChatRequest, asks_for, errors
from tertulia.web.responses import EVENT_STREAM, Json
from tertulia.web.threads import on_thread

STARTED = int(time.time())


router = APIRouter(prefix="/v1", tags=["openai"])


@router.get("/models", response_model=schemas.ModelsOut, responses=errors())
async def models(services: AppServices) -> Response:
    """List the bots that are ready, as models."""
    await services.first_bot()
    return Json({"object": "list", "data": [_model(name) for name in services.workers]})


@router.get("/models/{id:path}", response_model=schemas.ModelOut, responses=errors(404))
async def model(id: str, services: AppServices) -> Response:  # noqa: A002 - the name in the path
    """Get one bot, as a model."""
    return Json(_model(services.worker(id).name))


@router.post(
    "/chat/completions",
    response_model=schemas.CompletionOut,
    responses=errors(400, 404, 413, 502, 503) | EVENT_STREAM,
)
async def complete(body: ChatRequest, request: Request, services: AppServices) -> Response:
    """Reply to a dialogue, at once or as a stream."""
    worker = services.worker(body.model)
    asks = await on_thread(asks_for, body, traits_of(worker.bot))
    replies = Replies(worker, body, asks)
    if body.stream:
        return await replies.stream(services.config.keep_alive_seconds)
    return await replies.collect(request)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": STARTED, "owned_by": "tertulia"}
