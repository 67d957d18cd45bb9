"""Signing in and out. The page is a plain form, and works without JavaScript, by keyboard and with a screen reader."""

import asyncio
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from tertulia.web.auth import Access
from tertulia.web.errors import TooMany
from tertulia.web.middleware import session_cookie
from tertulia.web.page.pages import Pages

MAX_FORM = 4_096
"""Largest form that is read, in bytes."""
FORM = "application/x-www-form-urlencoded"
_HEADERS = {"Cache-Control": "no-store"}


def install(app: FastAPI, access: Access) -> None:
    """Add the sign-in page to an app."""
    pages = Pages()
    checking = asyncio.Semaphore(2)  # a check takes a while by design: others queue up instead of taking all cores

    def render(status: int, error: str = "", hint: str = "", headers: dict[str, str] | None = None) -> Response:
        response = pages.render("signin.html", {"error": error, "hint": hint})
        response.status_code = status
        response.headers.update(_HEADERS | (headers or {}))
        return response

    @app.api_route("/signin", methods=["GET", "HEAD"], response_class=HTMLResponse, include_in_schema=False)
    async def form(request: Request) -> Response:
        """The form, for those who need it."""
        if not access.is_protected or request.state.session is not None:
            return RedirectResponse("./", 303, _HEADERS)
        return render(200)

    @app.post("/signin", include_in_schema=False)
    async def sign_in(request: Request) -> Response:
        """Check the password or key, and open a session."""
        try:
            access.attempts.take(request.client.host if request.client else "")
        except TooMany as error:
            return render(429, error.message, error.hint, {"Retry-After": str(error.retry_after)})
        text = await _password(request)
        async with checking:
            cookie = await asyncio.to_thread(access.sign_in, text) if text else None
        if cookie is None:
            return render(401, "That is not the password.", "Check it and try again.", {"WWW-Authenticate": "Bearer"})
        max_age = access.session_seconds
        headers = _HEADERS | {"Set-Cookie": session_cookie(request.scope, cookie, max_age)}
        return RedirectResponse("./", 303, headers)

    @app.post("/signout", include_in_schema=False)
    async def sign_out(request: Request) -> Response:
        """End the session."""
        if request.state.session is not None:
            access.sign_out(request.state.session)
        return RedirectResponse("signin", 303, _HEADERS | {"Set-Cookie": session_cookie(request.scope, "", 0)})


async def _password(request: Request) -> str:
    """The form's field; empty if the form is malformed or too large."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        return ""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM:
            return ""
    values = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=10).get("password", [])
    return values[0] if len(values) == 1 else ""
