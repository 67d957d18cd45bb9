"""A model behind any OpenAI-compatible `/chat/completions` endpoint as a bot: hosted, or a server of one's own.

The key comes from an environment variable and goes into one header, nowhere else: options, specification, provenance
and error texts do not know it. Each ask of a batch is a request of its own on a small pool of daemon threads, and their
pieces meet in one queue; the caller's thread alone decides what was shown, so a cancelled reply is exactly what its
listener saw. A request may be sent again until the first byte of its reply has arrived, never after.
"""

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Self
from urllib.parse import quote

import httpx
from pydantic import Field

from tertulia import __version__
from tertulia.core.config import Config, validate
from tertulia.core.dialogue import Json
from tertulia.core.errors import EndpointError, UsageError
from tertulia.core.reply import Ask, Finish, Piece, Provenance, Reply, Usage
from tertulia.core.text import clean
from tertulia.talk.chat import chat_messages
from tertulia.talk.endpoint import AGAIN, OPENAI, Endpoint, retry_after, sse_data

PER_REPLY = ("temperature", "top_p", "max_tokens")
"""What an ask may set for its own reply. Never the address or the key's name: asks come from strangers."""
THIS_MACHINE = ("all://127.0.0.1", "all://localhost", "all://[::1]")
"""No proxy stands before these, whatever the environment says."""
POLL = 0.05
"""Seconds between two looks at whether anybody still waits for a silent stream."""


class OpenAIOptions(Config):
    """Where the model is and how it is asked; an ask may override temperature, top_p and max_tokens."""

    base_url: str = OPENAI
    """Address of the endpoint, up to and without `/chat/completions`."""
    api_key_env: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; servers other than OpenAI's may do without one."""
    temperature: float | None = Field(None, ge=0, le=2)
    """0 always takes the most probable word; without it the server decides."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Draw from the most probable words that together have this probability; without it the server decides."""
    max_tokens: int | None = Field(None, ge=1)
    """Longest reply, in tokens; without it the server decides."""
    instructions: str = ""
    """Added to the persona in the system turn."""
    send_seed: bool = True
    """Send the seed of the ask, so that servers that can repeat themselves do; turn off where it is refused."""
    send_usage: bool = True
    """Ask for token counts when streaming; turn off where that is refused."""
    timeout: float = Field(60.0, gt=0, allow_inf_nan=False)
    """Seconds to wait for a connection, and for the next byte."""
    retries: int = Field(3, ge=0, le=20)
    """How often a request is sent again after connection errors, time-outs and the statuses 408, 409, 429 and 5xx."""
    backoff: float = Field(0.5, ge=0, allow_inf_nan=False)
    """Seconds before the first retry, give or take a half; doubled for each further one."""
    max_wait: float = Field(30.0, ge=0, allow_inf_nan=False)
    """Longest wait before a retry, in seconds; a server that asks for more (Retry-After) is not waited for."""
    concurrency: int = Field(8, ge=1, le=256)
    """How many requests may be under way at once."""


class OpenAIBot:
    """Writes with a model behind an OpenAI-compatible endpoint."""

    Options: ClassVar[type[Config]] = OpenAIOptions
    target_help: ClassVar[str] = "the model's name, as its endpoint knows it"
    summary = "A model behind an OpenAI-compatible endpoint."
    max_batch = 1
    """For workers: one ask a call, many calls side by side, so that one refused request is nobody else's trouble."""

    def __init__(self, model: str, options: OpenAIOptions | None = None) -> None:
        self.options = options or OpenAIOptions()
        self.model = model
        self.parallel = self.options.concurrency
        self.endpoint = Endpoint.of(
            model, base_url=self.options.base_url, api_key_env=self.options.api_key_env, timeout=self.options.timeout
        )
        where = "" if self.options.base_url == OPENAI else f"?base_url={quote(self.options.base_url, safe='/:')}"
        self.spec = f"openai:{quote(model, safe='/:@')}{where}"
        self.summary = f"The model {model} at {self.endpoint.host}."
        self._client = httpx.Client(
            headers=self.endpoint.headers,
            timeout=httpx.Timeout(self.options.timeout, pool=None),
            # A connection serves one request, so that cutting it ends nothing else and none is left lying about.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            mounts=dict.fromkeys(THIS_MACHINE),
        )

    @classmethod
    def build(cls, target: str, options: OpenAIOptions, /) -> Self:
        """From a specification. Nothing is sent yet: an endpoint that is down now may be up when it is asked."""
        if not target:
            example = "openai:MODEL?base_url=http://127.0.0.1:8000/v1"
            raise UsageError("The bot 'openai' needs a model.", hint=f"For example: {example}")
        return cls(target, options)

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """Whole replies, asked for in parallel; the first failure is raised and the rest given up."""
        replies = {p.index: p.reply for p in self._together(asks, self._whole, lambda _: True) if p.reply}
        return [replies[i] for i in range(len(asks))]

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        """All replies side by side, each piece as it comes; the first failure is raised and the rest given up."""
        return self._together(asks, self._streamed, alive)

    def _together(
        self, asks: Sequence[Ask], work: "Callable[[_Call], Iterator[Piece]]", alive: Callable[[int], bool]
    ) -> Iterator[Piece]:
        calls = [_Call(self, i, ask) for i, ask in enumerate(asks)]
        todo: SimpleQueue[_Call] = SimpleQueue()
        done: SimpleQueue[Piece | Exception] = SimpleQueue()
        for call in calls:
            todo.put(call)
        for _ in range(min(self.options.concurrency, len(calls))):
            threading.Thread(target=_work_off, args=(todo, done, work), name="openai bot", daemon=True).start()
        waiting = dict(enumerate(calls))
        try:
            while waiting:
                yield from _arrived(done, waiting)
                for i in [i for i in waiting if not alive(i)]:
                    call = waiting.pop(i)
                    call.cancel()
                    yield Piece(i, "", call.reply("".join(call.shown), "cancelled"))
        finally:
            for call in waiting.values():
                call.cancel()

    def _whole(self, call: "_Call") -> Iterator[Piece]:
        yield Piece(call.index, "", call.reply(self._read(call, self._send(call, stream=False))))

    def _streamed(self, call: "_Call") -> Iterator[Piece]:
        response = self._send(call, stream=True)
        written = ""
        try:
            for text in self._texts(call, response):
                new = text if written else text.lstrip()
                written += new
                if new:
                    yield Piece(call.index, new)
        except httpx.RequestError as why:
            if call.answer.finish is None:
                raise self.endpoint.trouble(why, begun=True) from None
        finally:
            response.close()
        yield Piece(call.index, "", call.reply(written))

    def _texts(self, call: "_Call", response: httpx.Response) -> Iterator[str]:
        if response.headers.get("content-type", "").startswith("application/json"):  # a server that cannot stream
            response.read()
            yield self._read(call, response)
            return
        for data in sse_data(response.iter_bytes()):
            if data == "[DONE]":
                break
            event = self.endpoint.decode(data)
            if event.get("error"):
                said = self.endpoint.said(data)
                raise EndpointError(f"{self.endpoint} reported an error in the middle of its reply: {said}")
            yield call.answer.take(event, "delta")
        if call.answer.finish is None:
            raise EndpointError(f"{self.endpoint} broke off in the middle of its reply.", hint="Ask again.")

    def _read(self, call: "_Call", response: httpx.Response) -> str:
        answer = self.endpoint.decode(response.text)
        if not isinstance(answer.get("choices"), list) or not answer["choices"]:
            said = f"{self.endpoint} sent an answer without choices: {self.endpoint.said(response.text)}"
            raise EndpointError(said, hint=self.endpoint.address_hint)
        return call.answer.take(answer, "message").lstrip()

    def _send(self, call: "_Call", *, stream: bool) -> httpx.Response:
        """The response, its status good; with `stream`, its body still to be read. Tried again where that may help."""
        body = json.dumps(call.body(stream=stream), ensure_ascii=False).encode("utf-8", "replace")
        for attempt in range(self.options.retries + 1):
            request = self._client.build_request(
                "POST", self.endpoint.url, content=body, extensions={"trace": call.connected}
            )
            again, asked = True, None
            try:
                response = self._client.send(request, stream=True)
                if not (response.is_success and stream):
                    response.read()
            except httpx.RequestError as why:
                error = self.endpoint.trouble(why)
            else:
                if response.is_success:
                    return response
                error = self.endpoint.refusal(response.status_code, response.text, tries=attempt + 1)
                again = response.status_code in AGAIN or response.status_code >= 500
                asked = retry_after(response.headers.get("retry-after"))
            if not again or attempt == self.options.retries or call.stopped.wait(self._pause(attempt, asked, error)):
                break
        raise error

    def _pause(self, attempt: int, asked: float | None, error: EndpointError) -> float:
        """Seconds before the next attempt."""
        longest = self.options.max_wait
        if asked is not None and asked > longest:
            hint = f"It asks us to wait {asked:.0f} seconds, more than max_wait={longest:g}. {error.hint}"
            raise EndpointError(error.message, hint=hint)
        return max(asked or 0.0, min(longest, self.options.backoff * 2.0**attempt * random.uniform(0.5, 1.5)))


class _Call:
    """One ask on its way. A thread of the pool runs it; the caller's thread may cancel it."""

    def __init__(self, bot: OpenAIBot, index: int, ask: Ask) -> None:
        known = {k: v for k, v in ask.options.items() if k in PER_REPLY and v is not None}
        self.options = validate(OpenAIOptions, bot.options.model_dump() | known, where="the options of this reply")
        self.bot, self.index, self.ask = bot, index, ask
        self.answer = _Answer()
        self.shown: list[str] = []
        """What the caller's thread has handed on."""
        self.start = time.perf_counter()
        self.stopped = threading.Event()
        self._socket: socket.socket | None = None

    def body(self, *, stream: bool) -> dict[str, Json]:
        """The request."""
        fields = {
            "model": self.bot.model,
            "messages": chat_messages(self.ask.dialogue, self.ask.speaker, self.options.instructions),
            "temperature": self.options.temperature,
            "top_p": self.options.top_p,
            self.bot.endpoint.limit_field: self.options.max_tokens,
            "stop": self.ask.options.get("stop"),
            "seed": self.ask.seed % 2**31 if self.options.send_seed else None,
            "stream": stream or None,
            "stream_options": {"include_usage": True} if stream and self.options.send_usage else None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def connected(self, event: str, info: Mapping[str, Any]) -> None:
        """Told by httpx of each step of a request: remembers the socket, which is what can be cut from outside."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = info["return_value"].get_extra_info("socket")
            if self.stopped.is_set():
                self.cancel()

    def cancel(self) -> None:
        """Stop: wakes the thread from its wait, or by cutting its connection; the thread then tidies up itself."""
        self.stopped.set()
        if self._socket is not None:
            with suppress(OSError):  # closed already
                # Not the method of an SSL socket, which would drop state that the reading thread is using.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def reply(self, text: str, finish: Finish | None = None) -> Reply:
        """The reply as far as it came."""
        settings = self.options.model_dump() | {"model": self.bot.model}
        if self.ask.options.get("stop"):
            settings["stop"] = self.ask.options["stop"]
        provenance = Provenance(self.bot.spec, self.answer.checkpoint, settings, self.ask.seed, __version__)
        return Reply(
            text.rstrip(),
            provenance,
            seconds=time.perf_counter() - self.start,
            finish=finish or ("length" if self.answer.finish == "length" else "stop"),
            usage=self.answer.usage,
            note=None if finish == "cancelled" else self.answer.note(text),
        )


@dataclass(slots=True)
class _Answer:
    """What the endpoint told beside the text."""

    finish: str | None = None
    usage: Usage | None = None
    checkpoint: str | None = None
    """The model and the fingerprint that the server says it answered with."""

    def take(self, event: dict[str, Json], key: str) -> str:
        """Note what an answer or a part of one says, and give back its text."""
        if isinstance(usage := event.get("usage"), dict):
            self.usage = Usage(
                *(n if isinstance(n := usage.get(f"{k}_tokens"), int) else 0 for k in ("prompt", "completion"))
            )
        self.checkpoint = (
            " ".join(str(event[k]) for k in ("model", "system_fingerprint") if event.get(k)) or self.checkpoint
        )
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        self.finish = choice.get("finish_reason") or self.finish
        part = choice.get(key)
        content = (part.get("content") or part.get("refusal")) if isinstance(part, dict) else None
        if isinstance(content, list):  # parts, of which some are no text
            content = "".join(str(p.get("text") or "") for p in content if isinstance(p, dict))
        return clean(str(content or ""))

    def note(self, text: str) -> str | None:
        """Anything out of the ordinary."""
        if self.finish not in (None, "stop", "length"):
            return f"the endpoint ended it with {self.finish!r}"
        return None if text.strip() else "the model wrote nothing"


def _work_off(
    todo: SimpleQueue[_Call], done: SimpleQueue[Piece | Exception], work: Callable[[_Call], Iterator[Piece]]
) -> None:
    """The life of one thread of the pool: call after call until none is left."""
    while True:
        try:
            call = todo.get_nowait()
        except Empty:
            return
        if call.stopped.is_set():
            continue
        call.start = time.perf_counter()
        try:
            for piece in work(call):
                done.put(piece)
        except Exception as error:  # whatever it is, the caller's thread must hear of it
            if not call.stopped.is_set():
                done.put(error)


def _arrived(done: SimpleQueue[Piece | Exception], waiting: dict[int, _Call]) -> Iterator[Piece]:
    """The next piece of an ask that is still waited for, if one comes in a moment; an error is raised."""
    try:
        item = done.get(timeout=POLL)
    except Empty:
        return
    if isinstance(item, Exception):
        raise item
    if item.index in waiting:
        if item.reply is not None:
            waiting.pop(item.index)
        elif item.text:
            waiting[item.index].shown.append(item.text)
        yield item
