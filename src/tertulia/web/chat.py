"""The page's API: conversations, messages and their replies. Handlers decode, make one call, and encode."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tertulia.store import UNSET, StoredTurn
from tertulia.web import schemas
from tertulia.web.deps import AtDesk, Visiting
from tertulia.web.encode import (
    bot_out,
    conversation_out,
    export_json,
    export_markdown,
    export_text,
    line_out,
    persona_out,
    turn_out,
)
from tertulia.web.errors import page_error
from tertulia.web.guard import new_cookie
from tertulia.web.making import Attached, Making
from tertulia.web.schemas import ConversationId, errors
from tertulia.web.sse import KEEP_ALIVE, AtOnce, EventStream, Json, event

router = APIRouter(prefix="/api", tags=["page"])

AT_ONCE_SECONDS = 0.02
"""How long a stream's beginning may wait for its end: the reply of a bot that quick goes out in one piece."""
EXPORTS = {
    "json": (export_json, "application/json"),
    "txt": (export_text, "text/plain; charset=utf-8"),
    "md": (export_markdown, "text/markdown; charset=utf-8"),
}


# First, because it is used most, and routes are tried in order.
@router.post(
    "/conversations/{id}/messages",
    response_model=schemas.SaidOut,
    responses=errors(403, 404, 413, 502) | schemas.STREAM,
)
async def say(id: ConversationId, body: schemas.NewMessage, visit: Visiting) -> Response:  # noqa: A002
    """Say something, and get the reply; the same key again attaches to the same reply."""
    text = schemas.message_text(body.text, visit.desk.settings.max_message)
    attached = await visit.desk.say(id, visit.owner, text, body.key)
    return await _answer(attached, visit, event("user", turn_out(attached.user)) if body.stream else None)


@router.get("/bots", response_model=list[schemas.BotOut])
async def bots(desk: AtDesk) -> Response:
    """The bots to talk with."""
    return Json([bot_out(worker) for worker in desk.workers.values()])


@router.get("/personas", response_model=list[schemas.PersonaOut])
async def personas(request: Request) -> Response:
    """The personas to choose from."""
    return Json([persona_out(persona) for persona in request.app.state.personas])


@router.get("/conversations", response_model=list[schemas.LineOut], responses=errors())
async def conversations(visit: Visiting) -> Response:
    """The visitor's conversations, the newest first."""
    lines = await visit.desk.run(visit.desk.store.conversations, visit.owner)
    return Json([line_out(line) for line in lines])


@router.post("/conversations", status_code=201, response_model=schemas.ConversationOut, responses=errors(403, 413))
async def begin(body: schemas.NewConversation, visit: Visiting) -> Response:
    """Begin a conversation."""
    visit.desk.worker(body.bot)
    persona = schemas.persona_of(body.persona)
    made = await visit.desk.run(visit.desk.store.create_conversation, visit.owner, body.bot, persona)
    return Json(conversation_out(made), 201)


@router.get("/conversations/{id}", response_model=schemas.ConversationOut, responses=errors(404))
async def conversation(id: ConversationId, visit: Visiting) -> Response:  # noqa: A002 - the name in the path
    """A conversation with its turns."""
    return Json(conversation_out(await visit.desk.run(visit.desk.store.conversation, id, visit.owner)))


@router.patch("/conversations/{id}", response_model=schemas.ConversationOut, responses=errors(403, 404, 413))
async def change(id: ConversationId, body: schemas.Changes, visit: Visiting) -> Response:  # noqa: A002
    """Change a conversation's bot, persona or title."""
    if body.bot is not None:
        visit.desk.worker(body.bot)
    persona = schemas.persona_of(body.persona) if "persona" in body.model_fields_set else UNSET
    title = None if body.title is None else schemas.title_text(body.title)
    update = partial(visit.desk.store.update_conversation, id, visit.owner, bot=body.bot, persona=persona, title=title)
    return Json(conversation_out(await visit.desk.run(update)))


@router.delete("/conversations/{id}", status_code=204, responses=errors(403, 404))
async def erase(id: ConversationId, visit: Visiting) -> Response:  # noqa: A002
    """Erase a conversation for good."""
    await visit.desk.stop_all(visit.owner, id)
    await visit.desk.run(visit.desk.store.erase_conversation, id, visit.owner)
    return Response(status_code=204)


@router.post(
    "/conversations/{id}/regenerate",
    response_model=schemas.SaidOut,
    responses=errors(403, 404, 409, 413, 502) | schemas.STREAM,
)
async def regenerate(id: ConversationId, body: schemas.Again, visit: Visiting) -> Response:  # noqa: A002
    """Get another reply in place of the last one, which is kept in the history."""
    return await _answer(await visit.desk.regenerate(id, visit.owner, body.key), visit, b"" if body.stream else None)


@router.get("/conversations/{id}/events", response_class=Response, responses=errors(404, 409) | schemas.STREAM)
async def events(id: ConversationId, visit: Visiting) -> Response:  # noqa: A002
    """Watch the reply in the making from its beginning, or get the last one."""
    return EventStream(follow(await visit.desk.attach(id, visit.owner), visit.desk.settings.keep_alive_seconds))


@router.post("/conversations/{id}/stop", response_model=schemas.TurnOut, responses=errors(403, 404, 409))
async def stop(id: ConversationId, visit: Visiting) -> Response:  # noqa: A002
    """End the reply in the making where it is."""
    return Json(turn_out(await visit.desk.stop(id, visit.owner)))


@router.post("/conversations/{id}/undo", response_model=schemas.ConversationOut, responses=errors(403, 404, 409))
async def undo(id: ConversationId, visit: Visiting) -> Response:  # noqa: A002
    """Take back the last message and the reply to it."""
    await visit.desk.stop_all(visit.owner, id)
    return Json(conversation_out(await visit.desk.run(visit.desk.store.undo, id, visit.owner)))


@router.get("/conversations/{id}/export", response_class=Response, responses=errors(404) | schemas.EXPORT)
async def export(id: ConversationId, visit: Visiting, format: Literal["json", "txt", "md"] = "json") -> Response:  # noqa: A002
    """A conversation as a file."""
    write, kind = EXPORTS[format]
    found = await visit.desk.run(visit.desk.store.conversation, id, visit.owner)
    name = f"tertulia-{found.created:%Y-%m-%d}-{found.id[:6]}.{format}"
    return Response(write(found), media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


@router.delete("/me", response_model=schemas.ErasedOut, responses=errors(403))
async def forget(request: Request, visit: Visiting) -> Response:
    """Erase all the visitor has said, and make them a new visitor."""
    await visit.desk.stop_all(visit.owner)
    erased = await visit.desk.run(visit.desk.store.erase_owner, visit.owner)
    return Json({"erased": erased}, headers={"Set-Cookie": new_cookie(request.scope)})


async def _answer(attached: Attached, visit: Visiting, opening: bytes | None) -> Response:
    """The reply as a stream of events that begins with `opening`, or whole when that is None."""
    making = attached.making
    if opening is None:
        return Json({"user": turn_out(attached.user), "bot": turn_out(await making.over_or_raise())})
    if not making.over:
        with suppress(TimeoutError):
            await asyncio.wait_for(making.changed(), AT_ONCE_SECONDS)
    if making.over and not making.parts:
        return AtOnce(opening + _start(making) + _end(making))
    return EventStream(follow(making, visit.desk.settings.keep_alive_seconds, opening))


async def follow(making: Making, patience: float, opening: bytes = b"") -> AsyncIterator[bytes]:
    """A reply as events: what was already written, then each piece, then its end. A slow watcher gets larger pieces."""
    seen = len(making.parts)
    yield opening + _start(making)
    while True:
        pieces, seen = making.parts[seen:], len(making.parts)
        if pieces:
            yield event("piece", {"text": "".join(pieces)})
        elif making.over:
            yield _end(making)
            return
        else:
            try:
                await asyncio.wait_for(making.changed(), patience)
            except TimeoutError:
                yield KEEP_ALIVE


def _start(making: Making) -> bytes:
    return event("start", {"id": making.turn.id, "text": "".join(making.parts)})


def _end(making: Making) -> bytes:
    if making.error is not None:
        return event("error", page_error(making.error.message, making.error.hint)["error"])
    return event("done", _turn(making.ended))


def _turn(turn: StoredTurn | None) -> dict[str, Any]:
    assert turn is not None
    return turn_out(turn)
