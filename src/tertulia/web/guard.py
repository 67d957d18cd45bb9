"""The door: what every request passes before a handler sees it, and every answer on its way out.

Plain ASGI and one layer, because it runs for every message: it refuses requests that are too large or that another
site's page sends with our visitor's cookie, tells visitors apart, and sets the headers that keep the pages safe.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tertulia.web.errors import openai_error, page_error
from tertulia.web.settings import WebSettings
from tertulia.web.sse import Json

COOKIE = "tertulia"
_TOKEN = re.compile(rb"(?:^|;\s*)tertulia=([A-Za-z0-9_-]{43})(?:;|$)")
_YEAR = 365 * 24 * 3600

_PRIVATE = (b"cache-control", b"no-store")
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


_SHARED = [header for header in _SAFE if header[0] != b"cross-origin-resource-policy"]


class Guard:
    """Middleware around the whole app."""

    def __init__(self, app: ASGIApp, settings: WebSettings) -> None:
        self.app = app
        self.max_body = settings.max_body
        self.v1_headers = _SHARED if settings.cors_origins else _SAFE

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path: str = scope["path"]
        headers: dict[bytes, bytes] = dict(scope["headers"])
        extra = self.v1_headers if path.startswith("/v1/") else _SAFE
        if path.startswith("/api/"):
            extra = [*extra, _PRIVATE, *visitor_cookie(scope, headers)]
        elif path == "/":
            extra = [*extra, *visitor_cookie(scope, headers)]
        refusal = self._refuse(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, _dressing(send, extra))
        else:
            await self.app(scope, self._counting(receive), _dressing(send, extra))

    def _refuse(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Json | None:
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.max_body:
            message = self._too_large()
            v1 = scope["path"].startswith("/v1/")
            return Json(openai_error(message, "invalid_request_error") if v1 else page_error(message), 413)
        changes = scope["method"] not in ("GET", "HEAD", "OPTIONS") and scope["path"].startswith("/api/")
        if changes and not same_origin(headers):
            return Json(page_error("This request came from a page of another site.", "Use Tertulia's own page."), 403)
        return None

    def _too_large(self) -> str:
        return f"The request is too large: at most {self.max_body:,} bytes are taken."

    def _counting(self, receive: Receive) -> Receive:
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


def _dressing(send: Send, extra: Sequence[tuple[bytes, bytes]]) -> Send:
    """Add headers to the answer, but for those that the handler has set itself."""

    async def dressing(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = message.get("headers", [])
            names = {name for name, _ in own}
            message["headers"] = [*own, *(header for header in extra if header[0] not in names)]
        await send(message)

    return dressing


def visitor_cookie(scope: Scope, headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Find the visitor's token, or make one; the owner's name goes into the request's state.

    Gives the header that a new visitor's answer needs. Whoever has the token is the visitor; the store knows its hash.
    """
    found = _TOKEN.search(headers.get(b"cookie", b""))
    token = found.group(1) if found else secrets.token_urlsafe(32).encode()
    scope.setdefault("state", {})["owner"] = hashlib.sha256(token).hexdigest()
    return [] if found else [(b"set-cookie", new_cookie(scope, token.decode()).encode())]


def new_cookie(scope: Scope, token: str | None = None) -> str:
    """The Set-Cookie header that makes a visitor."""
    secure = "; Secure" if scope["scheme"] == "https" else ""
    return f"{COOKIE}={token or secrets.token_urlsafe(32)}; Path=/; Max-Age={_YEAR}; HttpOnly; SameSite=Lax{secure}"


def same_origin(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request comes from our own page, or from no page: a script has no visitor's cookies to abuse."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site in (b"same-origin", b"none")
    origin = headers.get(b"origin")
    return origin is None or origin.partition(b"://")[2] == headers.get(b"host")
