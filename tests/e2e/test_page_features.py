"""The chat page beside other chat pages: Markdown, editing, attempts, search, bots, personas, explanations."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}
RICH = """Some **bold** text

```python
print("hello " * 40, "this line is much longer than the bubble that it is in, is it not?")
```

| tea | cups |
|-----|-----:|
| green | 2 |

1. first
2. second"""


def say(page: Page, text: str) -> None:
    page.get_by_label("Your message").fill(text)
    page.get_by_role("button", name="Send", exact=True).click()


def bubbles(page: Page, speaker: str = "bot") -> Any:
    return page.locator(f".turn.{speaker}:not(.streaming) .bubble")


def button(page: Page, name: str) -> Any:
    return page.get_by_role("button", name=name, exact=True)


def expect_in_view(page: Page, selector: str) -> None:
    """Wait until an element is completely within the part of the log that can be seen."""
    page.wait_for_function(
        """(selector) => {
        const box = document.querySelector(selector).getBoundingClientRect();
        const view = document.querySelector("#scroller").getBoundingClientRect();
        return box.top >= view.top - 1 && box.bottom <= view.bottom + 1;
    }""",
        arg=selector,
    )


def test_markdown_is_formatted_and_can_be_switched_off(server: Any, visit: Any) -> None:
    visitor = visit(server, permissions=["clipboard-read", "clipboard-write"])
    page = visitor.page
    say(page, "\n" + RICH)
    reply = bubbles(page)
    expect(reply.locator("strong")).to_have_text("bold")
    expect(reply.locator("td")).to_have_text(["green", "2"])
    expect(reply.locator("ol li")).to_have_text(["first", "second"])
    expect(reply.locator(".code-bar")).to_have_text("python")
    assert page.locator("#scroller").evaluate("node => node.scrollWidth - node.clientWidth") <= 0
    button(page, "Copy the code").click()
    expect(page.get_by_text("Copied")).to_be_attached()
    assert page.evaluate("navigator.clipboard.readText()").startswith('print("hello " * 40')
    button(page, "Show replies as plain text").click()
    expect(reply.locator("strong")).to_have_count(0)
    expect(reply).to_contain_text("**bold**")
    page.reload()
    expect(reply).to_contain_text("**bold**")
    button(page, "Format Markdown in replies").click()
    expect(reply.locator("strong")).to_have_text("bold")


def test_an_edited_message_is_sent_again_and_the_earlier_version_kept(server: Any, visit: Any) -> None:
    page = visit(server).page
    for number, text in enumerate(["one", "two", "three"], 1):
        say(page, text)
        expect(bubbles(page)).to_have_count(number)
    second = page.locator(".turn.user").nth(1)
    second.hover()
    second.get_by_role("button", name="Edit and send again").click()
    box = page.get_by_label("Edit your message")
    expect(box).to_be_focused()
    page.keyboard.press("Escape")
    expect(second.get_by_role("button", name="Edit and send again")).to_be_focused()
    page.keyboard.press("Enter")
    box.fill("zwei")
    page.keyboard.press("Enter")
    for _ in range(2):
        expect(bubbles(page)).to_have_text(["You said: one", "You said: zwei"])
        expect(bubbles(page, "user")).to_have_text(["one", "zwei"])
        expect(second.locator(".count")).to_contain_text("2/2")
        page.reload()
    button(page, "Previous version").click()
    expect(bubbles(page, "user")).to_have_text(["one", "two"])
    expect(second).to_contain_text("earlier version")
    expect(button(page, "Next version")).to_be_focused()  # the other one has come to its end
    page.keyboard.press("Enter")
    expect(bubbles(page, "user")).to_have_text(["one", "zwei"])


def test_a_refused_edit_does_not_lose_the_text(server: Any, visit: Any) -> None:
    page = visit(server).page
    say(page, "one")
    expect(bubbles(page)).to_have_count(1)
    page.locator(".turn.user").hover()
    button(page, "Edit and send again").click()
    page.get_by_label("Edit your message").fill("x" * 20_000)
    page.locator(".edit-form").get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert")).to_contain_text("16,000")
    expect(page.get_by_label("Edit your message")).to_have_value("x" * 20_000)
    button(page, "Cancel").click()
    expect(bubbles(page, "user")).to_have_text(["one"])


def test_all_attempts_can_be_browsed_and_one_used(server: Any, visit: Any) -> None:
    page = visit(server).page
    server.parrot.go.set()
    say(page, "hold me")
    expect(bubbles(page)).to_have_count(1)
    page.locator("#bot").click()
    page.get_by_role("option", name="generic").first.click()
    button(page, "Regenerate the reply").click()
    count = page.locator(".turn.bot .count")
    expect(count).to_contain_text("2/2")
    later = bubbles(page).inner_text()
    button(page, "Previous attempt").click()
    expect(count).to_contain_text("1/2")
    expect(bubbles(page)).to_have_text(["You said: hold me"])
    button(page, "Next attempt").click()
    expect(bubbles(page)).to_have_text([later])
    button(page, "Previous attempt").click()
    with page.expect_response("**/choose"):
        button(page, "Use this reply").click()
    expect(button(page, "Use this reply")).to_have_count(0)
    page.reload()
    expect(bubbles(page)).to_have_text(["You said: hold me"])
    expect(count).to_contain_text("1/2")


def test_conversations_can_be_searched(server: Any, visit: Any) -> None:
    page = visit(server).page
    say(page, "I like green tea")
    expect(bubbles(page)).to_have_count(1)
    button(page, "New conversation").click()
    say(page, "Boats are fine")
    expect(page.locator("#list a")).to_have_count(2)
    field = page.get_by_label("Search conversations")
    field.fill("TEA")
    expect(page.locator("#list a")).to_have_count(1)
    expect(page.locator("#find-result")).to_have_text("1 conversation found.")
    field.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(bubbles(page, "user")).to_have_text(["I like green tea"])
    field.fill("nowhere to be found")
    expect(page.locator("#list")).to_have_text("No conversation found.")
    field.press("Escape")
    expect(page.locator("#list a")).to_have_count(2)


def test_titles_are_edited_and_times_shown_on_demand(server: Any, visit: Any) -> None:
    page = visit(server).page
    say(page, "hello")
    expect(bubbles(page)).to_have_count(1)
    expect(page.locator(".turn time")).to_have_count(0)
    button(page, "Show times").click()
    expect(page.locator(".turn time")).to_have_count(2)
    button(page, "Rename the conversation").click()
    page.get_by_label("Title").fill("A title")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("A title")
    page.reload()
    expect(page.locator(".turn time")).to_have_count(2)
    button(page, "Hide times").click()
    expect(page.locator(".turn time")).to_have_count(0)


def test_a_cursor_is_shown_while_a_reply_streams(server: Any, visit: Any) -> None:
    page = visit(server).page
    say(page, "hold it")
    expect(page.locator(".streaming .growing")).to_have_text("You said:")
    assert page.locator(".growing").evaluate("node => getComputedStyle(node, '::after').content") == '""'
    server.parrot.go.set()
    expect(bubbles(page)).to_have_text(["You said: hold it"])
    expect(page.locator(".growing")).to_have_count(0)


@pytest.mark.parametrize("device", [{}, PHONE], ids=["desktop", "phone"])
def test_a_failed_reply_and_its_retry_are_in_sight(server: Any, visit: Any, device: dict[str, Any]) -> None:
    page = visit(server, **device).page
    say(page, "A long message. " * 60)
    expect(bubbles(page)).to_have_count(1)
    say(page, "fail " + "over and over " * 10)
    expect(button(page, "Try again")).to_be_visible()
    expect_in_view(page, ".bubble.failed")
    expect_in_view(page, ".bubble.failed button")


def test_the_header_of_a_phone_is_one_row(server: Any, visit: Any) -> None:
    page = visit(server, **PHONE).page
    say(page, "hello")
    expect(bubbles(page)).to_have_count(1)
    boxes = [page.locator(id_).bounding_box() for id_ in ("#side-open", "#bot", "#persona", "#more")]
    assert all(box is not None for box in boxes)
    assert max(box["y"] for box in boxes) < min(box["y"] + box["height"] for box in boxes)
    header = page.locator(".head").bounding_box()
    assert header is not None
    assert header["height"] <= 60


def test_the_bot_picker_works_by_keyboard(server: Any, visit: Any) -> None:
    page = visit(server).page
    keys = page.keyboard
    page.locator("#bot").focus()
    keys.press("Enter")
    field = page.get_by_role("combobox", name="Search bots")
    expect(field).to_be_focused()
    options = page.get_by_role("option")
    expect(options).to_have_count(30)
    expect(page.get_by_role("option", selected=True)).to_contain_text("Parrot")
    expect(options.first).to_contain_text("Repeats what you say")

    def active() -> str:
        text: str = page.locator(f"#{field.get_attribute('aria-activedescendant')}").inner_text()
        return text

    assert "Parrot" in active()
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    assert "dull 3" in active()
    keys.press("ArrowUp")
    assert "generic" in active()
    expect(field).to_be_focused()
    keys.type("dull 27")
    expect(options).to_have_count(1)
    keys.press("Enter")
    expect(page.locator("#bot-value")).to_have_text("dull 27")
    expect(page.locator("#bot")).to_be_focused()
    keys.press("Enter")
    keys.type("nobody")
    expect(page.locator("#picker-nothing")).to_have_text("No bot found.")
    keys.press("Escape")
    expect(page.locator("#picker")).to_be_hidden()
    expect(page.locator("#bot")).to_be_focused()
    expect(page.locator("#bot-value")).to_have_text("dull 27")


def test_no_two_bots_have_the_same_colour(server: Any, visit: Any) -> None:
    page = visit(server).page
    page.locator("#bot").click()
    expect(page.get_by_role("option")).to_have_count(30)
    colours = page.locator(".option .dot").evaluate_all(
        "nodes => nodes.map((n) => getComputedStyle(n).backgroundColor)"
    )
    assert len(set(colours)) == len(colours) == 30


def test_the_persona_dialog_works_by_keyboard(server: Any, visit: Any) -> None:
    page = visit(server).page
    keys = page.keyboard
    page.locator("#persona").focus()
    keys.press("Enter")

    focused = page.locator(":focus")
    expect(focused).to_have_value("none")
    visible = page.locator("#persona-cards .card").evaluate_all(
        """(cards) => {
        const list = document.querySelector("#personas").getBoundingClientRect();
        return cards.filter((card) => card.getBoundingClientRect().bottom <= list.bottom).length;
    }"""
    )
    assert visible >= 4
    for expected in ("own", "0", "1"):  # arrow keys pass over "In my own words" without losing the focus to its text
        keys.press("ArrowDown")
        expect(focused).to_have_value(expected)
    expect(button(page, "Use The old sailor")).to_be_visible()
    keys.press("Shift+Tab")
    expect(page.get_by_label("Search personas")).to_be_focused()
    keys.type("nobody at all")
    expect(page.locator("#persona-nothing")).to_have_text("No persona found.")
    keys.press("Enter")
    expect(page.locator("#persona-dialog")).to_be_visible()
    page.get_by_label("Search personas").fill("number 7")
    expect(page.locator("#persona-nothing")).to_be_empty()
    keys.press("ArrowDown")
    expect(focused).to_have_value("9")
    expect(button(page, "Use Number 7")).to_be_visible()
    keys.press("Enter")
    expect(page.locator("#persona-dialog")).to_be_hidden()
    expect(page.locator("#persona-value")).to_have_text("Number 7")
    expect(page.locator("#persona")).to_be_focused()


def test_results_of_a_persona_search_are_reached_by_tab(server: Any, visit: Any) -> None:
    page = visit(server).page
    page.locator("#persona").click()
    page.get_by_label("No persona").focus()
    page.get_by_label("Search personas").fill("sailed")
    expect(page.locator("#persona-cards .card:visible")).to_have_count(1)
    page.keyboard.press("Tab")
    for _ in range(3):
        page.keyboard.press("ArrowDown")
        if page.evaluate("document.activeElement.value") == "1":
            break
    expect(button(page, "Use The old sailor")).to_be_visible()


@pytest.mark.parametrize("device", [{}, PHONE], ids=["desktop", "phone"])
def test_a_reply_is_explained(server: Any, visit: Any, device: dict[str, Any]) -> None:
    page = visit(server, **device).page
    say(page, "hello")
    expect(bubbles(page)).to_have_count(1)
    button(page, "Why this reply?").click()
    panel = page.get_by_role("dialog", name="Why this reply?")
    candidates = panel.locator(".candidate")
    expect(candidates).to_have_count(3)
    expect(candidates.nth(0)).to_contain_text(re.compile("You said: hello.*0.9.*used", re.DOTALL))
    expect(candidates.nth(1)).to_contain_text("dropped: repeats an earlier reply")
    expect(candidates.nth(2)).to_contain_text("scored lower")
    for words in ("Seed", "feathers", "green", "0.250 s", "from thread 7", "Redraws3"):
        expect(panel).to_contain_text(words)
    expect(button(page, "Close the explanation")).to_be_focused()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(button(page, "Why this reply?")).to_be_focused()


def test_earlier_messages_are_loaded_on_demand(server: Any, visit: Any) -> None:
    page = visit(server).page
    conversation = page.request.post("/api/conversations", data={"bot": "generic"}).json()["id"]
    for number in range(105):
        body = {"text": f"message {number}", "key": str(number)}
        page.request.post(f"/api/conversations/{conversation}/messages", data=body, fail_on_status_code=True)
    page.goto(f"{server.url}#c={conversation}")
    expect(bubbles(page, "user")).to_have_count(100)
    first = page.get_by_text("message 5", exact=True)
    button(page, "Show earlier messages").hover()  # waits until nothing moves any more
    before = first.bounding_box()
    button(page, "Show earlier messages").click()
    expect(bubbles(page, "user")).to_have_count(105)
    expect(button(page, "Show earlier messages")).to_have_count(0)
    after = first.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(after["y"] - before["y"]) < 100  # what one was reading stays in place
    say(page, "one more")
    expect(bubbles(page, "user")).to_have_count(106)
