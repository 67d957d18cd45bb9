"""Middleware around the app, from the outside in: security checks and headers, CORS for /v1, and authentication.

Plain ASGI, because it runs for every message. `SecurityMiddleware` refuses requests that are too large, that call us by
another host's name, or that a page of another site sends with our visitor's cookie; it identifies the visitor, and adds
the security headers. `AuthMiddleware` refuses whoever has neither a key nor a session, if the server is protected.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence

from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tertulia.core.errors import TertuliaError
from tertulia.web.auth import PASSWORD, Access, WebSession
from tertulia.web.errors import TooMany, Unauthorized, error_response, is_openai, openai_error, page_error
from tertulia.web.responses import Json

COOKIE = "tertulia"
SESSION_COOKIE = "tertulia_session"
_TOKEN = re.compile(rb"(?:^|;\s*)tertulia=([A-Za-z0-9_-]{43})(?:;|$)")
_SESSION = re.compile(rb"(?:^|;\s*)tertulia_session=([^;\s]+)")
_PUBLIC = ("/healthz", "/readyz", "/signin", "/admin")
"""Paths that need no credentials, besides the prefixes below."""
_OWN_DOORS = ("/static/", "/study/", "/api/study/", "/admin/")
"""Static files; studies, which let in participants by their own tokens; the researchers' pages, which have accounts."""
_REPLIES = ("/chat/completions", "/messages", "/regenerate")
"""Requests that count against the quota of a key: those that make a bot reply."""
_YEAR = 365 * 24 * 3600

_NO_STORE = (b"cache-control", b"no-store")
_SECURITY: list[tuple[bytes, bytes]] = [
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
_SECURITY_SHARED = [header for header in _SECURITY if header[0] != b"cross-origin-resource-policy"]


class SecurityMiddleware:
    """Checks requests, identifies visitors, and adds headers to responses."""

    def __init__(self, app: ASGIApp, *, access: Access, max_body: int, shares_openai: bool) -> None:
        """With `shares_openai`, pages of other origins may read what /v1 answers."""
        self.app = app
        self.access = access
        self.max_body = max_body
        self.openai_headers = _SECURITY_SHARED if shares_openai else _SECURITY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path: str = scope["path"]
        headers: dict[bytes, bytes] = dict(scope["headers"])
        extra = self.openai_headers if is_openai(path) else _SECURITY
        if path.startswith("/api/study/"):
            extra = [*extra, _NO_STORE]
        elif path.startswith("/api/"):
            extra = [*extra, _NO_STORE, *visitor_cookie(scope, headers)]
        elif path == "/":
            extra = [*extra, *visitor_cookie(scope, headers)]
        refusal = self._refuse(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, _adding_headers(send, extra))
        else:
            await self.app(scope, self._limited(receive), _adding_headers(send, extra))

    def _refuse(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Json | None:
        path = scope["path"]
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self.access.allows_host(hosts[0]):
            message, hint = "This server does not serve the requested host.", "Call it by an address that it serves."
            return _refusal(path, 421, message, hint)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18 or int(length) > self.max_body:
            return _refusal(path, 413, self._too_large())
        changes = scope["method"] not in ("GET", "HEAD", "OPTIONS") and not is_openai(path)
        if changes and not same_origin(headers):
            return _refusal(path, 403, "The request came from a page of another site.", "Use Tertulia's own page.")
        return None

    def _too_large(self) -> str:
        return f"The request is too large: the limit is {self.max_body:,} bytes."

    def _limited(self, receive: Receive) -> Receive:
        """Count the bytes received: a chunked body does not declare its length."""
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > self.max_body:
                    raise HTTPException(413, self._too_large().rstrip("."))
            return message

        return limited


def _refusal(path: str, status: int, message: str, hint: str = "") -> Json:
    if is_openai(path):
        return Json(openai_error(f"{message} {hint}".strip(), "invalid_request_error"), status)
    return Json(page_error(message, hint), status)


def _adding_headers(send: Send, extra: Sequence[tuple[bytes, bytes]]) -> Send:
    """Add headers to the response, except those that the handler has set itself."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = message.get("headers", [])
            names = {name for name, _ in own}
            message["headers"] = [*own, *[header for header in extra if header[0] not in names]]
        await send(message)

    return sending


class AuthMiddleware:
    """Lets in whoever has a key or a session, if the server is protected; nothing but sign-in is public by default.

    The request's state gets the session and the name of the key, for limits per key.
    """

    def __init__(self, app: ASGIApp, *, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        session, key = self._identify(scope)
        scope.setdefault("state", {}).update(session=session, key=key)
        refusal = self._refuse(scope, session, key)
        await (self.app if refusal is None else refusal)(scope, receive, send)

    def _identify(self, scope: Scope) -> tuple[WebSession | None, str | None]:
        """The request's session and the name of its key; a session that was opened with a key has both."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        key = self.access.key_name(given[0]) if len(given) == 1 else None
        session = None if is_openai(scope["path"]) else session_of(self.access, scope)
        if key is None and session is not None and session.credential != PASSWORD:
            key = session.credential
        return session, key

    def _refuse(self, scope: Scope, session: WebSession | None, key: str | None) -> Response | None:
        path: str = scope["path"]
        if not self.access.is_protected or path in _PUBLIC or path.startswith(_OWN_DOORS):
            return None
        if session is None and key is None:
            if path == "/" and scope["method"] in ("GET", "HEAD"):
                return RedirectResponse("signin", 303, {"Cache-Control": "no-store"})
            return error_response(path, self._unauthorized(scope))
        try:
            if key in self.access.quotas and scope["method"] == "POST" and path.endswith(_REPLIES):
                self.access.quotas[key].take("requests with this key")
        except TooMany as error:
            return error_response(path, error)
        return None

    def _unauthorized(self, scope: Scope) -> TertuliaError:
        if not is_openai(scope["path"]):
            return Unauthorized("You are not signed in.", hint="Reload the page to sign in.")
        if not self.access.has_keys:
            return Unauthorized("This server has no API keys.", hint="Its page can be used with a password.")
        given = any(name == b"authorization" for name, _ in scope["headers"])
        message = "Incorrect API key provided." if given else "No API key provided."
        return Unauthorized(message, hint="Send it as 'Authorization: Bearer KEY'.")


def session_of(access: Access, scope: Scope) -> WebSession | None:
    """The session whose cookie came with a request, if it is valid."""
    for name, value in scope["headers"]:
        if name == b"cookie" and (match := _SESSION.search(value)):
            return access.session(match.group(1).decode("latin-1"))
    return None


def session_cookie(scope: Scope, value: str, max_age: int) -> str:
    """The value of the Set-Cookie header for a session; an age of 0 removes the cookie."""
    secure = "; Secure" if scope["scheme"] == "https" else ""
    return f"{SESSION_COOKIE}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}"


def visitor_cookie(scope: Scope, headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Read the visitor's token, or create one, and put the owner into the request's state.

    Returns the header that sets a new visitor's cookie. Whoever has the token is the visitor; the store sees its hash.
    """
    match = _TOKEN.search(headers.get(b"cookie", b""))
    token = match.group(1) if match else secrets.token_urlsafe(32).encode()
    scope.setdefault("state", {})["owner"] = hashlib.sha256(token).hexdigest()
    return [] if match else [(b"set-cookie", new_cookie(scope, token.decode()).encode())]


def new_cookie(scope: Scope, token: str | None = None) -> str:
    """The value of the Set-Cookie header for a new visitor."""
    secure = "; Secure" if scope["scheme"] == "https" else ""
    return f"{COOKIE}={token or secrets.token_urlsafe(32)}; Path=/; Max-Age={_YEAR}; HttpOnly; SameSite=Lax{secure}"


def same_origin(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request comes from our own page, or from no page: a script has no visitor's cookies to abuse."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site in (b"same-origin", b"none")
    origin = headers.get(b"origin")
    return origin is None or origin.partition(b"://")[2] == headers.get(b"host")


class OpenAICors:
    """Allows pages of other origins to call /v1, and nothing else: the page's API is for our own page only."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self.app = app
        self.shared = CORSMiddleware(app, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=["*"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Choose by path."""
        shared = scope["type"] == "http" and is_openai(scope["path"])
        await (self.shared if shared else self.app)(scope, receive, send)
