"""The participants' API, under /api/study/{study}. Handlers decode, make one call on a thread, and encode.

state (GET), consent, language, tutorial, training, next, attention, labels, undo, say, events (GET, a stream), finish,
submit, heartbeat, withdraw; with another person as partner also join, leave, typing, live (GET, a stream).
"""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from tertulia.web.page.schemas import errors
from tertulia.web.responses import EVENT_STREAM, EventStream, Json
from tertulia.web.study import schemas
from tertulia.web.study.chats import participant_owner
from tertulia.web.study.deps import Call
from tertulia.web.study.schemas import SavedOut, StateOut
from tertulia.web.study.service import StudyService
from tertulia.web.study.stream import user_event
from tertulia.web.study.tasks import TaskLabel

router = APIRouter(prefix="/api/study/{study}", tags=["study"])
_REFUSED = errors(401, 403, 404, 409, 413)


@router.get("/state", response_model=StateOut, responses=errors(401, 404))
async def state(call: Call, preview: Annotated[bool, Query()] = False) -> Response:
    """What the page shows. A preview shows the consent text to somebody who is not enrolled."""
    if preview:
        return Json(await call.services.on_store_thread(call.parts.service.preview, call.study))
    return await call.act(StudyService.state)


@router.post("/consent", response_model=StateOut, responses=_REFUSED)
async def consent(call: Call, body: schemas.ConsentIn) -> Response:
    """Agree to the consent text."""
    return await call.act(lambda service, rater: service.consent(rater, body.version, body.language))


@router.post("/language", response_model=StateOut, responses=_REFUSED)
async def language(call: Call, body: schemas.LanguageIn) -> Response:
    """Change the language."""
    return await call.act(lambda service, rater: service.choose_language(rater, body.language))


@router.post("/tutorial", response_model=StateOut, responses=_REFUSED)
async def tutorial(call: Call, body: schemas.Nothing) -> Response:
    """The tutorial was read."""
    return await call.act(StudyService.finish_tutorial)


@router.post("/training", response_model=StateOut, responses=_REFUSED)
async def training(call: Call, body: schemas.TrainingIn) -> Response:
    """Answer the training question at hand."""
    return await call.act(lambda service, rater: service.answer_training(rater, body.index, body.value))


@router.post("/next", response_model=StateOut, responses=_REFUSED)
async def next_task(call: Call, body: schemas.Nothing) -> Response:
    """Get the next task."""
    return await call.act(StudyService.next)


@router.post("/attention", response_model=StateOut, responses=_REFUSED)
async def attention(call: Call, body: schemas.AttentionIn) -> Response:
    """Answer the check of attention."""
    return await call.act(lambda service, rater: service.answer_attention(rater, body.value))


@router.post("/labels", response_model=SavedOut, responses=_REFUSED)
async def labels(call: Call, body: schemas.LabelsIn) -> Response:
    """Save answers; they are on disk when the response comes."""
    given = [TaskLabel(label.target, label.question, label.value) for label in body.labels]
    return await call.act(
        lambda service, rater: service.add_labels(rater, body.assignment, body.key, given, body.seconds)
    )


@router.post("/undo", response_model=SavedOut, responses=_REFUSED)
async def undo(call: Call, body: schemas.UndoIn) -> Response:
    """Take back the answers of one request."""
    return await call.act(lambda service, rater: service.undo_labels(rater, body.assignment, body.key))


@router.post("/say", response_model=schemas.ChatOut, responses=_REFUSED | errors(502) | EVENT_STREAM)
async def say(call: Call, body: schemas.SayIn) -> Response:
    """Send a message; the same key again attaches to the same replies."""
    sent = await call.parts.chat.say(call.read_rater, body.assignment, body.text, body.key)
    if not body.stream:
        return Json(await call.parts.chat.result(body.assignment, sent))
    keep_alive = call.services.config.keep_alive_seconds
    return EventStream(call.parts.chat.follow(sent.rater, sent.replies, keep_alive, user_event(sent.user)))


@router.get("/events", responses=_REFUSED | EVENT_STREAM)
async def events(call: Call, assignment: Annotated[str, Query(max_length=schemas.MAX_NAME)]) -> Response:
    """Follow the replies of a task after a reload."""
    rater = await call.rater()
    replies = await call.parts.chat.attach(rater, assignment)
    return EventStream(call.parts.chat.follow(rater, replies, call.services.config.keep_alive_seconds))


@router.post("/finish", response_model=StateOut, responses=_REFUSED)
async def finish(call: Call, body: schemas.AssignmentIn) -> Response:
    """End the conversation; the questions about all of it come now."""
    return await call.act(lambda service, rater: service.finish_chat(rater, body.assignment))


@router.post("/submit", response_model=StateOut, responses=_REFUSED)
async def submit(call: Call, body: schemas.SubmitIn) -> Response:
    """Hand in the task."""
    return await call.act(lambda service, rater: service.submit(rater, body.assignment, body.key))


@router.post("/heartbeat", response_model=schemas.HeartbeatOut, responses=_REFUSED)
async def heartbeat(call: Call, body: schemas.HeartbeatIn) -> Response:
    """The page is still open: the task at hand is kept."""
    return await call.act(lambda service, rater: service.heartbeat(rater, body.assignment))


@router.post("/withdraw", response_model=StateOut, responses=_REFUSED)
async def withdraw(call: Call, body: schemas.WithdrawIn) -> Response:
    """Delete everything the participant did."""
    rater = await call.rater()
    await call.services.replies.stop_all(participant_owner(rater.id))
    return await call.act(lambda service, rater: call.parts.pairs.withdraw(rater))


# With another person as partner.


@router.post("/join", response_model=StateOut, responses=_REFUSED)
async def join(call: Call, body: schemas.Nothing) -> Response:
    """Wait for a partner; repeat it every few seconds, unless the live stream is open."""
    return await call.act(lambda service, rater: call.parts.pairs.join(rater))


@router.post("/leave", response_model=StateOut, responses=_REFUSED)
async def leave(call: Call, body: schemas.Nothing) -> Response:
    """Leave the waiting room or the partner; or a bot that does not answer."""
    return await call.act(lambda service, rater: call.parts.pairs.leave(rater))


@router.post("/typing", response_model=schemas.OkOut, responses=_REFUSED)
async def typing(call: Call, body: schemas.Nothing) -> Response:
    """Let the partner know that one is writing."""
    return await call.act(lambda service, rater: call.parts.pairs.typing(rater))


@router.get("/live", responses=_REFUSED | EVENT_STREAM)
async def live(call: Call, assignment: Annotated[str | None, Query(max_length=schemas.MAX_NAME)] = None) -> Response:
    """Follow what the partner does, or wait for one."""
    rater = await call.rater()
    if assignment is not None:
        await call.services.on_store_thread(call.parts.service.live_task, rater, assignment)
    return EventStream(call.parts.live.follow(rater, call.services.config.keep_alive_seconds))
