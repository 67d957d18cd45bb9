"""What OpenAI's chat API takes, as far as a bot can use it, and how it becomes an ask.

Clients send many fields more; those are ignored. Error messages name the field, as clients expect.
"""

import secrets
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.reply import Ask
from tertulia.core.text import clean, sentences
from tertulia.web.encode import BOT, USER
from tertulia.web.errors import BadField


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)


class Part(_Lenient):
    """A part of a message; bots read text alone."""

    type: str
    text: str | None = None


class ChatMessage(_Lenient):
    """One message of the dialogue so far."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None = None


class StreamOptions(_Lenient):
    """Extras of a stream."""

    include_usage: bool | None = None


class ChatRequest(_Lenient):
    """A request for a reply."""

    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    n: Annotated[int, Field(ge=1, le=16)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def stops(self) -> list[str]:
        """The stop sequences."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def limit(self) -> int | None:
        """The most tokens to write; the newer name wins."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)


def asks_of(request: ChatRequest) -> list[Ask]:
    """One ask for each of the n replies, alike but for their seeds."""
    dialogue = _dialogue(request.messages)
    seed = secrets.randbits(31) if request.seed is None else request.seed
    return [Ask(dialogue, BOT, (seed + i) % 2**63, _options(request), attempt=i + 1) for i in range(request.n or 1)]


def _options(request: ChatRequest) -> dict[str, Any]:
    wishes = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_tokens": request.limit,
        "stop": request.stops or None,
    }
    return {name: value for name, value in wishes.items() if value is not None}


def _dialogue(messages: list[ChatMessage]) -> Dialogue:
    """Who the bot is comes from the system's messages, what was said from the others."""
    told, turns = [], []
    for message in messages:
        text = clean(_text(message))
        if message.role in ("system", "developer"):
            told.append(text)
        elif text or message.role == "user":
            turns.append(Turn(USER if message.role == "user" else BOT, text))
    system = "\n\n".join(told)
    persona = tuple(sentences(system))
    return Dialogue(
        id="",
        turns=tuple(turns),
        personas={BOT: Persona(persona)} if persona else {},
        meta={"system": system} if system else {},
    )


def _text(message: ChatMessage) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    if content is None:
        if message.role == "assistant":  # as it is where a tool was called
            return ""
        raise BadField(f"A message of the role {message.role!r} needs content.", "messages")
    if not content:
        raise BadField("A message's content has no parts.", "messages")
    for part in content:
        if part.type != "text" or part.text is None:
            raise BadField(f"Only parts of the type 'text' are understood here, not {part.type!r}.", "messages")
    return "\n".join(part.text or "" for part in content)


class ModelOut(BaseModel):
    """A bot, as OpenAI's clients know models."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelsOut(BaseModel):
    """All bots."""

    object: Literal["list"]
    data: list[ModelOut]


class MessageOut(BaseModel):
    """A reply's text."""

    role: Literal["assistant"]
    content: str
    refusal: None


class ChoiceOut(BaseModel):
    """One of the replies."""

    index: int
    message: MessageOut
    logprobs: None
    finish_reason: Literal["stop", "length"]


class UsageOut(BaseModel):
    """Tokens read and written; words and marks where the bot does not count tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionOut(BaseModel):
    """The replies."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChoiceOut]
    usage: UsageOut


class ProblemOut(BaseModel):
    """What was wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIErrorOut(BaseModel):
    """An error as OpenAI's clients know it."""

    error: ProblemOut


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors a route can answer with, for its documentation."""
    return {status: {"model": OpenAIErrorOut} for status in (*statuses, 401)}
