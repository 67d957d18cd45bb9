"""Requests and responses of OpenAI's chat API, as far as bots can use them, and how a request becomes asks.

Fields that ask for what no bot can do (tools, JSON output, penalties ...) are refused instead of being ignored, so that
nobody takes a reply for what it is not. Clients send many more fields, which change nothing that a bot could do; those
are ignored. Errors name the field, as clients expect. Of a list, only the first error is reported (`fail_fast`): half a
million of them, which fit into a request, would take ten seconds to describe.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.reply import Ask, TokenLogprob
from tertulia.core.text import clean, sentences
from tertulia.talk.bot import BotTraits
from tertulia.web.asks import BOT, USER
from tertulia.web.errors import BadField

Name = Annotated[str, AfterValidator(lambda name: name[:200])]
"""Errors quote names and suggest similar ones: none is so long that the rest would matter."""
MAX_MESSAGES = 10_000
"""Messages of a request: validating three times as many, which fit into a megabyte, would take half a second."""
MAX_STOP = 1_000
"""Characters of a stop sequence: the table to search for one is many times as large as the sequence."""


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)


_PART = {"type": "object", "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}
ContentParts = Annotated[list[Any], WithJsonSchema({"type": "array", "items": _PART, "minItems": 1})]
"""Parts of a message, of which bots read text only. They are checked with the texts, off the event loop."""


class ChatMessage(_Lenient):
    """One message of the dialogue so far."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | ContentParts | None = None


class StreamOptions(_Lenient):
    """Options of a stream."""

    include_usage: bool | None = None


class ChatRequest(_Lenient):
    """A request for a reply."""

    model: Name
    messages: Annotated[list[ChatMessage], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)]
    n: Annotated[int, Field(ge=1, le=16)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: str | Annotated[list[str], Field(fail_fast=True, max_length=4)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    """Whether to report the log-probability of each token; only some bots can."""
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    """How many of the most probable tokens to report at each position; needs `logprobs`."""
    tools: list[Any] | None = None
    """Not supported, like the fields below; each is accepted with the value that means "off"."""
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    response_format: Any = None
    logit_bias: dict[str, Any] | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    audio: Any = None
    modalities: Annotated[list[str], Field(fail_fast=True)] | None = None
    best_of: Annotated[int, Field(ge=1, le=16)] | None = None
    web_search_options: Any = None

    @property
    def stops(self) -> list[str]:
        """The stop sequences."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def limit(self) -> int | None:
        """The maximum number of tokens to generate; the newer field has precedence."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def wants_usage(self) -> bool:
        """Whether the stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)


class _Unsupported(NamedTuple):
    """A field for what bots cannot do."""

    is_off: Callable[[Any], bool]
    """Whether a value, which is not null, asks for nothing."""
    why: str


def _is_empty(value: Any) -> bool:
    return value in ([], {})


def _is_none(value: Any) -> bool:
    return bool(value == "none")


def _is_zero(value: Any) -> bool:
    return bool(value == 0)


_NO_TOOLS = "is not supported: the models of this server cannot call tools."
_NO_PENALTY = "is not supported by the models of this server: omit it, or set it to 0."
UNSUPPORTED: dict[str, _Unsupported] = {
    "tools": _Unsupported(_is_empty, _NO_TOOLS),
    "tool_choice": _Unsupported(_is_none, _NO_TOOLS),
    "functions": _Unsupported(_is_empty, _NO_TOOLS),
    "function_call": _Unsupported(_is_none, _NO_TOOLS),
    "response_format": _Unsupported(
        lambda value: isinstance(value, dict) and value.get("type") == "text",
        "is not supported by the models of this server, except for {'type': 'text'}.",
    ),
    "logit_bias": _Unsupported(_is_empty, "is not supported by the models of this server."),
    "frequency_penalty": _Unsupported(_is_zero, _NO_PENALTY),
    "presence_penalty": _Unsupported(_is_zero, _NO_PENALTY),
    "audio": _Unsupported(lambda _: False, "is not supported: the models of this server reply with text."),
    "modalities": _Unsupported(
        lambda value: value in (["text"], []), "is not supported: the models of this server reply with text."
    ),
    "best_of": _Unsupported(lambda value: value == 1, "is not supported: ask for n replies and choose among them."),
    "web_search_options": _Unsupported(lambda _: False, "is not supported: the models of this server do not search."),
}
"""Fields for what bots cannot do, and the values that are accepted nevertheless."""


def check_supported(request: ChatRequest, traits: BotTraits) -> None:
    """Refuse a request for what bots, or the bot with these traits, cannot do, naming the field."""
    for field, unsupported in UNSUPPORTED.items():
        value = getattr(request, field)
        if value is not None and not unsupported.is_off(value):
            raise BadField(f"{field} {unsupported.why}", field)
    for field, wanted in (("logprobs", request.logprobs), ("top_logprobs", request.top_logprobs)):
        if wanted and not traits.logprobs:
            raise BadField(f"{field} is not available for this model.", field)
    if any(len(stop) > MAX_STOP for stop in request.stops):
        raise BadField(f"A stop sequence has at most {MAX_STOP:,} characters.", "stop")
    if request.top_logprobs and not request.logprobs:
        raise BadField("top_logprobs needs logprobs: set logprobs to true.", "top_logprobs")


def asks_for(request: ChatRequest, traits: BotTraits) -> list[Ask]:
    """One ask for each of the n replies, which differ in their seeds."""
    check_supported(request, traits)
    dialogue = _dialogue(request.messages)
    seed = secrets.randbits(31) if request.seed is None else request.seed
    return [Ask(dialogue, BOT, (seed + i) % 2**63, _options(request), attempt=i + 1) for i in range(request.n or 1)]


def _options(request: ChatRequest) -> dict[str, Any]:
    options = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_tokens": request.limit,
        "stop": request.stops or None,
        "logprobs": request.logprobs or None,
        "top_logprobs": request.top_logprobs or None,
    }
    return {name: value for name, value in options.items() if value is not None}


def _dialogue(messages: list[ChatMessage]) -> Dialogue:
    """The persona comes from system messages, the turns from the others."""
    instructions, turns = [], []
    for message in messages:
        text = clean(_text(message))
        if message.role in ("system", "developer"):
            instructions.append(text)
        elif text or message.role == "user":
            turns.append(Turn(USER if message.role == "user" else BOT, text))
    system = "\n\n".join(instructions)
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
        if message.role == "assistant":  # as after a tool call
            return ""
        raise BadField(f"A message with the role {message.role!r} needs content.", "messages")
    if not content:
        raise BadField("A message's content has no parts.", "messages")
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else part
    if kind != "text":
        given = str(kind)[:50]
        raise BadField(f"Only content parts of the type 'text' are supported, not {given!r}.", "messages")
    if not isinstance(text := part.get("text"), str):
        raise BadField("A content part of the type 'text' needs a text.", "messages")
    return text


class ModelOut(BaseModel):
    """A bot as a model."""

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


class AlternativeOut(BaseModel):
    """A token and its log-probability."""

    token: str
    logprob: float
    bytes: list[int]


class TokenOut(AlternativeOut):
    """A token of a reply, and the most probable tokens at its position."""

    top_logprobs: list[AlternativeOut]


class LogprobsOut(BaseModel):
    """The tokens of a reply: joined, they are its text; the end of the reply is a token with an empty text."""

    content: list[TokenOut]
    refusal: None


def logprobs_out(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
    """Log-probabilities in OpenAI's format.

    >>> logprobs_out([TokenLogprob("é", -0.5)])["content"]
    [{'token': 'é', 'logprob': -0.5, 'bytes': [195, 169], 'top_logprobs': []}]
    """
    return {
        "content": [_token_out(token) | {"top_logprobs": [_token_out(t) for t in token.top]} for token in tokens],
        "refusal": None,
    }


def _token_out(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.text, "logprob": token.logprob, "bytes": list(token.text.encode())}


class ChoiceOut(BaseModel):
    """One of the replies."""

    index: int
    message: MessageOut
    logprobs: LogprobsOut | None
    finish_reason: Literal["stop", "length"]


class UsageOut(BaseModel):
    """Tokens read and generated; words and punctuation marks where the bot does not count tokens."""

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


class OpenAIErrorDetails(BaseModel):
    """What is wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIErrorOut(BaseModel):
    """An error in OpenAI's format."""

    error: OpenAIErrorDetails


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route, for its documentation; any route can refuse a client or the host's name."""
    return {status: {"model": OpenAIErrorOut} for status in (*statuses, 401, 421, 429)}
