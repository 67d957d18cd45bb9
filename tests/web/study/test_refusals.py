"""What participants, and people who are none, may not do."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.web.study.conftest import TRAINING, Lab, Rater, answers, chat_toml, judge_toml, lab_at, ok

from tertulia.store.study_records import StudyRecord
from tertulia.study.config import StudyConfig
from tertulia.study.invitations import invitation

CHAT = {"min_turns": 3, "max_turns": 5}


class Scene:
    """A study of each kind with two participants at work, for one case after the other."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.static = lab.open(judge_toml("ssa-static", training=[], ratings_per_unit=9), "ssa-static")
        self.chat = lab.open(chat_toml("ssa-interactive", "one", **CHAT))
        self.trained = lab.open(judge_toml("ssa-static", max_participants=1, training_attempts=1), "ssa-static")

    def judge(self, study: StudyRecord | None = None) -> tuple[Rater, str]:
        """A new participant who judges, and their task."""
        rater = self.lab.rater(study or self.static)
        return rater, rater.begin()["assignment"]

    def chatter(self, **settings: Any) -> tuple[Rater, dict[str, Any]]:
        """A new participant who chats, and their task."""
        study = self.lab.open(chat_toml("ssa-interactive", "one", **{**CHAT, **settings})) if settings else self.chat
        rater = self.lab.rater(study)
        return rater, rater.begin()

    def new_study(self, **settings: Any) -> StudyRecord:
        return self.lab.open(judge_toml("ssa-static", **{"training": [], **settings}), "ssa-static")

    def talk(self, rater: Rater, text: str = "Hello!", key: str | None = None) -> httpx.Response:
        """Label what there is, and say something."""
        task = rater.state()["task"]
        ok(rater.label(task["assignment"], *answers(task, "turn")))
        return rater.say(task["assignment"], text, key)


@pytest.fixture(scope="module")
def scene(lab: Lab) -> Scene:
    return Scene(lab)


def no_cookie(scene: Scene) -> httpx.Response:
    return scene.lab.rater(scene.static, enters=False).get()


def made_up_token(scene: Scene) -> httpx.Response:
    rater = scene.lab.rater(scene.static, enters=False)
    rater.http.cookies.set(f"tertulia_study_{scene.static.id}", "a" * 43)
    return rater.get()


def token_of_another_study(scene: Scene) -> httpx.Response:
    rater = scene.lab.rater(scene.static)
    rater.http.cookies.set(f"tertulia_study_{scene.chat.id}", rater.token)
    rater.study = scene.chat.id
    return rater.get()


def unknown_study(scene: Scene) -> httpx.Response:
    rater = scene.lab.rater(scene.static)
    rater.study = "0" * 32
    return rater.get()


def draft(scene: Scene) -> httpx.Response:
    study = scene.lab.store.create("draft", scene.static.config, "0")
    return scene.lab.rater(study, enters=False).enter(PROLIFIC_PID="x")


def link_without_an_id(scene: Scene) -> httpx.Response:
    return scene.lab.rater(scene.static, enters=False).enter()


def forged_invitation(scene: Scene) -> httpx.Response:
    return scene.lab.rater(scene.static, enters=False).enter(invite="ada." + "0" * 32)


def invitation_to_another_study(scene: Scene) -> httpx.Response:
    config = StudyConfig.model_validate(dict(scene.chat.config))
    return scene.lab.rater(scene.static, enters=False).enter(invite=invitation(config, scene.chat.id, "ada"))


def closed_study_takes_nobody(scene: Scene) -> httpx.Response:
    study = scene.new_study()
    scene.lab.store.set_state(study.id, "closed", "ada")
    return scene.lab.rater(study, enters=False).enter(PROLIFIC_PID="x")


def closed_study_takes_no_labels(scene: Scene) -> httpx.Response:
    study = scene.new_study()
    rater, assignment = scene.judge(study)
    scene.lab.store.set_state(study.id, "closed", "ada")
    return rater.label(assignment, ("unit", "sensible", True))


def ended_study(scene: Scene) -> httpx.Response:
    study = scene.lab.open("ends = 2001-01-01T00:00:00Z\n" + judge_toml("ssa-static", training=[]), "ssa-static")
    return scene.lab.rater(study, enters=False).enter(PROLIFIC_PID="x")


def full_study(scene: Scene) -> httpx.Response:
    study = scene.new_study(max_participants=1)
    scene.lab.rater(study)
    return scene.lab.rater(study, enters=False).enter(PROLIFIC_PID="late")


def no_consent(scene: Scene) -> httpx.Response:
    return scene.lab.rater(scene.static).post("next")


def stale_consent(scene: Scene) -> httpx.Response:
    return scene.lab.rater(scene.static).post("consent", version="0", language="en")


def unknown_language(scene: Scene) -> httpx.Response:
    return scene.lab.rater(scene.static).post("consent", version="1", language="tlh")


def training_past_the_attempts(scene: Scene) -> httpx.Response:
    study = scene.lab.open(judge_toml("ssa-static", training_attempts=1), "ssa-static")
    rater = scene.lab.rater(study)
    rater.training_answers = [False, True, True]
    assert rater.reach_work()["step"] == "screened_out"
    return rater.post("training", index=0, value=True)


def training_question_left_out(scene: Scene) -> httpx.Response:
    rater = scene.lab.rater(scene.lab.open(judge_toml("ssa-static"), "ssa-static"))
    rater.act("consent", version="1", language="en")
    rater.act("tutorial")
    return rater.post("training", index=1, value=True)


def labels_of_another_rater(scene: Scene) -> httpx.Response:
    _, assignment = scene.judge()
    return scene.judge()[0].label(assignment, ("unit", "sensible", True))


def submission_of_another_rater(scene: Scene) -> httpx.Response:
    _, assignment = scene.judge()
    return scene.judge()[0].post("submit", assignment=assignment, key="s")


def unknown_assignment(scene: Scene) -> httpx.Response:
    return scene.judge()[0].label("0" * 32, ("unit", "sensible", True))


def value_out_of_range(scene: Scene) -> httpx.Response:
    study = scene.lab.open(judge_toml("begin", training=[]), "begin")
    rater, assignment = scene.judge(study)
    return rater.label(assignment, ("sentence:0", "on_topic", 6))


def value_of_the_wrong_type(scene: Scene) -> httpx.Response:
    rater, assignment = scene.judge()
    return rater.label(assignment, ("unit", "sensible", 1))


def unknown_question(scene: Scene) -> httpx.Response:
    rater, assignment = scene.judge()
    return rater.label(assignment, ("unit", "sensible2", True))


def target_that_the_unit_lacks(scene: Scene) -> httpx.Response:
    rater, assignment = scene.judge()
    return rater.label(assignment, ("sentence:0", "sensible", True))


def turn_of_another_conversation(scene: Scene) -> httpx.Response:
    other = scene.chatter()[1]["chat"]["turns"][0]["id"]
    rater, task = scene.chatter()
    return rater.label(task["assignment"], (f"turn:{other}", "sensible", True))


def own_turn(scene: Scene) -> httpx.Response:
    rater, task = scene.chatter()
    mine = ok(scene.talk(rater))["chat"]["turns"][1]
    assert mine["mine"]
    return rater.label(task["assignment"], (f"turn:{mine['id']}", "sensible", True))


def too_many_labels(scene: Scene) -> httpx.Response:
    rater, assignment = scene.judge()
    return rater.label(assignment, *[("unit", "sensible", True)] * 201)


def unknown_field(scene: Scene) -> httpx.Response:
    rater, assignment = scene.judge()
    return rater.post("submit", assignment=assignment, key="s", bot="one")


def label_key_with_other_content(scene: Scene) -> httpx.Response:
    rater, assignment = scene.judge()
    ok(rater.label(assignment, ("unit", "sensible", True), key="k"))
    ok(rater.label(assignment, ("unit", "sensible", True), key="k"))
    return rater.label(assignment, ("unit", "sensible", False), key="k")


def message_key_with_other_content(scene: Scene) -> httpx.Response:
    rater, task = scene.chatter()
    ok(scene.talk(rater, "Hello!", "k"))
    ok(rater.say(task["assignment"], "Hello!", "k"))
    return rater.say(task["assignment"], "Something else", "k")


def submission_with_another_key(scene: Scene) -> httpx.Response:
    rater, assignment = scene.judge()
    ok(rater.label(assignment, ("unit", "sensible", False)))
    rater.act("submit", assignment=assignment, key="a")
    rater.act("submit", assignment=assignment, key="a")
    return rater.post("submit", assignment=assignment, key="b")


def label_after_submission(scene: Scene) -> httpx.Response:
    rater, assignment = scene.judge()
    ok(rater.label(assignment, ("unit", "sensible", False)))
    rater.act("submit", assignment=assignment, key="a")
    return rater.label(assignment, ("unit", "sensible", True))


def undo_of_nothing(scene: Scene) -> httpx.Response:
    rater, assignment = scene.judge()
    return rater.post("undo", assignment=assignment, key="never")


def expired_lease(scene: Scene) -> httpx.Response:
    rater = scene.lab.rater(scene.new_study(lease_minutes=1e-6))
    assert rater.begin() is None
    participant = scene.lab.studies.service.rater(rater.study, rater.token).id
    return rater.label(scene.lab.store.assignments_of(participant)[0].id, ("unit", "sensible", True))


def missing_answers(scene: Scene) -> httpx.Response:
    rater, assignment = scene.judge()
    return rater.post("submit", assignment=assignment, key="s")


def too_long_message(scene: Scene) -> httpx.Response:
    return scene.talk(scene.chatter()[0], "x" * 16_001)


def too_large_request(scene: Scene) -> httpx.Response:
    return scene.talk(scene.chatter()[0], "x" * 1_000_001)


def empty_message(scene: Scene) -> httpx.Response:
    return scene.talk(scene.chatter()[0], " \n ")


def message_to_nobody(scene: Scene) -> httpx.Response:
    rater, assignment = scene.judge()
    return rater.say(assignment, "Hello?")


def message_before_the_labels(scene: Scene) -> httpx.Response:
    rater, task = scene.chatter()
    return rater.say(task["assignment"], "Hello!")


def message_after_the_last_turn(scene: Scene) -> httpx.Response:
    rater, _ = scene.chatter()
    for _ in range(2):
        ok(scene.talk(rater))
    return scene.talk(rater)


def end_before_the_minimum(scene: Scene) -> httpx.Response:
    rater, task = scene.chatter()
    return rater.post("finish", assignment=task["assignment"])


def submission_before_the_minimum(scene: Scene) -> httpx.Response:
    rater, task = scene.chatter()
    return rater.post("submit", assignment=task["assignment"], key="s")


def persona_before_the_end(scene: Scene) -> httpx.Response:
    toml = chat_toml("persona-chat", "one", items="items.jsonl")
    rater = scene.lab.rater(scene.lab.open(toml, "persona-chat"))
    task = rater.begin()
    assert "personas" not in task
    return rater.label(task["assignment"], ("unit", "persona", "A"))


def attention_that_is_not_due(scene: Scene) -> httpx.Response:
    return scene.judge()[0].post("attention", value="blue")


def leaving_nobody(scene: Scene) -> httpx.Response:
    return scene.judge()[0].post("leave")


def withdrawal_without_confirmation(scene: Scene) -> httpx.Response:
    return scene.judge()[0].post("withdraw", confirm=False)


def work_after_withdrawal(scene: Scene) -> httpx.Response:
    rater, assignment = scene.judge()
    rater.act("withdraw", confirm=True)
    return rater.label(assignment, ("unit", "sensible", True))


def next_after_withdrawal(scene: Scene) -> httpx.Response:
    rater, _ = scene.judge()
    rater.act("withdraw", confirm=True)
    return rater.post("next")


def form_instead_of_json(scene: Scene) -> httpx.Response:
    rater = scene.lab.rater(scene.static)
    body = '{"version": "1", "language": "en"}'
    return rater.http.post(f"/api/study/{rater.study}/consent", content=body, headers={"Content-Type": "text/plain"})


def another_sites_page(scene: Scene) -> httpx.Response:
    rater = scene.lab.rater(scene.static)
    body = {"version": "1", "language": "en"}
    origin = {"Origin": "https://evil.example"}
    return rater.http.post(f"/api/study/{rater.study}/consent", json=body, headers=origin)


def conversation_on_the_chat_page(scene: Scene) -> httpx.Response:
    rater, _ = scene.chatter()
    participant = scene.lab.studies.service.rater(rater.study, rater.token).id
    conversation = scene.lab.store.assignments_of(participant)[0].conversations[0]
    return rater.http.get(f"/api/conversations/{conversation}")


def bot_of_a_study_on_the_chat_page(scene: Scene) -> httpx.Response:
    return scene.chatter()[0].http.post("/api/conversations", json={"bot": "study:one"})


CASES: dict[Callable[[Scene], httpx.Response], int] = {
    no_cookie: 401,
    made_up_token: 401,
    token_of_another_study: 401,
    unknown_study: 404,
    draft: 404,
    link_without_an_id: 403,
    forged_invitation: 403,
    invitation_to_another_study: 403,
    closed_study_takes_nobody: 409,
    closed_study_takes_no_labels: 409,
    ended_study: 409,
    full_study: 409,
    no_consent: 409,
    stale_consent: 409,
    unknown_language: 422,
    training_past_the_attempts: 409,
    training_question_left_out: 409,
    labels_of_another_rater: 403,
    submission_of_another_rater: 403,
    unknown_assignment: 404,
    value_out_of_range: 422,
    value_of_the_wrong_type: 422,
    unknown_question: 422,
    target_that_the_unit_lacks: 422,
    turn_of_another_conversation: 422,
    own_turn: 422,
    too_many_labels: 422,
    unknown_field: 422,
    label_key_with_other_content: 409,
    message_key_with_other_content: 409,
    submission_with_another_key: 409,
    label_after_submission: 409,
    undo_of_nothing: 404,
    expired_lease: 409,
    missing_answers: 422,
    too_long_message: 413,
    too_large_request: 413,
    empty_message: 422,
    message_to_nobody: 409,
    message_before_the_labels: 409,
    message_after_the_last_turn: 409,
    end_before_the_minimum: 409,
    submission_before_the_minimum: 409,
    persona_before_the_end: 409,
    attention_that_is_not_due: 409,
    leaving_nobody: 409,
    withdrawal_without_confirmation: 422,
    work_after_withdrawal: 409,
    next_after_withdrawal: 409,
    form_instead_of_json: 422,
    another_sites_page: 403,
    conversation_on_the_chat_page: 404,
    bot_of_a_study_on_the_chat_page: 422,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_it_is_refused(scene: Scene, case: Callable[[Scene], httpx.Response]) -> None:
    before = _stored(scene.lab)
    answer = case(scene)
    assert answer.status_code == CASES[case], answer.text
    if answer.headers["content-type"] == "application/json":
        assert answer.json()["error"]["message"]
    assert "study:one" not in answer.text or case is bot_of_a_study_on_the_chat_page
    assert _stored(scene.lab) >= before  # and nothing was deleted by it


def _stored(lab: Lab) -> int:
    return sum(len(list(lab.store.units(study.id))) for study in lab.store.list())


def test_the_same_identity_is_the_same_participant_on_every_device(lab: Lab, scene: Scene) -> None:
    first, second = lab.rater(scene.static, "twice"), lab.rater(scene.static, "twice")
    assignment = first.begin()["assignment"]
    assert second.state()["task"]["assignment"] == assignment
    assert first.token != second.token


def test_a_preview_enrols_nobody(lab: Lab, scene: Scene) -> None:
    study = scene.new_study()
    rater = lab.rater(study, enters=False)
    page = rater.enter(assignmentId="ASSIGNMENT_ID_NOT_AVAILABLE", workerId="w", hitId="h")
    assert page.status_code == 200
    assert not rater.http.cookies
    assert ok(rater.get(preview=True))["consent"]["text"]
    assert rater.get().status_code == 401
    assert not lab.store.participants(study.id)


def test_platforms_and_invitations_identify_participants(lab: Lab, scene: Scene) -> None:
    study = scene.new_study()
    config = StudyConfig.model_validate(dict(study.config))
    invite = invitation(config, study.id, "ada")
    for parameters in ({"workerId": "w", "assignmentId": "a", "hitId": "h"}, {"invite": invite}, {"invite": invite}):
        rater = lab.rater(study, enters=False)
        answer = rater.enter(**parameters)
        assert answer.status_code == 303
        assert answer.headers["location"] == f"{study.id}/"
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert rater.state()["step"] == "consent"
    identities = [lab.store.identity(one.id) for one in lab.store.participants(study.id)]
    assert [(one.source, one.external_id) for one in identities if one] == [("mturk", "w"), ("invitation", "ada")]


def test_an_open_study_takes_everybody_once_per_browser(lab: Lab, scene: Scene) -> None:
    study = scene.new_study(access="open")
    rater = lab.rater(study, enters=False)
    for _ in range(2):
        rater.enter()
    assert rater.state()["step"] == "consent"
    assert len(lab.store.participants(study.id)) == 1


def test_participants_need_no_password_and_get_no_further(tmp_path: Any) -> None:
    with lab_at(f"sqlite:///{tmp_path / 'study.db'}", password="secret") as lab:
        rater = lab.rater(lab.open(judge_toml("ssa-static"), "ssa-static"))
        assert rater.state()["step"] == "consent"
        protected = ("/api/conversations", "/api/bots", "/v1/models", "/metrics", "/openapi.json", "/api/studyx")
        statuses = {path: rater.http.get(path).status_code for path in protected}
        assert set(statuses.values()) == {401}, statuses


def test_messages_are_limited_per_participant(tmp_path: Any) -> None:
    with lab_at(f"sqlite:///{tmp_path / 'study.db'}", messages_per_minute=4) as lab:
        study = lab.open(chat_toml("interactive-likert", "one", min_turns=2))
        first, second = lab.rater(study), lab.rater(study)
        tasks = [first.begin(), second.begin()]
        statuses = [first.say(tasks[0]["assignment"], f"Message {i}").status_code for i in range(3)]
        assert statuses == [200, 200, 429]
        assert second.say(tasks[1]["assignment"], "Hello!").status_code == 200


def test_the_training_of_the_preset_is_passed_with_its_answers(lab: Lab, scene: Scene) -> None:
    assert lab.rater(scene.trained).begin(TRAINING["ssa-static"])["assignment"]
