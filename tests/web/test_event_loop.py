"""No request, however long its texts, holds the event loop: everybody else is served in the meantime.

A heartbeat inside the server measures how long the thread of its event loop computes between two beats, in CPU seconds
of that thread: a busy machine makes beats late, but computes no more. Requests are made one after another, and the same
work is done once more without a server: on the event loop, it would have held the loop for as long.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import httpx
import orjson
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from tertulia.core.reply import Ask, Provenance, Reply
from tertulia.core.text import clean, tokens
from tertulia.store import Conversation, ConversationStore, Database
from tertulia.talk.bot import BotTraits
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.openai.schemas import ChatRequest, asks_for
from tertulia.web.page.export import EXPORTERS, ExportFormat
from tertulia.web.page.markdown import markup
from tertulia.web.page.schemas import persona_of
from tertulia.web.server import running

MAX_LAG = 0.5
"""CPU seconds. Parsing a megabyte of JSON takes a fraction of it, and has to be done on the event loop."""
MEGABYTE = 990_000
TEXTS = {
    "dots": "." * MEGABYTE,
    "spaces": " " * MEGABYTE,
    "quotes": "'" * MEGABYTE,
    "brackets": "[(" * (MEGABYTE // 2),
    "marks": "e" + "\u0301\u0323" * (MEGABYTE // 4),
}
HOSTILE_MARKDOWN = "![[" * 5_000
EXCHANGES, HOSTILE_REPLIES = 600, 6


class Echo:
    """Repeats the message."""

    spec = "echo"
    summary = "Repeats what you say."

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [Reply(ask.last, Provenance(self.spec)) for ask in asks]


class Heartbeat:
    """Middleware that notes for how long the event loop computes at a time."""

    def __init__(self, app: ASGIApp, lags: list[float]) -> None:
        self.app, self.lags = app, lags
        self.task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.task is None and scope["type"] == "http":
            self.task = asyncio.create_task(self.beat())
        await self.app(scope, receive, send)

    async def beat(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.005)
            self.lags.append(time.thread_time() - before)


class Server(NamedTuple):
    http: httpx.Client
    lags: list[float]
    conversation: Conversation

    def lag(self, method: str, path: str, body: Any = None, *, status: int = 200) -> float:
        """For how long the event loop computed at a time, at most, while a request was answered."""
        content = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        self._wait_for_beats()
        self.lags.clear()
        answer = self.http.request(method, path, content=content, headers={"Content-Type": "application/json"})
        self._wait_for_beats()
        lag = max(self.lags)
        assert answer.status_code == status, answer.text[:500]
        return lag

    def _wait_for_beats(self) -> None:
        """Until two heartbeats have passed: the second began after whatever was done before."""
        beats = len(self.lags)
        while len(self.lags) < beats + 2:
            time.sleep(0.005)

    @property
    def path(self) -> str:
        return f"/api/conversations/{self.conversation.id}"


@pytest.fixture(scope="module")
def nothing_else_to_collect() -> Iterator[None]:
    """The garbage collector passes over what other tests have loaded (half a second with all of transformers)."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, nothing_else_to_collect: None) -> Iterator[Server]:
    """A server whose visitor has a conversation of 1,200 turns: many lines, and some replies full of Markdown."""
    lags: list[float] = []
    with Database.open(f"sqlite:///{tmp_path_factory.mktemp('loop') / 'chat.db'}") as database:
        app = create_app({"echo": Echo()}, database, config=ServeConfig(messages_per_minute=0, explain=True))
        app.add_middleware(Heartbeat, lags=lags)
        with running(app) as url, httpx.Client(base_url=url, timeout=120) as http:
            created = http.post("/api/conversations", json={"bot": "echo", "persona": ["I like tea."] * 30}).json()
            yield Server(http, lags, fill(ConversationStore(database), created["id"]))


def fill(store: ConversationStore, conversation: str) -> Conversation:
    (owner,) = store.owners()
    for number in range(EXCHANGES):
        exchange = store.say(conversation, owner, text=f"needle {number}" + "\n." * 5_000, key=str(number))
        is_hostile = number >= EXCHANGES - HOSTILE_REPLIES
        text = f"{number} " + (HOSTILE_MARKDOWN if is_hostile else "\n." * 5_000)
        store.finish(exchange.bot.id, text=text, status="done", reply={"seconds": 0.1})
    return store.get(conversation, owner)


def seconds(work: Callable[[], Any]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def assert_free(lag: float, inline: float) -> None:
    """Assert that the event loop was not held for the time that the work takes."""
    assert lag < max(0.2, min(MAX_LAG, inline / 2)), f"work of {inline:.2f} s held the event loop for {lag:.2f} s"


def completion(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "echo", "messages": [{"role": "user", "content": text}], **fields}


def test_a_long_conversation_is_exported(server: Server) -> None:
    formats: list[ExportFormat] = ["json", "txt", "md"]
    lag = max(server.lag("GET", f"{server.path}/export?format={name}") for name in formats)
    inline = seconds(lambda: EXPORTERS["md"].write(server.conversation, {}))
    assert_free(lag, inline)


def test_a_long_conversation_is_opened_and_searched(server: Server) -> None:
    hostile = server.conversation.turns[-1]
    lag = max(
        server.lag("GET", server.path),
        server.lag("GET", f"{server.path}?before=1000"),
        server.lag("GET", "/api/search?q=needle"),
        server.lag("GET", f"{server.path}/turns/{hostile.id}/attempts"),
        server.lag("POST", f"{server.path}/turns/{hostile.id}/choose", {}),
        server.lag("GET", f"{server.path}/turns/{hostile.id}/why"),
    )
    # Not the same texts: the parser remembers them.
    inline = seconds(lambda: [markup(f"{number}: {HOSTILE_MARKDOWN}") for number in range(HOSTILE_REPLIES)])
    assert_free(lag, inline)


def test_a_long_reply_is_formatted(server: Server) -> None:
    bodies = [{"text": f"{s} {HOSTILE_MARKDOWN}", "key": f"long {s}", "stream": s} for s in (False, True)]
    lag = max(server.lag("POST", f"{server.path}/messages", body) for body in bodies)
    inline = seconds(lambda: markup(f"again {HOSTILE_MARKDOWN}"))
    assert_free(lag, inline)
    server.lag("POST", f"{server.path}/undo")
    server.lag("POST", f"{server.path}/undo")


@pytest.mark.parametrize("kind", TEXTS)
def test_a_megabyte_is_completed(server: Server, kind: str) -> None:
    text, path = TEXTS[kind], "/v1/chat/completions"
    lag = max(
        server.lag("POST", path, completion(text, max_tokens=300_000)),
        server.lag("POST", path, completion(text, stream=True, stream_options={"include_usage": True})),
        server.lag("POST", path, completion("hi") | {"messages": [{"role": "system", "content": text}]}),
        server.lag("POST", path, completion("hi", stop=[text]), status=400),
        server.lag("POST", path, completion("hi") | {"model": text}, status=404),
        server.lag("POST", path, completion("hi") | {"messages": [{"role": text}]}, status=400),
    )
    request = ChatRequest.model_validate(completion(text))
    inline = seconds(lambda: [asks_for(request, BotTraits()), tokens(text), tokens(text)])
    assert_free(lag, inline)


def test_a_megabyte_of_small_parts_is_completed(server: Server) -> None:
    parts = [{"type": "text", "text": ""}] * (MEGABYTE // 28)
    lag = max(
        server.lag("POST", "/v1/chat/completions", completion("") | {"messages": [{"role": "user", "content": parts}]}),
        server.lag("POST", "/v1/chat/completions", completion("") | {"messages": completion("")["messages"] * 10_000}),
    )
    assert lag < MAX_LAG


@pytest.mark.parametrize("kind", TEXTS)
def test_a_megabyte_is_no_message_persona_or_title(server: Server, kind: str) -> None:
    text, blank = TEXTS[kind], kind == "spaces"
    lag = max(
        server.lag("POST", f"{server.path}/messages", {"text": text, "key": "a"}, status=422 if blank else 413),
        server.lag("PATCH", server.path, {"persona": [text]}, status=200 if blank else 422),
        server.lag("PATCH", server.path, {"persona": [text[:1]] * 240_000}, status=200 if blank else 422),
        server.lag("PATCH", server.path, {"title": text}, status=422),
        server.lag("POST", "/api/conversations", {"bot": text}, status=422),
        server.lag("POST", "/api/conversations", {text: 1}, status=422),
    )
    inline = seconds(lambda: [persona_of([" "] * 240_000), clean(text)])
    assert_free(lag, inline)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", b'{"model":"echo","messages":[%b0]}' % (b"0," * (MEGABYTE // 2))),
        ("/v1/chat/completions", b'{"model":"echo","messages":[%b{}]}' % (b"{}," * (MEGABYTE // 3))),
        (
            "/v1/chat/completions",
            b'{"model":"echo","messages":[{"role":"user","content":[%b{}]}]}' % (b"{}," * (MEGABYTE // 3)),
        ),
        ("/v1/chat/completions", orjson.dumps(completion("hi", stop=[1] * (MEGABYTE // 2)))),
        ("/v1/chat/completions", orjson.dumps(completion("hi", modalities=[1] * (MEGABYTE // 2)))),
        ("/v1/chat/completions", orjson.dumps(completion("") | {"messages": completion("")["messages"] * 30_000})),
        ("/v1/chat/completions", b"[" * MEGABYTE),
        ("/api/conversations", b'{"bot":"echo","persona":[%b0]}' % (b"0," * (MEGABYTE // 2))),
        ("/api/conversations", orjson.dumps({str(number): 0 for number in range(MEGABYTE // 11)})),
    ],
)
def test_a_megabyte_of_mistakes_is_refused(server: Server, path: str, body: bytes) -> None:
    """Describing each of half a million mistakes would take ten seconds."""
    assert server.lag("POST", path, body, status=400 if path.startswith("/v1") else 422) < MAX_LAG
