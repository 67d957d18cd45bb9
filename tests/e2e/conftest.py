"""A real browser and a real server: bots that are small but true, a store in a SQLite file, a free port."""

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tertulia.core.dialogue import Persona
from tertulia.core.errors import BotError
from tertulia.core.reply import Ask, Piece, Provenance, Reply
from tertulia.store import Store
from tertulia.talk.bots.generic import GenericBot
from tertulia.web.app import create_app
from tertulia.web.server import running
from tertulia.web.settings import WebSettings

CHROMIUM = ("/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
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
    """Says what it was told, word by word.

    To a message that begins with "hold" it says its first words and then waits for `go`, so that a test can look at a
    reply in the making for as long as it needs; to "fail" it fails.
    """

    spec = "parrot"
    name = "Parrot"
    summary = "Says what it was told, word by word."

    def __init__(self) -> None:
        self.go = threading.Event()

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        whole = {piece.index: piece.reply for piece in self.stream(asks, alive=lambda _: True) if piece.reply}
        return [whole[i] for i in range(len(asks))]

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        for i, ask in enumerate(asks):
            said = "You said:"
            yield Piece(i, said)
            if ask.last.startswith("fail"):
                raise BotError("The parrot has flown away.", hint="Wait until it comes back.")
            while ask.last.startswith("hold") and alive(i) and not self.go.wait(0.005):
                pass
            for word in ask.last.split(" "):
                if not alive(i):
                    break
                said += f" {word}"
                yield Piece(i, f" {word}")
            done = Reply(said, Provenance(self.spec, seed=ask.seed), finish="stop" if alive(i) else "cancelled")
            yield Piece(i, reply=done)


class House:
    """The server, which can be shut and opened again at the same address over the same file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "tertulia.db"
        self.parrot = Parrot()
        self.port = 0
        self._open = ExitStack()

    def open(self) -> None:
        store = self._open.enter_context(Store.open(f"sqlite:///{self.file}"))
        bots = {"parrot": self.parrot, "generic": GenericBot()}
        settings = WebSettings(grace_seconds=0, stop_seconds=5)
        app = create_app(bots, store, personas=PERSONAS, settings=settings)
        self.url = self._open.enter_context(running(app, port=self.port)) + "/"
        self.port = int(self.url.rsplit(":")[-1].strip("/"))

    def shut(self) -> None:
        self._open.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser. One for each module, not for the session: while it lives, no other test could run an event loop."""
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        pytest.skip(f"no browser found: none of {', '.join(CHROMIUM)} is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def lasting_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("house"))
    house.open()
    yield house
    house.shut()


@pytest.fixture
def house(lasting_house: House) -> Iterator[House]:
    """The module's server. Every test comes as a visitor of its own, and so sees nothing of the others."""
    lasting_house.parrot.go.clear()
    yield lasting_house
    lasting_house.parrot.go.set()


@pytest.fixture
def own_house(tmp_path: Path) -> Iterator[House]:
    """A server of the test's own, to be shut and opened as it likes."""
    house = House(tmp_path)
    house.open()
    yield house
    house.parrot.go.set()
    house.shut()


class Visitor:
    """Somebody with a browser of their own."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context = context
        self.url = url
        self.complaints: list[str] = []
        self.page = self.tab()

    def tab(self, fragment: str = "") -> Page:
        page = self.context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(self.url + fragment)
        expect(page.locator("#bot")).not_to_have_value("")
        return page

    def _heard(self, message: ConsoleMessage) -> None:
        # The browser itself notes each request that failed; tests that break things on purpose judge by the page.
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self.complaints.append(message.text)


Visit = Callable[..., Visitor]


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Visit]:
    """Make visitors; at the end none of them may have seen an error in the browser's console."""
    visitors: list[Visitor] = []

    def arrive(house: House, **options: object) -> Visitor:
        visitor = Visitor(chromium.new_context(base_url=house.url, **options), house.url)  # type: ignore[arg-type]
        visitors.append(visitor)
        return visitor

    yield arrive
    for visitor in visitors:
        visitor.context.close()
    assert [visitor.complaints for visitor in visitors] == [[] for _ in visitors]
