"""Requests and responses of the page's API. Requests are validated against these; responses are only documented.

Responses are built by `encode` and not validated again at run time; the tests check them against these schemas.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from tertulia.core.dialogue import Evidence, Persona
from tertulia.core.errors import UsageError
from tertulia.core.text import clean, squash
from tertulia.store import NotFound
from tertulia.talk.evidence import check_size, text_passages
from tertulia.web.errors import TooLarge


def _id(text: str) -> str:
    """Anything that cannot be an id is not found, without asking the database."""
    if len(text) != 32 or not text.isascii() or not text.isalnum():
        raise NotFound("conversation")
    return text


def _turn_id(text: str) -> str:
    try:
        return _id(text)
    except NotFound:
        raise NotFound("turn") from None


ConversationId = Annotated[str, AfterValidator(_id)]
TurnId = Annotated[str, AfterValidator(_turn_id)]
IdempotencyKey = Annotated[str, Field(min_length=1, max_length=100)]
"""Chosen by the client, new for each message: repeating a request with the same key does not add it twice."""

MAX_SENTENCES, MAX_SENTENCE, MAX_TITLE = 30, 500, 200
PAGE_TURNS, PAGE_CONVERSATIONS = 200, 100
MAX_SEARCH, MAX_SEARCH_WORDS = 200, 8
MAX_FIELDS, MAX_NAME = 100, 200
"""Fields of a request; characters of a field's or a bot's name."""
BotName = Annotated[str, AfterValidator(lambda name: name[:MAX_NAME])]
"""Errors quote names and suggest similar ones: no bot has so long a name that the rest would matter."""
Sentences = Annotated[list[str], Field(fail_fast=True)]
"""Only the first error of a list is reported: half a million of them would take ten seconds to describe."""


class Body(BaseModel):
    """Base of all requests: types are strict, and unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, fields: Any) -> Any:
        """One error for many unknown fields, and for endless names, which errors would quote."""
        if isinstance(fields, dict) and (len(fields) > MAX_FIELDS or any(len(name) > MAX_NAME for name in fields)):
            raise PydanticCustomError("unknown_fields", "The request has unknown fields")
        return fields


class NewConversation(Body):
    """Start a conversation."""

    bot: BotName
    """Id of the bot."""
    persona: Sentences | None = None
    """The bot's persona, as sentences in the first person."""
    evidence: Sentences | None = None
    """What replies should rest on, as passages."""


class ConversationChanges(Body):
    """Change a conversation; omitted fields stay as they are."""

    bot: BotName | None = None
    persona: Sentences | None = None
    """Null removes the persona."""
    evidence: Sentences | None = None
    """Null removes the evidence."""
    title: str | None = None


class NewMessage(Body):
    """Send a message."""

    text: str
    key: IdempotencyKey
    stream: bool = False
    """Whether to stream the reply as events, rather than to answer when it is finished."""


class Regeneration(Body):
    """Generate another reply in place of the last one."""

    key: IdempotencyKey
    stream: bool = False


class EditedMessage(NewMessage):
    """Send another version of an earlier message."""

    turn: str
    """Id of the message's turn."""


def search_words(text: str) -> list[str]:
    """The words to search for."""
    return clean(text)[:MAX_SEARCH].split()[:MAX_SEARCH_WORDS]


def message_text(text: str, limit: int) -> str:
    """The message as it is stored; raises when it is empty or too long."""
    text = clean(text).strip()
    if not text:
        raise UsageError("The message is empty.", hint="Type a message first.")
    if len(text) > limit:
        raise TooLarge(f"The message is too long: {len(text):,} characters, the limit is {limit:,}.")
    return text


def persona_of(sentences: list[str] | None) -> Persona | None:
    """The sentences as a persona, without blank ones."""
    kept = tuple(s for s in (squash(clean(sentence)) for sentence in sentences or ()) if s)
    if len(kept) > MAX_SENTENCES or any(len(s) > MAX_SENTENCE for s in kept):
        raise UsageError(f"A persona has at most {MAX_SENTENCES} sentences of at most {MAX_SENTENCE} characters each.")
    return Persona(kept) if kept else None


def evidence_of(passages: list[str] | None) -> tuple[Evidence, ...]:
    """The passages as evidence, without blank ones."""
    evidence = tuple(part for passage in passages or () for part in text_passages(passage))
    check_size(evidence)
    return evidence


def title_text(title: str) -> str:
    """The title as it is stored."""
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
    attempt: int
    attempts: int
    markup: list[Any] | None
    """A reply's Markdown as a tree: a node is a text, or a list of a tag, its attributes and its children."""
    evidence: int
    """How many passages the bot had when it replied."""


class ConversationOut(BaseModel):
    """A conversation with its last turns, or a page of earlier ones."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    title: str
    bot: str
    persona: list[str] | None
    evidence: list[str] | None
    created: datetime
    updated: datetime
    turns: list[TurnOut]
    earlier: int | None
    """What to pass as `before` for the turns before these; null if there are none."""


class ConversationSummaryOut(BaseModel):
    """A conversation in the list."""

    id: str
    title: str
    bot: str
    updated: datetime
    turns: int


class SearchHitOut(BaseModel):
    """A conversation that a search found; the excerpt is null if the words are in the title."""

    id: str
    title: str
    bot: str
    updated: datetime
    excerpt: str | None


class CandidateOut(BaseModel):
    """A reply that was considered."""

    text: str
    score: float | None
    dropped: str | None
    source: str | None
    note: str | None = None


class ExplanationOut(BaseModel):
    """How a reply was chosen."""

    bot: str | None
    text: str
    status: Literal["done", "pending", "stopped", "failed"]
    created: datetime
    attempt: int
    score: float | None
    candidates: list[CandidateOut]
    settings: dict[str, Any]
    seed: int | None
    checkpoint: str | None
    version: str | None
    seconds: float | None
    finish: str | None
    usage: dict[str, int] | None
    note: str | None
    redraws: int


class PassageOut(BaseModel):
    """A passage that a bot had when it replied; one that was given with the conversation has no score."""

    text: str
    source: str
    score: float | None


class PartOut(BaseModel):
    """A part of a sentence."""

    text: str
    unsupported: bool


class SentenceOut(BaseModel):
    """How a sentence of a reply relates to the evidence."""

    text: str
    label: Literal["entailment", "hallucination", "off-topic", "generic", "contradiction"]
    summary: str
    supported: bool
    parts: list[PartOut]


class VerdictOut(BaseModel):
    """How a reply relates to the evidence, sentence by sentence."""

    classifier: str
    label: Literal["entailment", "hallucination", "off-topic", "generic", "contradiction"]
    sentences: list[SentenceOut]


class ReplyEvidenceOut(BaseModel):
    """What a reply could rest on, and whether it does; the verdict is null unless the server checks replies."""

    passages: list[PassageOut]
    verdict: VerdictOut | None


class ExchangeOut(BaseModel):
    """A message and the reply to it."""

    user: TurnOut
    bot: TurnOut


class BotOut(BaseModel):
    """A bot."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    name: str
    summary: str
    streams: bool
    evidence: bool
    """Whether it reads the evidence of a conversation."""


class PersonaOut(BaseModel):
    """A suggested persona."""

    id: str
    name: str
    sentences: list[str]


ERASED_NOTE = "Studies are not affected: withdraw on the page of the study to have your data there deleted."


class ErasedOut(BaseModel):
    """How many conversations were erased."""

    erased: int
    note: str
    """What is kept, and where that can be deleted."""


class ErrorDetails(BaseModel):
    """What is wrong, and what to do."""

    message: str
    hint: str


class ErrorOut(BaseModel):
    """An error."""

    error: ErrorDetails


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route, for its documentation; any route can refuse a client or the host's name."""
    return {status: {"model": ErrorOut} for status in (*statuses, 400, 401, 421, 422, 429, 503)}


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
