"""Studies on a real server with a real SQLite file, and raters who use the API as the page does."""

import json
import random
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.study.conftest import item_lines
from tests.web.conftest import Broken, Count, Echo, Inspect, events_of

from tertulia.core.reply import Ask, Provenance, Reply
from tertulia.store import ConversationStore, Database, StudyStore
from tertulia.store.study_records import StudyRecord
from tertulia.study.presets import study_template
from tertulia.study.units import read_items
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import running
from tertulia.web.study.deps import StudyParts
from tertulia.web.study.opening import open_study


class Fixed:
    """Always says the same."""

    summary = "Says one thing."

    def __init__(self, spec: str, text: str) -> None:
        self.spec = spec
        self.text = text

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [Reply(self.text, Provenance(self.spec, seed=ask.seed)) for ask in asks]


class Moody:
    """Fails when it is told to, else repeats the message in Markdown."""

    spec = "moody"
    summary = "Fails on request."

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        if any(ask.last == "fail" for ask in asks):
            raise ZeroDivisionError
        return [Reply(f"**{ask.last}**", Provenance(self.spec)) for ask in asks]


def make_bots() -> dict[str, Any]:
    fixed = (Fixed("one", "I like the sea."), Fixed("two", "You like tea .."))
    bots = (Echo(), Inspect(), Count(), Broken(), Moody(), *fixed)
    return {bot.spec: bot for bot in bots}


CHAT = """
preset = "{preset}"
languages = ["en", "de", "es"]
{more}
{bots}
"""


def chat_toml(preset: str, *specs: str, **settings: Any) -> str:
    """A study in which people chat with these bots."""
    more = "\n".join(f"{name} = {json.dumps(value)}" for name, value in settings.items())
    bots = "\n".join(f'[[bots]]\nname = "bot-{i}"\nspec = "{spec}"' for i, spec in enumerate(specs))
    return CHAT.format(preset=preset, more=more, bots=bots)


def judge_toml(preset: str, **settings: Any) -> str:
    """A study of fixed items with the bots `first` and `second`."""
    more = "\n".join(f"{name} = {json.dumps(value)}" for name, value in settings.items())
    return more + "\n" + "\n".join(line for line in study_template(preset).splitlines() if _key(line) not in settings)


def _key(line: str) -> str:
    return line.partition("=")[0].strip()


class Lab:
    """A server, and its studies."""

    def __init__(self, url: str, database: Database, studies: StudyParts) -> None:
        self.url = url
        self.studies = studies
        self.database = database
        self.store = StudyStore(database)
        self.conversations = ConversationStore(database)
        self.raters: list[Rater] = []

    def open(self, toml: str, preset: str | None = None) -> StudyRecord:
        """Open a study, with the items that its preset needs."""
        items = read_items(item_lines(preset)) if preset else []
        bots = make_bots()
        return open_study(
            self.store,
            toml,
            f"{secrets.token_hex(4)}.toml",
            items,
            {},
            random.Random(0),
            load_bot=lambda spec: bots[spec],
        )

    def rater(self, study: StudyRecord, worker: str | None = None, *, enters: bool = True) -> "Rater":
        """Somebody with an id of their own, who has opened the study's link."""
        rater = Rater(self.url, study.id)
        self.raters.append(rater)
        if enters:
            rater.enter(PROLIFIC_PID=worker or f"worker-{secrets.token_hex(4)}")
        return rater


class Rater:
    """A client that makes the requests of the study page."""

    def __init__(self, url: str, study: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=30)
        self.study = study
        self.keys = 0

    def enter(self, **parameters: str) -> httpx.Response:
        return self.http.get(f"/study/{self.study}", params=parameters)

    @property
    def token(self) -> str:
        return self.http.cookies[f"tertulia_study_{self.study}"]

    def key(self) -> str:
        self.keys += 1
        return f"key-{self.keys}"

    def get(self, what: str = "state", **parameters: Any) -> httpx.Response:
        return self.http.get(f"/api/study/{self.study}/{what}", params=parameters)

    def post(self, what: str, **body: Any) -> httpx.Response:
        return self.http.post(f"/api/study/{self.study}/{what}", json=body)

    def state(self) -> dict[str, Any]:
        return ok(self.get())

    def act(self, what: str, **body: Any) -> dict[str, Any]:
        return ok(self.post(what, **body))

    def reach_work(self) -> dict[str, Any]:
        """Consent, tutorial and training, with the right answers of the presets."""
        state = self.state()
        while state["step"] in ("consent", "tutorial", "training"):
            if state["step"] == "consent":
                state = self.act("consent", version=state["consent"]["version"], language="en")
            elif state["step"] == "tutorial":
                state = self.act("tutorial")
            else:
                state = self.act("training", index=state["training"]["index"], value=self.training_answers.pop(0))
        return state

    training_answers: list[Any]

    def begin(self, answers: Sequence[Any] = ()) -> dict[str, Any]:
        """Everything up to the first task."""
        self.training_answers = list(answers)
        self.reach_work()
        task: dict[str, Any] = self.act("next").get("task")
        return task

    def label(self, assignment: str, *labels: tuple[str, str, Any], key: str | None = None) -> httpx.Response:
        body = [{"target": target, "question": question, "value": value} for target, question, value in labels]
        return self.post("labels", assignment=assignment, key=key or self.key(), labels=body, seconds=1.5)

    def say(self, assignment: str, text: str, key: str | None = None) -> httpx.Response:
        return self.post("say", assignment=assignment, text=text, key=key or self.key(), stream=False)

    def stream(self, assignment: str, text: str, key: str | None = None) -> list[tuple[str, Any]]:
        body = {"assignment": assignment, "text": text, "key": key or self.key()}
        with self.http.stream("POST", f"/api/study/{self.study}/say", json=body) as answer:
            assert answer.status_code == 200, answer.read()
            return list(events_of(answer.iter_lines()))


def ok(answer: httpx.Response) -> dict[str, Any]:
    """The body of a response that must be fine."""
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


OpenLab = Callable[..., Any]


@contextmanager
def lab_at(url: str, bots: Mapping[str, Any] | None = None, **settings: Any) -> Iterator[Lab]:
    """A server on a database."""
    config = ServeConfig(**{"keep_alive_seconds": 5, "messages_per_minute": 0, **settings})
    with Database.open(url) as database:
        app = create_app(bots or make_bots(), database, config=config)
        with running(app) as address:
            yield from _lab(address, database, app.state.study)


def _lab(address: str, database: Database, studies: StudyParts) -> Iterator[Lab]:
    lab = Lab(address, database, studies)
    try:
        yield lab
    finally:
        for rater in lab.raters:
            rater.http.close()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A server for all tests of a module."""
    path: Path = tmp_path_factory.mktemp("study") / "study.db"
    with lab_at(f"sqlite:///{path}") as opened:
        yield opened


TRAINING: dict[str, list[Any]] = {
    "ssa-static": [True, False, False],
    "begin": [5, 5, 5],
    "pairwise-static": ["B", "A", "A"],
}
"""The right answers to the presets' training questions."""


def targets_of(task: dict[str, Any], question: dict[str, Any]) -> list[str]:
    """What the page asks a question about."""
    match question["scope"]:
        case "side":
            return [f"side:{side}" for side in task["sides"]]
        case "sentence":
            written = task["persona"] if task["protocol"] == "write" else task["responses"][0]["sentences"]
            return [f"sentence:{i}" for i in range(len(written))]
        case "turn":
            turns = [turn for turn in task["chat"]["turns"] if not turn["mine"]]
            wanted = [turn for turn in turns if question["kind"] != "side" or turn["side"] in (None, "A")]
            return [f"turn:{turn['id']}" for turn in wanted]
    return ["unit"]


def answer_to(question: dict[str, Any]) -> Any:
    """Some answer: the first one that there is."""
    match question["kind"]:
        case "yes-no":
            return True
        case "scale":
            return question["high"]
        case "text":
            return "Words of my own, quite different."
    return question["choices"][0]["value"]


def answers(task: dict[str, Any], *scopes: str) -> list[tuple[str, str, Any]]:
    """An answer to every question that is asked."""
    labels: list[tuple[str, str, Any]] = []
    for question in task["questions"]:
        if scopes and question["scope"] not in scopes:
            continue
        for target in targets_of(task, question):
            given = {name: value for where, name, value in labels if where == target}
            if all(given.get(name) in values for name, values in (question["when"] or {}).items()):
                labels.append((target, question["id"], answer_to(question)))
    return labels
