"""How refusals of a study are answered: a status, and a text in the participant's language."""

from typing import NamedTuple

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tertulia.core.errors import TertuliaError
from tertulia.store.study_records import (
    AssignmentEnded,
    KeyReused,
    LeaseExpired,
    NotYours,
    ParticipantWithdrawn,
    StudyFull,
    StudyNotOpen,
)
from tertulia.study.questions import AnswerError
from tertulia.study.texts import text
from tertulia.web.errors import page_error
from tertulia.web.responses import Json


class NotEnrolled(TertuliaError):  # noqa: N818 - reads better without "Error", as do those below
    """The request has no token of a participant of this study."""

    def __init__(self) -> None:
        super().__init__("You are not enrolled in this study.", hint="Open the link that you were given again.")


class WrongStep(TertuliaError):  # noqa: N818
    """The request does not fit the step that the participant is at."""

    def __init__(self, message: str, hint: str = "Reload the page.") -> None:
        super().__init__(message, hint=hint)


class NotInvited(TertuliaError):  # noqa: N818
    """The link has no id, or a forged one."""

    def __init__(self) -> None:
        super().__init__("This link is not valid.", hint="Open the link that you were given again.")


class NoReply(TertuliaError):  # noqa: N818
    """The bot did not answer. The same text for all bots and reasons: an error would give the bot away."""

    def __init__(self) -> None:
        super().__init__("No reply came.", hint="")


class MessageTooLong(TertuliaError):  # noqa: N818
    """A message over the server's limit."""

    def __init__(self) -> None:
        super().__init__("Your message is too long.", hint="")


class StudyRefusal(NamedTuple):
    """How a refusal is answered."""

    status: int
    text: str | None = None
    """Key of the text for participants; None for the error's own message."""


REFUSALS: dict[type[TertuliaError], StudyRefusal] = {
    NotEnrolled: StudyRefusal(401),
    NotInvited: StudyRefusal(403),
    NotYours: StudyRefusal(403, "error.not_yours"),
    WrongStep: StudyRefusal(409),
    StudyNotOpen: StudyRefusal(409, "done.closed"),
    StudyFull: StudyRefusal(409, "done.closed"),
    LeaseExpired: StudyRefusal(409, "error.expired"),
    AssignmentEnded: StudyRefusal(409, "error.not_yours"),
    KeyReused: StudyRefusal(409),
    ParticipantWithdrawn: StudyRefusal(409, "withdraw.done"),
    MessageTooLong: StudyRefusal(413, "error.too_long"),
    AnswerError: StudyRefusal(422),
    NoReply: StudyRefusal(502, "error.bot"),
}


def install(app: FastAPI) -> None:
    """Answer refusals in the participant's language."""
    for kind in REFUSALS:
        app.add_exception_handler(kind, _refuse)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, TertuliaError)
    refusal = refusal_of(error)
    language = request.scope.get("state", {}).get("study_language", "en")
    return Json(page_error(refusal_text(error, language), error.hint), refusal.status)


def refusal_of(error: TertuliaError) -> StudyRefusal:
    """How an error of one of the listed classes is answered."""
    return next(REFUSALS[kind] for kind in type(error).__mro__ if kind in REFUSALS)


def refusal_text(error: TertuliaError, language: str) -> str:
    """What a participant is told."""
    key = refusal_of(error).text
    return text(key, language) if key else error.message
