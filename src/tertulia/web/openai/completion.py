"""The replies to one OpenAI request: n jobs of one bot, answered at once or as one stream of chunks.

On the wire, the role comes once, in each choice's first chunk; the usage comes in a chunk without choices, and only
on request; `[DONE]` ends a successful stream, an error a failed one. Log-probabilities of a streamed reply come with
its last chunk.

Texts may be long, and strangers choose them: whatever takes time in proportion to them runs on a thread.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple
from uuid import uuid4

from fastapi import Request
from fastapi.responses import Response

from tertulia.core.errors import BotError, TertuliaError
from tertulia.core.reply import Ask, FinishReason, Reply, TokenLogprob
from tertulia.core.text import clean, tokens
from tertulia.talk.logprobs import align
from tertulia.talk.stop_sequences import StopSequences, cut_at_stop
from tertulia.talk.worker import Job, Worker
from tertulia.web.errors import public_error, to_openai_error
from tertulia.web.openai.schemas import ChatRequest, logprobs_out
from tertulia.web.responses import KEEP_ALIVE, EventStream, Json, data_line
from tertulia.web.threads import on_thread, on_thread_if_long

DONE = b"data: [DONE]\n\n"
PIECE = 2_000
"""Characters whose tokens are found in one go: less than a millisecond's work."""
COUNTED = 4_000
"""Characters of a text whose tokens are counted; the rest is taken to be like them."""


@dataclass(frozen=True, slots=True)
class Update:
    """Progress of one of the replies: more text, its end, or an error."""

    index: int
    text: str = ""
    reply: Reply | None = None
    error: TertuliaError | None = None


class Replies:
    """The replies to one request: n jobs of one worker, whose updates come through one queue."""

    def __init__(self, worker: Worker, request: ChatRequest, asks: Sequence[Ask]) -> None:
        self._worker = worker
        self.request = request
        self.asks = asks
        self.head = {"id": f"chatcmpl-{uuid4().hex}", "created": int(time.time()), "model": request.model}
        self._loop = asyncio.get_running_loop()
        self._updates: asyncio.Queue[Update] = asyncio.Queue()
        worker.check_room(len(asks))
        self.jobs: list[Job] = []
        for index, ask in enumerate(asks):
            job = worker.submit(ask, partial(self._on_piece, index), admitted=True)
            job.done.add_done_callback(partial(self._on_done, index))
            self.jobs.append(job)

    def cancel(self) -> None:
        """Cancel all jobs: nobody waits for them any more."""
        for job in self.jobs:
            job.cancel()

    async def collect(self, request: Request) -> Response:
        """All replies in one response, unless the client disconnects first."""
        disconnected = asyncio.ensure_future(_disconnected(request))
        collected = asyncio.ensure_future(self._collect())
        try:
            await asyncio.wait([disconnected, collected], return_when=asyncio.FIRST_COMPLETED)
            if not collected.done():
                raise BotError("The client disconnected.")
            replies = collected.result()
        finally:
            self.cancel()
            disconnected.cancel()
            collected.cancel()
        return await on_thread(self._completion, replies)

    async def stream(self, keep_alive_seconds: float) -> Response:
        """The replies as a stream. The headers wait for the first update, so an early error gets its status code."""
        first = await self._next(keep_alive_seconds)
        if first is not None and first.error is not None:
            self.cancel()
            raise first.error
        return EventStream(self._chunks(first, keep_alive_seconds))

    async def _chunks(self, first: Update | None, keep_alive_seconds: float) -> AsyncIterator[bytes]:
        replies: dict[int, Reply] = {}
        try:
            writers = await on_thread(lambda: [_Writer(self, index) for index in range(len(self.jobs))])
            yield b"".join(writer.role() for writer in writers)
            while len(replies) < len(self.jobs):
                update, first = first or await self._next(keep_alive_seconds), None
                if update is None:
                    yield KEEP_ALIVE
                elif update.error is not None:
                    yield data_line(to_openai_error(update.error))
                    return
                elif update.reply is not None:
                    replies[update.index] = update.reply
                    yield await on_thread(writers[update.index].end, update.reply)
                elif chunk := await on_thread_if_long(update.text, writers[update.index].more):
                    yield chunk
            if self.request.wants_usage:
                ordered = [replies[index] for index in range(len(self.jobs))]
                usage = await on_thread(self._usage, ordered, [writer.text for writer in writers])
                yield data_line({**self.chunk_head(), "choices": [], "usage": usage})
            yield DONE
        finally:
            self.cancel()

    async def _next(self, keep_alive_seconds: float) -> Update | None:
        try:
            return (
                self._updates.get_nowait()
                if self._updates.qsize()
                else await asyncio.wait_for(self._updates.get(), keep_alive_seconds)
            )
        except TimeoutError:
            return None

    async def _collect(self) -> list[Reply]:
        replies: dict[int, Reply] = {}
        while len(replies) < len(self.jobs):
            update = await self._updates.get()
            if update.error is not None:
                raise update.error
            if update.reply is not None:
                replies[update.index] = update.reply
        return [replies[index] for index in range(len(self.jobs))]

    def _completion(self, replies: Sequence[Reply]) -> Response:
        choices = [self._choice(index, reply) for index, reply in enumerate(replies)]
        texts = [choice["message"]["content"] for choice in choices]
        usage = self._usage(replies, texts)
        return Json({**self.head, "object": "chat.completion", "choices": choices, "usage": usage})

    def _choice(self, index: int, reply: Reply) -> dict[str, Any]:
        limited, tokens = within_limit(reply, self.request.limit), _clean_tokens(reply)
        whole = tokens is not None and limited.text == reply.text
        text = "".join(token.text for token in tokens or ()) if whole else clean(limited.text)
        text, stopped = cut_at_stop(text, self.request.stops)
        logprobs = None if tokens is None else logprobs_out(align(tokens, text, stopped=stopped or not whole))
        finish = "length" if limited.finish == "length" and not stopped else "stop"
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish}

    def _usage(self, replies: Sequence[Reply], texts: Sequence[str]) -> dict[str, int]:
        """The bot's own count, or else words and punctuation marks; the prompt, the same for all, counts once."""
        used = replies[0].usage
        prompt = used.prompt if used else self._estimate_prompt()
        pairs = zip(replies, texts, strict=True)
        completion = sum(reply.usage.completion if reply.usage else _count_tokens(text) for reply, text in pairs)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def _estimate_prompt(self) -> int:
        dialogue = self.asks[0].dialogue
        parts = [dialogue.meta.get("system", ""), *(turn.text for turn in dialogue.turns)]
        return sum(_count_tokens(part) for part in parts)

    def chunk_head(self) -> dict[str, Any]:
        """What all chunks of a stream have in common."""
        return {**self.head, "object": "chat.completion.chunk"}

    # On the bot's thread.

    def _on_piece(self, index: int, text: str) -> None:
        self._loop.call_soon_threadsafe(self._updates.put_nowait, Update(index, text=clean(text)))

    def _public(self, error: BaseException) -> TertuliaError:
        error = error if isinstance(error, TertuliaError) else BotError(f"The bot failed ({type(error).__name__}).")
        return public_error(error, bot=self._worker.name, spec=self._worker.bot.spec, completion=self.head["id"])

    def _on_done(self, index: int, done: Future[Reply]) -> None:
        update = (
            Update(index, error=self._public(error))
            if (error := done.exception())
            else Update(index, reply=done.result())
        )
        with suppress(RuntimeError):  # the loop may be closed when a cancelled job ends
            self._loop.call_soon_threadsafe(self._updates.put_nowait, update)


class _Writer:
    """Builds the chunks of one choice."""

    def __init__(self, replies: Replies, index: int) -> None:
        self._replies = replies
        self._index = index
        self._stops = StopSequences(replies.request.stops)
        self.text = ""
        self._streamed = False

    def role(self) -> bytes:
        """The first chunk, the only one with the role."""
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def more(self, text: str) -> bytes:
        """The next piece, as far as it can be shown."""
        self._streamed = True
        shown = self._stops.feed(text)
        self.text += shown
        if self._stops.stopped:
            self._replies.jobs[self._index].cancel()
        return self._chunk({"content": shown}) if shown else b""

    def end(self, reply: Reply) -> bytes:
        """What is left, and why it ended."""
        limited = within_limit(reply, self._replies.request.limit)
        chunks = b"" if self._streamed else self.more(clean(limited.text))
        finish = "length" if limited.finish == "length" and not self._stops.stopped else "stop"
        rest = self._stops.rest()
        self.text += rest
        chunks += self._chunk({"content": rest}) if rest else b""
        tokens = _clean_tokens(reply)
        cut = self._stops.stopped or limited.text != reply.text
        logprobs = None if tokens is None else logprobs_out(align(tokens, self.text, stopped=cut))
        return chunks + self._chunk({}, finish, logprobs)

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, logprobs: dict[str, Any] | None = None) -> bytes:
        choice = {"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        usage = {"usage": None} if self._replies.request.wants_usage else {}
        return data_line({**self._replies.chunk_head(), "choices": [choice], **usage})


async def _disconnected(request: Request) -> None:
    """Return when the client has disconnected. The body has been read, so nothing else can arrive before that."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _clean_tokens(reply: Reply) -> list[TokenLogprob] | None:
    """The reply's tokens, if it has any, cleaned like its text."""
    if reply.logprobs is None:
        return None
    return [
        replace(token, text=clean(token.text), top=tuple(replace(t, text=clean(t.text)) for t in token.top))
        for token in reply.logprobs
    ]


def _iterate_tokens(text: str) -> Iterator[str]:
    """`tokens` in pieces: a regular expression lets no other thread run before it has read all of its text.

    A piece ends at a blank, unless there is none for thousands of characters.
    """
    start = 0
    while start < len(text):
        end = text.find(" ", start + PIECE, start + 2 * PIECE)
        end = end if end >= 0 else start + 2 * PIECE
        yield from tokens(text[start:end])
        start = end


def _count_tokens(text: str) -> int:
    """Words and punctuation marks, estimated from the beginning of a long text: a stranger's megabyte costs no more."""
    counted = sum(1 for _ in _iterate_tokens(text[:COUNTED]))
    return counted if len(text) <= COUNTED else round(counted * len(text) / COUNTED)


class LimitedText(NamedTuple):
    """A text within its limit, and why it ended."""

    text: str
    finish: FinishReason


def within_limit(reply: Reply, max_tokens: int | None) -> LimitedText:
    """The reply's text, cut to `max_tokens` words and punctuation marks if its bot does not count tokens itself.

    Generative bots obey the limit in their own tokens; bots that retrieve a finished reply know nothing of it.
    """
    if max_tokens is None or reply.usage is not None or reply.finish == "length":
        return LimitedText(reply.text, reply.finish)
    words = list(islice(_iterate_tokens(reply.text), max_tokens + 1))
    if len(words) <= max_tokens:
        return LimitedText(reply.text, reply.finish)
    end, lower = 0, reply.text.lower().replace("’", "'")
    for word in words[:max_tokens]:
        end = lower.index(word, end) + len(word)
    return LimitedText(reply.text[:end], "length")
