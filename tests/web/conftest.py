"""A real server on a free port, a real SQLite file, and small real bots that the message itself controls."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tertulia.core.dialogue import Persona
from tertulia.core.errors import BotError
from tertulia.core.reply import Ask, Candidate, Piece, Provenance, Reply, Usage
from tertulia.store import Database
from tertulia.talk.bot import Bot, BotTraits
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import running

ANNA = Persona(("I like tea.", "I have two dogs."), id="anna", name="Anna")


class Echo:
    """Repeats the message, in one piece."""

    spec = "echo"
    summary = "Repeats what you say."

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [self._reply(ask) for ask in asks]

    def _reply(self, ask: Ask) -> Reply:
        source = Provenance(self.spec, settings={"loud": False}, seed=ask.seed)
        return Reply(ask.last, source, score=0.5, candidates=(Candidate(ask.last, 0.5),), seconds=0.001, redraws=2)


class Inspect:
    """Replies with everything it received, as JSON, so that a test can read what reaches a bot."""

    spec = "inspect"
    summary = "Shows what it received."

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [Reply(json.dumps(self._received(ask)), Provenance(self.spec, seed=ask.seed)) for ask in asks]

    def _received(self, ask: Ask) -> dict[str, Any]:
        persona = ask.dialogue.persona_of(ask.speaker)
        return {
            "turns": [[turn.speaker, turn.text] for turn in ask.dialogue.turns],
            "persona": list(persona.sentences) if persona else None,
            "evidence": [passage.text for passage in ask.dialogue.evidence],
            "meta": dict(ask.dialogue.meta),
            "options": dict(ask.options),
            "seed": ask.seed,
        }


class Count:
    """Streams "1 2 3 ...": "10 0.05" means ten numbers, 0.05 s apart; "10 0.05 3" fails before the third."""

    spec = "count"
    summary = "Counts."
    traits = BotTraits(display_name="The Count")

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [piece.reply for piece in self.stream(asks, alive=lambda _: True) if piece.reply is not None]

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        for index, ask in enumerate(asks):
            count, pause, fails = (ask.last.split() + ["3", "0", "0"][len(ask.last.split()) :])[:3]
            limit = ask.options.get("max_tokens", int(count))
            text, finish = "", "length" if limit < int(count) else "stop"
            for number in range(1, min(limit, int(count)) + 1):
                if number == int(fails):
                    raise BotError("I cannot count any further.", hint="Ask for less.")
                time.sleep(float(pause))
                if not alive(index):
                    finish = "cancelled"
                    break
                text += f"{number} "
                yield Piece(index, f"{number} ")
            source, usage = Provenance(self.spec, seed=ask.seed), Usage(7, len(text.split()))
            yield Piece(index, reply=Reply(text, source, finish=finish, usage=usage))  # type: ignore[arg-type]


class Nap:
    """Replies in one piece, after as many seconds as the message says, or when the file that it names is there."""

    spec = "nap"
    summary = "Sleeps first."
    traits = BotTraits(parallel=4)

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        for ask in asks:
            if "/" in ask.last:
                wait_for(Path(ask.last).exists)
            else:
                time.sleep(float(ask.last))
        return [Reply("Good morning.", Provenance(self.spec)) for _ in asks]


class Broken:
    """Fails, with a BotError or, for "crash", with an unexpected exception."""

    spec = "broken"
    summary = "Does not work."

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        if asks[0].last == "crash":
            raise ZeroDivisionError
        raise BotError("The bot is out of order.", hint="Choose another one.")


def make_bots() -> dict[str, Bot]:
    return {"echo": Echo(), "inspect": Inspect(), "count": Count(), "nap": Nap(), "broken": Broken()}


@pytest.fixture
def bots() -> dict[str, Bot]:
    return make_bots()


Serve = Callable[..., AbstractContextManager[str]]


@pytest.fixture(scope="session")
def serve() -> Serve:
    """Runs a server on a database file: `with serve(path, grace_seconds=1) as url`."""

    @contextmanager
    def serving(path: Path, **settings: Any) -> Iterator[str]:
        with (
            Database.open(f"sqlite:///{path}") as database,
            running(create_app(make_bots(), database, personas=[ANNA], config=ServeConfig(**settings))) as url,
        ):
            yield url

    return serving


@pytest.fixture(scope="module")
def url(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for all tests of a module; each test is a different visitor."""
    with serve(tmp_path_factory.mktemp("web") / "chat.db", keep_alive_seconds=0.3) as address:
        yield address


class Page:
    """A client that makes the requests of the chat page."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=20)
        self.keys = 0

    def begin(self, bot: str = "echo", persona: list[str] | None = None) -> str:
        created = self.http.post("/api/conversations", json={"bot": bot, "persona": persona})
        assert created.status_code == 201, created.text
        return str(created.json()["id"])

    def key(self) -> str:
        self.keys += 1
        return f"key-{self.keys}"

    def post(self, conversation: str, what: str = "messages", **body: Any) -> httpx.Response:
        return self.http.post(f"/api/conversations/{conversation}/{what}", json=body)

    def say(self, conversation: str, text: str) -> dict[str, Any]:
        answer = self.post(conversation, text=text, key=self.key(), stream=False)
        assert answer.status_code == 200, answer.text
        exchange: dict[str, Any] = answer.json()
        return exchange

    def get(self, conversation: str) -> dict[str, Any]:
        answer = self.http.get(f"/api/conversations/{conversation}")
        assert answer.status_code == 200, answer.text
        conversation_json: dict[str, Any] = answer.json()
        return conversation_json

    def stream(self, conversation: str, what: str = "messages", **body: Any) -> Iterator[tuple[str, Any]]:
        """Events as they arrive; leaving the loop drops the connection."""
        path = f"/api/conversations/{conversation}/{what}"
        request = ("GET", path, None) if what == "events" else ("POST", path, {"stream": True, **body})
        with (
            httpx.Client(base_url=self.http.base_url, cookies=self.http.cookies, timeout=20) as http,
            http.stream(request[0], request[1], json=request[2]) as answer,
        ):
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield from events_of(answer.iter_lines())


def events_of(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """Server-sent events as (name, value); comments as ("", text)."""
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])
        elif line.startswith(": "):
            yield "", line[2:]
        else:
            assert line == ""


@pytest.fixture
def page(url: str) -> Iterator[Page]:
    """A new visitor."""
    visitor = Page(url)
    yield visitor
    visitor.http.close()


@pytest.fixture
def visitor() -> Iterator[Callable[[str], Page]]:
    """Creates visitors of servers that a test runs itself."""
    created: list[Page] = []

    def make(url: str) -> Page:
        created.append(Page(url))
        return created[-1]

    yield make
    for page in created:
        page.http.close()


def wait_for(true: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def eventually() -> Callable[..., None]:
    return wait_for


@pytest.fixture(autouse=True)
def no_thread_is_left_serving() -> Iterator[None]:
    """A test that ran a server has stopped it."""
    before = {thread for thread in threading.enumerate() if thread.name == "server"}
    yield
    assert {thread for thread in threading.enumerate() if thread.name == "server"} <= before
