"""The list of studies, the dashboard of one study, and the button that stops it or lets it go on."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from tertulia.core.errors import UsageError
from tertulia.store.study_records import StudyState
from tertulia.web.admin.pages import (
    NO_STORE,
    AdminRoute,
    AdminServices,
    ResearcherForm,
    StudyFigures,
    Viewer,
    redirect,
    title_of,
)

router = APIRouter(route_class=AdminRoute, include_in_schema=False)
_NEXT_STATES: dict[str, StudyState] = {"open": "open", "closed": "closed"}


@router.get("/admin")
def root() -> Response:
    """To the list of studies, where relative links work."""
    return RedirectResponse("admin/", 303, NO_STORE)


@router.get("/admin/")
def list_studies(request: Request, admin: AdminServices, session: Viewer) -> Response:
    """All studies with their state and progress, the newest first."""
    studies = [
        {"record": record, "title": title_of(record), "total": admin.studies.progress(record.id).total}
        for record in reversed(admin.studies.list())
    ]
    return admin.render(request, "studies.html", session, {"studies": studies})


@router.get("/admin/study/{study}")
def dashboard(study: str, request: Request, admin: AdminServices, session: Viewer) -> Response:
    """The dashboard of a study."""
    return admin.render(request, "study.html", session, _values(admin.figures(study)))


@router.get("/admin/study/{study}/live")
def live(study: str, request: Request, admin: AdminServices, session: Viewer) -> Response:
    """The figures alone, for the page to refresh itself."""
    return admin.render(request, "figures.html", session, _values(admin.figures(study)))


@router.post("/admin/study/{study}/state")
def set_state(study: str, request: Request, admin: AdminServices, form: ResearcherForm) -> Response:
    """Stop a study, or let it go on."""
    state = _NEXT_STATES.get(form.get("state"))
    if state is None:
        raise UsageError("A study can be opened or closed.", hint="Use the buttons of the page.")
    if state == "open" and not admin.studies.progress(study).units:
        raise UsageError("The study has no units.", hint="Add them with: tertulia study open")
    admin.studies.set_state(study, state, form.session.who)
    return redirect(request, f"study/{study}")


def _values(figures: StudyFigures) -> Mapping[str, Any]:
    return {
        "study": figures.record,
        "config": figures.config,
        "title": figures.config.title.get(figures.config.languages[0]),
        "d": figures.dashboard,
        "computed": figures.computed,
    }
