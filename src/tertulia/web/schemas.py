"""What the page's API takes and gives. Requests are checked against these; answers are only documented by them.

Answers are made by `encode` and not validated again on their way out; the tests hold them against these instead.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tertulia.core.dialogue import Persona
from tertulia.core.errors import UsageError
from tertulia.core.text import clean, squash
from tertulia.store import NotFound
from tertulia.web.errors import TooLarge


def _id(text: str) -> str:
    """Anything that cannot be an id is just not found, and never reaches the database."""
    if len(text) != 32 or not text.isascii() or not text.isalnum():
        raise NotFound("conversation")
    return text


ConversationId = Annotated[str, AfterValidator(_id)]
Key = Annotated[str, Field(min_length=1, max_length=100)]
"""Chosen by the client, new for each message: sending the same one again does not say it twice."""

MAX_SENTENCES, MAX_SENTENCE, MAX_TITLE = 30, 500, 200


class Body(BaseModel):
    """Base of all requests: nothing is guessed and nothing is ignored."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class NewConversation(Body):
    """Begin a conversation."""

    bot: str
    """Id of the bot to talk with."""
    persona: list[str] | None = None
    """Who the bot is to be, in a few sentences of the first person."""


class Changes(Body):
    """Change a conversation; what is left out stays."""

    bot: str | None = None
    persona: list[str] | None = None
    """Null takes the persona away."""
    title: str | None = None


class NewMessage(Body):
    """Say something."""

    text: str
    key: Key
    stream: bool = False
    """Whether the answer is a stream of events, or comes when the reply is finished."""


class Again(Body):
    """Ask for another reply in place of the last one."""

    key: Key
    stream: bool = False


def message_text(text: str, limit: int) -> str:
    """A message as it is stored, or an error that says what is wrong with it."""
    text = clean(text).strip()
    if not text:
        raise UsageError("The message is empty.", hint="Write something first.")
    if len(text) > limit:
        raise TooLarge(f"The message is too long: {len(text):,} characters, at most {limit:,} are taken.")
    return text


def persona_of(sentences: list[str] | None) -> Persona | None:
    """Sentences as a persona; blank ones do not count."""
    told = tuple(s for s in (squash(clean(sentence)) for sentence in sentences or ()) if s)
    if len(told) > MAX_SENTENCES or any(len(s) > MAX_SENTENCE for s in told):
        raise UsageError(f"A persona is at most {MAX_SENTENCES} sentences of at most {MAX_SENTENCE} characters each.")
    return Persona(told) if told else None


def title_text(title: str) -> str:
    """A title as it is stored."""
    title = squash(clean(title))
    if not title or len(title) > MAX_TITLE:
        raise UsageError(f"A title has 1 to {MAX_TITLE} characters.")
    return title


class TurnOut(BaseModel):
    """A turn."""

    id: str
    speaker: Literal["user", "bot"]
    text: str
    status: Literal["done", "pending", "stopped", "failed"]
    bot: str | None
    seconds: float | None
    created: datetime
    error: str | None
    attempts: int


class ConversationOut(BaseModel):
    """A conversation with its turns."""

    id: str
    title: str
    bot: str
    persona: list[str] | None
    created: datetime
    updated: datetime
    turns: list[TurnOut]


class LineOut(BaseModel):
    """A conversation in the list."""

    id: str
    title: str
    bot: str
    updated: datetime
    turns: int


class SaidOut(BaseModel):
    """A message and the reply to it."""

    user: TurnOut
    bot: TurnOut


class BotOut(BaseModel):
    """A bot to talk with."""

    id: str
    name: str
    summary: str
    streams: bool


class PersonaOut(BaseModel):
    """A persona to choose."""

    id: str
    name: str
    sentences: list[str]


class ErasedOut(BaseModel):
    """How many conversations were erased."""

    erased: int


class HealthOut(BaseModel):
    """The server lives, with these bots."""

    status: Literal["ok"]
    bots: list[str]


class Problem(BaseModel):
    """What was wrong, and what to do."""

    message: str
    hint: str


class ErrorOut(BaseModel):
    """An error."""

    error: Problem


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors a route can answer with, for its documentation."""
    return {status: {"model": ErrorOut} for status in (*statuses, 422, 503)}


_EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"itemSchema": _EVENT}}, "description": "The reply, or its events"}
}

EXPORT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/plain": {"schema": {"type": "string"}},
            "text/markdown": {"schema": {"type": "string"}},
        },
    }
}
