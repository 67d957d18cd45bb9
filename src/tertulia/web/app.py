"""The app factory: bots and a database in, an ASGI app out. There is no app at module level."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request

from tertulia import __version__
from tertulia.core.dialogue import Persona
from tertulia.core.errors import UsageError
from tertulia.store import Database
from tertulia.talk.bot import Bot
from tertulia.web import admin, errors, health
from tertulia.web.auth import Access
from tertulia.web.config import LazyBot, ServeConfig
from tertulia.web.limits import LimitsMiddleware
from tertulia.web.logs import AccessMiddleware
from tertulia.web.middleware import AuthMiddleware, OpenAICors, SecurityMiddleware
from tertulia.web.openai import routes as openai_routes
from tertulia.web.page import pages, signin
from tertulia.web.page import routes as page_routes
from tertulia.web.page.direct import DirectMessages
from tertulia.web.services import Services
from tertulia.web.study import mount as studies


def create_app(
    bots: Mapping[str, Bot | LazyBot],
    database: Database,
    *,
    personas: Sequence[Persona] = (),
    config: ServeConfig | None = None,
    stops_abandoned: bool = True,
    may_inspect: Callable[[Request], bool] | None = None,
) -> FastAPI:
    """An app that serves these bots. Whoever opened the database closes it, after the app has been shut down.

    The other options are those of `Services`.
    """
    if not bots:
        raise UsageError("No bot to serve.", hint="Name at least one.")
    config = config or ServeConfig()
    app = FastAPI(
        title="Tertulia",
        version=__version__,
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
        },  # we have our own, and a check costs each request
    )
    app.state.services = services = Services(
        bots, database, config, personas, stops_abandoned=stops_abandoned, may_inspect=may_inspect
    )
    errors.install(app)
    app.include_router(health.router)
    app.include_router(page_routes.router)
    app.include_router(openai_routes.router)
    studies.install(app, services)
    pages.install(app)
    access = Access(config)
    signin.install(app, access)
    admin.install(app, database, config)
    # The last one is the outermost: what limits refuse is logged, has all headers, and counts for a known visitor or
    # key; CORS answers preflight requests, which have no key.
    app.add_middleware(DirectMessages, services=services)
    app.add_middleware(LimitsMiddleware, services=services)
    app.add_middleware(AuthMiddleware, access=access)
    if config.cors_origins:
        app.add_middleware(OpenAICors, origins=config.cors_origins)
    shares_openai = bool(config.cors_origins)
    app.add_middleware(SecurityMiddleware, access=access, max_body=config.max_body, shares_openai=shares_openai)
    app.add_middleware(AccessMiddleware, metrics=services.metrics)
    _fix_openapi(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    yield
    await services.close()


def _fix_openapi(app: FastAPI) -> None:
    """Build the schema when it is asked for, once. FastAPI documents its own 422 for every body; /v1 answers 400."""
    build = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = build()
            for path, operations in schema["paths"].items():
                for operation in operations.values() if path.startswith("/v1/") else ():
                    operation["responses"].pop("422", None)
            unused = ("HTTPValidationError", "ValidationError")
            schemas = schema["components"]["schemas"]
            schema["components"]["schemas"] = {k: v for k, v in schemas.items() if k not in unused}
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]
