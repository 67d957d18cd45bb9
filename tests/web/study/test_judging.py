"""Judging and writing, from the link to the completion code."""

from datetime import timedelta

import pytest
from tests.web.study.conftest import TRAINING, Lab, answers, judge_toml, ok

STATIC = ["ssa-static", "pairwise-static", "pairwise-chat", "begin", "rewrite-personas"]


@pytest.mark.parametrize("preset", STATIC)
def test_a_static_study_from_the_link_to_the_code(lab: Lab, preset: str) -> None:
    study = lab.open(judge_toml(preset, units_per_participant=2, ratings_per_unit=1), preset)
    rater = lab.rater(study)
    state = rater.state()
    assert state["step"] == "consent"
    assert state["progress"] == {"done": 0, "of": 2}
    task = rater.begin(TRAINING.get(preset, ()))
    seen = set()
    for done in range(2):
        seen.add(task["assignment"])
        saved = ok(rater.label(task["assignment"], *answers(task)))
        assert saved["saved"]
        assert saved["can_undo"]
        state = rater.act("submit", assignment=task["assignment"], key="s")
        assert state["progress"]["done"] == done + 1
        if done == 0:
            assert state["step"] == "work"
            assert state["task"] is None
            task = rater.act("next")["task"]
    assert len(seen) == 2
    assert state["step"] == "done"
    assert state["code"] == study.config["completion"]["done"]
    rows = list(lab.store.rows(study.id))
    assert {row.assignment for row in rows} == seen
    assert len(rows) == len({(row.assignment, row.target, row.question) for row in rows})


def test_answers_survive_a_reload_and_can_be_undone(lab: Lab) -> None:
    study = lab.open(judge_toml("ssa-static"), "ssa-static")
    rater = lab.rater(study)
    task = rater.begin(TRAINING["ssa-static"])
    assignment = task["assignment"]
    ok(rater.label(assignment, ("unit", "sensible", True), key="a"))
    ok(rater.label(assignment, ("unit", "sensible", False), key="b"))
    reloaded = rater.state()["task"]
    assert reloaded["labels"] == [{"target": "unit", "question": "sensible", "value": False}]
    undone = rater.act("undo", assignment=assignment, key=reloaded["undo_key"])
    assert undone["labels"] == [{"target": "unit", "question": "sensible", "value": True}]
    assert undone["undo_key"] == "a"
    assert rater.act("undo", assignment=assignment, key="a")["can_undo"] is False


def test_a_reply_that_makes_no_sense_is_not_specific(lab: Lab) -> None:
    study = lab.open(judge_toml("ssa-static"), "ssa-static")
    rater = lab.rater(study)
    assignment = rater.begin(TRAINING["ssa-static"])["assignment"]
    ok(rater.label(assignment, ("unit", "sensible", True), ("unit", "specific", True)))
    ok(rater.label(assignment, ("unit", "sensible", False)))
    rater.act("submit", assignment=assignment, key="s")
    stored = {row.question: row.value for row in lab.store.rows(study.id)}
    assert stored == {"sensible": False, "specific": False}


def test_training_shows_why_an_answer_is_wrong_and_screens_out_after_the_last_attempt(lab: Lab) -> None:
    study = lab.open(judge_toml("ssa-static"), "ssa-static")
    rater = lab.rater(study)
    rater.act("consent", version="1", language="en")
    state = rater.act("tutorial")
    for attempt in range(2):
        assert state["training"]["attempts_left"] == 2 - attempt
        for index in range(3):
            state = rater.act("training", index=index, value=True)
            assert state["feedback"]["correct"] is (index == 0)
            assert state["feedback"]["text"]
    assert state["step"] == "screened_out"
    assert state["code"] == study.config["completion"]["screened_out"]
    assert lab.store.progress(study.id).by_step == {"screened_out": 1}


def test_checks_of_attention_come_between_units_and_are_recorded(lab: Lab) -> None:
    toml = judge_toml("ssa-static", training=[]) + ATTENTION
    study = lab.open(toml, "ssa-static")
    rater = lab.rater(study)
    task = rater.begin()
    ok(rater.label(task["assignment"], *answers(task)))
    state = rater.act("submit", assignment=task["assignment"], key="s")
    assert state["task"] is None
    assert state["attention"]["question"]["kind"] == "choice"
    assert "answer" not in state["attention"]
    assert rater.act("next")["task"] is None
    state = rater.act("attention", value="red")
    assert state["feedback"]["correct"] is False
    assert "attention" not in state
    assert rater.act("next")["task"] is not None
    participant = lab.store.participants(study.id)[0]
    assert participant.data["attention"] == [{"units": 1, "index": 0, "passed": False}]


ATTENTION = """
[[attention]]
answer = "blue"
every = 1
[attention.question]
id = "attention"
kind = "choice"
text = "Choose blue."
choices = [{ value = "red", text = "Red" }, { value = "blue", text = "Blue" }]
"""


def test_the_language_can_be_changed_at_any_time(lab: Lab) -> None:
    study = lab.open(judge_toml("ssa-static", languages=["en", "de"]), "ssa-static")
    rater = lab.rater(study)
    english = rater.state()
    german = rater.act("language", language="de")
    assert german["language"] == "de"
    assert german["consent"]["text"] != english["consent"]["text"]
    state = rater.act("consent", version="1", language="de")
    assert state["language"] == "de"
    assert state["texts"]["button.next"] == "Weiter"


def test_two_people_never_rate_a_unit_that_wants_one_rating(lab: Lab) -> None:
    study = lab.open(judge_toml("ssa-static", ratings_per_unit=1, training=[]), "ssa-static")
    raters = [lab.rater(study) for _ in range(7)]
    for rater in raters:
        rater.begin()
    live = lab.store.progress(study.id).units
    assert len(live) == 6
    assert all(unit.live == 1 for unit in live)
    assert raters[-1].state()["step"] == "done"


def test_withdrawal_deletes_everything_but_the_fact(lab: Lab) -> None:
    study = lab.open(judge_toml("ssa-static", training=[]), "ssa-static")
    rater = lab.rater(study, "withdrawn-worker")
    task = rater.begin()
    ok(rater.label(task["assignment"], *answers(task)))
    rater.act("submit", assignment=task["assignment"], key="s")
    assert list(lab.store.rows(study.id))
    state = rater.act("withdraw", confirm=True)
    assert state["step"] == "withdrawn"
    assert state["code"] is None
    assert rater.state()["step"] == "withdrawn"
    assert not list(lab.store.rows(study.id))
    assert lab.store.identity(lab.store.participants(study.id)[0].id) is None
    assert "withdrawn" in {event.what for event in lab.store.events(study.id)}


def test_a_heartbeat_keeps_the_task(lab: Lab) -> None:
    study = lab.open(judge_toml("ssa-static", training=[]), "ssa-static")
    rater = lab.rater(study)
    assignment = rater.begin()["assignment"]
    participant = lab.studies.service.rater(study.id, rater.token).id
    lab.store.renew(assignment, 1)
    before = lab.store.assignment(assignment).expires
    soon = before - timedelta(minutes=1)
    on_time = lab.studies.service.store._now
    lab.studies.service.store._now = lambda: soon
    try:
        assert rater.act("heartbeat", assignment=assignment)["step"] == "work"
    finally:
        lab.studies.service.store._now = on_time
    assert lab.store.assignment(assignment, participant).expires > before


def test_who_worked_until_the_study_closed_gets_the_code(lab: Lab) -> None:
    study = lab.open(judge_toml("ssa-static", training=[]), "ssa-static")
    worked, late = lab.rater(study), lab.rater(study)
    task = worked.begin()
    ok(worked.label(task["assignment"], *answers(task)))
    worked.act("submit", assignment=task["assignment"], key="s")
    lab.store.set_state(study.id, "closed", "ada")
    assert worked.state()["code"] == study.config["completion"]["done"]
    state = late.state()
    assert (state["step"], state["code"]) == ("closed", None)
    assert worked.enter(PROLIFIC_PID="somebody-else").status_code == 409
