"""Take the pictures of pages in the README: the chat page (images/chat.png) and a report (images/report.png).

    tertulia demo --no-serve --out demo
    python docs/page_pictures.py demo/ranking/report.html

The chat is a real one with the bundled bots, whatever they say. Chromium is the one that the tests use.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tertulia import sample
from tertulia.store import Database
from tertulia.talk.spec import make_bot
from tertulia.web.app import create_app
from tertulia.web.server import running

IMAGES = Path(__file__).parent / "images"
CHROMIUM = ("chromium", "chromium-headless-shell")
BOTS = ("companion", "smollm2", "tfidf", "generic")
EARLIER = ("What are you reading at the moment?", "I cannot sleep when it is windy.")
SAID = ("Hi! How was your weekend?", "What do you do for a living?")
CHAT_SIZE, REPORT_SIZE = (1280, 760), (1280, 1130)
MILLISECONDS = 120_000
"""Time for a reply: a language model is loaded first."""


def main(report: Path) -> None:
    """Take both pictures."""
    with sync_playwright() as playwright:
        path = next(found for name in CHROMIUM if (found := shutil.which(name)))
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        take_report(browser, report)
        take_chat(browser)
        browser.close()


def opened(browser: Browser, size: tuple[int, int], url: str) -> Page:
    """A page of that size, in light colours."""
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme="light")
    page.goto(url)
    return page


def take_report(browser: Browser, report: Path) -> None:
    """The upper part of a report."""
    page = opened(browser, REPORT_SIZE, report.resolve().as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    page.screenshot(path=IMAGES / "report.png")


def take_chat(browser: Browser) -> None:
    """Three conversations, of which the last goes from one bot to another."""
    with tempfile.TemporaryDirectory() as folder:
        bots = {name: make_bot(name) for name in BOTS}
        with (
            Database.open(f"sqlite:///{folder}/chat.db") as database,
            running(create_app(bots, database, personas=sample.personas())) as url,
        ):
            page = opened(browser, CHAT_SIZE, url)
            for text in EARLIER:
                page.get_by_role("button", name="New conversation").click()
                say(page, text, 1)
            page.get_by_role("button", name="New conversation").click()
            for count, text in enumerate(SAID, 1):
                say(page, text, count)
            page.locator("#bot").click()
            page.get_by_role("option", name="tfidf").first.click()
            say(page, "And you? Do you like to cook?", len(SAID) + 1)
            page.mouse.move(0, 0)
            page.screenshot(path=IMAGES / "chat.png")


def say(page: Page, text: str, count: int) -> None:
    """Send a message and wait until the conversation has so many finished replies."""
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")
    replies = page.locator(".turn.bot:not(.streaming) .bubble")
    expect(replies).to_have_count(count, timeout=MILLISECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
