"""The chat page, its static files, and the sign of life for whoever watches over the server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from tertulia import __version__
from tertulia.web.deps import AtDesk
from tertulia.web.schemas import HealthOut
from tertulia.web.sse import Json

HERE = Path(__file__).parent


class Static(StaticFiles):
    """Files that browsers keep but ask about each time: a new version is seen at once, an old one costs a 304."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file with its caching header."""
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


class Pages:
    """Templates, escaped by default; a name that a template uses and nobody gave is an error."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined
        )

    def render(self, name: str, values: Mapping[str, Any]) -> HTMLResponse:
        """A page."""
        html = self._environment.get_template(name).render(version=__version__, **values)
        return HTMLResponse(html, headers={"Cache-Control": "no-cache"})


def install(app: FastAPI) -> None:
    """Add the pages to an app."""
    pages = Pages()

    @app.api_route("/", methods=["GET", "HEAD"], response_class=HTMLResponse, include_in_schema=False)
    async def chat(desk: AtDesk) -> Response:
        """The chat page."""
        return pages.render("chat.html", {"max_message": desk.settings.max_message})

    @app.get("/healthz", response_model=HealthOut, tags=["page"])
    async def health(desk: AtDesk) -> Response:
        """A sign of life."""
        return Json({"status": "ok", "bots": list(desk.workers)})

    app.mount("/static", Static(directory=HERE / "static"), name="static")
