"""Transcripts, adjudication and exports. Whoever sees one of them is recorded in the audit log, before they see it."""

import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.store import Conversation, NotFound
from tertulia.store.study_records import AssignmentRecord, LabelRecord, StudyUnitRecord
from tertulia.study.blinding import task_view
from tertulia.study.config import StudyConfig
from tertulia.study.export import REPLIES, ExportFormat, csv_lines, export_rows, jsonl_lines, write_parquet
from tertulia.study.questions import SIDES
from tertulia.study.units import Unit
from tertulia.web.admin.adjudication import EVENT, ItemKey, decision_detail, disputed_items, options
from tertulia.web.admin.counterfactual import served_bots
from tertulia.web.admin.pages import NO_STORE, Admin, AdminRoute, AdminServices, ResearcherForm, Viewer, redirect

router = APIRouter(prefix="/admin/study/{study}", route_class=AdminRoute, include_in_schema=False)
PER_PAGE = 50
CHUNK = 65_536
MEDIA_TYPES: dict[ExportFormat, str] = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}


class Side(NamedTuple):
    """What stood at one side, with the bot behind it."""

    name: str
    bot: str
    text: str | None
    turns: list[dict[str, str]]
    conversation: Conversation | None
    reply: Mapping[str, Json] | None
    """The record of the response, if it was generated for the study."""


@router.get("/assignments")
def list_assignments(
    study: str,
    request: Request,
    admin: AdminServices,
    session: Viewer,
    participant: str | None = None,
    before: str | None = None,
) -> Response:
    """The assignments of a study, the newest first."""
    record, _ = admin.study(study)
    page = admin.review.assignments(study, participant=participant, before=before, limit=PER_PAGE + 1)
    values = {"study": record, "assignments": page[:PER_PAGE], "has_more": len(page) > PER_PAGE}
    return admin.render(request, "assignments.html", session, values | {"participant": participant})


@router.get("/assignments/{assignment}")
def transcript(study: str, assignment: str, request: Request, admin: AdminServices, session: Viewer) -> Response:
    """What was shown in an assignment, all its labels, and where each reply came from."""
    record, config = admin.study(study)
    assigned = admin.studies.assignment(assignment)
    if assigned.study != study:
        raise NotFound("assignment")
    admin.access.audit.record(session.who, "viewed a transcript", {"assignment": assignment}, study=study)
    unit = admin.studies.unit(study, assigned.unit)
    labels = admin.studies.labels_of(assignment, history=True)
    view = _view(config, unit, assigned)
    values = {
        "study": record,
        "assignment": assigned,
        "unit": unit,
        "view": view,
        "sides": _sides(unit, assigned, view, admin.review.conversations(assignment)),
        "labels": labels,
        "by_target": _by_target(labels),
        "served": served_bots(request),
    }
    return admin.render(request, "transcript.html", session, values)


@router.get("/adjudicate")
def queue(study: str, request: Request, admin: AdminServices, session: Viewer) -> Response:
    """What raters disagree on most."""
    record, config = admin.study(study)
    admin.access.audit.record(session.who, "viewed the adjudication queue", study=study)
    items = disputed_items(config, admin.studies.rows(study), admin.review.events(study, EVENT))
    shown = [_with_texts(admin, study, config, item) for item in items[:PER_PAGE]]
    undecided = sum(not item.decisions for item in items)
    values = {"study": record, "disputes": shown, "count": len(items), "undecided": undecided}
    return admin.render(request, "adjudicate.html", session, values)


@router.post("/adjudicate")
def decide(study: str, request: Request, admin: AdminServices, form: ResearcherForm) -> Response:
    """Record a decision; the raters' labels stay as they are."""
    _, config = admin.study(study)
    key = ItemKey(form.get("unit"), form.get("target"), form.get("question"))
    items = disputed_items(config, admin.studies.rows(study), admin.review.events(study, EVENT))
    item = next((item for item in items if item.key == key), None)
    if item is None:
        raise UsageError("Raters do not disagree on this.", hint="Reload the queue.")
    detail = decision_detail(config, item, form.get("value"), form.get("note"))
    admin.studies.record_event(study, form.session.who, EVENT, detail)
    return redirect(request, f"study/{study}/adjudicate")


@router.get("/export.{format}")
def export(
    study: str,
    format: ExportFormat,  # noqa: A002 - the name in the path
    admin: AdminServices,
    session: Viewer,
    history: bool = False,
    unfinished: bool = False,
) -> Response:
    """All labels in long format, as a stream. Pseudonyms only."""
    record, config = admin.study(study)
    detail = {"format": format, "history": history, "unfinished": unfinished}
    admin.access.audit.record(session.who, "exported labels", detail, study=study)
    payloads = {unit.id: unit.payload for unit in admin.studies.units(study)}
    labels = admin.studies.rows(study, history=history, unfinished=unfinished)
    rows = export_rows(config, labels, payloads=payloads, chats=admin.studies.chats(study))
    stream = {"csv": csv_lines, "jsonl": jsonl_lines, "parquet": _parquet_chunks}[format](rows)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", record.name).strip("-") or "study"
    headers = NO_STORE | {"Content-Disposition": f'attachment; filename="{name}.{format}"'}
    return StreamingResponse(stream, media_type=MEDIA_TYPES[format], headers=headers)


def _parquet_chunks(rows: Iterator[dict[str, Json]]) -> Iterator[bytes]:
    """A Parquet file has its index at the end, so it is written to a temporary file first."""
    with tempfile.TemporaryFile() as file:
        write_parquet(rows, file)
        file.seek(0)
        while chunk := file.read(CHUNK):
            yield chunk


def _view(config: StudyConfig, unit: StudyUnitRecord, assigned: AssignmentRecord) -> Mapping[str, Json]:
    """What the participant saw: the same function made their page."""
    return task_view(
        config, Unit(unit.id, unit.bots, unit.payload), assigned.side_order, config.languages[0], ended=True
    )


def _sides(
    unit: StudyUnitRecord,
    assigned: AssignmentRecord,
    view: Mapping[str, Json],
    conversations: tuple[Conversation, ...],
) -> list[Side]:
    responses, shown = view.get("responses", []), view.get("conversations", [])
    replies = unit.payload.get(REPLIES) or []
    sides = []
    for i in range(max(len(responses), len(shown), len(conversations))):
        at = assigned.side_order[i] if len(unit.bots) > 1 else 0
        bot = unit.bots[at] if unit.bots else ""
        sides.append(
            Side(
                SIDES[i],
                bot,
                responses[i]["text"] if i < len(responses) else None,
                shown[i]["turns"] if i < len(shown) else [],
                conversations[i] if i < len(conversations) else None,
                replies[at] if at < len(replies) else None,
            )
        )
    return sides


def _by_target(labels: tuple[LabelRecord, ...]) -> dict[str, list[LabelRecord]]:
    by_target: dict[str, list[LabelRecord]] = {}
    for label in labels:
        by_target.setdefault(label.target, []).append(label)
    return by_target


def _with_texts(admin: Admin, study: str, config: StudyConfig, item: Any) -> dict[str, Any]:
    """A disputed item with what it is about, in the order of the unit's bots."""
    unit = admin.studies.unit(study, item.key.unit)
    order = range(2 if len(unit.bots) > 1 or "decoy_persona" in unit.payload or "personas" in unit.payload else 1)
    view = task_view(config, Unit(unit.id, unit.bots, unit.payload), tuple(order), config.languages[0], ended=True)
    question = config.question(item.key.question)
    assert question is not None  # the queue has no others
    texts = [response["text"] for response in view.get("responses", [])]
    return {
        "item": item,
        "question": question.text.get(config.languages[0]),
        "options": options(question, item.bots),
        "context": view.get("context", []),
        "texts": list(zip(unit.bots, texts, strict=False)),
    }
