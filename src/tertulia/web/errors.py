"""One map from errors to status codes, and the two formats of an error: the page's, and OpenAI's under /v1.

Errors that the request itself caused are answered in full. All others are the operator's: their texts may name hosts,
files or settings, so visitors get a neutral text with a reference, and the log has the details under that reference.
"""

import logging
import math
import secrets
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from tertulia.core.errors import BotError, StoreError, TertuliaError, UnknownName, UsageError
from tertulia.core.text import clean
from tertulia.store import NotFound, StoredTurn
from tertulia.talk.worker import Busy, Cancelled, TooManyPending
from tertulia.web.responses import Json

log = logging.getLogger(__name__)


class TooLarge(UsageError):  # noqa: N818 - reads better than TooLargeError where it is raised
    """A request or message over the server's limit."""


class Unauthorized(UsageError):  # noqa: N818
    """The server requires a key or a password, and the request has another one or none."""


class TooMany(UsageError):  # noqa: N818
    """Too many requests within a minute."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        self.retry_after = max(1, math.ceil(retry_after))
        super().__init__(message, hint=f"Try again in {self.retry_after} seconds.")


class BadField(UsageError):  # noqa: N818
    """A missing or invalid field of an OpenAI request."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ErrorStatus(NamedTuple):
    """How an error is answered."""

    page: int
    """Status code of the page's API."""
    openai: int
    """Status code under /v1."""
    code: str | None = None
    """OpenAI's code for it."""


STATUSES: dict[type[TertuliaError], ErrorStatus] = {
    NotFound: ErrorStatus(404, 404),
    TooLarge: ErrorStatus(413, 413),
    Unauthorized: ErrorStatus(401, 401, "invalid_api_key"),
    TooMany: ErrorStatus(429, 429, "rate_limit_exceeded"),
    UnknownName: ErrorStatus(422, 404, "model_not_found"),
    UsageError: ErrorStatus(422, 400),
    TooManyPending: ErrorStatus(429, 429, "rate_limit_exceeded"),
    Busy: ErrorStatus(503, 503),
    StoreError: ErrorStatus(503, 503),
    BotError: ErrorStatus(502, 502),
    TertuliaError: ErrorStatus(409, 409),  # what is left does not fit the current state, such as nothing to undo
}
"""The nearest class in an error's ancestry decides."""


def status_of(error: TertuliaError) -> ErrorStatus:
    """The status an error is answered with.

    >>> status_of(UnknownName("bot", "x", [])).page
    422
    """
    if isinstance(error, Failure):
        return error.status
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


class Failure(TertuliaError):  # noqa: N818
    """What visitors are told about an operator's error: a neutral text and a reference to the log."""

    def __init__(self, what: str, reference: str, status: ErrorStatus, *, hint: str = "") -> None:
        super().__init__(f"{what} Reference: {reference}.", hint=hint)
        self.status = status


_VISIBLE = (UsageError, NotFound, Busy, Cancelled, Failure)
"""Errors whose texts visitors may see; so are plain `TertuliaError`s, which say what the current state does not allow.
Any other class is hidden, new ones included."""


def public_error(error: BaseException, **details: object) -> TertuliaError:
    """The error as visitors may see it; what must be hidden from them is logged, together with `details`."""
    if isinstance(error, TertuliaError) and (isinstance(error, _VISIBLE) or type(error) is TertuliaError):
        return error
    reference = secrets.token_hex(3)
    log_failure(error, reference, **details)
    return _failure(error, reference)


def reply_failure(error: TertuliaError, turn_id: str) -> TertuliaError:
    """The error of a stored reply as visitors may see it. Whoever stored the reply has logged the details."""
    hidden = not isinstance(error, _VISIBLE) and type(error) is not TertuliaError
    return _failure(error, reference_of(turn_id)) if hidden else error


def visible_error(turn: StoredTurn) -> str | None:
    """The error of a stored turn as visitors may see it: the stored text may be the bot's own."""
    if turn.error is None or turn.status != "failed":
        return turn.error
    return _failure(BotError(""), reference_of(turn.id)).message


def reference_of(turn_id: str) -> str:
    """The reference of a failed reply: the start of its turn's id, under which the store has it too."""
    return turn_id[:6]


def log_failure(error: BaseException, reference: str, **details: object) -> None:
    """Log an error that visitors see only the reference of."""
    shown = "".join(f", {name} {value}" for name, value in details.items())
    text = str(error).replace("\n", " ") if isinstance(error, TertuliaError) else repr(error)
    trace = None if isinstance(error, TertuliaError) else error
    log.error("Reference %s%s: %s: %s", reference, shown, type(error).__name__, text, exc_info=trace)


def _failure(error: BaseException, reference: str) -> Failure:
    if isinstance(error, StoreError):
        what, hint = "The server cannot access its conversations at the moment.", "Try again in a moment."
        return Failure(what, reference, STATUSES[StoreError], hint=hint)
    if isinstance(error, TertuliaError):
        hint = "Try again, or choose another bot."
        return Failure("The bot could not answer.", reference, STATUSES[BotError], hint=hint)
    hint = "If it happens again, tell the operator of this server the reference."
    return Failure("Internal server error.", reference, ErrorStatus(500, 500), hint=hint)


def page_error(message: str, hint: str = "") -> dict[str, Any]:
    """An error in the page's format. Messages may quote the request, hence the cleaning."""
    return {"error": {"message": clean(message), "hint": clean(hint)}}


def openai_error(message: str, kind: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """An error in OpenAI's format."""
    return {"error": {"message": clean(message), "type": kind, "param": param, "code": code}}


def to_openai_error(error: TertuliaError) -> dict[str, Any]:
    """One of our errors in OpenAI's format."""
    kind = "invalid_request_error" if isinstance(error, UsageError) else "server_error"
    param = error.param if isinstance(error, BadField) else None
    return openai_error(f"{error.message} {error.hint}".strip(), kind, param=param, code=status_of(error).code)


def install(app: FastAPI) -> None:
    """Answer every error in the format of the API it occurred in."""
    app.add_exception_handler(TertuliaError, _on_tertulia_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_bug)


def is_openai(path: str) -> bool:
    """Whether a path belongs to the OpenAI-compatible API."""
    return path.startswith("/v1/")


def _is_openai(request: Request) -> bool:
    return is_openai(request.scope["path"])


async def _on_tertulia_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, TertuliaError)
    return error_response(request.scope["path"], public_error(error, path=request.scope["path"]))


def error_response(path: str, error: TertuliaError) -> Response:
    """A public error as a response, in the format of the API that the path belongs to."""
    status = status_of(error)
    headers = {503: {"Retry-After": "1"}, 401: {"WWW-Authenticate": "Bearer"}}.get(status.page)
    if isinstance(error, TooMany):
        headers = {"Retry-After": str(error.retry_after)}
    if is_openai(path):
        return Json(to_openai_error(error), status.openai, headers)
    return Json(page_error(error.message, error.hint), status.page, headers)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    is_syntax = first["type"] == "json_invalid"
    path = [] if is_syntax else [str(part) for part in first["loc"][1:]]
    what = "The request is not valid JSON" if is_syntax else first["msg"]
    message = f"{'.'.join(path)}: {what}." if path else f"{what}."
    if _is_openai(request):
        return Json(openai_error(message, "invalid_request_error", param=path[0] if path else None), 400)
    return Json(page_error(message, "See /openapi.json for the request format."), 422)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{str(error.detail).rstrip('.')}."
    body = openai_error(message, "invalid_request_error") if _is_openai(request) else page_error(message)
    return Json(body, error.status_code, error.headers)


async def _on_bug(request: Request, error: Exception) -> Response:
    return error_response(request.scope["path"], public_error(error, path=request.scope["path"]))
