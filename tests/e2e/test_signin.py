"""Signing in and out in a real browser, by keyboard, with what a screen reader is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tertulia.store import Database
from tertulia.talk.bots.generic import GenericBot
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import running

pytestmark = pytest.mark.browser


@pytest.fixture
def page(chromium: Browser, tmp_path: Path) -> Iterator[Page]:
    """A tab on a server with a password."""
    with Database.open(f"sqlite:///{tmp_path / 'chat.db'}") as database:
        app = create_app({"generic": GenericBot()}, database, config=ServeConfig(password="open sesame"))
        with running(app) as url, chromium.new_context(base_url=url) as context:
            tab = context.new_page()
            tab.goto("/")
            yield tab


def test_a_visitor_signs_in_and_out_by_keyboard(page: Page) -> None:
    expect(page).to_have_url("/signin")
    field = page.get_by_label("Password or access key")
    expect(field).to_be_focused()
    page.keyboard.type("guess")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("That is not the password.")
    expect(field).to_be_focused()
    expect(field).to_have_accessible_description("That is not the password. Check it and try again.")
    expect(page).to_have_title("Error: Sign in · Tertulia")

    page.keyboard.type("open sesame")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Sign in")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url("/")
    expect(page.locator("#bot-value")).not_to_be_empty()  # the page's scripts are ready
    page.get_by_role("textbox", name="Message").fill("Is it raining?")
    page.keyboard.press("Enter")
    expect(page.locator(".turn.bot .bubble")).to_have_text("I don't know.")

    page.get_by_role("button", name="Sign out").press("Enter")
    expect(page).to_have_url("/signin")
    page.goto("/")
    expect(page).to_have_url("/signin")


def test_a_tab_whose_session_has_ended_asks_to_sign_in_again(page: Page) -> None:
    page.get_by_label("Password or access key").fill("open sesame")
    page.keyboard.press("Enter")
    expect(page).to_have_url("/")
    expect(page.locator("#bot-value")).not_to_be_empty()
    page.context.clear_cookies(name="tertulia_session")
    page.locator("#text").fill("Are you there?")
    page.keyboard.press("Enter")
    expect(page).to_have_url("/signin")
