"""The researchers' pages in a real browser: a live dashboard, both themes, a phone, axe-core on every page."""

import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect
from tests.e2e.axe import violations

from tertulia.store import AccountStore, ConversationStore, Database, StudyStore
from tertulia.store.study_base import study_owner
from tertulia.study.presets import study_from_toml
from tertulia.talk.bots.generic import GenericBot
from tertulia.web.admin.access import new_setup_token
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import running

pytestmark = pytest.mark.browser

PASSWORD = "correct horse battery"
PHONE = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}
STATIC = """
preset = "ssa-static"
items = "items.jsonl"
ratings_per_unit = 3
[[bots]]
name = "hred"
[[bots]]
name = "retrieval"
[stopping]
question = "sensible"
half_width = 0.2
"""
CHAT = 'preset = "ssa-interactive"\n[[bots]]\nname = "generic"\nspec = "generic"\n'
CONTEXTS = (
    ("I finally planted the tomatoes.", "On the balcony?"),
    ("My train is two hours late again.", "Where are you stuck?"),
    ("Do you like old films?",),
    ("The bakery on the corner closed.", "Oh no, the one with the rye bread?"),
)
RESPONSES = {"hred": "I don't know what you mean.", "retrieval": "Yes, and I go there every Sunday with my sister."}
SENSIBLE = {"hred": 0.45, "retrieval": 0.8}


class Filled(NamedTuple):
    url: str
    studies: StudyStore
    study: str
    chat: str
    assignments: dict[str, str]


class Clock:
    """Runs from three hours ago, as fast as the test wants."""

    def __init__(self) -> None:
        self.time = datetime.now(UTC) - timedelta(hours=3)

    def __call__(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def fill_static(database: Database, raters: int = 8) -> tuple[str, str]:
    clock = Clock()
    studies = StudyStore(database, now=clock)
    config = study_from_toml(STATIC, "study.toml")
    study = studies.create("replies-2026", config.model_dump(mode="json"), "digest").id
    units: list[tuple[str, list[str], dict[str, Any], int]] = []
    for n in range(12):
        turns = [{"speaker": "ab"[i % 2], "text": text} for i, text in enumerate(CONTEXTS[n % len(CONTEXTS)])]
        for bot, text in RESPONSES.items():
            payload = {"context": turns, "responses": [text], "source": f"item-{n}"}
            units.append((f"{bot[0]}{n:02}c4f09e", [bot], payload, 3))
    studies.add_units(study, units)
    studies.set_state(study, "open", "operator")
    rng, last = random.Random(4), ""
    for number in range(raters):
        participant, _ = studies.enroll(study, "prolific", f"person-{number}")
        studies.consent(participant.id, "1", "en")
        studies.set_step(participant.id, "work")
        for _ in range(9):
            leased = studies.lease_unit(
                study, participant.id, lambda units: rng.choice(units).id if units else None, 900
            )
            if leased is None:
                break
            bot = studies.unit(study, leased.unit).bots[0]
            sensible = True if number == 7 else rng.random() < SENSIBLE[bot]
            labels = [("unit", "sensible", sensible), ("unit", "specific", sensible and rng.random() < 0.5)]
            studies.add_labels(leased.id, participant.id, labels, "1", rng.uniform(2, 9))
            clock.advance(rng.uniform(15, 60) if number != 5 else 3)
            studies.submit(leased.id, participant.id)
            last = leased.id
        if number < 6:
            studies.complete(participant.id, "DONE")
    for step in ("consent", "tutorial", "training"):
        participant, _ = studies.enroll(study, "prolific", step)
        studies.set_step(participant.id, step)
    return study, last


def fill_chat(database: Database, studies: StudyStore) -> tuple[str, str]:
    config = study_from_toml(CHAT, "study.toml")
    study = studies.create("chat-2026", config.model_dump(mode="json"), "digest").id
    studies.add_units(study, [("c0ffee42", ["generic"], {}, 1)])
    studies.set_state(study, "open", "operator")
    participant, _ = studies.enroll(study, "link", "somebody")
    leased = studies.lease_unit(study, participant.id, lambda units: units[0].id, 600)
    assert leased is not None
    conversations = ConversationStore(database)
    conversation = conversations.create(study_owner(study), "generic").id
    studies.attach_conversation(leased.id, conversation)
    opener = conversations.add_turn(conversation, "bot", "Hi!", key="0")
    exchange = conversations.say(conversation, study_owner(study), "What do you make of " + "w" * 120, key="1")
    source = {"bot": "generic", "checkpoint": None, "settings": {"temperature": 0.88}, "seed": 7, "version": "0"}
    reply = {"provenance": source, "seconds": 0.125, "finish": "stop"}
    conversations.finish(exchange.bot.id, text="I don't know.", status="done", reply=reply)
    for key, turn, value in (("a", opener, True), ("b", exchange.bot, False), ("c", exchange.bot, True)):
        studies.add_labels(leased.id, participant.id, [(f"turn:{turn.id}", "sensible", value)], key, 4.0)
    studies.submit(leased.id, participant.id)
    return study, leased.id


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with Database.open(f"sqlite:///{tmp_path_factory.mktemp('admin') / 'chat.db'}") as database:
        accounts, studies = AccountStore(database), StudyStore(database)
        accounts.create("ada", PASSWORD, "owner")
        accounts.create("Grace", PASSWORD, "viewer")
        study, assignment = fill_static(database)
        chat, talk = fill_chat(database, studies)
        with running(create_app({"generic": GenericBot()}, database)) as url:
            yield Filled(url, studies, study, chat, {study: assignment, chat: talk})


def watch(page: Page) -> list[str]:
    errors: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            errors.append(message.text)

    page.on("console", on_console)
    page.on("pageerror", lambda error: errors.append(str(error)))
    return errors


def sign_in(page: Page) -> None:
    page.goto("/admin/")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("ada")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Studies", level=1)).to_be_visible()


def small_targets(page: Page) -> list[str]:
    """Controls that a finger would miss; links within text may be smaller."""
    targets: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("button, a.button, .tabs a, .top nav a, select, summary, input")]
        .filter((node) => node.type !== "hidden" && node.checkVisibility({ visibilityProperty: true }))
        .map((node) => [node.textContent.trim() || node.name, node.getBoundingClientRect()])
        .filter(([, box]) => Math.round(box.height) < 44)
        .map(([name, box]) => `${name} ${box.width} x ${box.height}`)"""
    )
    return targets


def pages_of(filled: Filled) -> dict[str, str]:
    pages = {"studies": "/admin/", "audit": "/admin/audit", "accounts": "/admin/accounts", "error": "/admin/study/none"}
    for name, study in (("static", filled.study), ("chat", filled.chat)):
        here = f"/admin/study/{study}"
        pages |= {f"{name}-dashboard": here, f"{name}-assignments": f"{here}/assignments"}
        pages |= {f"{name}-transcript": f"{here}/assignments/{filled.assignments[study]}"}
        pages |= {f"{name}-adjudication": f"{here}/adjudicate"}
    return pages


@pytest.mark.slow
@pytest.mark.parametrize("device", [{}, PHONE], ids=["desktop", "phone"])
def test_axe_finds_no_violation_on_any_page(chromium: Browser, filled: Filled, device: dict[str, Any]) -> None:
    """With TERTULIA_SCREENSHOTS=FOLDER, pictures of all pages are saved there."""
    folder = os.environ.get("TERTULIA_SCREENSHOTS")
    options: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}} | device
    with chromium.new_context(base_url=filled.url, reduced_motion="reduce", **options) as context:
        page = context.new_page()
        errors = watch(page)
        page.goto("/admin/signin")
        assert violations(page) == [], "sign-in"
        sign_in(page)
        for name, address in pages_of(filled).items():
            page.goto(address)
            page.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
            assert violations(page) == [], name
            assert page.evaluate("document.documentElement.scrollWidth") <= options["viewport"]["width"], name
            if device:
                assert small_targets(page) == [], name
            for scheme in ("dark", "light") if folder else ():
                page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                kind = "phone" if device else "desktop"
                page.screenshot(path=Path(folder or "") / f"{name}-{kind}-{scheme}.png", full_page=True)
        assert errors == []


def test_the_dashboard_refreshes_itself_and_says_so_once(chromium: Browser, filled: Filled) -> None:
    with chromium.new_context(base_url=filled.url) as context:
        page = context.new_page()
        errors = watch(page)
        sign_in(page)
        page.get_by_role("link", name="chat-2026").click()
        status = page.get_by_role("status")
        expect(status).to_have_text("Updates every 5 seconds.")
        page.get_by_text("Units with the fewest ratings").click()
        page.get_by_role("heading", level=1).click()
        filled.studies.enroll(filled.chat, "link", "late")
        expect(status).to_contain_text("2 participants")
        expect(page.get_by_role("group", name="Units with the fewest ratings")).to_be_visible()  # it stays open
        page.get_by_role("button", name="Pause updates").click()
        expect(status).to_have_text("Updates are paused.")
        page.get_by_role("button", name="Stop the study").click()
        expect(page.get_by_role("button", name="Go on")).to_be_visible()
        assert filled.studies.get(filled.chat).state == "closed"
        page.get_by_role("button", name="Go on").press("Enter")
        expect(page.get_by_role("button", name="Stop the study")).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("link", name="Parquet").click()
        assert download.value.suggested_filename == "chat-2026.parquet"
        page.get_by_role("button", name="Sign out").click()
        expect(page).to_have_url("/admin/signin")
        page.goto(f"/admin/study/{filled.chat}")
        expect(page).to_have_url("/admin/signin")
        assert errors == []


def test_a_researcher_decides_and_the_theme_is_kept(chromium: Browser, filled: Filled) -> None:
    with chromium.new_context(base_url=filled.url, color_scheme="light") as context:
        page = context.new_page()
        sign_in(page)
        page.get_by_role("button", name="Switch to the dark theme").click()
        page.goto(f"/admin/study/{filled.study}/adjudicate")
        expect(page.get_by_role("button", name="Switch to the light theme")).to_be_visible()
        first = page.get_by_role("article").first
        question = first.get_by_role("heading", level=2).inner_text()
        first.get_by_label("Decision").select_option("true")
        first.get_by_label("Note").fill("It answers the question.")
        first.get_by_role("button", name="Record").click()
        decided = page.get_by_role("article").filter(has_text="ada decided true")
        expect(decided).to_have_count(1)
        expect(decided).to_contain_text("It answers the question.")
        expect(decided.get_by_role("heading", level=2)).to_have_text(question)


def test_the_first_account_is_created_with_the_link(chromium: Browser, tmp_path: Path) -> None:
    token, digest = new_setup_token()
    with Database.open(f"sqlite:///{tmp_path / 'chat.db'}") as database:
        app = create_app({"generic": GenericBot()}, database, config=ServeConfig(setup_sha256=digest))
        with running(app) as url, chromium.new_context(base_url=url) as context:
            page = context.new_page()
            page.goto(f"/admin/setup?token={token}")
            assert violations(page) == []
            page.get_by_label("Name").fill("ada")
            page.get_by_label("Password, at least 10 characters").fill(PASSWORD)
            page.get_by_label("The same password again").fill("something else")
            page.get_by_role("button", name="Create the account").click()
            expect(page.get_by_role("alert")).to_contain_text("The passwords differ.")
            page.get_by_label("Password, at least 10 characters").fill(PASSWORD)
            page.get_by_label("The same password again").fill(PASSWORD)
            page.keyboard.press("Enter")
            expect(page.get_by_role("heading", name="Studies", level=1)).to_be_visible()
            assert violations(page) == []  # a list without studies
            page.goto(f"/admin/setup?token={token}")
            expect(page.get_by_role("heading", level=1)).to_have_text("This link is not valid.")
