"""A bot that calls any OpenAI-compatible `/chat/completions` endpoint, hosted or local.

The key comes from an environment variable and goes into one header and nowhere else: not into options, specification,
provenance or error messages. Each ask of a batch is a separate request on a small pool of daemon threads, which put
pieces into one queue. Only the caller's thread hands pieces on, so a cancelled reply is exactly what the user saw. A
request is retried only until the first byte of its response has arrived.

If requests keep failing or timing out, a circuit breaker fails further asks at once, until the endpoint works again.
"""

import codecs
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Self
from urllib.parse import quote

import httpx
from pydantic import Field

from tertulia import __version__
from tertulia.core.config import Config, validate
from tertulia.core.dialogue import Json
from tertulia.core.errors import EndpointError, UsageError
from tertulia.core.reply import Ask, FinishReason, Piece, Provenance, Reply, TokenLogprob, Usage
from tertulia.core.text import clean
from tertulia.talk.bot import BotHealth, BotTraits
from tertulia.talk.chat import chat_messages
from tertulia.talk.circuit_breaker import CircuitBreaker, Permit
from tertulia.talk.endpoint import OPENAI, Endpoint, retry_after, sse_data
from tertulia.talk.logprobs import align

PER_REPLY = ("temperature", "top_p", "max_tokens")
"""What an ask may set for its own reply. Never the address or the name of the key: asks may come from strangers."""
THIS_MACHINE = ("all://127.0.0.1", "all://localhost", "all://[::1]")
"""Requests to these hosts bypass any proxy."""
MAX_DOWN_SECONDS = 300.0
"""Longest pause between two requests to an endpoint that is down."""
LOWEST_LOGPROB = -9999.0
"""What OpenAI's API reports for tokens that are too unlikely; also for servers that report minus infinity."""
POLL = 0.05
"""Seconds between two checks whether the reply of a silent stream is still wanted."""


class OpenAIOptions(Config):
    """Where the model is and how to call it; an ask may override temperature, top_p and max_tokens."""

    base_url: str = OPENAI
    """Address of the endpoint, without `/chat/completions`."""
    api_key_env: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; only OpenAI's own endpoint requires one."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """Sampling temperature, 0 for greedy decoding; the server's default if not given."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling: cumulative probability of the tokens to sample from; the server's default if not given."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Maximum length of a reply, in tokens; the server's default if not given."""
    instructions: str = ""
    """Added to the persona in the system message."""
    evidence_words: int = Field(default=2_000, ge=0)
    """Most words of evidence at the end of the system message, the rest is cut off; 0 for a bot that ignores it."""
    send_seed: bool = True
    """Send the seed of the ask, for reproducible replies; turn it off if the server rejects it."""
    send_usage: bool = True
    """Request token counts when streaming; turn it off if the server rejects it."""
    timeout: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """Seconds to wait for a connection, and for the next byte."""
    retries: int = Field(default=3, ge=0, le=20)
    """How often to retry after connection errors, timeouts and the statuses 408, 409, 429 and 5xx."""
    backoff: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    """Seconds before the first retry, randomised by up to half; doubled for each further one."""
    max_wait: float = Field(default=30.0, ge=0, allow_inf_nan=False)
    """Longest wait before a retry, in seconds; if the server asks for more (Retry-After), the request fails."""
    concurrency: int = Field(default=8, ge=1, le=256)
    """Maximum number of concurrent requests."""
    down_after: int = Field(default=5, ge=0)
    """Failures in a row (timeouts, and asks whose retries all failed) after which the endpoint is considered down: asks
    then fail at once, until a single request gets through; 0 turns this off."""
    down_seconds: float = Field(default=5.0, gt=0, allow_inf_nan=False)
    """Seconds before that single request; doubled each time it fails, up to five minutes."""


class OpenAIBot:
    """Calls a model behind an OpenAI-compatible endpoint."""

    Options: ClassVar[type[Config]] = OpenAIOptions
    target_help: ClassVar[str] = "the name of the model at its endpoint"
    summary = "A model behind an OpenAI-compatible endpoint."

    def __init__(self, model: str, options: OpenAIOptions | None = None) -> None:
        self.options = options or OpenAIOptions()
        self.model = model
        # One ask per call and many calls in parallel, so that one refused request does not fail other asks.
        # Whether the endpoint reports log-probabilities is known once it has been asked for them.
        self.traits = BotTraits(
            max_batch=1,
            parallel=self.options.concurrency,
            logprobs=True,
            reads_evidence=self.options.evidence_words > 0,
        )
        self.endpoint = Endpoint.of(
            model, base_url=self.options.base_url, api_key_env=self.options.api_key_env, timeout=self.options.timeout
        )
        where = "" if self.options.base_url == OPENAI else f"?base_url={quote(self.options.base_url, safe='/:')}"
        self.spec = f"openai:{quote(model, safe='/:@')}{where}"
        # Visitors see it: no address, and no folder if the endpoint names its models by path.
        self.summary = f"The model {model.rstrip('/').rpartition('/')[2]}."
        self.breaker = CircuitBreaker(
            threshold=self.options.down_after, pause=self.options.down_seconds, max_pause=MAX_DOWN_SECONDS
        )
        self._client = httpx.Client(
            headers=self.endpoint.headers,
            timeout=httpx.Timeout(self.options.timeout, pool=None),
            # One connection per request, so that shutting it down affects no other request and none is left open.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            mounts=dict.fromkeys(THIS_MACHINE),
        )

    @classmethod
    def build(cls, target: str, options: OpenAIOptions, /) -> Self:
        """From a specification. Nothing is sent yet: the endpoint may be started later."""
        if not target:
            example = "openai:MODEL?base_url=http://127.0.0.1:8000/v1"
            raise UsageError("The bot 'openai' needs a model.", hint=f"For example: {example}")
        return cls(target, options)

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        """Complete replies, requested in parallel; the first failure is raised and the other requests are cancelled."""
        replies = {p.index: p.reply for p in self._run_in_parallel(asks, self._complete, lambda _: True) if p.reply}
        return [replies[i] for i in range(len(asks))]

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        """All replies in parallel, each piece as it arrives; the first failure is raised and cancels the others."""
        return self._run_in_parallel(asks, self._stream_one, alive)

    def health(self) -> BotHealth:
        """Whether the endpoint is considered down. Without its address: strangers may see this."""
        if self.breaker.state == "closed":
            return BotHealth()
        times = f"{self.breaker.failures} requests in a row have failed"
        if self.breaker.state == "half-open":
            return BotHealth(False, "half-open", f"The endpoint is being tried again: {times}.")
        seconds = self.breaker.retry_seconds
        detail = f"The endpoint is considered down: {times}. It is tried again in {seconds:.0f} seconds."
        return BotHealth(False, "down", detail, seconds)

    def _run_in_parallel(
        self, asks: Sequence[Ask], work: "Callable[[_Call], Iterator[Piece]]", alive: Callable[[int], bool]
    ) -> Iterator[Piece]:
        calls = [_Call(self, i, ask) for i, ask in enumerate(asks)]
        todo: SimpleQueue[_Call] = SimpleQueue()
        done: SimpleQueue[Piece | Exception] = SimpleQueue()
        for call in calls:
            todo.put(call)
        for _ in range(min(self.options.concurrency, len(calls))):
            threading.Thread(target=_work, args=(todo, done, work), name="openai bot", daemon=True).start()
        waiting = dict(enumerate(calls))
        try:
            while waiting:
                yield from _next_piece(done, waiting)
                for i in [i for i in waiting if not alive(i)]:
                    call = waiting.pop(i)
                    call.cancel()
                    yield Piece(i, "", call.reply("".join(call.shown), "cancelled"))
        finally:
            for call in waiting.values():
                call.cancel()

    def _complete(self, call: "_Call") -> Iterator[Piece]:
        response = self._send(call, stream=False)
        with call.outcome():
            reply = call.reply(self._read(call, response))
        yield Piece(call.index, "", reply)

    def _stream_one(self, call: "_Call") -> Iterator[Piece]:
        response = self._send(call, stream=True)
        text = ""
        with call.outcome():
            try:
                for part in self._texts(call, response):
                    new = part if text else part.lstrip()
                    text += new
                    if new:
                        yield Piece(call.index, new)
            except httpx.RequestError as why:
                if call.answer.finish is None:
                    raise self.endpoint.connection_error(why, in_reply=True) from None
            finally:
                response.close()
        yield Piece(call.index, "", call.reply(text))

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
                message = self.endpoint.describe(data)
                raise EndpointError(f"{self.endpoint} reported an error in the middle of its reply: {message}")
            yield call.answer.take(event, "delta")
        if call.answer.finish is None:
            raise EndpointError(f"{self.endpoint} ended the stream in the middle of its reply.", hint="Try again.")

    def _read(self, call: "_Call", response: httpx.Response) -> str:
        answer = self.endpoint.decode(response.text)
        if not isinstance(answer.get("choices"), list) or not answer["choices"]:
            message = f"{self.endpoint} sent a response without choices: {self.endpoint.describe(response.text)}"
            raise EndpointError(message, hint=self.endpoint.address_hint)
        return call.answer.take(answer, "message").lstrip()

    def _send(self, call: "_Call", *, stream: bool) -> httpx.Response:
        """A successful response, after retries if needed; with `stream`, its body is still to be read.

        The call keeps the circuit breaker's permit for that response, to settle it once the reply is complete.
        """
        body = json.dumps(call.body(stream=stream), ensure_ascii=False).encode("utf-8", "replace")
        error: EndpointError | None = None
        for attempt in range(self.options.retries + 1):
            call.permit = permit = self.breaker.admit()
            if permit is None:
                raise error or self._down_error()
            retry, retry_delay, timed_out = True, None, False
            try:
                response = self._post(call, body, stream=stream)
            except httpx.RequestError as why:
                error = self.endpoint.connection_error(why)
                timed_out = isinstance(why, httpx.TimeoutException)
            else:
                if response.is_success:
                    return response
                error = self.endpoint.status_error(response.status_code, response.text, tries=attempt + 1)
                retry = self.endpoint.is_transient(response.status_code)
                retry_delay = retry_after(response.headers.get("retry-after"))
                if response.status_code < 500:
                    permit.succeed()  # the endpoint works, whatever it thinks of this request
            is_last = not retry or permit.is_probe or attempt == self.options.retries
            if call.stopped.is_set():
                permit.release()
            elif timed_out or is_last:
                permit.fail()
            permit.release()  # unless it is settled already
            if is_last or call.stopped.wait(self._delay(attempt, retry_delay, error)):
                break
        assert error is not None
        raise error

    def _post(self, call: "_Call", body: bytes, *, stream: bool) -> httpx.Response:
        """Send one request; the body of a successful response is left to be read if it is streamed."""
        request = self._client.build_request(
            "POST", self.endpoint.url, content=body, extensions={"trace": call.connected}
        )
        response = self._client.send(request, stream=True)
        if not (response.is_success and stream):
            response.read()
        return response

    def _down_error(self) -> EndpointError:
        failures, seconds = self.breaker.failures, self.breaker.retry_seconds
        hint = f"It is tried again in {seconds:.0f} seconds." if seconds else "It is being tried again now."
        return EndpointError(f"{self.endpoint} is considered down after {failures} failures in a row.", hint=hint)

    def _delay(self, attempt: int, requested: float | None, error: EndpointError) -> float:
        """Seconds before the next attempt."""
        max_wait = self.options.max_wait
        if requested is not None and requested > max_wait:
            hint = f"It asks to wait {requested:.0f} seconds, more than max_wait={max_wait:g}. {error.hint}"
            raise EndpointError(error.message, hint=hint)
        return max(requested or 0.0, min(max_wait, self.options.backoff * 2.0**attempt * random.uniform(0.5, 1.5)))


class _Call:
    """The request of one ask. A thread of the pool runs it; the caller's thread may cancel it."""

    def __init__(self, bot: OpenAIBot, index: int, ask: Ask) -> None:
        overrides = {k: v for k, v in ask.options.items() if k in PER_REPLY and v is not None}
        self.options = validate(OpenAIOptions, bot.options.model_dump() | overrides, where="the options of this reply")
        self.bot, self.index, self.ask = bot, index, ask
        self.answer = _Answer()
        self.shown: list[str] = []
        """The pieces that the caller's thread has handed on."""
        self.start = time.perf_counter()
        self.stopped = threading.Event()
        self.permit: Permit | None = None
        """Of the request that is under way."""
        self._socket: socket.socket | None = None

    def body(self, *, stream: bool) -> dict[str, Json]:
        """The body of the request."""
        fields = {
            "model": self.bot.model,
            "messages": chat_messages(
                self.ask.dialogue,
                self.ask.speaker,
                self.options.instructions,
                evidence_words=self.options.evidence_words,
            ),
            "temperature": self.options.temperature,
            "top_p": self.options.top_p,
            self.bot.endpoint.limit_field: self.options.max_tokens,
            "stop": self.ask.options.get("stop"),
            "seed": self.ask.seed % 2**31 if self.options.send_seed else None,
            "logprobs": None if self.ask.top_logprobs is None else True,
            "top_logprobs": self.ask.top_logprobs,
            "stream": stream or None,
            "stream_options": {"include_usage": True} if stream and self.options.send_usage else None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    @contextmanager
    def outcome(self) -> Iterator[None]:
        """Tells the circuit breaker how the request went, unless it was cancelled."""
        assert self.permit is not None
        try:
            yield
            self.permit.succeed()
        except (EndpointError, httpx.RequestError):
            if not self.stopped.is_set():
                self.permit.fail()
            raise
        finally:
            self.permit.release()

    def connected(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by httpx at each step of a request: remembers the socket, which another thread can shut down."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = info["return_value"].get_extra_info("socket")
            if self.stopped.is_set():
                self.cancel()

    def cancel(self) -> None:
        """Stop: wake the thread from its delay, or shut down its connection; the thread then cleans up."""
        self.stopped.set()
        if self._socket is not None:
            with suppress(OSError):  # closed already
                # Not the method of an SSL socket, which would discard state that the reading thread is using.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def reply(self, text: str, finish: FinishReason | None = None) -> Reply:
        """The reply with the text so far."""
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
            logprobs=None if self.ask.top_logprobs is None else self.answer.token_logprobs(text.rstrip()),
        )


@dataclass(slots=True)
class _Answer:
    """What the endpoint reported besides the text."""

    finish: str | None = None
    usage: Usage | None = None
    checkpoint: str | None = None
    """The model and the system fingerprint that the server reported."""
    _logprobs: list[dict[str, Any]] = field(default_factory=list)
    """The tokens that it reported log-probabilities of."""

    def take(self, event: dict[str, Json], key: str) -> str:
        """Record the metadata of a response or an event, and return its text."""
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
        logprobs = choice.get("logprobs")
        tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
        self._logprobs += tokens if isinstance(tokens, list) else []
        part = choice.get(key)
        content = (part.get("content") or part.get("refusal")) if isinstance(part, dict) else None
        if isinstance(content, list):  # content parts, some of which are not text
            content = "".join(str(p.get("text") or "") for p in content if isinstance(p, dict))
        return clean(str(content or ""))

    def token_logprobs(self, text: str) -> tuple[TokenLogprob, ...] | None:
        """The tokens of a text, if they were reported for all of it."""
        try:
            decode = codecs.getincrementaldecoder("utf-8")("replace").decode
            tokens = [
                TokenLogprob(
                    decode(_token_bytes(token)),
                    max(LOWEST_LOGPROB, float(token["logprob"])),
                    tuple(TokenLogprob(_text(t), max(LOWEST_LOGPROB, float(t["logprob"]))) for t in _top(token)),
                )
                for token in self._logprobs
            ]
        except (KeyError, TypeError, ValueError, AttributeError):  # not the format of OpenAI's API
            return None
        joined = clean("".join(token.text for token in tokens)).strip()
        return align(tokens, text, stopped=False) if tokens and joined == text.strip() else None

    def note(self, text: str) -> str | None:
        """Anything unusual about the reply."""
        if self.finish not in (None, "stop", "length"):
            return f"the endpoint ended it with {self.finish!r}"
        return None if text.strip() else "the model generated nothing"


def _token_bytes(token: dict[str, Any]) -> bytes:
    """Part of a character, perhaps: then the text of a token is only a placeholder, if there is any."""
    return bytes(token["bytes"]) if token.get("bytes") is not None else str(token["token"]).encode("utf-8", "replace")


def _text(token: dict[str, Any]) -> str:
    return clean(_token_bytes(token).decode("utf-8", "replace"))


def _top(token: dict[str, Any]) -> list[dict[str, Any]]:
    return token.get("top_logprobs") or []


def _work(
    todo: SimpleQueue[_Call], done: SimpleQueue[Piece | Exception], work: Callable[[_Call], Iterator[Piece]]
) -> None:
    """One thread of the pool: run one call after the other until none is left."""
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
        except Exception as error:  # whatever it is, the caller's thread must raise it
            if not call.stopped.is_set():
                done.put(error)


def _next_piece(done: SimpleQueue[Piece | Exception], waiting: dict[int, _Call]) -> Iterator[Piece]:
    """The next piece of an ask that is still waiting, if one arrives in time; errors are raised."""
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
