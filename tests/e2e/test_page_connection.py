"""The chat page's connection to the server: nothing is lost and nothing is sent twice, whatever breaks."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

LOST = "Connection lost, retrying…"


def say(page: Page, text: str) -> None:
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")


def bubbles(page: Page, speaker: str = "bot") -> Any:
    return page.locator(f".turn.{speaker}:not(.streaming) .bubble")


def texts(page: Page) -> list[str]:
    """The texts that the server has."""
    id_ = page.url.partition("#c=")[2]
    answer = page.request.get(f"/api/conversations/{id_}", fail_on_status_code=True)
    return [turn["text"] for turn in answer.json()["turns"]]


def test_a_reload_during_a_reply_reattaches(server: Any, visit: Any) -> None:
    page = visit(server).page
    say(page, "hold this thought")
    expect(page.locator(".streaming .bubble")).to_have_text("You said:")
    page.reload()
    expect(bubbles(page, "user")).to_have_text(["hold this thought"])
    expect(page.locator(".streaming .bubble")).to_have_text("You said:")
    expect(page.get_by_role("button", name="Stop generating")).to_be_visible()
    server.parrot.go.set()
    expect(bubbles(page)).to_have_text(["You said: hold this thought"])
    assert texts(page) == ["hold this thought", "You said: hold this thought"]


def test_leaving_a_conversation_during_a_reply_and_returning(server: Any, visit: Any) -> None:
    page = visit(server).page
    say(page, "hold the door")
    expect(page.locator(".streaming .bubble")).to_have_text("You said:")
    page.get_by_role("button", name="New conversation").click()
    expect(page.locator("#empty")).to_be_visible()
    page.go_back()
    expect(page.locator(".streaming .bubble")).to_have_text("You said:")
    server.parrot.go.set()
    expect(bubbles(page)).to_have_text(["You said: hold the door"])


def test_offline_a_message_waits_and_is_sent_once(server: Any, visit: Any) -> None:
    visitor = visit(server)
    page = visitor.page
    say(page, "before")
    expect(bubbles(page)).to_have_count(1)
    visitor.context.set_offline(True)
    say(page, "during")
    expect(page.locator("#lost")).to_have_text(LOST)
    expect(page.locator(".unsent")).to_contain_text("not sent yet")
    visitor.context.set_offline(False)
    expect(bubbles(page)).to_have_text(["You said: before", "You said: during"])
    expect(page.locator("#lost")).to_be_empty()
    expect(page.locator(".unsent")).to_have_count(0)
    assert texts(page) == ["before", "You said: before", "during", "You said: during"]


def test_offline_the_very_first_message_waits_too(server: Any, visit: Any) -> None:
    visitor = visit(server)
    page = visitor.page
    visitor.context.set_offline(True)
    say(page, "hello?")
    expect(page.locator("#lost")).to_have_text(LOST)
    visitor.context.set_offline(False)
    expect(bubbles(page)).to_have_text(["You said: hello?"])
    assert texts(page) == ["hello?", "You said: hello?"]


def test_offline_sending_can_be_cancelled(server: Any, visit: Any) -> None:
    visitor = visit(server)
    page = visitor.page
    visitor.context.set_offline(True)
    say(page, "never mind")
    expect(page.locator(".unsent")).to_contain_text("not sent yet")
    page.keyboard.press("Escape")
    expect(page.locator(".unsent")).to_have_count(0)
    expect(page.get_by_label("Your message")).to_have_value("never mind")
    visitor.context.set_offline(False)
    expect(page.locator("#lost")).to_be_empty()
    expect(page.locator(".turn")).to_have_count(0)


def test_a_connection_lost_during_a_reply_is_resumed(server: Any, visit: Any) -> None:
    visitor = visit(server)
    page = visitor.page
    say(page, "hold fast")
    expect(page.locator(".streaming .bubble")).to_have_text("You said:")
    visitor.context.set_offline(True)
    server.parrot.go.set()
    visitor.context.set_offline(False)
    expect(bubbles(page)).to_have_text(["You said: hold fast"])
    expect(page.locator("#lost")).to_be_empty()
    assert texts(page) == ["hold fast", "You said: hold fast"]


def test_a_lost_response_does_not_duplicate_the_message(server: Any, visit: Any) -> None:
    """The server got the message but its response was lost: sent again with the same key, it counts once."""
    page = visit(server).page
    say(page, "one")
    expect(bubbles(page)).to_have_count(1)
    seen: list[str] = []

    def swallow(route: Any) -> None:
        seen.append(route.request.post_data_json["key"])
        if len(seen) == 1:
            route.fetch()
            route.abort("connectionreset")
        else:
            route.continue_()

    page.route("**/messages", swallow)
    say(page, "two")
    expect(bubbles(page)).to_have_text(["You said: one", "You said: two"])
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert texts(page) == ["one", "You said: one", "two", "You said: two"]


def test_an_unsent_message_survives_a_reload(server: Any, visit: Any) -> None:
    page = visit(server).page
    say(page, "one")
    expect(bubbles(page)).to_have_count(1)
    page.route("**/messages", lambda route: route.abort("connectionrefused"))
    say(page, "two")
    expect(page.locator(".unsent")).to_contain_text("not sent yet")
    page.unroute("**/messages")
    page.reload()
    expect(bubbles(page)).to_have_text(["You said: one", "You said: two"])
    assert texts(page) == ["one", "You said: one", "two", "You said: two"]


def test_an_unsent_message_is_sent_from_another_conversation(server: Any, visit: Any) -> None:
    page = visit(server).page
    say(page, "one")
    expect(bubbles(page)).to_have_count(1)
    page.route("**/messages", lambda route: route.abort("connectionrefused"))
    say(page, "two")
    expect(page.locator(".unsent")).to_contain_text("not sent yet")
    page.get_by_role("button", name="New conversation").click()
    with page.expect_response("**/messages"):  # before the reload or after it
        page.unroute("**/messages")
        page.reload()
    page.get_by_role("link", name="one").click()
    expect(bubbles(page)).to_have_text(["You said: one", "You said: two"])


def test_the_server_restarts_during_a_reply(own_server: Any, visit: Any) -> None:
    page = visit(own_server).page
    say(page, "hold out")
    expect(page.locator(".streaming .bubble")).to_have_text("You said:")
    own_server.stop()
    expect(bubbles(page)).to_have_text(["You said:"])
    expect(page.locator(".turn.bot .below")).to_contain_text("stopped")
    own_server.start()
    say(page, "still here?")
    expect(bubbles(page)).to_have_text(["You said:", "You said: still here?"])
    page.reload()
    expect(bubbles(page)).to_have_text(["You said:", "You said: still here?"])


CRASHING = """
import sys, time
from tertulia.core.reply import Piece
from tertulia.store import Database
from tertulia.web.app import create_app
from tertulia.web.server import serve

class Endless:
    spec = name = summary = "endless"
    def reply(self, asks, /): raise NotImplementedError
    def stream(self, asks, /, *, alive):
        yield Piece(0, "Well,")
        while True: time.sleep(60)

app = create_app({"endless": Endless()}, Database.open(sys.argv[1]))
serve(app, port=int(sys.argv[2]), ready=lambda address: print(address, flush=True))
"""


@contextmanager
def process(file: Path, port: int) -> Iterator[str]:
    """A server in another process, which is killed when the block ends; yields its address."""
    command = [sys.executable, "-c", CRASHING, f"sqlite:///{file}", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip() + "/"
        finally:
            server.kill()


def test_the_server_is_killed_during_a_reply(tmp_path: Path, visit: Any) -> None:
    file = tmp_path / "tertulia.db"
    with process(file, 0) as address:
        page = visit(SimpleNamespace(url=address)).page
        say(page, "go on")
        expect(page.locator(".streaming .bubble")).to_have_text("Well,")
    expect(page.locator("#lost")).to_have_text(LOST)
    with process(file, int(address.rstrip("/").rpartition(":")[2])):
        expect(page.locator("#lost")).to_be_empty()
        expect(page.locator(".turn.bot .below")).to_contain_text("stopped")
        expect(bubbles(page, "user")).to_have_text(["go on"])
        say(page, "and now?")
        expect(page.locator(".streaming .bubble")).to_have_text("Well,")


def test_a_message_to_a_stopped_server_arrives_after_its_restart(own_server: Any, visit: Any) -> None:
    page = visit(own_server).page
    say(page, "one")
    expect(bubbles(page)).to_have_count(1)
    own_server.stop()
    say(page, "two")
    expect(page.locator("#lost")).to_have_text(LOST)
    own_server.start()
    expect(bubbles(page)).to_have_text(["You said: one", "You said: two"])
    assert texts(page) == ["one", "You said: one", "two", "You said: two"]


def test_two_tabs_of_one_visitor_show_the_same_reply(server: Any, visit: Any) -> None:
    visitor = visit(server)
    first = visitor.page
    say(first, "hold both")
    expect(first.locator(".streaming .bubble")).to_have_text("You said:")
    second = visitor.tab("#c=" + first.url.partition("#c=")[2])
    expect(second.locator(".streaming .bubble")).to_have_text("You said:")
    server.parrot.go.set()
    for page in (first, second):
        expect(bubbles(page)).to_have_text(["You said: hold both"])


def test_another_tab_follows_along(server: Any, visit: Any) -> None:
    visitor = visit(server)
    first = visitor.page
    say(first, "one")
    expect(bubbles(first)).to_have_count(1)
    second = visitor.tab("#c=" + first.url.partition("#c=")[2])
    other = visitor.tab()
    expect(bubbles(second)).to_have_count(1)
    second.get_by_label("Your message").fill("a draft")
    say(first, "hold two")
    expect(second.locator(".streaming .bubble")).to_have_text("You said:")
    server.parrot.go.set()
    expect(bubbles(second)).to_have_text(["You said: one", "You said: hold two"])
    first.get_by_role("button", name="Undo the last message").click()
    expect(bubbles(second)).to_have_text(["You said: one"])
    expect(second.get_by_label("Your message")).to_have_value("a draft")
    expect(other.locator("#list a")).to_have_count(1)
    first.locator("#more").click()
    first.locator("#delete").click()
    first.locator("#confirm-ok").click()
    expect(second.locator("#empty")).to_be_visible()
    expect(other.locator("#list a")).to_have_count(0)
