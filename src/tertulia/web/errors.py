"""One map from errors to status codes, and the two forms an error takes: the page's, and OpenAI's under /v1."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from tertulia.core.errors import BotError, StoreError, TertuliaError, UnknownName, UsageError
from tertulia.core.text import clean
from tertulia.store import NotFound
from tertulia.talk.worker import Busy
from tertulia.web.sse import Json


class TooLarge(UsageError):  # noqa: N818 - reads better than TooLargeError where it is raised
    """More than the server takes in one request or message."""


class Unauthorized(UsageError):  # noqa: N818
    """The OpenAI-compatible API has a key, and the request has another one or none."""


class BadField(UsageError):  # noqa: N818
    """A field of an OpenAI request that is missing or wrong."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


STATUS: dict[type[TertuliaError], int] = {
    NotFound: 404,
    TooLarge: 413,
    Unauthorized: 401,
    BadField: 400,
    UsageError: 422,
    Busy: 503,
    StoreError: 503,
    BotError: 502,
    TertuliaError: 409,  # what is left is a request that does not fit the state of things, such as nothing to undo
}
"""The nearest class in an error's ancestry decides."""


def status_of(error: TertuliaError) -> int:
    """The status code an error is answered with.

    >>> status_of(UnknownName("bot", "x", []))
    422
    """
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def page_error(message: str, hint: str = "") -> dict[str, Any]:
    """An error as the page reads it. Messages may quote what was sent, hence the cleaning."""
    return {"error": {"message": clean(message), "hint": clean(hint)}}


def openai_error(message: str, kind: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """An error as OpenAI's clients read it."""
    return {"error": {"message": clean(message), "type": kind, "param": param, "code": code}}


def openai_form(error: TertuliaError) -> dict[str, Any]:
    """One of our errors as OpenAI's clients read it."""
    message = f"{error.message} {error.hint}".strip()
    if isinstance(error, UnknownName):
        return openai_error(message, "invalid_request_error", code="model_not_found")
    if isinstance(error, Unauthorized):
        return openai_error(message, "invalid_request_error", code="invalid_api_key")
    if isinstance(error, UsageError):
        return openai_error(message, "invalid_request_error", param=getattr(error, "param", None))
    return openai_error(message, "server_error")


def install(app: FastAPI) -> None:
    """Answer every error in the form its path promises."""
    app.add_exception_handler(TertuliaError, _tertulia_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _bug)


def _for_openai(request: Request) -> bool:
    return str(request.scope["path"]).startswith("/v1/")


async def _tertulia_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, TertuliaError)
    status = status_of(error)
    headers = {"Retry-After": "1"} if status == 503 else {"WWW-Authenticate": "Bearer"} if status == 401 else None
    if not _for_openai(request):
        return Json(page_error(error.message, error.hint), status, headers)
    if isinstance(error, UnknownName):
        status = 404
    elif status == 422:
        status = 400
    return Json(openai_form(error), status, headers)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = [str(part) for part in first["loc"][1:] if first["type"] != "json_invalid"]
    what = "The request is not valid JSON" if first["type"] == "json_invalid" else first["msg"]
    message = f"{'.'.join(place)}: {what}." if place else f"{what}."
    if _for_openai(request):
        return Json(openai_error(message, "invalid_request_error", param=place[0] if place else None), 400)
    return Json(page_error(message, "See /openapi.json for what this address takes."), 422)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{error.detail}."
    body = openai_error(message, "invalid_request_error") if _for_openai(request) else page_error(message)
    return Json(body, error.status_code, error.headers)


async def _bug(request: Request, error: Exception) -> Response:
    message, hint = "Something went wrong in the server.", "Its log has the details."
    return Json(
        openai_error(f"{message} {hint}", "server_error") if _for_openai(request) else page_error(message, hint), 500
    )
