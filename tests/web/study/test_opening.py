"""Opening studies: bots answer the contexts, and what made each response is kept where nobody sees it."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.study.conftest import item_lines
from tests.web.study.conftest import Lab, chat_toml, judge_toml, make_bots, ok

from tertulia.core.errors import ConfigError, DataError, UsageError
from tertulia.store import Database, StudyStore
from tertulia.study.blinding import task_view
from tertulia.study.config import StudyConfig
from tertulia.study.presets import study_from_toml
from tertulia.study.units import StudyItem, Unit, read_items
from tertulia.web.study.opening import PROVENANCE, generate_responses, open_study

BOTS = """
[[bots]]
name = "heard"
spec = "inspect"

[[bots]]
name = "second"
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StudyStore]:
    with Database.open(f"sqlite:///{tmp_path / 'study.db'}") as database:
        yield StudyStore(database)


def toml() -> str:
    return judge_toml("ssa-static").partition("[[bots]]")[0] + BOTS


@pytest.fixture
def items() -> list[StudyItem]:
    return read_items(item_lines("ssa-static"))


def test_bots_generate_what_the_items_lack(store: StudyStore, items: list[StudyItem]) -> None:
    bots, progress = make_bots(), []
    record = open_study(
        store,
        toml(),
        "folder/pilot.toml",
        items,
        {},
        random.Random(0),
        load_bot=bots.__getitem__,
        on_progress=lambda done, of: progress.append((done, of)),
    )
    assert (record.name, record.state) == ("pilot", "open")
    assert progress[-1] == (3, 3)
    units = list(store.units(record.id))
    assert len(units) == 6
    config = StudyConfig.model_validate(dict(record.config))
    assert all(config.completion.model_dump().values())
    for unit in units:
        view = task_view(config, Unit(unit.id, unit.bots, unit.payload), (0,), "en")
        if unit.bots == ("heard",):
            assert unit.payload[PROVENANCE][0]["provenance"]["bot"] == "inspect"
            assert json.loads(unit.payload["responses"][0])["turns"][-1][0] == "user"
        else:
            assert PROVENANCE not in unit.payload
        assert PROVENANCE not in view
        assert "inspect" not in str(view)


def test_the_same_study_gets_the_same_responses(items: list[StudyItem]) -> None:
    config = StudyConfig.model_validate({**_config(toml()), "seed": 7})
    bots = make_bots()
    first, second = (generate_responses(config, items, {}, load_bot=bots.__getitem__) for _ in range(2))
    texts = {(item, bot): reply.text for item, replies in first.items() for bot, reply in replies.items()}
    assert texts == {(item, bot): reply.text for item, replies in second.items() for bot, reply in replies.items()}
    assert len(set(texts.values())) == len(texts) == 3  # seeds differ from item to item


def _config(text: str) -> dict[str, object]:
    return study_from_toml(text, "x.toml").model_dump(mode="json")


def test_responses_that_are_given_are_used_as_they_are(store: StudyStore, items: list[StudyItem]) -> None:
    given = {item.id: {"heard": "  As it is. "} for item in items}
    record = open_study(store, toml(), "pilot.toml", items, given, random.Random(0), load_bot={}.__getitem__)
    texts = {unit.payload["responses"][0] for unit in store.units(record.id) if unit.bots == ("heard",)}
    assert texts == {"  As it is. "}


def test_a_study_that_cannot_be_opened_leaves_nothing_behind(store: StudyStore, items: list[StudyItem]) -> None:
    with pytest.raises(ConfigError, match=r"pilot\.toml: line 1"):
        open_study(store, 'preset = "ssa-statik"', "pilot.toml", items, {}, random.Random(0))
    with pytest.raises(DataError):
        open_study(store, judge_toml("ssa-static"), "pilot.toml", [], {}, random.Random(0))
    assert not store.list()


def test_a_name_is_used_once(store: StudyStore, items: list[StudyItem]) -> None:
    for name in ("a", "b"):
        open_study(store, judge_toml("ssa-static"), "pilot.toml", items, {}, random.Random(0), name=name)
    with pytest.raises(UsageError, match="exists already"):
        open_study(store, judge_toml("ssa-static"), "b.toml", items, {}, random.Random(0))


def test_bots_that_the_server_does_not_offer_are_loaded_in_the_background(
    lab: Lab, eventually: Callable[..., None]
) -> None:
    study = lab.open(chat_toml("interactive-likert", "generic"))
    rater = lab.rater(study)
    rater.training_answers = []
    rater.reach_work()
    eventually(lambda: rater.act("next").get("task") is not None, 30)
    chat = ok(rater.say(rater.state()["task"]["assignment"], "Hello!"))["chat"]
    assert chat["turns"][-1]["text"]
    assert rater.http.post("/api/conversations", json={"bot": "study:generic"}).status_code == 422


def test_nobody_is_kept_by_a_bot_that_cannot_be_loaded(lab: Lab, eventually: Callable[..., None]) -> None:
    study = lab.open(chat_toml("interactive-likert", "tfidf:/nowhere.jsonl"))
    rater = lab.rater(study)
    rater.training_answers = []
    rater.reach_work()
    eventually(lambda: rater.state()["step"] == "done" or rater.act("next")["step"] == "done", 30)
    state = rater.state()
    assert state["code"] == study.config["completion"]["done"]
    assert "nowhere" not in str(state)
