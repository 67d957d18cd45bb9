"""For operators and their tools: /healthz (is the process alive), /readyz (can it serve), and /metrics.

If the server has an API key, requests without it learn no more than one word and a status code.
"""

from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel

from tertulia.web.deps import AppServices, MayInspect
from tertulia.web.errors import Unauthorized
from tertulia.web.metrics import CONTENT_TYPE
from tertulia.web.responses import Json
from tertulia.web.services import ObservedWorker, Services

router = APIRouter(tags=["operations"])


class HealthOut(BaseModel):
    """The process is alive. The rest only with the key, if there is one."""

    status: Literal["ok"]
    bots: list[str] | None = None
    loading: list[str] | None = None
    unhealthy: dict[str, str] | None = None
    """Bots that cannot reply at the moment, with their state: `stalled`, `down` or `half-open`."""


class BotStatus(BaseModel):
    """The state of one bot in this process."""

    state: Literal["loading", "ready", "failed"]
    reason: str | None = None
    """Class of the error, if the bot could not be loaded."""
    queue: int = 0
    in_flight: int = 0
    health: str = "ok"
    """`ok`; `stalled` if it has asks but has made no progress for a while; `down` if its endpoint has failed so often
    that it is not called, `half-open` while it is tried again."""
    detail: str = ""
    retry_seconds: float = 0.0


class ReadyOut(BaseModel):
    """Whether the server can serve. `bots` only with the key, if there is one."""

    status: Literal["ready", "loading", "failed"]
    bots: dict[str, BotStatus] | None = None


@router.get("/healthz", response_model=HealthOut)
async def health(services: AppServices, may_inspect: MayInspect) -> Response:
    """Liveness: the process responds."""
    if not may_inspect:
        return Json({"status": "ok"})
    states = {name: worker.health() for name, worker in services.workers.items()}
    unhealthy = {name: health.state for name, health in states.items() if not health.ok}
    return Json({"status": "ok", "bots": list(services.bots), "loading": services.loading, "unhealthy": unhealthy})


@router.get("/readyz", response_model=ReadyOut, responses={503: {"model": ReadyOut}})
async def ready(services: AppServices, may_inspect: MayInspect) -> Response:
    """Readiness: 200 if all bots that can be loaded are loaded, else 503."""
    status = readiness(services)
    body: dict[str, Any] = {"status": status}
    if may_inspect:
        body["bots"] = {name: bot_status(services, name).model_dump() for name in services.bots}
    return Json(body, 200 if status == "ready" else 503, None if status == "ready" else {"Retry-After": "1"})


@router.get("/metrics", response_class=Response, include_in_schema=False)
async def metrics(services: AppServices, may_inspect: MayInspect) -> Response:
    """Metrics in Prometheus' text format."""
    if not may_inspect:
        raise Unauthorized("The metrics require the API key.", hint="Send it as 'Authorization: Bearer KEY'.")
    return Response(services.metrics.render(), media_type=CONTENT_TYPE)


def readiness(services: Services) -> Literal["ready", "loading", "failed"]:
    """Whether the server can serve."""
    if services.loading:
        return "loading"
    return "ready" if services.workers else "failed"


def bot_status(services: Services, name: str) -> BotStatus:
    """The state of a bot."""
    worker: ObservedWorker | None = services.workers.get(name)
    if worker is None:
        error = services.load_errors.get(name)
        return BotStatus(state="failed", reason=type(error).__name__) if error else BotStatus(state="loading")
    health = worker.health()
    return BotStatus(
        state="ready",
        queue=worker.queue_length,
        in_flight=worker.in_flight,
        health=health.state,
        detail=health.detail,
        retry_seconds=round(health.retry_seconds, 1),
    )
