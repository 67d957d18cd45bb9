"""The chat page in a real browser: chatting, switching bots, stopping, regenerating, drafts and erasing."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


def say(page: Page, text: str) -> None:
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")


def choose_bot(page: Page, name: str) -> None:
    page.locator("#bot").click()
    page.get_by_role("option", name=name).first.click()


def bubbles(page: Page, speaker: str = "bot") -> Any:
    return page.locator(f".turn.{speaker}:not(.streaming) .bubble")


def button(page: Page, name: str) -> Any:
    return page.get_by_role("button", name=name, exact=True)


def from_menu(page: Page, name: str) -> None:
    page.locator("#more").click()
    page.locator("#menu").get_by_text(name).click()


def stored(page: Page) -> dict[str, Any]:
    """The open conversation as the server has it."""
    id_ = page.url.partition("#c=")[2]
    answer = page.request.get(f"/api/conversations/{id_}", fail_on_status_code=True)
    conversation: dict[str, Any] = answer.json()
    return conversation


def test_a_conversation_survives_a_switch_of_bots_and_a_reload(server: Any, visit: Any) -> None:
    page = visit(server).page
    expect(page.get_by_role("heading", name="Pull up a chair.")).to_be_visible()
    say(page, "Good morning")
    expect(bubbles(page)).to_have_text(["You said: Good morning"])
    choose_bot(page, "generic")
    expect(page.locator(".switch")).to_have_text("now talking to generic")
    say(page, "Do you like tea?")
    for _ in range(2):
        expect(bubbles(page, "user")).to_have_text(["Good morning", "Do you like tea?"])
        expect(bubbles(page)).to_have_text(["You said: Good morning", "I don't know."])
        expect(page.locator(".who")).to_have_text(["Parrot", "generic"])
        expect(page.locator(".log > *").nth(2)).to_have_text("now talking to generic")
        expect(page.locator("#bot")).to_have_attribute("data-bot", "generic")
        expect(page.get_by_role("heading", level=1)).to_have_text("Good morning")
        page.reload()


def test_a_message_right_after_a_switch_goes_to_the_new_bot(server: Any, visit: Any) -> None:
    page = visit(server).page
    say(page, "hello")
    expect(bubbles(page)).to_have_count(1)
    held: list[Any] = []
    page.route("**/api/conversations/*", lambda route: held.append(route))  # the switch is slow on its way
    choose_bot(page, "generic")
    say(page, "Who are you?")
    expect(page.locator(".unsent")).to_be_visible()
    while not held:  # the browser tells us of the request when it gets round to it
        page.wait_for_timeout(10)
    assert len(held) == 1
    held[0].continue_()
    page.unroute("**/api/conversations/*")
    expect(bubbles(page)).to_have_text(["You said: hello", "I don't know."])
    expect(page.locator(".who")).to_have_text(["Parrot", "generic"])


def test_suggestions_start_a_conversation(server: Any, visit: Any) -> None:
    page = visit(server).page
    chips = page.get_by_role("list", name="Suggestions").get_by_role("button")
    expect(chips).to_have_count(3)
    words = chips.first.inner_text()
    chips.first.click()
    expect(bubbles(page)).to_have_text([f"You said: {words}"])
    expect(page.locator("#empty")).to_be_hidden()


def test_visitors_see_only_their_own_conversations(server: Any, visit: Any) -> None:
    first, second = visit(server), visit(server)
    say(first.page, "a secret")
    expect(bubbles(first.page)).to_have_count(1)
    second.page.reload()
    expect(second.page.locator("#list")).to_have_text("Your conversations will be listed here.")
    stranger = second.tab("#c=" + first.page.url.partition("#c=")[2])
    expect(stranger.get_by_role("alert")).to_contain_text("conversation")
    expect(stranger.get_by_text("a secret")).to_have_count(0)
    expect(stranger).not_to_have_url(re.compile("#c="))


def test_html_is_shown_as_text(server: Any, visit: Any) -> None:
    page = visit(server).page
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    text = "<img src=x onerror=alert(1)><b>bold</b> &amp; <script>alert(2)</script>\n\n  **two**\n  lines"
    page.get_by_label("Your message").fill(text)
    button(page, "Send").click()
    expect(bubbles(page)).to_have_count(1)
    page.reload()
    expect(bubbles(page)).to_have_count(1)
    assert bubbles(page, "user").evaluate("node => node.textContent") == text
    shown = bubbles(page).evaluate("node => node.textContent")
    assert shown.startswith("You said: <img src=x onerror=alert(1)><b>bold</b> &amp; <script>alert(2)</script>")
    expect(bubbles(page).locator("strong")).to_have_text("two")
    button(page, "Show replies as plain text").click()
    expect(bubbles(page).locator("strong")).to_have_count(0)
    assert bubbles(page).evaluate("node => node.textContent") == f"You said: {text}"
    assert page.locator("#log :is(img, b, script)").count() == 0
    assert page.locator("#list :is(img, b, script)").count() == 0
    assert bubbles(page, "user").evaluate("node => getComputedStyle(node).whiteSpace") == "pre-wrap"
    assert dialogs == []


def test_emoji_and_right_to_left_text_are_shown(server: Any, visit: Any) -> None:
    page = visit(server).page
    hebrew, family = "שלום, מה שלומך? 👋🏽", "👩‍👩‍👧‍👦 ok"
    say(page, hebrew)
    expect(bubbles(page)).to_have_count(1)
    say(page, family)
    expect(bubbles(page)).to_have_count(2)
    page.reload()
    expect(bubbles(page, "user")).to_have_text([hebrew, family])
    directions = bubbles(page, "user").evaluate_all("nodes => nodes.map(node => getComputedStyle(node).direction)")
    assert directions == ["rtl", "ltr"]
    assert [turn["text"] for turn in stored(page)["turns"] if turn["speaker"] == "user"] == [hebrew, family]


def test_a_reply_streams_and_is_announced_once_in_full(server: Any, visit: Any) -> None:
    page = visit(server).page
    page.evaluate(
        """() => {
        const announced = window.announced = [];
        new MutationObserver((records) => {
            for (const node of records.flatMap((record) => [...record.addedNodes])) {
                const live = (node.nodeType === 1 ? node : node.parentElement)?.closest("[aria-live]");
                if (live?.id === "log") announced.push(node.textContent);
            }
        }).observe(document.querySelector("#log"), { childList: true, subtree: true, characterData: true });
    }"""
    )
    say(page, "hold the line")
    expect(page.locator(".streaming .bubble")).to_have_text("You said:")
    expect(button(page, "Send")).to_be_hidden()
    assert bubbles(page).count() == 0
    server.parrot.go.set()
    expect(bubbles(page)).to_have_text(["You said: hold the line"])
    expect(page.locator(".streaming")).to_have_count(0)
    expect(button(page, "Send")).to_be_visible()
    say(page, "again")
    expect(bubbles(page)).to_have_count(2)
    announced = [re.sub(r"\s+", " ", words) for words in page.evaluate("window.announced")]
    replies = [words for words in announced if words.startswith("Parrot said:")]
    assert len(replies) == 2
    assert "You said: hold the line" in replies[0]
    assert len(announced) == 4, announced  # and the user's own two messages


@pytest.mark.parametrize("way", ["button", "key"])
def test_a_reply_can_be_stopped(server: Any, visit: Any, way: str) -> None:
    page = visit(server).page
    say(page, "hold on")
    expect(page.locator(".streaming .bubble")).to_have_text("You said:")
    if way == "button":
        button(page, "Stop generating").click()
    else:
        page.keyboard.press("Escape")
    expect(bubbles(page)).to_have_text(["You said:"])
    expect(page.locator(".turn.bot .below")).to_contain_text("stopped")
    assert stored(page)["turns"][-1]["status"] == "stopped"
    say(page, "go on")
    expect(bubbles(page)).to_have_text(["You said:", "You said: go on"])


def test_a_reply_can_be_regenerated_and_undone(server: Any, visit: Any) -> None:
    page = visit(server).page
    say(page, "once")
    expect(bubbles(page)).to_have_count(1)
    say(page, "hold twice")
    server.parrot.go.set()
    expect(bubbles(page)).to_have_count(2)
    first = stored(page)["turns"][-1]["id"]
    expect(button(page, "Regenerate the reply")).to_have_count(1)
    button(page, "Regenerate the reply").click()
    expect(page.locator(".turn.bot .below").last).to_contain_text("2/2")
    expect(bubbles(page)).to_have_text(["You said: once", "You said: hold twice"])
    assert stored(page)["turns"][-1]["id"] != first
    button(page, "Undo the last message").click()
    expect(bubbles(page)).to_have_text(["You said: once"])
    expect(page.get_by_label("Your message")).to_have_value("hold twice")
    assert len(stored(page)["turns"]) == 2


def test_a_failed_reply_shows_one_error_and_can_be_tried_again(server: Any, visit: Any) -> None:
    page = visit(server).page
    say(page, "fail please")
    expect(page.locator(".bubble.failed")).to_contain_text("The bot could not answer. Reference: ")
    expect(page.get_by_text("The bot could not answer.")).to_have_count(1)
    expect(page.get_by_role("alert")).to_be_empty()
    choose_bot(page, "generic")
    button(page, "Try again").click()
    expect(bubbles(page)).to_have_text(["ok"])


def test_a_refused_message_returns_to_the_composer(server: Any, visit: Any) -> None:
    page = visit(server).page
    text = "long " * 20_000
    say(page, text)
    expect(page.get_by_role("alert")).to_contain_text("16,000")
    expect(page.get_by_label("Your message")).to_have_value(text.strip())
    expect(page.locator(".turn")).to_have_count(0)
    expect(button(page, "Send")).to_be_enabled()


def test_a_persona_can_be_chosen_or_written(server: Any, visit: Any) -> None:
    page = visit(server).page
    persona = page.locator("#persona")
    persona.click()
    cards = page.locator("#persona-cards .card:visible")
    expect(cards).to_have_count(12)
    page.get_by_label("Search personas").fill("swim sail")
    page.keyboard.press("Enter")
    expect(cards).to_have_count(1)
    page.get_by_role("radio", name="The old sailor").check()
    button(page, "Use The old sailor").click()
    expect(persona).to_contain_text("The old sailor")
    say(page, "ahoy")
    expect(bubbles(page)).to_have_count(1)
    assert stored(page)["persona"] == ["I sailed for thirty years.", "I never learned to swim."]
    persona.click()
    expect(page.get_by_role("radio", name="The old sailor")).to_be_checked()
    page.get_by_label("In my own words").check()
    page.get_by_label("One sentence per line").fill("I am a lighthouse.\n\n I blink. ")
    button(page, "Use my own words").click()
    expect(persona).to_contain_text("I am a lighthouse.")
    page.reload()
    expect(persona).to_contain_text("I am a lighthouse.")
    assert stored(page)["persona"] == ["I am a lighthouse.", "I blink."]
    persona.click()
    page.get_by_label("No persona").check()
    button(page, "Cancel").click()
    expect(persona).to_contain_text("I am a lighthouse.")


def test_drafts_and_the_back_button_work(server: Any, visit: Any) -> None:
    page = visit(server).page
    box = page.get_by_label("Your message")
    say(page, "first")
    expect(bubbles(page)).to_have_count(1)
    box.press_sequentially("half a thou")
    button(page, "New conversation").click()
    expect(page.locator("#empty")).to_be_visible()
    expect(box).to_have_value("")
    say(page, "second")
    expect(bubbles(page)).to_have_text(["You said: second"])  # now the conversation has an address
    page.go_back()
    expect(bubbles(page, "user")).to_have_text(["first"])
    expect(box).to_have_value("half a thou")
    page.reload()
    expect(box).to_have_value("half a thou")
    page.get_by_role("link", name="second").click()
    expect(bubbles(page, "user")).to_have_text(["second"])
    expect(page.get_by_role("link", name="second")).to_have_attribute("aria-current", "page")
    expect(box).to_have_value("")


def test_exports_are_downloads(server: Any, visit: Any) -> None:
    page = visit(server).page
    say(page, "keep this")
    expect(bubbles(page)).to_have_count(1)
    for name, end in (("Export as JSON", "json"), ("Export as plain text", "txt"), ("Export as Markdown", "md")):
        with page.expect_download() as download:
            from_menu(page, name)
        assert download.value.suggested_filename.endswith(f".{end}")
        assert "You said: keep this" in Path(download.value.path()).read_text(encoding="utf-8")
        expect(page.locator("#menu")).to_be_hidden()


def test_conversations_can_be_renamed_deleted_and_erased(server: Any, visit: Any) -> None:
    visitor = visit(server)
    page = visitor.page
    say(page, "one")
    expect(bubbles(page)).to_have_count(1)
    from_menu(page, "Rename")
    page.get_by_label("Title").fill("Our <first> talk")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Our <first> talk")
    expect(page.get_by_role("link", name="Our <first> talk")).to_be_visible()
    from_menu(page, "Delete")
    button(page, "Cancel").click()
    expect(bubbles(page)).to_have_count(1)
    from_menu(page, "Delete")
    page.locator("#confirm-ok").click()
    expect(page.locator("#empty")).to_be_visible()
    expect(page.locator("#list a")).to_have_count(0)
    expect(page).not_to_have_url(re.compile("#c="))
    say(page, "two")
    expect(page.locator("#list a")).to_have_count(1)
    expect(bubbles(page)).to_have_count(1)
    before = visitor.context.cookies()[0]["value"]
    button(page, "Erase all my data").click()
    button(page, "Erase everything").click()
    expect(page.locator("#list a")).to_have_count(0)
    expect(page.locator("#empty")).to_be_visible()
    assert visitor.context.cookies()[0]["value"] != before
    assert page.evaluate("Object.keys(localStorage)") == []


def test_a_turn_can_be_copied(server: Any, visit: Any) -> None:
    visitor = visit(server, permissions=["clipboard-read", "clipboard-write"])
    page = visitor.page
    say(page, "copy\nme")
    expect(bubbles(page)).to_have_count(1)
    page.locator(".turn.bot").get_by_role("button", name="Copy").click()
    expect(page.get_by_text("Copied")).to_be_attached()
    assert page.evaluate("navigator.clipboard.readText()") == "You said: copy\nme"
