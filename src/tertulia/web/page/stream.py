"""A reply as a response: as JSON when it is finished, or as a stream of events while it is generated."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from fastapi.responses import Response

from tertulia.core.errors import TertuliaError
from tertulia.web.errors import page_error, reply_failure
from tertulia.web.page.encode import formatted_turn, turn_out
from tertulia.web.pending import PendingReply
from tertulia.web.replies import StartedReply
from tertulia.web.responses import KEEP_ALIVE, CompleteEvents, EventStream, Json, event

COMPLETE_WITHIN_SECONDS = 0.02
"""How long to wait for the end before streaming: the reply of a bot this fast is sent in one piece."""


async def respond(
    started: StartedReply, *, stream: bool, opening: bytes, keep_alive_seconds: float, markdown: bool
) -> Response:
    """The reply as a stream of events that begins with `opening`, or as JSON when it is finished."""
    pending = started.pending
    if not stream:
        try:
            turn = await pending.result()
        except TertuliaError as error:
            raise reply_failure(error, pending.turn.id) from None
        reply = await formatted_turn(turn, markdown=markdown)
        return Json({"user": turn_out(started.user), "bot": reply})
    if not pending.is_done:
        with suppress(TimeoutError):
            await asyncio.wait_for(pending.changed(), COMPLETE_WITHIN_SECONDS)
    if pending.is_done and not pending.pieces:
        return CompleteEvents(opening + _start(pending) + await _end(pending, markdown))
    return EventStream(follow(pending, keep_alive_seconds, opening, markdown=markdown))


async def follow(
    pending: PendingReply, keep_alive_seconds: float, opening: bytes = b"", *, markdown: bool
) -> AsyncIterator[bytes]:
    """A reply as events: the text so far, then each piece, then the end. A slow client gets larger pieces."""
    sent = len(pending.pieces)
    yield opening + _start(pending)
    while True:
        pieces, sent = pending.pieces[sent:], len(pending.pieces)
        if pieces:
            yield event("piece", {"text": "".join(pieces)})
        elif pending.is_done:
            yield await _end(pending, markdown)
            return
        else:
            try:
                await asyncio.wait_for(pending.changed(), keep_alive_seconds)
            except TimeoutError:
                yield KEEP_ALIVE


def user_event(started: StartedReply) -> bytes:
    """The user's stored message."""
    return event("user", turn_out(started.user))


def _start(pending: PendingReply) -> bytes:
    return event("start", {"id": pending.turn.id, "text": "".join(pending.pieces)})


async def _end(pending: PendingReply, markdown: bool) -> bytes:
    if pending.error is not None:
        error = reply_failure(pending.error, pending.turn.id)
        return event("error", page_error(error.message, error.hint)["error"])
    assert pending.final is not None
    return event("done", await formatted_turn(pending.final, markdown=markdown))
