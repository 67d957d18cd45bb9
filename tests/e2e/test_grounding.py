"""Evidence in a real browser: a passage is given, a reply is checked against it; a folder is looked things up in."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.e2e.axe import violations

from tertulia.core.reply import Ask, Provenance, Reply
from tertulia.store import Database
from tertulia.talk.bot import Bot, BotTraits
from tertulia.talk.bots.generic import GenericBot
from tertulia.talk.evidence import DocumentsConfig, with_documents
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import running

pytestmark = pytest.mark.browser

EVIDENCE = "The Corvo lighthouse was built by Ada Marsh in 1887. It has three lamps."
REPLY = "Ada Marsh built the Corvo lighthouse. In 1985!"
PHONE = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}
DESKTOP = {"viewport": {"width": 1280, "height": 800}}


class Guide:
    """Says the same sentences whatever one asks, one number of them is wrong; to "quote", the first passage it has."""

    spec = "guide"
    traits = BotTraits(display_name="Guide", reads_evidence=True)
    summary = "Knows one lighthouse."

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [Reply(self._text(ask), Provenance(self.spec, seed=ask.seed)) for ask in asks]

    def _text(self, ask: Ask) -> str:
        if ask.last.startswith("quote") and ask.dialogue.evidence:
            return ask.dialogue.evidence[0].text
        return f"**Well:** {REPLY} <img src=x>" if ask.last.startswith("bold") else REPLY


class GroundedServer:
    """A server that checks replies; it can be stopped and started again with the same file."""

    def __init__(self, folder: Path, texts: int) -> None:
        self.file, self.documents = folder / "tertulia.db", folder / "documents"
        self.documents.mkdir()
        for number in range(texts):
            text = f"Village number {number} has {number + 7} inhabitants. Its mayor is called Mayor{number}."
            (self.documents / f"{number:03}.txt").write_text(text)
        self._open = ExitStack()

    def start(self) -> None:
        database = self._open.enter_context(Database.open(f"sqlite:///{self.file}"))
        config = DocumentsConfig(documents=self.documents, search="words", passages=1)
        bots: dict[str, Bot] = {
            "guide": Guide(),
            "generic": GenericBot(),
            "library": with_documents(Guide(), config),
        }
        app = create_app(bots, database, config=ServeConfig(grace_seconds=0, grounding="overlap"))
        self.url = self._open.enter_context(running(app, port=0)) + "/"

    def stop(self) -> None:
        self._open.close()


@pytest.fixture(scope="module")
def grounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroundedServer]:
    server = GroundedServer(tmp_path_factory.mktemp("grounded"), texts=1000)
    server.start()
    yield server
    server.stop()


def say(page: Page, text: str) -> None:
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")


def give_evidence(page: Page, text: str = EVIDENCE) -> None:
    page.get_by_role("button", name="Evidence: none").click()
    dialog = page.get_by_role("dialog", name="What should the replies rest on?")
    expect(dialog).to_contain_text("Guide reads the evidence")
    dialog.get_by_label("Evidence, with a blank line between passages").fill(text)
    dialog.get_by_role("button", name="Use 1 passage").click()
    expect(page.get_by_role("button", name="Evidence: 1 passage")).to_be_visible()


def test_a_false_number_is_marked_and_still_is_after_a_reload(grounded: GroundedServer, visit: Any) -> None:
    page = visit(grounded, **DESKTOP).page
    give_evidence(page)
    say(page, "Who built it?")
    summary = page.locator(".grounding summary")
    expect(summary).to_contain_text("1 sentence not supported: 1985")
    assert page.locator(".bubble .unsupported").all_inner_texts() == ["1985"]
    assert page.locator(".bubble .mark .sr").all_text_contents() == [" (supported)", " (not supported)"]
    expect(page.locator("#status")).to_have_text("1 sentence not supported: 1985")
    page.reload()
    expect(summary).to_contain_text("1 sentence not supported: 1985")
    summary.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("list", name="Sentences").get_by_role("listitem")).to_have_count(2)
    expect(page.get_by_role("list", name="Evidence")).to_contain_text(EVIDENCE)
    expect(page.get_by_role("list", name="Sentences")).to_contain_text("on topic, but the evidence does not support it")
    line = "getComputedStyle(document.querySelector('.bubble .unsupported')).textDecorationLine"
    assert page.evaluate(line) == "underline"


def test_formatted_replies_are_marked_and_nothing_in_them_becomes_markup(grounded: GroundedServer, visit: Any) -> None:
    page = visit(grounded).page
    give_evidence(page, "<b>Ada</b> Marsh built the Corvo lighthouse.")
    say(page, "bold, please")
    expect(page.locator(".bubble.rich strong")).to_have_text("Well:")
    expect(page.locator(".grounding summary")).to_contain_text("not supported")
    assert page.locator(".bubble .unsupported").all_inner_texts()[0] == "1985"
    page.locator(".grounding summary").click()
    expect(page.get_by_role("list", name="Evidence")).to_contain_text("<b>Ada</b> Marsh")
    assert page.locator(".turn img, .turn b").count() == 0


def test_evidence_survives_a_restart_and_is_exported(tmp_path: Path, visit: Any) -> None:
    server = GroundedServer(tmp_path, texts=1)
    server.start()
    try:
        visitor = visit(server)
        give_evidence(visitor.page)
        say(visitor.page, "Who built it?")
        expect(visitor.page.locator(".grounding summary")).to_contain_text("1985")
        cookies, fragment = visitor.context.cookies(), visitor.page.url.partition("#")[2]
        server.stop()
        server.start()
        again = visit(server)
        again.context.add_cookies([cookie | {"url": server.url, "path": None, "domain": None} for cookie in cookies])
        page = again.tab(f"#{fragment}")
        expect(page.get_by_role("button", name="Evidence: 1 passage")).to_be_visible()
        expect(page.locator(".grounding summary")).to_contain_text("1 sentence not supported: 1985")
        identity = fragment.removeprefix("c=")
        exported = json.loads(again.context.request.get(f"{server.url}api/conversations/{identity}/export").text())
        assert [passage["text"] for passage in exported["evidence"]] == [EVIDENCE]
        assert exported["turns"][1]["meta"]["evidence"] == [{"text": EVIDENCE, "source": "", "score": None}]
    finally:
        server.stop()


def test_a_bot_looks_things_up_in_a_thousand_texts(grounded: GroundedServer, visit: Any) -> None:
    page = visit(grounded).page
    page.locator("#bot").click()
    page.get_by_role("option", name="library").click()
    say(page, "quote what you know about Mayor531")
    expect(page.locator(".turn.bot .bubble")).to_contain_text("Village number 531 has 538 inhabitants.")
    expect(page.locator(".grounding summary")).to_contain_text("2 sentences supported by the evidence")
    page.locator(".grounding summary").click()
    expect(page.get_by_role("list", name="Evidence")).to_contain_text("531.txt#1, score 1.00")


def test_a_bot_that_ignores_evidence_says_so(grounded: GroundedServer, visit: Any) -> None:
    page = visit(grounded).page
    page.locator("#bot").click()
    page.get_by_role("option", name="generic").click()
    page.get_by_role("button", name="Evidence: none").click()
    expect(page.locator("#evidence-note")).to_contain_text("generic ignores evidence")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Evidence: none")).to_be_focused()


@pytest.mark.parametrize("device", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_dialog_and_verdicts_are_accessible(grounded: GroundedServer, visit: Any, device: dict[str, Any]) -> None:
    page = visit(grounded, reduced_motion="reduce", **device).page
    page.get_by_role("button", name="Evidence: none").click()
    expect(page.locator("#evidence-dialog")).to_be_visible()
    assert violations(page) == []
    page.keyboard.press("Escape")
    give_evidence(page)
    say(page, "Who built it?")
    expect(page.locator(".grounding summary")).to_contain_text("1985")
    page.locator(".grounding summary").click()
    expect(page.get_by_role("list", name="Sentences")).to_be_visible()
    assert violations(page) == []
    width = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert width[0] <= width[1]
    assert page.evaluate("document.querySelector('#log').scrollWidth <= document.querySelector('#log').clientWidth")
    assert page.locator(".grounding summary").bounding_box()["height"] >= (44 if device is PHONE else 30)  # type: ignore[index]
