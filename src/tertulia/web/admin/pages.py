"""What the routes of the researchers' pages share: services, templates, errors as pages, sessions and forms by type."""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qs

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException

from tertulia import __version__
from tertulia.core.errors import DataError, TertuliaError, UsageError
from tertulia.core.estimate import Estimate
from tertulia.core.text import clean
from tertulia.store import Database, StudyStore
from tertulia.store.review import StudyReview
from tertulia.store.study_records import AccountRole, StudyRecord
from tertulia.study.config import StudyConfig
from tertulia.web.admin.access import AdminAccess, AdminSession, Forbidden, SignInNeeded, check_origin, require
from tertulia.web.admin.dashboard import Dashboard, make_dashboard
from tertulia.web.config import ServeConfig
from tertulia.web.errors import TooMany, public_error, status_of

TEMPLATES = Path(__file__).parent.parent / "templates"
MAX_FORM = 65_536
"""Largest form that is read, in bytes."""
FORM = "application/x-www-form-urlencoded"
FRESH_SECONDS = 3.0
"""How long the figures of a dashboard are shown before they are computed anew."""
REST_FACTOR = 10.0
"""Figures that took long are shown for at least so many times as long."""
NO_STORE = {"Cache-Control": "no-store"}


class StudyFigures(NamedTuple):
    """A study with the figures of its dashboard."""

    record: StudyRecord
    config: StudyConfig
    dashboard: Dashboard
    computed: datetime


class Admin:
    """The services of the researchers' pages of one app."""

    def __init__(self, database: Database, config: ServeConfig) -> None:
        self.access = AdminAccess(database, config)
        self.studies = StudyStore(database)
        self.review = StudyReview(database)
        self.checking = asyncio.Semaphore(2)
        """Held while a password is checked, which takes a while by design: others queue up."""
        self._environment = _environment()
        self._figures: dict[str, tuple[float, StudyFigures]] = {}
        self._computing = threading.Lock()

    def render(
        self,
        request: Request,
        template: str,
        session: AdminSession | None,
        values: Mapping[str, Any],
        *,
        status: int = 200,
        csrf: str = "",
    ) -> HTMLResponse:
        """A page. Links are relative, so that the site also works under a proxy's prefix."""
        root = "../" * (request.url.path.count("/") - 1)
        token = self.access.csrf_token(session.token) if session else csrf
        common = {"root": root, "session": session, "csrf": token, "version": __version__, "path": request.url.path}
        html = self._environment.get_template(f"admin/{template}").render(common | dict(values))
        return HTMLResponse(html, status, NO_STORE)

    def study(self, study: str) -> tuple[StudyRecord, StudyConfig]:
        """A study and its config."""
        record = self.studies.get(study)
        return record, parse_config(record)

    def figures(self, study: str) -> StudyFigures:
        """The figures of a study's dashboard, computed at most every few seconds, whoever looks."""
        record, config = self.study(study)
        with self._computing:
            until, figures = self._figures.get(study, (0.0, None))
            start = time.monotonic()
            if figures is None or start > until:
                dashboard = make_dashboard(
                    config,
                    self.studies.progress(study),
                    self.studies.rows(study),
                    self.review.times(study),
                    self.studies.participants(study),
                    self.review.identity_digests(study),
                )
                figures = StudyFigures(record, config, dashboard, datetime.now().astimezone())
                end = time.monotonic()
                self._figures[study] = (end + max(FRESH_SECONDS, REST_FACTOR * (end - start)), figures)
        return figures._replace(record=record, config=config)


def parse_config(record: StudyRecord) -> StudyConfig:
    """The config of a stored study."""
    try:
        return StudyConfig.model_validate(record.config)
    except ValueError as error:
        raise DataError(f"The config of the study {record.name!r} cannot be read: {error}") from None


def title_of(record: StudyRecord) -> str:
    """The title of a study, or its name if its config cannot be read."""
    try:
        config = parse_config(record)
    except DataError:
        return record.name
    return config.title.get(config.languages[0])


def admin_of(request: Request) -> Admin:
    """The services of the app."""
    admin: Admin = request.app.state.admin
    return admin


AdminServices = Annotated[Admin, Depends(admin_of)]


class SubmittedForm(NamedTuple):
    """A form that a researcher sent, and that was checked."""

    session: AdminSession
    fields: Mapping[str, str]

    def get(self, name: str) -> str:
        """A field as text that is safe to store; empty if it is missing."""
        return clean(self.fields.get(name, "")).strip()


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form; a field that occurs twice is left out."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise UsageError("The request is not a form.", hint="Use the page's own form.")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM:
            raise UsageError("The form is too large.", hint="Shorten the texts.")
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50)
    except ValueError:
        raise UsageError("The form has too many fields.", hint="Use the page's own form.") from None
    return {name: values[0] for name, values in fields.items() if len(values) == 1}


def _reader(role: AccountRole) -> Callable[[Request], AdminSession]:
    def check(request: Request) -> AdminSession:
        return require(admin_of(request).access.session(request), role)

    return check


def _writer(role: AccountRole) -> Callable[..., SubmittedForm]:
    def check(request: Request, fields: Annotated[dict[str, str], Depends(read_form)]) -> SubmittedForm:
        access = admin_of(request).access
        check_origin(request)
        session = require(access.session(request), "viewer")
        access.check_csrf(session.token, fields)
        return SubmittedForm(require(session, role), fields)

    return check


Viewer = Annotated[AdminSession, Depends(_reader("viewer"))]
Owner = Annotated[AdminSession, Depends(_reader("owner"))]
ViewerForm = Annotated[SubmittedForm, Depends(_writer("viewer"))]
ResearcherForm = Annotated[SubmittedForm, Depends(_writer("researcher"))]
OwnerForm = Annotated[SubmittedForm, Depends(_writer("owner"))]


class AdminRoute(APIRoute):
    """A route whose errors are pages. Whoever is not signed in is sent to sign in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler with its errors answered."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except SignInNeeded as error:
                if request.method == "GET" and not request.url.path.endswith("/live"):
                    return redirect(request, "signin")
                return error_page(request, error)
            except RequestValidationError:
                return error_page(request, UsageError("The address or the form is not valid."))
            except HTTPException as error:  # of the middleware that counts the bytes of a request
                return error_page(request, UsageError(f"{error.detail}."), error.status_code)
            except TertuliaError as error:
                return error_page(request, public_error(error, path=request.url.path))

        return handle


def error_page(request: Request, error: TertuliaError, status: int | None = None) -> Response:
    """An error that may be shown, as a page."""
    code = status or (403 if isinstance(error, Forbidden) else status_of(error).page)
    values = {"message": error.message, "hint": error.hint, "code": code}
    response = admin_of(request).render(request, "error.html", None, values, status=code)
    if isinstance(error, TooMany):
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def redirect(request: Request, path: str, headers: Mapping[str, str] | None = None) -> Response:
    """To a page under /admin, by a relative address."""
    root = "../" * (request.url.path.count("/") - 1)
    return RedirectResponse(f"{root}admin/{path}", 303, NO_STORE | dict(headers or {}))


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "moment": lambda value: f"{value:%Y-%m-%d %H:%M:%S} UTC" if value else "–",
        "number": _number,
        "interval": _interval,
        "percent": lambda value: "–" if math.isnan(value) else f"{100 * value:.0f} %",
        "minutes": lambda value: f"{value:.1f} min" if value >= 1 else f"{60 * value:.0f} s",
        "money": lambda value: f"{value:,.2f}",
        "short": lambda value: str(value)[:8],
    }
    return environment


def _number(value: float, digits: int = 2) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def _interval(estimate: Estimate, digits: int = 2) -> str:
    if math.isnan(estimate.low):
        return ""
    return f"{estimate.low:.{digits}f} to {estimate.high:.{digits}f}"
