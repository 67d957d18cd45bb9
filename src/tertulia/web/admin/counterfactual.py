"""What would another bot have said here? A researcher asks one of the served bots at a bot's turn of a transcript.

The bot gets the history, the persona and the seed of the original reply. Its reply is shown and stored nowhere, but
that somebody asked is in the audit log, before the bot is asked.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tertulia.core.dialogue import Dialogue, Evidence, Json, Persona, Turn
from tertulia.core.errors import UsageError
from tertulia.core.reply import Ask
from tertulia.store import Conversation, NotFound, StoredTurn
from tertulia.store.study_records import AssignmentRecord, StudyUnitRecord
from tertulia.study.export import REPLIES
from tertulia.study.questions import SIDES
from tertulia.talk.worker import Busy
from tertulia.web.admin.pages import Admin, AdminRoute, AdminServices, ResearcherForm
from tertulia.web.asks import BOT, USER, reply_record
from tertulia.web.services import Services

router = APIRouter(prefix="/admin/study/{study}", route_class=AdminRoute, include_in_schema=False)
WAIT_SECONDS = 60.0
"""How long a researcher's page waits for the reply."""


class Original(NamedTuple):
    """A reply in a transcript, and what to ask another bot in its place."""

    ask: Ask
    text: str
    bot: str
    reply: Mapping[str, Json] | None


def served_bots(request: Request) -> list[str]:
    """Names of the bots that can be asked now."""
    services: Services = request.app.state.services
    return list(services.workers)


@router.post("/assignments/{assignment}/counterfactual")
def counterfactual(
    study: str, assignment: str, request: Request, admin: AdminServices, form: ResearcherForm
) -> Response:
    """The reply of a served bot in place of a reply of the transcript; it is not stored."""
    record, _ = admin.study(study)
    assigned = admin.studies.assignment(assignment)
    if assigned.study != study:
        raise NotFound("assignment")
    services: Services = request.app.state.services
    worker = services.worker(form.get("bot"))
    original = _original(admin, assigned, admin.studies.unit(study, assigned.unit), form.get("turn"), form.get("side"))
    detail = {"assignment": assignment, "bot": worker.name, "turn": form.get("turn") or form.get("side")}
    admin.access.audit.record(form.session.who, "asked another bot", detail, study=study)
    job = worker.submit(original.ask, owner=form.session.who)
    try:
        reply = job.done.result(WAIT_SECONDS)
    except FutureTimeout:
        job.cancel()
        raise Busy("The bot takes too long.", hint="Try again when fewer people talk to it.") from None
    values = {
        "study": record,
        "assignment": assigned,
        "context": original.ask.dialogue.turns,
        "original": original,
        "bot": worker.name,
        "text": reply.text,
        "reply": reply_record(reply),
    }
    return admin.render(request, "counterfactual.html", form.session, values)


def _original(admin: Admin, assigned: AssignmentRecord, unit: StudyUnitRecord, turn: str, side: str) -> Original:
    if turn:
        for conversation in admin.review.conversations(assigned.id):
            for stored in conversation.turns:
                if stored.id == turn and stored.speaker == BOT:
                    return _of_turn(conversation, stored)
        raise NotFound("turn")
    responses: Sequence[str] = unit.payload.get("responses") or ()
    if side not in SIDES[: len(responses)]:
        raise UsageError("Say which reply is meant.", hint="Use the form beside the reply.")
    at = assigned.side_order[SIDES.index(side)] if len(unit.bots) > 1 else 0
    return _of_response(unit, at)


def _of_turn(conversation: Conversation, stored: StoredTurn) -> Original:
    """A bot's turn of a chat: the current turns before it are its history."""
    before = [t for t in conversation.turns if t.position < stored.position and t.current and t.text]
    dialogue = Dialogue(
        conversation.id,
        tuple(Turn(turn.speaker, turn.text) for turn in before),
        personas={BOT: conversation.persona} if conversation.persona else {},
        evidence=conversation.evidence,
    )
    seed = _seed(stored.reply)
    ask = Ask(dialogue, BOT, seed=int(stored.id[:8], 16) if seed is None else seed)
    return Original(ask, stored.text, stored.bot or conversation.bot, stored.reply)


def _of_response(unit: StudyUnitRecord, at: int) -> Original:
    """A response to a fixed context, whose last turn is the user's."""
    payload = unit.payload
    context: Sequence[Mapping[str, str]] = payload.get("context") or ()
    last = context[-1]["speaker"] if context else None
    turns = tuple(Turn(USER if turn["speaker"] == last else BOT, turn["text"]) for turn in context)
    persona = {BOT: Persona(tuple(payload["persona"]))} if payload.get("persona") else {}
    evidence = (Evidence(payload["evidence"]),) if payload.get("evidence") else ()
    replies = payload.get(REPLIES) or ()
    reply = replies[at] if at < len(replies) else None
    ask = Ask(Dialogue(unit.id, turns, personas=persona, evidence=evidence), BOT, seed=_seed(reply) or 0)
    return Original(ask, payload["responses"][at], unit.bots[at] if at < len(unit.bots) else "", reply)


def _seed(reply: Mapping[str, Json] | None) -> int | None:
    seed = ((reply or {}).get("provenance") or {}).get("seed")
    return seed if isinstance(seed, int) else None
