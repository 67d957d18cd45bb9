"""Requests and responses of the participants' API. Requests are validated; responses are documented, and tested."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tertulia.store import NotFound
from tertulia.study.questions import MAX_TEXT
from tertulia.web.page.schemas import Body, IdempotencyKey

MAX_LABELS = 200
"""Labels in one request."""
MAX_NAME = 200
"""Characters of a target, a question's id, a version or a code."""


def _study_id(text: str) -> str:
    """Anything that cannot be an id is not found, without asking the database."""
    if len(text) != 32 or not text.isascii() or not text.isalnum():
        raise NotFound("study")
    return text


StudyId = Annotated[str, AfterValidator(_study_id)]
AssignmentId = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Value = bool | int | Annotated[str, Field(max_length=4 * MAX_TEXT)]


class Nothing(Body):
    """An empty object."""


class ConsentIn(Body):
    """Agree to a version of the consent text."""

    version: Name
    language: Name


class LanguageIn(Body):
    """Change the language."""

    language: Name


class TrainingIn(Body):
    """Answer the training question at hand."""

    index: int = Field(ge=0)
    value: Value


class AttentionIn(Body):
    """Answer the check of attention."""

    value: Value


class LabelIn(Body):
    """One answer."""

    target: Name
    question: Name
    value: Value


class LabelsIn(Body):
    """Answers to save together."""

    assignment: AssignmentId
    key: IdempotencyKey
    labels: Annotated[list[LabelIn], Field(min_length=1, max_length=MAX_LABELS, fail_fast=True)]
    seconds: Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False, strict=False)] | None = None
    """How long the participant took."""


class UndoIn(Body):
    """Take back the answers of one request."""

    assignment: AssignmentId
    key: IdempotencyKey


class SayIn(Body):
    """Send a message."""

    assignment: AssignmentId
    text: str
    key: IdempotencyKey
    stream: bool = True


class AssignmentIn(Body):
    """An action on a task."""

    assignment: AssignmentId


class SubmitIn(Body):
    """Hand in a task."""

    assignment: AssignmentId
    key: IdempotencyKey


class HeartbeatIn(Body):
    """The page is still open."""

    assignment: AssignmentId | None = None


class WithdrawIn(Body):
    """Delete everything."""

    confirm: Literal[True]


class UnitsDone(BaseModel):
    """How many tasks are done, and of how many."""

    done: int
    of: int | None


class StateOut(BaseModel):
    """What the page shows. Which of the other fields there are depends on the step."""

    model_config = ConfigDict(extra="allow")

    step: str
    """consent, tutorial, training, work, waiting; done, screened_out, timed_out, partner_left, withdrawn, closed"""
    language: str
    direction: Literal["ltr", "rtl"]
    languages: list[str]
    title: str
    texts: dict[str, str]
    progress: UnitsDone


class LabelOut(BaseModel):
    """A saved answer."""

    target: str
    question: str
    value: Any


class SavedOut(BaseModel):
    """The answers that count, after those of the request are on disk."""

    saved: Literal[True]
    labels: list[LabelOut]
    can_undo: bool
    undo_key: str | None
    """The key with which the last answers can be undone."""
    warnings: list[dict[str, str]]


class HeartbeatOut(BaseModel):
    """Where the participant is."""

    step: str
    expires_seconds: int


class OkOut(BaseModel):
    """Done."""

    ok: Literal[True]


class ChatOut(BaseModel):
    """A chat."""

    chat: dict[str, Any]
