"""The door: what every request passes before a handler sees it, and every answer on its way out.

Plain ASGI and one layer, because it runs for every message: it refuses requests that are too large or that another
site's page sends with our visitor's cookie, tells visitors apart, and sets the headers that keep the pages safe.
"""

import hashlib
import re
import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tertulia.web.errors import openai_error, page_error
from tertulia.web.settings import WebSettings
from tertulia.web.sse import Json

COOKIE = "tertulia"
_TOKEN = re.compile(rf"(?:^|;\s*){COOKIE}=([A-Za-z0-9_-]{{43}})(?:;|$)")
_YEAR = 365 * 24 * 3600

_SAFE: list[tuple[bytes, bytes]] = [
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
        b"frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Guard:
    """Middleware around the whole app."""

    def __init__(self, app: ASGIApp, settings: WebSettings) -> None:
        self.app = app
        self.max_body = settings.max_body
        self.shared = bool(settings.cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path: str = scope["path"]
        headers = Headers(scope=scope)
        own = path.startswith("/api/")
        cookie = visitor_cookie(scope, headers) if own or path == "/" else None
        send = self._outgoing(send, cookie, private=own, shared=self.shared and path.startswith("/v1/"))
        refusal = self._refuse(scope, headers, own)
        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self.app(scope, self._incoming(receive), send)

    def _refuse(self, scope: Scope, headers: Headers, own: bool) -> Json | None:
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.max_body:
            message = self._too_large()
            v1 = scope["path"].startswith("/v1/")
            return Json(openai_error(message, "invalid_request_error") if v1 else page_error(message), 413)
        if own and scope["method"] not in ("GET", "HEAD", "OPTIONS") and not same_origin(headers):
            return Json(page_error("This request came from a page of another site.", "Use Tertulia's own page."), 403)
        return None

    def _too_large(self) -> str:
        return f"The request is too large: at most {self.max_body:,} bytes are taken."

    def _incoming(self, receive: Receive) -> Receive:
        """Count what comes in: a body sent in chunks does not say its length beforehand."""
        taken = 0

        async def counting() -> Message:
            nonlocal taken
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > self.max_body:
                    raise HTTPException(413, self._too_large().rstrip("."))
            return message

        return counting

    def _outgoing(self, send: Send, cookie: str | None, *, private: bool, shared: bool) -> Send:
        extra = [header for header in _SAFE if not (shared and header[0] == b"cross-origin-resource-policy")]

        async def dressing(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=[*message.get("headers", ()), *extra])
                if private:
                    headers.setdefault("cache-control", "no-store")
                if cookie is not None and "set-cookie" not in headers:
                    headers.append("set-cookie", cookie)
                message = {**message, "headers": headers.raw}
            await send(message)

        return dressing


def visitor_cookie(scope: Scope, headers: Headers) -> str | None:
    """Find the visitor's token, or make one; the owner's name goes into the request's state.

    Returns the cookie to set for a new visitor. Whoever has the token is the visitor; the store knows only its hash.
    """
    found = _TOKEN.search(headers.get("cookie", ""))
    token = found.group(1) if found else secrets.token_urlsafe(32)
    scope.setdefault("state", {})["owner"] = hashlib.sha256(token.encode()).hexdigest()
    return None if found else new_cookie(scope, token)


def new_cookie(scope: Scope, token: str | None = None) -> str:
    """The Set-Cookie header that makes a visitor."""
    secure = "; Secure" if scope["scheme"] == "https" else ""
    return f"{COOKIE}={token or secrets.token_urlsafe(32)}; Path=/; Max-Age={_YEAR}; HttpOnly; SameSite=Lax{secure}"


def same_origin(headers: Headers) -> bool:
    """Whether a request comes from our own page, or from no page: a script has no visitor's cookies to abuse."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")
