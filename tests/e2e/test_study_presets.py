"""Every preset in a real browser, from consent to the completion code."""

# ruff: noqa: F811 - fixtures are imported, and arguments have their names

import pytest
from playwright.sync_api import expect
from tests.e2e.studies import Join, StudyServer, check, join, studies, write_to  # noqa: F401 - fixtures

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("preset", ["ssa-static", "pairwise-static", "pairwise-chat", "begin"])
def test_judging_leads_to_the_completion_code(studies: StudyServer, join: Join, preset: str) -> None:
    person = join(studies.open(preset))
    person.begin()
    for number in (1, 2):
        expect(person.page.locator("#progress-text")).to_have_text(f"{number} of 2")
        person.answer_all()
        person.submit()
    person.expect_code()


def test_rewriting_warns_of_copied_words(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("rewrite-personas"))
    person.begin()
    for number in (1, 2):
        expect(person.page.locator("#progress-text")).to_have_text(f"{number} of 2")
        boxes = person.page.locator(".question textarea")
        original = person.page.locator(".quote").first.inner_text()
        boxes.first.fill(f"Well, {original}")
        expect(person.page.locator(".warning.serious").first).to_contain_text("Please use your own words")
        person.submit()
        expect(boxes.first).to_be_focused()
        boxes.first.fill(f"Something with {original.split()[-1]}")
        expect(person.page.locator(".warning").first).to_contain_text("You reuse these words")
        boxes.first.fill("Quite another thing")
        boxes.last.fill("Music after work")
        expect(person.page.locator(".warning").first).to_be_empty()
        person.submit()
    person.expect_code()


def test_replies_are_labelled_while_chatting(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("ssa-interactive", "min_turns = 3\nmax_turns = 5\n"))
    person.begin()
    page = person.page
    for number in (1, 2):
        expect(page.locator("#progress-text")).to_have_text(f"{number} of 2")
        expect(page.locator(".turn.theirs .bubble")).to_have_text("Hi!")
        page.locator("#text").fill("hello")
        expect(page.locator("#send")).to_be_disabled()
        expect(page.locator("#composer-note")).to_have_text("Please answer the questions about the last reply first.")
        person.choose("sensible", True)
        person.choose("specific", False)
        expect(page.locator("#send")).to_be_enabled()
        person.say("what do you do?")
        expect(page.locator("#finish")).to_be_hidden()
        expect(page.locator(".fold:visible")).to_contain_text("Yes · No")
        person.choose("sensible", False)
        expect(person.page.locator('[data-question="specific"]:visible')).to_have_count(0)
        page.locator("#finish").click()
    person.expect_code()


def test_the_last_reply_of_a_full_chat_is_labelled_too(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("ssa-interactive", "min_turns = 3\nmax_turns = 3\n", units=1))
    person.skip_to_work()
    person.choose("sensible", False)
    expect(person.page.locator(".meter")).to_have_text("1 of at least 3 messages")
    person.say("what do you do?")
    expect(person.page.get_by_role("heading", name="The conversation has ended.")).to_be_visible()
    person.submit()
    expect(person.page.locator("#alert")).to_contain_text("Does this message make sense here?")
    person.choose("sensible", True)
    person.choose("specific", True)
    person.submit()
    person.expect_code()


def test_votes_then_five_scales(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("interactive-likert", "min_turns = 2\n"))
    person.begin()
    for number in (1, 2):
        expect(person.page.locator("#progress-text")).to_have_text(f"{number} of 2")
        person.say("hello")
        person.choose("vote", "up")
        person.page.locator("#finish").click()
        for question in ("quality", "fluency", "diversity", "contingency", "empathy"):
            person.choose(question, 7)
        person.submit()
    person.expect_code()


def test_the_persona_is_shown_only_after_the_chat(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("persona-chat", "min_turns = 2\n", units=1))
    person.begin()
    person.say("who are you?")
    expect(person.page.get_by_text("I have two dogs.")).to_have_count(0)
    person.page.locator("#finish").click()
    expect(person.page.get_by_text("I have two dogs.")).to_be_visible()
    expect(person.page.get_by_text("I am a cook.")).to_be_visible()
    person.answer_all()
    person.submit()
    person.expect_code()


def test_two_bots_answer_side_by_side(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("arena", units=1))
    person.begin()
    person.say("hello there")
    left, right = (person.page.locator(".round > .turn").nth(i).bounding_box() for i in (0, 1))
    assert left is not None
    assert right is not None
    assert left["x"] + left["width"] <= right["x"]
    assert abs(left["y"] - right["y"]) < 2
    person.choose("better_reply", "B")
    person.say("and now?")
    person.page.locator("#finish").click()
    person.choose("better_partner", "tie")
    person.submit()
    person.expect_code()


def test_two_people_are_paired(studies: StudyServer, join: Join) -> None:
    study = studies.open("collect-dialogues", "min_turns = 4\nmin_turns_up_to = 4\n", units=1)
    anna, ben = join(study, "anna"), join(study, "ben")
    anna.begin()
    expect(anna.page.locator(".countdown")).to_be_visible()
    ben.skip_to_work()
    for person in (anna, ben):
        expect(person.page.locator(".own .persona")).to_be_visible()
    anna.page.locator("#text").fill("I have two dogs. I am a cook. I sing in a choir. I never learned to swim.")
    expect(anna.page.locator("#composer-note")).to_contain_text("at most 15 words")
    anna.page.locator("#text").fill("")
    for speaker, listener, text in ((anna, ben, "Hello!"), (ben, anna, "Hi."), (anna, ben, "So?"), (ben, anna, "Yes.")):
        write_to(speaker, listener, text)
    anna.page.locator("#finish").click()
    anna.submit()
    anna.expect_code()
    expect(ben.page.get_by_role("heading", name="The conversation has ended.")).to_be_visible()
    ben.choose("comfortable", True)
    ben.submit()
    ben.expect_code()


def test_whose_partner_leaves_is_released_with_a_code(studies: StudyServer, join: Join) -> None:
    study = studies.open("collect-dialogues", units=1)
    anna, ben = join(study, "anna"), join(study, "ben")
    anna.skip_to_work()
    ben.skip_to_work()
    expect(anna.page.locator("#text")).to_be_visible()
    expect(ben.page.locator("#text")).to_be_visible()
    ben.page.locator("#withdraw").click()
    ben.page.locator("#withdraw-ok").click()
    anna.expect_code("partner_left")
    expect(anna.page.locator("main")).to_contain_text("Your partner has left.")
    check(anna.page, "released")


def test_whoever_waits_in_vain_is_released_with_a_code(studies: StudyServer, join: Join) -> None:
    person = join(studies.open("collect-dialogues", "wait_seconds = 2\n", units=1))
    person.skip_to_work()
    expect(person.page.locator(".countdown")).to_be_visible()
    person.expect_code("timed_out")
    check(person.page, "nobody came")
