"""The link that participants open, and the page that it leads to."""

import secrets
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from tertulia.core.errors import TertuliaError
from tertulia.study.config import StudyConfig
from tertulia.study.invitations import invited_name
from tertulia.study.localised import direction
from tertulia.web.deps import AppServices
from tertulia.web.page.pages import Pages
from tertulia.web.study.errors import REFUSALS, NotInvited, refusal_of, refusal_text
from tertulia.web.study.rater import Entry
from tertulia.web.study.schemas import StudyId
from tertulia.web.study.service import StudyService

COOKIE_SECONDS = 60 * 24 * 3600
MAX_ID = 200
PREVIEW = "ASSIGNMENT_ID_NOT_AVAILABLE"
"""What Mechanical Turk says as long as a worker only looks."""


def cookie_name(study: str) -> str:
    """The cookie that holds a participant's token."""
    return f"tertulia_study_{study}"


def entry_of(config: StudyConfig, study: str, parameters: Mapping[str, str]) -> Entry | None:
    """Who opens the link; None if it does not say. A forged invitation is refused."""
    if worker := parameters.get("PROLIFIC_PID"):
        return Entry("prolific", worker[:MAX_ID], _meta(parameters, "STUDY_ID", "SESSION_ID"))
    if worker := parameters.get("workerId"):
        return Entry("mturk", worker[:MAX_ID], _meta(parameters, "assignmentId", "hitId"))
    if invite := parameters.get("invite"):
        name = invited_name(config, study, invite)
        if name is None:
            raise NotInvited
        return Entry("invitation", name, {})
    return Entry("open", secrets.token_urlsafe(16), {}) if config.access == "open" else None


def _meta(parameters: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: parameters[name][:MAX_ID] for name in names if name in parameters}


def install(app: FastAPI, service: StudyService) -> None:
    """Add the pages to an app."""
    pages = Pages()

    def shell(study: str, config: StudyConfig, problem: str = "", *, preview: bool = False) -> HTMLResponse:
        lang = config.languages[0]
        values = {"study": study, "language": lang, "direction": direction(lang), "title": config.title.get(lang)}
        response = pages.render("study.html", values | {"problem": problem, "preview": preview})
        response.headers["Cache-Control"] = "no-store"
        return response

    def enter(request: Request, study: str) -> Response:
        """Enrol whoever comes with an id; somebody who comes back without one has their cookie."""
        _, config = service.study(study)
        parameters = request.query_params
        if parameters.get("assignmentId") == PREVIEW:
            return shell(study, config, preview=True)
        known = _is_known(service, study, request.cookies.get(cookie_name(study)))
        try:
            entry = entry_of(config, study, parameters)
            if entry is not None and not (known and entry.source == "open"):
                token = service.enroll(study, entry)
            elif known:
                token = None
            else:
                raise NotInvited
        except tuple(REFUSALS) as error:
            response = shell(study, config, refusal_text(error, config.languages[0]))
            response.status_code = refusal_of(error).status
            return response
        # Relative, so that it also works under a proxy's prefix.
        answer = RedirectResponse(f"{study}/", 303, {"Cache-Control": "no-store"})
        if token is not None:
            secure = request.scope["scheme"] == "https"
            answer.set_cookie(
                cookie_name(study), token, max_age=COOKIE_SECONDS, httponly=True, samesite="lax", secure=secure
            )
        return answer

    @app.get("/study/{study}", response_class=HTMLResponse, include_in_schema=False)
    async def entry(request: Request, study: StudyId, services: AppServices) -> Response:
        """Take part."""
        return await services.on_store_thread(enter, request, study)

    @app.get("/study/{study}/", response_class=HTMLResponse, include_in_schema=False)
    async def page(study: StudyId, services: AppServices) -> Response:
        """The page of a study."""
        _, config = await services.on_store_thread(service.study, study)
        return shell(study, config)


def _is_known(service: StudyService, study: str, token: str | None) -> bool:
    try:
        service.rater(study, token)
    except TertuliaError:
        return False
    return True
