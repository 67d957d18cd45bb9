"""Two people who talk with each other: on one server, and on two servers that share a PostgreSQL database."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from tests.store.conftest import postgresql, postgresql_url, sqlite_url  # noqa: F401 - fixtures
from tests.web.conftest import events_of
from tests.web.study.conftest import Lab, Rater, chat_toml, lab_at, ok

Labs = Callable[[], tuple[Lab, Lab]]


@pytest.fixture(params=["sqlite", "postgresql"])
def labs(request: pytest.FixtureRequest) -> Iterator[tuple[Lab, Lab]]:
    """The servers of the first and the second participant: one on SQLite, two on PostgreSQL."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    with ExitStack() as stack:
        first = stack.enter_context(lab_at(url))
        yield first, stack.enter_context(lab_at(url)) if request.param == "postgresql" else first


class Live:
    """The live stream of a participant, read on a thread."""

    def __init__(self, rater: Rater) -> None:
        self.events: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.opened = threading.Event()
        self.thread = threading.Thread(target=self._read, args=(rater,), daemon=True)
        self.thread.start()
        assert self.opened.wait(20)

    def _read(self, rater: Rater) -> None:
        with (
            httpx.Client(base_url=rater.http.base_url, cookies=rater.http.cookies, timeout=30) as http,
            http.stream("GET", f"/api/study/{rater.study}/live") as answer,
        ):
            assert answer.status_code == 200
            for item in events_of(answer.iter_lines()):
                self.opened.set()
                self.events.put(item)
        self.events.put(("end", None))

    def wait_for(self, *names: str) -> Any:
        """The data of the next event with one of these names."""
        while True:
            name, data = self.events.get(timeout=20)
            assert name != "end", "the stream has ended"
            if name in names:
                return data


SETTINGS: dict[str, Any] = {"units_per_participant": 1, "min_turns": 2, "min_turns_up_to": 2, "items": "items.jsonl"}


def paired(labs: tuple[Lab, Lab], **settings: Any) -> tuple[Any, Rater, Rater]:
    """A study, and two participants who were matched."""
    study = labs[0].open(chat_toml("collect-dialogues", "human", **{**SETTINGS, **settings}), "collect-dialogues")
    first, second = labs[0].rater(study), labs[1].rater(study)
    first.training_answers = second.training_answers = []
    assert [rater.reach_work()["step"] for rater in (first, second)] == ["work", "work"]
    assert first.act("next")["step"] == "waiting"
    waiting = Live(first)
    assert second.act("next")["step"] == "waiting"
    assert second.act("join")["step"] == "work"
    waiting.wait_for("matched")
    assert first.state()["step"] == "work"
    return study, first, second


def test_two_people_meet_talk_and_finish(labs: tuple[Lab, Lab]) -> None:
    study, first, second = paired(labs)
    tasks = [rater.state()["task"] for rater in (first, second)]
    assert tasks[0]["own_persona"] != tasks[1]["own_persona"]
    live = [Live(first), Live(second)]
    ok(first.post("typing"))
    live[1].wait_for("typing")
    ok(first.say(tasks[0]["assignment"], "Hello there!"))
    turn = live[1].wait_for("turn")
    assert turn["text"] == "Hello there!"
    assert not turn["mine"]
    assert first.say(tasks[0]["assignment"], "And again.").status_code == 409  # it is the other one's turn
    ok(second.say(tasks[1]["assignment"], "Good evening."))
    while live[0].wait_for("turn")["mine"]:
        pass
    for rater, task in zip((first, second), tasks, strict=True):
        state = rater.act("submit", assignment=task["assignment"], key="s")
        assert (state["step"], state["code"]) == ("done", study.config["completion"]["done"])
    done = [unit.done for unit in labs[0].store.progress(study.id).units]
    assert sorted(done)[-1] == 2  # both of one unit


def test_who_is_left_alone_is_released_with_the_code_for_it(labs: tuple[Lab, Lab]) -> None:
    study, first, second = paired(labs)
    live = Live(first)
    assert second.act("leave")["step"] == "work"
    live.wait_for("released")
    state = first.state()
    assert (state["step"], state["code"]) == ("partner_left", study.config["completion"]["partner_left"])
    assert second.state()["progress"]["done"] == 0


def test_who_withdraws_takes_the_conversation_along_and_releases_the_partner(labs: tuple[Lab, Lab]) -> None:
    study, first, second = paired(labs)
    ok(first.say(first.state()["task"]["assignment"], "My secret."))
    assert first.act("withdraw", confirm=True)["step"] == "withdrawn"
    state = second.state()
    assert (state["step"], state["code"]) == ("partner_left", study.config["completion"]["partner_left"])


def test_who_leaves_after_a_long_enough_conversation_does_not_take_it_from_the_other(labs: tuple[Lab, Lab]) -> None:
    _, first, second = paired(labs)
    assignments = [rater.state()["task"]["assignment"] for rater in (first, second)]
    ok(first.say(assignments[0], "Hello there!"))
    ok(second.say(assignments[1], "Good evening."))
    second.act("leave")
    chat = first.state()["task"]["chat"]
    assert (chat["ended"], chat["can_finish"]) == (True, True)
    assert first.act("submit", assignment=assignments[0], key="s")["step"] == "done"


def test_nobody_waits_for_ever(lab: Lab) -> None:
    toml = chat_toml("collect-dialogues", "human", **SETTINGS, wait_seconds=1e-6)
    study = lab.open(toml, "collect-dialogues")
    rater = lab.rater(study)
    rater.training_answers = []
    rater.reach_work()
    assert rater.act("next")["step"] == "waiting"
    state = rater.act("join")
    assert (state["step"], state["code"]) == ("timed_out", study.config["completion"]["timed_out"])


def test_a_partner_who_vanishes_is_noticed(lab: Lab) -> None:
    """The other's clock runs ahead: to them, the partner was last seen long ago."""
    study, first, second = paired((lab, lab))
    later = datetime.now(UTC) + timedelta(minutes=5)
    service = lab.studies.service
    rater = service.rater(study.id, first.token)
    on_time, service.now = service.now, lambda: later
    try:
        live = rater.work.live
        assert live is not None
        assert lab.studies.pairs.look(rater, service.task(rater)) == "left"
    finally:
        service.now = on_time
    assert first.state()["step"] == "partner_left"
    assert second.state()["step"] == "partner_left"


def test_messages_keep_to_the_limits_of_the_study(lab: Lab) -> None:
    _, first, _ = paired((lab, lab))
    task = first.state()["task"]
    too_long = first.say(task["assignment"], " ".join(["word"] * 16))
    copied = first.say(task["assignment"], "Well, " + task["own_persona"][0])
    assert (too_long.status_code, copied.status_code) == (422, 422)
    assert "16" in too_long.json()["error"]["message"]


def test_people_and_bots_in_one_study_answer_by_the_same_way(lab: Lab) -> None:
    toml = chat_toml("interactive-likert", "one", min_turns=2, units_per_participant=2)
    toml += '\n[[bots]]\nname = "person"\nspec = "human"\n'
    study = lab.open(toml)
    rater = lab.rater(study)
    task = rater.begin()
    while task is None:  # drawn to wait for a person
        rater.act("leave")
        rater = lab.rater(study)
        task = rater.begin()
    assert task["chat"]["live"]
    live = Live(rater)
    assert [name for name, _ in rater.stream(task["assignment"], "Hello!")] == ["user"]
    while live.wait_for("turn")["mine"]:
        pass
