"""The app factory: bots and a store in, an ASGI app out. There is no app at module level."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from tertulia import __version__
from tertulia.core.dialogue import Persona
from tertulia.core.errors import UsageError
from tertulia.store import Store
from tertulia.talk.bot import Bot
from tertulia.web import chat, errors, openai, pages
from tertulia.web.guard import Guard
from tertulia.web.jobs import Desk
from tertulia.web.settings import WebSettings


def create_app(
    bots: Mapping[str, Bot], store: Store, *, personas: Sequence[Persona] = (), settings: WebSettings | None = None
) -> FastAPI:
    """A server for these bots. Who opened the store closes it, after the app has been shut down."""
    if not bots:
        raise UsageError("There is no bot to serve.", hint="Name at least one.")
    settings = settings or WebSettings()
    app = FastAPI(title="Tertulia", version=__version__, lifespan=_lifespan, docs_url=None, redoc_url=None)
    app.state.desk = Desk(bots, store, settings)
    app.state.personas = tuple(personas)
    errors.install(app)
    app.include_router(chat.router)
    app.include_router(openai.router)
    pages.install(app)
    if settings.cors_origins:
        app.add_middleware(SharedApi, origins=settings.cors_origins)
    app.add_middleware(Guard, settings=settings)
    _document(app)
    return app


def _document(app: FastAPI) -> None:
    """Make the schema once. FastAPI documents its own 422 wherever there is a body, but /v1 answers 400 instead."""
    schema = app.openapi()
    for path, operations in schema["paths"].items():
        for operation in operations.values() if path.startswith("/v1/") else ():
            operation["responses"].pop("422", None)
    unused = ("HTTPValidationError", "ValidationError")
    schema["components"]["schemas"] = {k: v for k, v in schema["components"]["schemas"].items() if k not in unused}


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    desk: Desk = app.state.desk
    yield
    await desk.close()


class SharedApi:
    """Lets pages of other origins call /v1, and nothing else: the page's API is for our own page alone."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self.app = app
        self.shared = CORSMiddleware(app, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=["*"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Choose by path."""
        shared = scope["type"] == "http" and scope["path"].startswith("/v1/")
        await (self.shared if shared else self.app)(scope, receive, send)
