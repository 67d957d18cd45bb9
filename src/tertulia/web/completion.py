"""The replies of one OpenAI request: n jobs of one bot, answered whole or as one stream of chunks.

On the wire, the role comes once, in each choice's first chunk; the usage comes in a chunk without choices, and only
when asked for; `[DONE]` ends a stream that went well, an error one that did not.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from fastapi import Request
from fastapi.responses import Response

from tertulia.core.errors import BotError, TertuliaError
from tertulia.core.reply import Ask, Reply, Usage
from tertulia.core.text import clean, tokens
from tertulia.talk.worker import Job, Worker
from tertulia.web.errors import openai_form
from tertulia.web.openai_schemas import ChatRequest
from tertulia.web.sse import KEEP_ALIVE, EventStream, data_line
from tertulia.web.trim import Trimmer, within_limit

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class News:
    """Something that happened to one of the replies: more text, its end, or a failure."""

    index: int
    text: str = ""
    reply: Reply | None = None
    error: TertuliaError | None = None


class Replies:
    """The replies of one request: n jobs of one worker, whose news all come through one queue."""

    def __init__(self, worker: Worker, request: ChatRequest, asks: Sequence[Ask]) -> None:
        self.request = request
        self.asks = asks
        self.head = {"id": f"chatcmpl-{uuid4().hex}", "created": int(time.time()), "model": request.model}
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[News] = asyncio.Queue()
        worker.check_room(len(asks))
        self.jobs: list[Job] = []
        for index, ask in enumerate(asks):
            job = worker.submit(ask, partial(self._wrote, index), admitted=True)
            job.done.add_done_callback(partial(self._ended, index))
            self.jobs.append(job)

    def cancel(self) -> None:
        """Nobody waits for these any more."""
        for job in self.jobs:
            job.cancel()

    async def whole(self, request: Request) -> dict[str, Any]:
        """All replies as one answer, unless the client hangs up before."""
        gone = asyncio.ensure_future(_hung_up(request))
        collected = asyncio.ensure_future(self._collect())
        try:
            await asyncio.wait([gone, collected], return_when=asyncio.FIRST_COMPLETED)
            if not collected.done():
                raise BotError("The client hung up.")
            replies = collected.result()
        finally:
            self.cancel()
            gone.cancel()
            collected.cancel()
        choices = [self._choice(index, reply) for index, reply in enumerate(replies)]
        texts = [choice["message"]["content"] for choice in choices]
        return {**self.head, "object": "chat.completion", "choices": choices, "usage": self._usage(replies, texts)}

    async def stream(self, patience: float) -> Response:
        """The replies as a stream. Its headers wait for the first news: a failure at once still has its status code."""
        first = await self._next(patience)
        if first is not None and first.error is not None:
            self.cancel()
            raise first.error
        return EventStream(self._chunks(first, patience))

    async def _chunks(self, first: News | None, patience: float) -> AsyncIterator[bytes]:
        replies: dict[int, Reply] = {}
        writers = [_Writer(self, index) for index in range(len(self.jobs))]
        try:
            yield b"".join(writer.role() for writer in writers)
            while len(replies) < len(self.jobs):
                news, first = first or await self._next(patience), None
                if news is None:
                    yield KEEP_ALIVE
                elif news.error is not None:
                    yield data_line(openai_form(news.error))
                    return
                elif news.reply is not None:
                    replies[news.index] = news.reply
                    yield writers[news.index].end(news.reply)
                elif chunk := writers[news.index].more(news.text):
                    yield chunk
            if self.request.wants_usage:
                ordered = [replies[index] for index in range(len(self.jobs))]
                usage = self._usage(ordered, [writer.text for writer in writers])
                yield data_line({**self.chunk_head(), "choices": [], "usage": usage})
            yield DONE
        finally:
            self.cancel()

    async def _next(self, patience: float) -> News | None:
        try:
            return self._news.get_nowait() if self._news.qsize() else await asyncio.wait_for(self._news.get(), patience)
        except TimeoutError:
            return None

    async def _collect(self) -> list[Reply]:
        replies: dict[int, Reply] = {}
        while len(replies) < len(self.jobs):
            news = await self._news.get()
            if news.error is not None:
                raise news.error
            if news.reply is not None:
                replies[news.index] = news.reply
        return [replies[index] for index in range(len(self.jobs))]

    def _choice(self, index: int, reply: Reply) -> dict[str, Any]:
        limited = within_limit(reply, self.request.limit)
        trimmer = Trimmer(self.request.stops)
        text = trimmer.feed(clean(limited.text)) + trimmer.rest()
        finish = "length" if limited.finish == "length" and not trimmer.stopped else "stop"
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, "logprobs": None, "finish_reason": finish}

    def _usage(self, replies: Sequence[Reply], texts: Sequence[str]) -> dict[str, int]:
        """What the bot counted, or else words and marks; the prompt counts once, as it is the same for all."""
        used = [reply.usage or self._estimate(text) for reply, text in zip(replies, texts, strict=True)]
        prompt, completion = used[0].prompt, sum(usage.completion for usage in used)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def _estimate(self, text: str) -> Usage:
        dialogue = self.asks[0].dialogue
        heard = [dialogue.meta.get("system", ""), *(turn.text for turn in dialogue.turns)]
        return Usage(sum(len(tokens(said)) for said in heard), len(tokens(text)))

    def chunk_head(self) -> dict[str, Any]:
        """What all chunks of a stream have in common."""
        return {**self.head, "object": "chat.completion.chunk"}

    # On the bot's thread.

    def _wrote(self, index: int, text: str) -> None:
        self._loop.call_soon_threadsafe(self._news.put_nowait, News(index, text=clean(text)))

    def _ended(self, index: int, done: Future[Reply]) -> None:
        error = done.exception()
        if error is not None and not isinstance(error, TertuliaError):
            error = BotError(f"The bot failed ({type(error).__name__}).")
        news = News(index, error=error) if error else News(index, reply=done.result())
        with suppress(RuntimeError):  # the loop may be gone when a cancelled job ends
            self._loop.call_soon_threadsafe(self._news.put_nowait, news)


class _Writer:
    """Writes the chunks of one choice."""

    def __init__(self, replies: Replies, index: int) -> None:
        self._replies = replies
        self._index = index
        self._trimmer = Trimmer(replies.request.stops)
        self.text = ""
        self._streamed = False

    def role(self) -> bytes:
        """The first chunk, the only one that says who speaks."""
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def more(self, text: str) -> bytes:
        """The next piece, as far as it can be shown."""
        self._streamed = True
        shown = self._trimmer.feed(text)
        self.text += shown
        if self._trimmer.stopped:
            self._replies.jobs[self._index].cancel()
        return self._chunk({"content": shown}) if shown else b""

    def end(self, reply: Reply) -> bytes:
        """What is left, and why it ended."""
        limited = within_limit(reply, self._replies.request.limit)
        chunks = b"" if self._streamed else self.more(clean(limited.text))
        finish = "length" if limited.finish == "length" and not self._trimmer.stopped else "stop"
        rest = self._trimmer.rest()
        self.text += rest
        chunks += self._chunk({"content": rest}) if rest else b""
        return chunks + self._chunk({}, finish)

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": self._index, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._replies.request.wants_usage else {}
        return data_line({**self._replies.chunk_head(), "choices": [choice], **usage})


async def _hung_up(request: Request) -> None:
    """Return when the client has gone. The body has been read, so the next thing to come is the end."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
