"""The page of a study: resuming, another device, lost connections, keyboard, phone, languages, accessibility."""

# ruff: noqa: F811 - fixtures are imported, and arguments have their names

import re

import pytest
from playwright.sync_api import Page, Route, expect
from tests.e2e.studies import (  # noqa: F401 - fixtures
    PHONE,
    RESPONSES,
    TURNS,
    Join,
    Participant,
    StudyServer,
    check,
    join,
    overflow,
    small_targets,
    studies,
)

pytestmark = pytest.mark.browser

ARABIC = """
languages = ["ar"]
title = "أي رد أفضل؟"
protocol = "judge"
sides = 2
items = "items.jsonl"
instructions = "اقرأ الردين."
attention = []
consent = { version = "1", text = "المشاركة طوعية." }
[[questions]]
id = "quality"
kind = "side"
text = "أي رد أفضل؟"
[[questions]]
id = "ease"
kind = "scale"
text = "هل كان ذلك سهلا؟"
"""


def test_an_answer_is_saved_shown_again_and_undone(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("ssa-static"))
    person.skip_to_work()
    page = person.page
    expect(page.locator("#undo")).to_be_disabled()
    person.choose("sensible", True)
    expect(page.locator("#saved")).to_have_text("Saved")
    person.choose("specific", False)
    expect(page.locator("#saved")).to_have_text("Saved")
    page.reload()
    expect(person.question("specific").locator('input[data-value="false"]')).to_be_checked()
    page.locator("#undo").click()
    expect(person.question("specific").locator("input:checked")).to_have_count(0)
    expect(person.question("sensible").locator('input[data-value="true"]')).to_be_checked()
    person.submit()
    expect(page.locator("#alert")).to_contain_text("Is the reply specific to this conversation?")
    expect(person.question("specific").locator("input").first).to_be_focused()


def test_a_chat_goes_on_after_a_reload_and_on_another_device(studies: StudyServer, join: Join) -> None:
    study = studies.open("interactive-likert", "min_turns = 4\n", units=1)
    person = join(study, "same")
    person.skip_to_work()
    person.say("hello")
    person.choose("vote", "down")
    expect(person.page.locator("#saved")).to_have_text("Saved")
    person.page.locator("#text").fill("a draft")
    person.page.reload()
    expect(person.page.locator(".turn .bubble")).to_have_count(2)
    expect(person.page.locator("#text")).to_have_value("a draft")
    expect(person.question("vote").locator('input[data-value="down"]')).to_be_checked()

    phone = join(study, "same", **PHONE)
    expect(phone.page.locator(".turn.mine .bubble")).to_have_text("hello")
    phone.say("from the phone")
    phone.page.locator("#finish").click()
    phone.choose("quality", 7)
    person.page.reload()
    expect(person.question("quality").locator('input[data-value="7"]')).to_be_checked()
    person.answer_all()
    person.submit()
    person.expect_code()


def test_a_reload_while_the_reply_is_pending_keeps_it(studies: StudyServer, join: Join) -> None:
    only_parrot = 'units_per_participant = 1\npreset = "interactive-likert"\n[[bots]]\nname = "p"\nspec = "parrot"\n'
    person = join(studies.open_toml(only_parrot, []))
    person.skip_to_work()
    page = person.page
    page.locator("#text").fill("hold on")
    page.locator("#text").press("Enter")
    expect(page.locator(".turn.theirs.pending .typing")).to_be_visible()
    expect(page.locator("#send")).to_be_disabled()
    page.reload()
    expect(page.locator(".turn.theirs.pending .typing")).to_be_visible()
    studies.parrot.go.set()
    expect(page.locator(".turn.theirs .bubble")).to_have_text("You said: hold on")
    expect(page.locator(".turn.mine")).to_have_count(1)


def test_a_lost_connection_is_shown_and_nothing_is_sent_twice(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("interactive-likert", "min_turns = 2\n"))
    person.skip_to_work()
    page = person.page
    page.locator("#text").fill("are you there?")
    person.context.set_offline(True)
    page.locator("#text").press("Enter")
    expect(page.locator("#lost")).to_contain_text("The connection was lost")
    person.context.set_offline(False)
    expect(page.locator(".turn.theirs:not(.pending)")).to_have_count(1)
    expect(page.locator("#lost")).to_be_empty()
    expect(page.locator(".turn.mine")).to_have_count(1)
    person.context.set_offline(True)
    person.choose("vote", "up")
    expect(page.locator("#lost")).to_contain_text("The connection was lost")
    expect(page.locator("#saved")).to_have_text("Saving …")
    person.context.set_offline(False)
    expect(page.locator("#saved")).to_have_text("Saved")


def test_a_message_waits_for_the_answers_before_it(studies: StudyServer, join: Join) -> None:
    """Enter comes before the answer is saved: the server would refuse the message."""
    person = join(studies.open("ssa-interactive", "min_turns = 3\n", units=1))
    person.skip_to_work()
    page, held = person.page, list[Route]()
    page.route("**/labels", lambda route: held.append(route))
    with page.expect_request("**/labels"):
        person.choose("sensible", False)
    page.locator("#text").fill("hello")
    page.locator("#text").press("Enter")
    page.locator("#text").press("Enter")
    expect(page.locator("#text")).to_have_value("")
    expect(page.locator("#send")).to_be_disabled()
    held[0].continue_()
    expect(page.locator(".turn.theirs:not(.pending)")).to_have_count(2)
    expect(page.locator(".turn.mine .bubble")).to_have_text("hello")
    expect(page.locator("#alert")).to_be_empty()


def test_a_late_state_does_not_hide_an_answer(studies: StudyServer, join: Join) -> None:
    """The state after a reply is read before the vote is saved, and arrives after it."""
    person = join(studies.open("interactive-likert", "min_turns = 2\n", units=1))
    person.skip_to_work()
    page, held = person.page, list[Route]()
    page.route("**/state", lambda route: held.append(route))
    with page.expect_request("**/state"):
        page.locator("#text").fill("hello")
        page.locator("#text").press("Enter")
    expect(page.locator(".turn.theirs:not(.pending)")).to_have_count(1)
    old = held[0].fetch()
    person.choose("vote", "up")
    expect(page.locator("#saved")).to_have_text("Saved")
    held[0].fulfill(response=old)
    expect(page.locator("#finish")).to_be_visible()  # the state was taken
    expect(person.question("vote").locator('input[data-value="up"]')).to_be_checked()


def test_a_reply_that_fails_gives_the_message_back(studies: StudyServer, join: Join) -> None:
    only_parrot = 'units_per_participant = 1\npreset = "interactive-likert"\n[[bots]]\nname = "p"\nspec = "parrot"\n'
    person = join(studies.open_toml(only_parrot, []))
    person.skip_to_work()
    page = person.page
    page.locator("#text").fill("fail please")
    page.locator("#text").press("Enter")
    expect(page.locator("#alert")).to_contain_text("No reply came")
    expect(page.locator("#text")).to_have_value("fail please")
    expect(page.locator(".turn")).to_have_count(0)
    person.say("better")
    expect(page.locator(".turn .bubble")).to_have_text(["better", "You said: better"])
    expect(page.locator("#leave")).to_be_hidden()
    page.locator("#text").fill("fail again")
    page.locator("#text").press("Enter")
    page.locator("#leave").click()
    person.expect_code("partner_left")


def test_wrong_answers_in_training_end_with_a_code(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("ssa-static", "training_attempts = 2\n"))
    person.agree()
    person.read_tutorial()
    for attempt in (1, 2):
        expect(person.page.get_by_text(f"Attempts left: {3 - attempt}").first).to_be_visible()
        for training in person.study.config.training:
            person.choose(training.question, not training.answer)
            person.submit()
            expect(person.page.locator(".feedback.wrong")).to_contain_text(training.explanation.get("en"))
            person.page.locator("#next").click()
    person.expect_code("screened_out")
    check(person.page, "screened out")


def test_whoever_withdraws_confirms_it_first(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("ssa-static"))
    person.skip_to_work()
    person.choose("sensible", True)
    page = person.page
    page.locator("#withdraw").click()
    page.get_by_role("button", name="Cancel").click()
    expect(person.question("sensible")).to_be_visible()
    page.locator("#withdraw").click()
    page.get_by_role("button", name="Yes, delete everything I did here").click()
    expect(page.get_by_role("heading", name="You have withdrawn")).to_be_visible()
    expect(page.locator("#code")).to_have_count(0)
    expect(page.locator("#withdraw")).to_be_hidden()
    check(page, "withdrawn")


def test_declining_and_agreeing_without_reading(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("ssa-static"))
    page = person.page
    page.locator("#agree").click()
    expect(page.locator("#alert")).to_contain_text("Please read the text")
    expect(page.locator("#tick")).to_be_focused()
    page.get_by_role("button", name="I do not want to take part").click()
    expect(page.locator("h1")).to_have_text("Thank you for reading")
    page.get_by_role("button", name="Back").click()
    expect(page.locator("#tick")).to_be_visible()


def test_a_link_without_an_id_and_a_preview(studies: StudyServer, join: Join) -> None:
    study = studies.open("ssa-static")
    person = join(study)
    stranger = person.context.browser.new_context()  # type: ignore[union-attr]
    page = stranger.new_page()
    page.goto(f"{studies.url}study/{study.id}")
    expect(page.get_by_role("alert")).to_have_text("This link is not valid.")
    page.goto(f"{studies.url}study/{study.id}?assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE&hitId=h")
    expect(page.get_by_text("This is a preview.")).to_be_visible()
    expect(page.locator("#agree")).to_have_count(0)
    assert stranger.cookies() == []
    stranger.close()


def test_every_module_is_preloaded_and_nothing_comes_from_elsewhere(studies: StudyServer, join: Join) -> None:
    page = join(studies.open("ssa-static")).page
    fetched = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
    ahead = page.evaluate("[...document.querySelectorAll('link[rel=modulepreload]')].map((link) => link.href)")
    assert all(address.startswith(studies.url) for address in fetched)
    scripts = {address for address in fetched if address.endswith(".js")}
    assert scripts - set(ahead) == {f"{studies.url}static/{name}.js" for name in ("study/app", "theme")}
    assert set(ahead) < scripts
    assert page.locator("[style], script:not([src])").count() == 0


def test_an_attention_check_comes_between_tasks(studies: StudyServer, join: Join) -> None:
    between = '[[attention]]\nevery = 1\nanswer = "b"\n[attention.question]\nid = "check"\nkind = "choice"\n'
    between += 'text = "Choose B."\nchoices = [{ value = "a", text = "Letter A" }, { value = "b", text = "B" }]\n'
    person = join(studies.open("pairwise-chat", between))
    person.skip_to_work()
    person.answer_all()
    person.submit()
    expect(person.page.locator("h1")).to_have_text("A quick check")
    check(person.page, "attention")
    person.page.keyboard.press("1")
    person.page.keyboard.press("Enter")
    expect(person.page.locator("#alert")).to_contain_text("This was a check of attention")
    person.answer_all()
    person.submit()
    person.expect_code()


def test_judging_by_keyboard_alone(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("ssa-static"))
    page, press = person.page, person.page.keyboard.press
    begin_by_keyboard(person)
    for training in person.study.config.training:
        expect(page.get_by_text(training.text.get("en").splitlines()[-1])).to_be_visible()
        press("y" if training.answer else "n")
        expect(page.locator("#submit")).to_be_focused()
        press("Enter")
        expect(page.locator(".feedback.right")).to_be_visible()
        press("Enter")
    expect(page.locator("#progress-text")).to_have_text("1 of 2")
    expect(person.question("sensible")).to_be_visible()
    press("?")
    expect(page.get_by_role("dialog")).to_contain_text("next question")
    press("Escape")
    press("y")
    expect(person.question("specific").locator("input").first).to_be_focused()
    press("2")
    expect(person.question("specific").locator('input[data-value="false"]')).to_be_checked()
    press("k")
    press("ArrowUp")
    expect(person.question("sensible").locator("input").first).to_be_focused()
    press("ArrowDown")
    press("j")
    expect(person.question("human_like").locator("input").first).to_be_focused()
    press("y")
    expect(page.locator("#saved")).to_have_text("Saved")
    press("u")
    expect(person.question("human_like").locator("input:checked")).to_have_count(0)
    press("Enter")
    expect(page.locator("#progress-text")).to_have_text("2 of 2")
    expect(person.question("sensible")).to_be_visible()
    press("n")
    expect(page.locator('[data-question="specific"]:visible')).to_have_count(0)
    press("Enter")
    person.expect_code()
    page.locator("#copy").focus()
    press("Enter")
    expect(page.locator("#copy")).to_have_text("Copied")


def begin_by_keyboard(person: Participant) -> None:
    page, press = person.page, person.page.keyboard.press
    expect(page.locator("h1")).to_be_focused()
    press("Tab")
    press("Space")
    press("Tab")
    press("Tab")
    press("Enter")
    for number in range(len(person.study.config.tutorial) + 1):
        expect(page.get_by_text(f"{number + 1} of {len(person.study.config.tutorial) + 1}")).to_be_visible()
        press("Enter")


def test_chatting_by_keyboard_alone(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("ssa-interactive", "min_turns = 3\nmax_turns = 9\n", units=1))
    page, press = person.page, person.page.keyboard.press
    begin_by_keyboard(person)
    expect(person.question("sensible").locator("input").first).to_be_focused()
    press("y")
    press("n")
    press("Enter")
    expect(page.locator("#text")).to_be_focused()
    page.keyboard.type("What are you reading?")
    expect(page.locator("#send")).to_be_enabled()  # the answers are saved
    press("Enter")
    expect(page.locator(".turn.theirs:not(.pending)")).to_have_count(2)
    expect(person.question("sensible").locator("input").first).to_be_focused()
    press("n")
    press("Enter")
    expect(page.locator("#text")).to_be_focused()
    expect(page.locator("#finish")).to_be_visible()
    press("Tab")
    press("Tab")
    expect(page.locator("#finish")).to_be_focused()
    press("Enter")
    person.expect_code()


def test_a_phone_needs_no_horizontal_scrolling(studies: StudyServer, join: Join) -> None:
    long = [{"speaker": "a", "text": "W" * 200 + " https://example.org/" + "path/" * 40}, *TURNS]
    items = [{"id": "long", "turns": long, "responses": RESPONSES | {"generic": "x" * 300}}]
    judge = join(
        studies.open_toml('preset = "pairwise-static"\nitems = "i"\nunits_per_participant = 1\n', items), **PHONE
    )
    check_phone(judge.page)
    judge.agree()
    judge.read_tutorial()
    check_phone(judge.page)
    judge.train()
    expect(judge.question("quality")).to_be_visible()
    check_phone(judge.page)
    a, b = (judge.page.locator(".response").nth(i).bounding_box() for i in (0, 1))
    assert a is not None
    assert b is not None
    assert a["y"] + a["height"] <= b["y"]
    chat = join(studies.open("interactive-likert", "min_turns = 2\n", units=1), **PHONE)
    chat.skip_to_work()
    chat.say("hello " + "z" * 100)
    check_phone(chat.page)
    chat.page.locator("#finish").click()
    expect(chat.question("empathy")).to_be_visible()
    check_phone(chat.page)
    chat.answer_all()
    chat.submit()
    chat.expect_code()
    check_phone(chat.page)


def check_phone(page: Page) -> None:
    assert overflow(page) <= 0
    assert small_targets(page) == []


def test_the_language_can_be_chosen_at_any_time(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("pairwise-static"))
    page = person.page
    page.get_by_label("Language").select_option("de")
    expect(page.locator("h1")).to_have_text("Bevor Sie beginnen")
    assert page.locator("html").get_attribute("lang") == "de"
    person.agree()
    page.locator("#next").click()
    expect(page.locator("#next")).to_have_text("Beginnen")
    page.locator("#next").click()
    person.train()
    expect(person.question("quality")).to_contain_text("Welche Antwort ist insgesamt besser?")
    assert "en" not in page.locator("option[selected]").all_inner_texts()
    shown = page.locator("body").inner_text()
    assert not re.search(r"\b(Submit|Undo|Withdraw|Saved|Instructions)\b|\b\w+\.\w+_\w+", shown)


def test_right_to_left_is_mirrored(studies: StudyServer, join: Join) -> None:
    items = [{"id": "one", "turns": TURNS, "responses": RESPONSES}]
    person = join(studies.open_toml(ARABIC, items))
    person.agree()
    page = person.page
    expect(person.question("quality")).to_be_visible()
    assert page.locator("html").get_attribute("dir") == "rtl"
    material, panel = (page.locator(part).bounding_box() for part in (".material", ".panel"))
    a, b = (page.locator(".response").nth(i).bounding_box() for i in (0, 1))
    assert material is not None
    assert panel is not None
    assert a is not None
    assert b is not None
    assert panel["x"] + panel["width"] <= material["x"]
    assert b["x"] + b["width"] <= a["x"]
    one, five = (person.question("ease").locator(".pill").nth(i).bounding_box() for i in (0, 4))
    assert one is not None
    assert five is not None
    assert five["x"] < one["x"]
    assert overflow(page) <= 0


@pytest.mark.slow
def test_axe_finds_no_violation_in_judging_and_writing(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("begin", units=1))
    page = person.page
    check(page, "consent")
    page.locator("#withdraw").click()
    check(page, "withdrawal")
    page.keyboard.press("Escape")
    page.locator("#shortcuts").click()
    check(page, "shortcuts")
    page.keyboard.press("Escape")
    person.agree()
    check(page, "tutorial")
    person.read_tutorial()
    person.choose(person.study.config.training[0].question, person.study.config.training[0].answer)
    person.submit()
    expect(page.locator(".feedback")).to_be_visible()
    check(page, "training")
    page.reload()
    for training in person.study.config.training[1:]:
        person.choose(training.question, training.answer)
        person.submit()
        page.locator("#next").click()
    person.answer_all()
    person.page.locator(".instructions summary").click()
    check(page, "judging sentences")
    person.submit()
    person.expect_code()
    check(page, "done")
    pair = join(studies.open("pairwise-chat", units=1))
    pair.skip_to_work()
    expect(pair.question("engaging")).to_be_visible()
    check(pair.page, "two conversations")
    pair.submit()
    expect(pair.page.locator("#alert")).not_to_be_empty()
    check(pair.page, "an answer is missing")
    writer = join(studies.open("rewrite-personas", units=1))
    writer.skip_to_work()
    original = writer.page.locator(".quote").first.inner_text()
    writer.page.locator(".question textarea").first.fill(f"Well, {original}")
    expect(writer.page.locator(".warning.serious")).not_to_be_empty()
    check(writer.page, "writing")


@pytest.mark.slow
def test_axe_finds_no_violation_in_chats(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("ssa-interactive", "min_turns = 3\n", units=1))
    person.skip_to_work()
    person.choose("sensible", True)
    person.choose("specific", True)
    person.say("hello")
    check(person.page, "labels")
    arena = join(studies.open("arena", units=1))
    arena.skip_to_work()
    arena.say("hello")
    arena.choose("better_reply", "A")
    check(arena.page, "two bots")
    likert = join(studies.open("interactive-likert", "min_turns = 2\n", units=1))
    likert.skip_to_work()
    likert.say("hello")
    likert.choose("vote", "up")
    check(likert.page, "votes")
    likert.page.locator("#finish").click()
    expect(likert.question("empathy")).to_be_visible()
    check(likert.page, "questions at the end")


def test_whoever_waits_sees_that_the_study_has_closed(studies: StudyServer, join: Join) -> None:
    study = studies.open("collect-dialogues", units=1)
    person = join(study)
    person.skip_to_work()
    expect(person.page.locator(".countdown")).to_be_visible()
    check(person.page, "waiting")
    study.close()
    expect(person.page.get_by_role("heading", level=1)).to_have_text("This study is closed")
    check(person.page, "closed")
