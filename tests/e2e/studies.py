"""Studies for the browser: a server with small real bots, and participants who drive the page."""

import hashlib
import json
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect
from tests.e2e.axe import violations
from tests.e2e.conftest import Parrot

from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.store import Database, StudyStore
from tertulia.study.config import StudyConfig, with_codes
from tertulia.study.presets import study_from_toml
from tertulia.study.units import make_units, ratings_wanted, read_items
from tertulia.talk.bots.generic import GenericBot
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import running

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
TURNS = [
    {"speaker": "a", "text": "I have just come back from two weeks in Norway."},
    {"speaker": "b", "text": "How lovely! Where did you go?"},
    {"speaker": "a", "text": "Along the coast, by train and then by boat."},
]
RESPONSES = {"parrot": "You said: by boat. It was cold.", "generic": "That is nice. I like it."}
PERSONAS = (["I have two dogs.", "I sing in a choir."], ["I am a cook.", "I never learned to swim."])
BOTS = '[[bots]]\nname = "parrot"\nspec = "parrot"\n[[bots]]\nname = "generic"\nspec = "generic"\n'


def items_for(preset: str) -> list[dict[str, Json]]:
    """Two small items for a preset."""
    if preset == "pairwise-chat":
        bots = ("parrot", "generic")
        return [{"id": f"{bot}{i}", "turns": TURNS, "bot": bot, "speaker": "b"} for bot in bots for i in range(2)]
    if preset in ("persona-chat", "collect-dialogues", "rewrite-personas"):
        return [{"id": f"p{i}", "persona": sentences} for i, sentences in enumerate(PERSONAS)]
    evidence = "The boats along the coast of Norway sail all year."
    return [{"id": f"c{n}", "turns": TURNS[:n], "responses": RESPONSES, "evidence": evidence} for n in (1, 3)]


class OpenStudy:
    """A study that takes participants."""

    def __init__(self, url: str, store: StudyStore, toml: str, items: Sequence[Json]) -> None:
        """Open a study in the database of the server at `url`."""
        self.url = url
        self.config: StudyConfig = with_codes(study_from_toml(toml, "study.toml"))
        parsed = read_items([json.dumps(item) for item in items]) if items else []
        units = make_units(self.config, parsed, {}, random.Random(0))
        digest = hashlib.sha256(self.config.model_dump_json().encode()).hexdigest()
        self.id = store.create(secrets.token_hex(8), self.config.model_dump(mode="json"), digest).id
        wanted = [(unit.id, unit.bots, unit.payload, max(20, ratings_wanted(self.config, unit))) for unit in units]
        store.add_units(self.id, wanted)
        self._store = store
        store.set_state(self.id, "open", "test")

    def link(self, worker: str) -> str:
        return f"{self.url}study/{self.id}?PROLIFIC_PID={worker}"

    def close(self) -> None:
        self._store.set_state(self.id, "closed", "test")


class StudyServer:
    """A server whose database has studies."""

    def __init__(self, folder: Path) -> None:
        self.parrot = Parrot()
        self.address = f"sqlite:///{folder / 'studies.db'}"
        self.url = ""
        self._store: StudyStore | None = None

    def run(self) -> Iterator["StudyServer"]:
        with Database.open(self.address) as database:
            self._store = StudyStore(database)
            config = ServeConfig(grace_seconds=0, stop_seconds=5, messages_per_minute=0)
            app = create_app({"parrot": self.parrot, "generic": GenericBot()}, database, config=config)
            with running(app) as url:
                self.url = url + "/"
                yield self
                self.parrot.go.set()

    def open(self, preset: str, settings: str = "", *, units: int = 2) -> OpenStudy:
        """Open a small study of so many units per participant; `settings` is more TOML, before all tables."""
        chats = preset in ("ssa-interactive", "interactive-likert", "persona-chat", "arena")
        reads = preset not in ("ssa-interactive", "interactive-likert", "arena")
        toml = f'preset = "{preset}"\nunits_per_participant = {units}\n' + ('items = "items.jsonl"\n' if reads else "")
        return self.open_toml(toml + settings + (BOTS if chats else ""), items_for(preset) if reads else [])

    def open_toml(self, toml: str, items: Sequence[Json]) -> OpenStudy:
        """Open a study."""
        if self._store is None:
            raise UsageError("The server is not running.")
        return OpenStudy(self.url, self._store, toml, items)


class Participant:
    """Somebody at the page of a study."""

    def __init__(self, context: BrowserContext, study: OpenStudy, worker: str) -> None:
        self.study = study
        self.context = context
        self.console_errors: list[str] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.console_errors.append(str(error)))
        self.page.goto(study.link(worker))
        expect(self.page.locator("h1")).to_be_attached()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self.console_errors.append(message.text)

    def agree(self) -> None:
        self.page.locator("#tick").check()
        self.page.locator("#agree").click()

    def read_tutorial(self) -> None:
        pages = len(self.study.config.tutorial) + 1
        for number in range(1, pages + 1):
            expect(self.page.get_by_text(f"{number} of {pages}")).to_be_visible()
            self.page.locator("#next").click()

    def train(self) -> None:
        """Answer the training questions correctly."""
        for training in self.study.config.training:
            self.choose(training.question, training.answer)
            self.page.locator("#submit").click()
            expect(self.page.locator(".feedback.right")).to_be_visible()
            self.page.locator("#next").click()

    def begin(self) -> None:
        """From the first page to the first task, by the page."""
        self.agree()
        self.read_tutorial()
        self.train()

    def skip_to_work(self) -> None:
        """From the first page to the first task, by requests: for tests of what comes after."""
        language = self.study.config.languages[0]
        self._post("consent", {"version": self.study.config.consent.version, "language": language})
        self._post("tutorial", {})
        for index, training in enumerate(self.study.config.training):
            self._post("training", {"index": index, "value": training.answer})
        self.page.reload()
        expect(self.page.locator("#progress-text")).to_contain_text("1")

    def _post(self, what: str, body: Json) -> None:
        answer = self.page.request.post(f"{self.study.url}api/study/{self.study.id}/{what}", data=body)
        assert answer.ok, answer.text()

    def question(self, name: str) -> Locator:
        return self.page.locator(f'[data-question="{name}"]:visible').last

    def choose(self, name: str, value: Json) -> None:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        self.question(name).locator(f'input[data-value="{text}"]').check()

    def answer_all(self) -> None:
        """Answer everything that is asked, with the first choice, also what the answers lead to."""
        expect(self.page.locator(".question:visible").first).to_be_visible()
        for _ in range(40):
            left = self.page.locator(".question:visible:not(:has(:checked)):has(input)")
            if left.count() == 0:
                break
            left.first.locator("input").first.check()
        expect(self.page.locator("#saved")).to_have_text("Saved")

    def submit(self) -> None:
        self.page.locator("#submit").click()

    def say(self, text: str) -> None:
        """Send a message and wait until all replies are there."""
        before = self.page.locator(".turn.theirs:not(.pending)").count()
        self.page.locator("#text").fill(text)
        self.page.locator("#text").press("Enter")
        expect(self.page.locator(".turn.theirs:not(.pending)")).to_have_count(before + len(self.sides))
        expect(self.page.locator(".pending")).to_have_count(0)

    @property
    def sides(self) -> Sequence[int]:
        return range(self.study.config.sides)

    def expect_code(self, reason: str = "done") -> None:
        code = getattr(self.study.config.completion, reason)
        expect(self.page.locator("#code")).to_have_text(code)


def write_to(speaker: Participant, listener: Participant, text: str) -> None:
    """Type until the partner sees that, then send, and wait until both see the message.

    News of typing that come before the partner's page listens are lost: so whoever types goes on for a while.
    """
    box, presence = speaker.page.locator("#text"), listener.page.locator(".presence")
    for attempt in range(8):
        box.fill("")
        box.press_sequentially(text)
        try:
            expect(presence).to_have_text("Your partner is writing …", timeout=3000)
            break
        except AssertionError:
            if attempt == 7:
                raise
    box.press("Enter")
    expect(listener.page.locator(".turn.theirs .bubble").last).to_have_text(text)
    expect(speaker.page.locator(".turn.mine .bubble").last).to_have_text(text)


Join = Callable[..., Participant]


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StudyServer]:
    yield from StudyServer(tmp_path_factory.mktemp("studies")).run()


@pytest.fixture
def join(chromium: Browser) -> Iterator[Join]:
    """Brings participants, each in a browser of their own; none may have errors in the console at the end."""
    participants: list[Participant] = []

    def come(study: OpenStudy, worker: str = "", **options: object) -> Participant:
        settings = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce", **options}
        context = chromium.new_context(**settings)  # type: ignore[arg-type]
        participant = Participant(context, study, worker or f"worker{len(participants)}")
        participants.append(participant)
        return participant

    yield come
    for participant in participants:
        participant.context.close()
    assert [participant.console_errors for participant in participants] == [[] for _ in participants]


def check(page: Page, step: str) -> None:
    """No violation in either theme, on a desktop and on a phone."""
    desktop = page.viewport_size
    assert desktop is not None
    for size in (desktop, PHONE["viewport"]):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        assert violations(page) == [], f"{step}, {size}"
    assert overflow(page) <= 0, step
    page.set_viewport_size(desktop)


def overflow(page: Page) -> int:
    """How far the page is wider than the window."""
    width: int = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return width


def small_targets(page: Page) -> list[str]:
    """Visible controls that are smaller than 44 pixels in a direction."""
    targets: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("button, a[href]:not(.skip), select, summary, .pill, .tick, textarea")]
        .filter((node) => node.checkVisibility({ visibilityProperty: true }))
        .map((node) => [node.id || node.className || node.tagName, node.getBoundingClientRect()])
        .filter(([, box]) => Math.round(box.width) < 44 || Math.round(box.height) < 44)
        .map(([name, box]) => `${name} ${box.width} x ${box.height}`)"""
    )
    return targets
