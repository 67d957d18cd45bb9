"""Accessibility of the chat page: by keyboard alone, for screen readers, on a phone, in both colour schemes."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.e2e.axe import violations

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}

NAMELESS = """() => [...document.querySelectorAll("button, a[href], input, select, textarea, dialog, nav, aside")]
    .filter((node) => {
        const by = node.getAttribute("aria-labelledby");
        const labels = [...(node.labels ?? [])].map((label) => label.textContent).join(" ");
        const own = node.matches("button, a") ? node.textContent : "";
        const named = by ? document.getElementById(by)?.textContent : "";
        return ![node.getAttribute("aria-label"), named, labels, own].some((name) => name?.trim());
    })
    .map((node) => node.outerHTML.slice(0, 120))"""

CONTRAST = """(selector) => {
    const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const light = (rgb) => {
        const [x, y, z] = rgb.map((c) => linear(c / 255));
        return 0.2126 * x + 0.7152 * y + 0.0722 * z;
    };
    const parse = (colour) => {
        const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
        return { rgb: [r, g, b], a };
    };
    const node = document.querySelector(selector);
    const layers = [];
    for (let up = node; up; up = up.parentElement) {
        const { rgb, a } = parse(getComputedStyle(up).backgroundColor);
        if (a > 0) layers.unshift({ rgb, a });
        if (a === 1) break;
    }
    const back = layers.reduce((under, { rgb, a }) => rgb.map((c, i) => c * a + under[i] * (1 - a)), [255, 255, 255]);
    const [high, low] = [light(parse(getComputedStyle(node).color).rgb), light(back)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
}"""

TEXTS = (
    ".wordmark",
    "#new",
    "#list h2",
    "#list .name",
    "#list .with",
    "#theme",
    "#title",
    ".choice-name",
    "#persona-value",
    "#bot-value",
    ".turn.user .bubble",
    ".turn.bot .bubble",
    ".bubble.failed .aside",
    ".who",
    ".count",
    "#find",
    ".switch",
    "#text",
    ".keys",
    "#send",
    ".turn.last .tool",
)


def say(page: Page, text: str) -> None:
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")


def choose_bot(page: Page, name: str) -> None:
    page.locator("#bot").click()
    page.get_by_role("option", name=name).first.click()


def settle_with_everything(page: Page) -> None:
    """A conversation that shows everything visible at the same time."""
    say(page, "hello")
    expect(page.locator(".turn.bot.last")).to_be_visible()
    choose_bot(page, "generic")
    page.get_by_role("button", name="Regenerate the reply").click()
    expect(page.locator(".turn.last .count")).to_contain_text("2/2")
    choose_bot(page, "Parrot")
    say(page, "fail")
    expect(page.locator(".bubble.failed")).to_be_visible()
    expect(page.locator("#list .name")).to_have_count(1)
    page.get_by_label("Your message").fill("a draft")


def test_text_has_enough_contrast(server: Any, visit: Any) -> None:
    page = visit(server, reduced_motion="reduce").page
    settle_with_everything(page)
    page.mouse.move(0, 0)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        ratios = {selector: page.evaluate(CONTRAST, selector) for selector in TEXTS}
        assert {selector: ratio for selector, ratio in ratios.items() if ratio < 4.5} == {}, scheme
        background = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        assert (sum(background) > 600) == (scheme == "light")


def test_controls_have_names_and_the_page_has_landmarks(server: Any, visit: Any) -> None:
    page = visit(server).page
    settle_with_everything(page)
    page.locator("#persona").click()
    expect(page.locator("#persona-dialog")).to_be_visible()
    assert page.evaluate(NAMELESS) == []
    page.keyboard.press("Escape")
    for landmark in ("main", "complementary", "navigation", "banner"):
        count = page.get_by_role(landmark).count()  # type: ignore[arg-type]
        assert count == (0 if landmark == "banner" else 1), landmark  # the head belongs to main
    assert page.locator("h1").count() == 1
    log = page.get_by_role("log")
    expect(log).to_have_attribute("aria-live", "polite")
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("[style]:not(#text), script:not([src])").count() == 0


def test_the_page_works_by_keyboard_alone(server: Any, visit: Any) -> None:
    page = visit(server).page
    keys = page.keyboard
    expect(page.get_by_label("Your message")).to_be_focused()
    keys.type("first line")
    keys.press("Shift+Enter")
    keys.type("second line")
    keys.press("Enter")
    expect(page.locator(".turn.user .bubble")).to_have_text("first line\nsecond line")
    expect(page.locator(".turn.bot.last")).to_be_visible()
    expect(page.locator("#list a")).to_have_count(1)

    visited: list[str] = []
    for _ in range(60):
        keys.press("Tab")
        name = page.evaluate("(({ id, ariaLabel, tagName }) => id || ariaLabel || tagName)(document.activeElement)")
        ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert ring != "none" or name in ("text", "BODY"), f"no ring on {name}"  # the box around the text has it
        if name == "text":
            break
        visited.append(name)
    wanted = {
        "skip",
        "new",
        "find",
        "theme",
        "times",
        "formatting",
        "erase",
        "title-edit",
        "bot",
        "persona",
        "more",
        "scroller",
        "A",
    }
    assert wanted | {
        "Edit and send again",
        "Copy",
        "Why this reply?",
        "Regenerate the reply",
        "Undo the last message",
    } <= set(visited)

    page.locator("#skip").focus()
    keys.press("Enter")
    expect(page.get_by_label("Your message")).to_be_focused()
    keys.type("hold")
    keys.press("Enter")
    expect(page.locator(".streaming .bubble")).to_have_text("You said:")
    keys.press("Escape")
    expect(page.locator(".turn.bot.last .below")).to_contain_text("stopped")

    page.get_by_role("button", name="Regenerate the reply").focus()
    server.parrot.go.set()
    keys.press("Enter")
    expect(page.locator(".turn.bot.last .below")).to_contain_text("2/2")
    expect(page.get_by_label("Your message")).to_be_focused()  # the button that was pressed is gone

    page.locator("#more").focus()
    keys.press("Enter")
    expect(page.locator("#menu")).to_be_visible()
    keys.press("Tab")
    expect(page.locator("#rename")).to_be_focused()
    keys.press("Enter")
    expect(page.get_by_label("Title")).to_be_focused()
    keys.type("By hand")
    keys.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("By hand")
    page.locator("#bot").focus()
    keys.press("Enter")
    keys.type("gen")
    keys.press("Enter")
    expect(page.locator(".switch")).to_have_text("now talking to generic")


def test_every_module_is_preloaded_and_nothing_comes_from_elsewhere(server: Any, visit: Any) -> None:
    page = visit(server).page
    fetched = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
    ahead = page.evaluate("[...document.querySelectorAll('link[rel=modulepreload]')].map((link) => link.href)")
    assert all(address.startswith(server.url) for address in fetched)
    scripts = {address for address in fetched if address.endswith(".js")}
    assert scripts - set(ahead) == {f"{server.url}static/{name}.js" for name in ("app", "theme")}
    assert set(ahead) < scripts


def overflow(page: Page) -> int:
    widest: int = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return widest


def small_targets(page: Page) -> list[str]:
    targets: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("button, a[href], select, .card")]
        .filter((node) => node.checkVisibility({ visibilityProperty: true }))
        .filter((node) => !node.closest("[inert]") && node.id !== "skip")
        .map((node) => [node.id || node.className, node.closest(".choice, .item") ?? node])
        .map(([name, node]) => [name, node.getBoundingClientRect()])
        .filter(([, box]) => Math.round(box.width) < 44 || Math.round(box.height) < 44)
        .map(([name, box]) => `${name} ${box.width} x ${box.height}`)"""
    )
    return targets


def test_a_phone_needs_no_horizontal_scrolling(server: Any, visit: Any) -> None:
    page = visit(server, **PHONE).page
    assert overflow(page) <= 0
    assert small_targets(page) == []
    say(page, "W" * 300 + "\nhttps://example.org/" + "path/" * 60)
    expect(page.locator(".turn.bot.last")).to_be_visible()
    say(page, "fail " + "x" * 200)
    expect(page.locator(".bubble.failed")).to_be_visible()
    assert overflow(page) <= 0
    assert small_targets(page) == []
    log = page.locator("#scroller")
    assert log.evaluate("node => node.scrollWidth - node.clientWidth") <= 0

    page.get_by_role("button", name="Open the list of conversations").tap()
    expect(page.locator("#new")).to_be_focused()
    expect(page.locator("#list a")).to_have_count(1)
    assert page.locator("#room").evaluate("node => node.inert")
    assert overflow(page) <= 0
    assert small_targets(page) == []
    page.locator("#new").tap()
    expect(page.locator("#empty")).to_be_visible()
    assert page.locator("#side").evaluate("node => node.inert")

    page.locator("#persona").tap()
    page.get_by_text("In my own words").tap()
    box = page.locator("#persona-dialog").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    assert box["y"] + box["height"] <= 640
    assert overflow(page) <= 0
    assert small_targets(page) == []


def test_the_theme_is_saved_and_reduced_motion_is_respected(server: Any, visit: Any) -> None:
    page = visit(server, color_scheme="light", reduced_motion="reduce").page

    def paper() -> str:
        colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return colour

    light = paper()
    page.get_by_role("button", name="Switch to dark").click()
    dark = paper()
    assert dark != light
    page.reload()
    expect(page.get_by_role("button", name="Switch to light")).to_be_visible()
    assert paper() == dark
    page.get_by_role("button", name="Switch to light").click()
    page.emulate_media(color_scheme="dark")
    assert paper() == dark  # toggling back follows the system again
    say(page, "hold still")
    expect(page.locator(".streaming .bubble")).to_have_text("You said:")
    assert page.locator(".streaming").evaluate("node => getComputedStyle(node).animationName") == "none"


def test_axe_finds_a_missing_name_and_a_dark_theme_that_cannot_be_read(chromium: Browser) -> None:
    style = "@media (prefers-color-scheme: dark) { body { background: #000; color: #333 } }"
    with chromium.new_context(reduced_motion="reduce") as context:
        page = context.new_page()
        page.set_content(
            f"<html lang=en><title>A</title><style>{style}</style><main><h1>Words</h1><img src='data:,'></main>"
        )
        assert [line.partition(":")[0] for line in violations(page)] == ["dark, color-contrast", "light, image-alt"]


@pytest.mark.parametrize("device", [{}, PHONE], ids=["desktop", "phone"])
def test_axe_finds_no_violation(server: Any, visit: Any, device: dict[str, Any]) -> None:
    page = visit(server, reduced_motion="reduce", **device).page
    assert violations(page) == [], "empty page"
    settle_with_everything(page)
    server.parrot.go.set()
    say(
        page,
        "**hold**\n\n```\ncode that is a good deal longer than a phone is wide\n```\n\n|a|\n|-|\n|b|",
    )
    expect(page.locator(".turn.last .code")).to_be_visible()
    assert violations(page) == [], "conversation"
    page.locator("#bot").click()
    expect(page.locator("#picker")).to_be_visible()
    assert violations(page) == [], "bot picker"
    page.keyboard.press("Escape")
    page.locator("#persona").click()
    expect(page.locator("#persona-dialog")).to_be_visible()
    assert violations(page) == [], "persona dialog"
    page.keyboard.press("Escape")
    page.locator(".turn.last").get_by_role("button", name="Why this reply?").click()
    expect(page.locator("#why")).to_be_visible()
    assert violations(page) == [], "explanation"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Edit and send again").last.click()
    expect(page.get_by_label("Edit your message")).to_be_focused()
    assert violations(page) == [], "editing"
    page.keyboard.press("Escape")
    page.locator("#more").click()
    expect(page.locator("#menu")).to_be_visible()
    assert violations(page) == [], "menu"
    page.locator("#rename").click()
    expect(page.get_by_label("Title")).to_be_focused()
    assert violations(page) == [], "renaming"
    page.keyboard.press("Escape")
    if device:
        page.locator("#side-open").click()
        expect(page.locator("#new")).to_be_focused()
        assert violations(page) == [], "list"
