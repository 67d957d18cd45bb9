"""The chat page and its static files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from tertulia import __version__
from tertulia.talk.evidence import MAX_EVIDENCE
from tertulia.web.deps import AppServices

WEB = Path(__file__).parent.parent


class Static(StaticFiles):
    """Files that browsers cache but revalidate: a new version is seen at once, an unchanged one costs a 304."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file with its caching header."""
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


class Pages:
    """Templates, escaped by default; an undefined variable is an error."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(WEB / "templates"), autoescape=True, undefined=StrictUndefined
        )

    def render(self, name: str, values: Mapping[str, Any]) -> HTMLResponse:
        """Render a page."""
        html = self._environment.get_template(name).render(version=__version__, **values)
        return HTMLResponse(html, headers={"Cache-Control": "no-cache"})


def install(app: FastAPI) -> None:
    """Add the pages to an app."""
    pages = Pages()

    @app.api_route("/", methods=["GET", "HEAD"], response_class=HTMLResponse, include_in_schema=False)
    async def chat(request: Request, services: AppServices) -> Response:
        """The chat page."""
        config, signed_in = services.config, request.state.session is not None
        settings = {"max_message": config.max_message, "markdown": config.markdown, "explain": config.explain}
        evidence = {"grounding": bool(config.grounding), "max_evidence": MAX_EVIDENCE}
        return pages.render("chat.html", settings | evidence | {"signed_in": signed_in})

    app.mount("/static", Static(directory=WEB / "static"), name="static")
