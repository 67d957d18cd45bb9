"""The page's API: conversations, messages and replies. Handlers decode, make one call, and encode.

Whatever takes time in proportion to texts (cleaning, formatting, exporting, JSON of many turns) runs on a thread.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from tertulia.store import UNSET, NotFound, StoredTurn
from tertulia.store.records import ConversationPage, SearchHit
from tertulia.web.deps import AppServices, VisitorConversations
from tertulia.web.grounding import stored_evidence
from tertulia.web.middleware import new_cookie
from tertulia.web.page import schemas
from tertulia.web.page.encode import (
    attempts_out,
    bot_out,
    explanation_out,
    hit_out,
    page_out,
    persona_out,
    summary_out,
    turn_out,
)
from tertulia.web.page.export import EXPORTERS, ExportFormat, file_name
from tertulia.web.page.schemas import ConversationId, TurnId, errors
from tertulia.web.page.stream import follow, respond, user_event
from tertulia.web.replies import StartedReply
from tertulia.web.responses import EVENT_STREAM, EventStream, Json
from tertulia.web.services import Services
from tertulia.web.threads import on_thread, on_thread_if_long

router = APIRouter(prefix="/api", tags=["page"])
PageSize = Annotated[int, Query(ge=1, le=schemas.PAGE_TURNS)]


# First, because it is used most, and routes are tried in order.
@router.post(
    "/conversations/{id}/messages",
    response_model=schemas.ExchangeOut,
    responses=errors(403, 404, 413, 502) | EVENT_STREAM,
)
async def say(
    id: ConversationId,  # noqa: A002 - the name in the path
    body: schemas.NewMessage,
    services: AppServices,
    conversations: VisitorConversations,
) -> Response:
    """Send a message and get the reply; the same key again attaches to the same reply."""
    return await answer(services, conversations.owner, id, body)


async def answer(services: Services, owner: str, conversation: str, message: schemas.NewMessage) -> Response:
    """Store a message, and respond with the reply to it."""
    text = await _message_text(message.text, services)
    started = await services.replies.say(conversation, owner, text, message.key)
    opening = user_event(started) if message.stream else b""
    return await _respond(started, services, stream=message.stream, opening=opening)


@router.get("/bots", response_model=list[schemas.BotOut], responses=errors())
async def bots(services: AppServices) -> Response:
    """List the bots that are ready."""
    await services.first_bot()
    return Json([bot_out(worker) for worker in services.workers.values()])


@router.get("/personas", response_model=list[schemas.PersonaOut], responses=errors())
async def personas(services: AppServices) -> Response:
    """List suggested personas."""
    return Json([persona_out(persona) for persona in services.personas])


@router.get("/conversations", response_model=list[schemas.ConversationSummaryOut], responses=errors(404))
async def list_conversations(
    conversations: VisitorConversations,
    before: ConversationId | None = None,
    limit: PageSize = schemas.PAGE_CONVERSATIONS,
) -> Response:
    """List the visitor's conversations, the newest first; with `before`, those that follow that one."""
    return Json([summary_out(summary) for summary in await conversations.summaries(limit=limit, before=before)])


@router.get("/search", response_model=list[schemas.SearchHitOut], responses=errors())
async def search(
    conversations: VisitorConversations, q: Annotated[str, Query(max_length=schemas.MAX_SEARCH)]
) -> Response:
    """Find the visitor's conversations that have all these words in the title or in one turn, the newest first."""
    words = schemas.search_words(q)
    return await on_thread(_hits, await conversations.search(words), words)


@router.post("/conversations", status_code=201, response_model=schemas.ConversationOut, responses=errors(403, 413))
async def create(body: schemas.NewConversation, services: AppServices, conversations: VisitorConversations) -> Response:
    """Start a conversation."""
    services.worker(body.bot)
    persona = await on_thread(schemas.persona_of, body.persona) if body.persona else None
    evidence = await on_thread(schemas.evidence_of, body.evidence) if body.evidence else ()
    created = await conversations.create(body.bot, persona, evidence)
    return Json(page_out(ConversationPage(created, {}, None)), 201)


@router.get("/conversations/{id}", response_model=schemas.ConversationOut, responses=errors(404))
async def get(
    id: ConversationId,  # noqa: A002
    services: AppServices,
    conversations: VisitorConversations,
    before: Annotated[int | None, Query(ge=0)] = None,
    limit: PageSize = schemas.PAGE_TURNS,
) -> Response:
    """Get a conversation with its last turns, or with those at positions below `before`."""
    encode = partial(_page, markdown=services.config.markdown)
    return await conversations.page(id, encode, limit=limit, before=before)


@router.patch("/conversations/{id}", response_model=schemas.ConversationOut, responses=errors(403, 404, 413))
async def update(
    id: ConversationId,  # noqa: A002
    body: schemas.ConversationChanges,
    services: AppServices,
    conversations: VisitorConversations,
) -> Response:
    """Change a conversation's bot, persona, evidence or title."""
    if body.bot is not None:
        services.worker(body.bot)
    persona = await on_thread(schemas.persona_of, body.persona) if "persona" in body.model_fields_set else UNSET
    title = None if body.title is None else await on_thread_if_long(body.title, schemas.title_text)
    given = "evidence" in body.model_fields_set
    evidence = await on_thread(schemas.evidence_of, body.evidence) if given else None
    await conversations.update(id, bot=body.bot, persona=persona, title=title, evidence=evidence)
    return await get(id, services, conversations)


@router.delete("/conversations/{id}", status_code=204, responses=errors(403, 404))
async def erase(id: ConversationId, services: AppServices, conversations: VisitorConversations) -> Response:  # noqa: A002
    """Delete a conversation for good."""
    await services.replies.stop_all(conversations.owner, id)
    await conversations.erase(id)
    return Response(status_code=204)


@router.post(
    "/conversations/{id}/regenerate",
    response_model=schemas.ExchangeOut,
    responses=errors(403, 404, 409, 413, 502) | EVENT_STREAM,
)
async def regenerate(
    id: ConversationId,  # noqa: A002
    body: schemas.Regeneration,
    services: AppServices,
    conversations: VisitorConversations,
) -> Response:
    """Get another reply in place of the last one, which stays in the history."""
    started = await services.replies.regenerate(id, conversations.owner, body.key)
    return await _respond(started, services, stream=body.stream)


@router.post(
    "/conversations/{id}/edit",
    response_model=schemas.ExchangeOut,
    responses=errors(403, 404, 413, 502) | EVENT_STREAM,
)
async def edit(
    id: ConversationId,  # noqa: A002
    body: schemas.EditedMessage,
    services: AppServices,
    conversations: VisitorConversations,
) -> Response:
    """Send another version of an earlier message and continue from there; what followed it stays in the history."""
    text = await _message_text(body.text, services)
    await services.replies.stop_all(conversations.owner, id)
    started = await services.replies.edit(id, conversations.owner, body.turn, text, body.key)
    return await _respond(started, services, stream=body.stream, opening=user_event(started))


@router.get("/conversations/{id}/turns/{turn}/attempts", response_model=list[schemas.TurnOut], responses=errors(404))
async def attempts(
    id: ConversationId,  # noqa: A002
    turn: TurnId,
    services: AppServices,
    conversations: VisitorConversations,
) -> Response:
    """List all attempts at a reply, or all versions of a message, the oldest first."""
    versions = await conversations.attempts(id, turn)
    return await on_thread(_attempts, versions, markdown=services.config.markdown)


@router.post("/conversations/{id}/turns/{turn}/choose", response_model=schemas.TurnOut, responses=errors(403, 404, 409))
async def choose(
    id: ConversationId,  # noqa: A002
    turn: TurnId,
    services: AppServices,
    conversations: VisitorConversations,
) -> Response:
    """Make another attempt at the last reply the current one."""
    await conversations.choose(id, turn)
    versions = await conversations.attempts(id, turn)
    return await on_thread(_attempt, versions, turn, markdown=services.config.markdown)


@router.get("/conversations/{id}/turns/{turn}/why", response_model=schemas.ExplanationOut, responses=errors(404))
async def explain(
    id: ConversationId,  # noqa: A002
    turn: TurnId,
    services: AppServices,
    conversations: VisitorConversations,
) -> Response:
    """Explain a reply: its candidates, scores, settings, seed and timing. Not found unless the server explains."""
    if not services.config.explain:
        raise NotFound("page")
    stored = next((each for each in await conversations.attempts(id, turn) if each.id == turn), None)
    if stored is None or stored.speaker != "bot":
        raise NotFound("reply")
    return await on_thread(lambda: Json(explanation_out(stored)))


@router.get("/conversations/{id}/turns/{turn}/evidence", response_model=schemas.ReplyEvidenceOut, responses=errors(404))
async def reply_evidence(
    id: ConversationId,  # noqa: A002
    turn: TurnId,
    services: AppServices,
    conversations: VisitorConversations,
) -> Response:
    """Get the passages that a reply could rest on and, where the server checks replies, which sentences do."""
    message, reply = await conversations.reply(id, turn)
    passages, verdict = stored_evidence(reply), None
    if services.grounding is not None and passages and reply.text and reply.status in ("done", "stopped"):
        verdict = await services.grounding.verdict(reply, message)
    return Json({"passages": passages, "verdict": verdict})


@router.get("/conversations/{id}/events", response_class=Response, responses=errors(404, 409) | EVENT_STREAM)
async def events(id: ConversationId, services: AppServices, conversations: VisitorConversations) -> Response:  # noqa: A002
    """Follow the pending reply from its beginning, or get the last one."""
    pending = await services.replies.attach(id, conversations.owner)
    config = services.config
    return EventStream(follow(pending, config.keep_alive_seconds, markdown=config.markdown))


@router.post("/conversations/{id}/stop", response_model=schemas.TurnOut, responses=errors(403, 404, 409))
async def stop(id: ConversationId, services: AppServices, conversations: VisitorConversations) -> Response:  # noqa: A002
    """Stop generating the reply."""
    return Json(turn_out(await services.replies.stop(id, conversations.owner)))


@router.post("/conversations/{id}/undo", response_model=schemas.ConversationOut, responses=errors(403, 404, 409))
async def undo(id: ConversationId, services: AppServices, conversations: VisitorConversations) -> Response:  # noqa: A002
    """Remove the last message and the reply to it."""
    await services.replies.stop_all(conversations.owner, id)
    await conversations.undo(id)
    return await get(id, services, conversations)


@router.get("/conversations/{id}/export", response_class=Response, responses=errors(404) | schemas.EXPORT)
async def export(
    id: ConversationId,  # noqa: A002
    services: AppServices,
    conversations: VisitorConversations,
    format: ExportFormat = "json",  # noqa: A002
) -> Response:
    """Download a conversation as a file."""
    conversation, exporter = await conversations.get(id), EXPORTERS[format]
    headers = {"Content-Disposition": f'attachment; filename="{file_name(conversation, format)}"'}
    names = {name: worker.display_name for name, worker in services.workers.items()}
    content = await on_thread(exporter.write, conversation, names)
    return Response(content, media_type=exporter.media_type, headers=headers)


@router.delete("/me", response_model=schemas.ErasedOut, responses=errors(403))
async def erase_visitor(request: Request, services: AppServices, conversations: VisitorConversations) -> Response:
    """Delete all of the visitor's conversations, and give them a new cookie."""
    await services.replies.stop_all(conversations.owner)
    erased = await conversations.erase_all()
    return Json({"erased": erased, "note": schemas.ERASED_NOTE}, headers={"Set-Cookie": new_cookie(request.scope)})


async def _message_text(text: str, services: Services) -> str:
    return await on_thread_if_long(text, partial(schemas.message_text, limit=services.config.max_message))


# On a thread: the encoding is a part of the response.


def _page(page: ConversationPage, *, markdown: bool) -> Response:
    return Json(page_out(page, markdown=markdown))


def _hits(hits: Sequence[SearchHit], words: list[str]) -> Response:
    return Json([hit_out(hit, words) for hit in hits])


def _attempts(turns: Sequence[StoredTurn], *, markdown: bool) -> Response:
    return Json(attempts_out(turns, markdown=markdown))


def _attempt(turns: Sequence[StoredTurn], turn: str, *, markdown: bool) -> Response:
    return Json(next(version for version in attempts_out(turns, markdown=markdown) if version["id"] == turn))


async def _respond(started: StartedReply, services: Services, *, stream: bool, opening: bytes = b"") -> Response:
    config = services.config
    return await respond(
        started,
        stream=stream,
        opening=opening,
        keep_alive_seconds=config.keep_alive_seconds,
        markdown=config.markdown,
    )
