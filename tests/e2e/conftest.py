"""A real browser and a real server: small real bots, a SQLite file, a free port."""

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tertulia.core.dialogue import Persona
from tertulia.core.errors import BotError
from tertulia.core.reply import Ask, Candidate, FinishReason, Piece, Provenance, Reply
from tertulia.store import Database
from tertulia.talk.bot import Bot, BotTraits
from tertulia.talk.bots.generic import GenericBot
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import running

CHROMIUM = ("chromium-headless-shell", "/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome")
"""The first is Chromium without the windows that nobody sees here: a page costs a third of the processor's time."""
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
expect.set_options(timeout=20_000)  # on a busy machine; on an idle one nothing takes a tenth of it

PERSONAS = (
    Persona(("I grow tomatoes on my balcony.", "I have two cats."), id="marta", name="Marta"),
    Persona(("I sailed for thirty years.", "I never learned to swim."), id="sailor", name="The old sailor"),
    *(Persona((f"I am number {n}.",), id=f"n{n}", name=f"Number {n}") for n in range(10)),
)


class Parrot:
    """Repeats the message, word by word.

    To a message that begins with "hold" it says its first words and then waits for `go`, so that a test can look at a
    pending reply for as long as it needs; to "fail" it fails.
    """

    spec = "parrot"
    traits = BotTraits(display_name="Parrot")
    summary = "Repeats what you say, word by word."

    def __init__(self) -> None:
        self.go = threading.Event()

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        replies = {piece.index: piece.reply for piece in self.stream(asks, alive=lambda _: True) if piece.reply}
        return [replies[i] for i in range(len(asks))]

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        go = self.go  # that of this test: the next one brings its own
        for i, ask in enumerate(asks):
            text = "You said:"
            yield Piece(i, text)
            if ask.last.startswith("fail"):
                raise BotError("The parrot has flown away.", hint="Wait until it comes back.")
            while ask.last.startswith("hold") and alive(i) and not go.wait(0.005):
                pass
            for word in ask.last.split(" "):
                if not alive(i):
                    break
                text += f" {word}"
                yield Piece(i, f" {word}")
            finish: FinishReason = "stop" if alive(i) else "cancelled"
            source = Provenance(self.spec, settings={"feathers": "green"}, seed=ask.seed)
            candidates = (
                Candidate(text, 0.9),
                Candidate("Pretty bird!", 0.7, dropped="repeats an earlier reply"),
                Candidate("Hello.", 0.4, source="thread 7"),
            )
            reply = Reply(text, source, score=0.9, candidates=candidates, seconds=0.25, finish=finish, redraws=3)
            yield Piece(i, reply=reply)


class ChatServer:
    """The server, which can be stopped and started again at the same address with the same file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "tertulia.db"
        self.parrot = Parrot()
        self.port = 0
        self._open = ExitStack()

    def start(self) -> None:
        database = self._open.enter_context(Database.open(f"sqlite:///{self.file}"))
        bots: dict[str, Bot] = {"parrot": self.parrot, "generic": GenericBot()}
        bots |= {f"dull {number}": GenericBot() for number in range(3, 31)}
        config = ServeConfig(grace_seconds=0, stop_seconds=5, explain=True, messages_per_minute=0)
        app = create_app(bots, database, personas=PERSONAS, config=config)
        self.url = self._open.enter_context(running(app, port=self.port)) + "/"
        self.port = int(self.url.rsplit(":")[-1].strip("/"))

    def stop(self) -> None:
        self._open.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser. One for each module, not for the session: while it is open, no other test could run an event loop."""
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        pytest.skip(f"no browser found: none of {', '.join(CHROMIUM)} is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatServer]:
    server = ChatServer(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def server(module_server: ChatServer) -> Iterator[ChatServer]:
    """The module's server. Every test is a visitor of its own, and so sees nothing of the others."""
    module_server.parrot.go = threading.Event()
    yield module_server
    module_server.parrot.go.set()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ChatServer]:
    """A server for one test, to be stopped and started."""
    server = ChatServer(tmp_path)
    server.start()
    yield server
    server.parrot.go.set()
    server.stop()


class Visitor:
    """A visitor with a browser context of their own."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context = context
        self.url = url
        self.console_errors: list[str] = []
        self.page = self.tab()

    def tab(self, fragment: str = "") -> Page:
        page = self.context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.console_errors.append(str(error)))
        page.goto(self.url + fragment)
        expect(page.locator("#bot-value")).not_to_be_empty()
        return page

    def _on_console(self, message: ConsoleMessage) -> None:
        # The browser itself logs each failed request; tests that break things on purpose check the page instead.
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self.console_errors.append(message.text)


Visit = Callable[..., Visitor]


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Visit]:
    """Creates visitors; at the end none of them may have errors in the browser's console."""
    visitors: list[Visitor] = []

    def arrive(server: ChatServer, **options: object) -> Visitor:
        visitor = Visitor(chromium.new_context(base_url=server.url, **options), server.url)  # type: ignore[arg-type]
        visitors.append(visitor)
        return visitor

    yield arrive
    for visitor in visitors:
        visitor.context.close()
    assert [visitor.console_errors for visitor in visitors] == [[] for _ in visitors]
