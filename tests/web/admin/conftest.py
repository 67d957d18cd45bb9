"""A server with a study that people took part in, and researchers who are signed in."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tertulia.store import AccountStore, ConversationStore, Database, StudyStore
from tertulia.store.study_base import study_owner
from tertulia.study.presets import study_from_toml
from tertulia.talk.bots.generic import GenericBot
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import running

PASSWORD = "correct horse battery"
PAIRWISE = """
preset = "pairwise-static"
items = "items.jsonl"
ratings_per_unit = 2
[[bots]]
name = "ann"
[[bots]]
name = "bob"
[stopping]
question = "quality"
half_width = 0.2
"""
CHAT = """
preset = "ssa-interactive"
[[bots]]
name = "ann"
spec = "generic"
"""
EVIL = '=HYPERLINK("http://evil.example","click")'
TEXTS = {"ann": "<b>Ann</b> & co", "bob": EVIL}
QUESTIONS = ("quality", "fluency", "relatedness", "empathy")


class FilledStudy(NamedTuple):
    id: str
    assignments: list[str]
    participants: list[str]


def fill_pairwise(studies: StudyStore, name: str = "pilot", units: int = 4) -> FilledStudy:
    """A pairwise study that two people finished; they disagree on the quality of the first unit."""
    config = study_from_toml(PAIRWISE, "study.toml")
    study = studies.create(name, config.model_dump(mode="json"), "digest").id
    payload = {"context": [{"speaker": "x", "text": "Hello."}], "responses": list(TEXTS.values()), "source": "i1"}
    studies.add_units(study, [(f"unit-{n}", ["ann", "bob"], payload, 2) for n in range(units)])
    studies.set_state(study, "open", "operator")
    assignments, participants = [], []
    for person, order in (("rater-1", (0, 1)), ("rater-2", (1, 0))):
        participant, _ = studies.enroll(study, "prolific", f"PROLIFIC-{person}")
        studies.consent(participant.id, "1", "en")
        participants.append(participant.id)
        for _ in range(units):
            leased = studies.lease_unit(
                study, participant.id, lambda units: units[0].id, 600, side_order=lambda _, order=order: order
            )
            assert leased is not None
            first = ("A", "B")[order[0]]  # ann, wherever she stands
            value = first if leased.unit != "unit-0" or person == "rater-1" else ("B", "A")[order[0]]
            labels = [("unit", question, value if question == "quality" else first) for question in QUESTIONS]
            studies.add_labels(leased.id, participant.id, [("unit", "quality", "tie")], "0", 1.0)
            studies.add_labels(leased.id, participant.id, labels, "1", 3.5)
            studies.submit(leased.id, participant.id)
            assignments.append(leased.id)
        studies.complete(participant.id, "DONE")
    return FilledStudy(study, assignments, participants)


def fill_chat(database: Database, studies: StudyStore) -> FilledStudy:
    """A chat with two turns of the bot, one label superseded and one undone."""
    config = study_from_toml(CHAT, "study.toml")
    study = studies.create("chat", config.model_dump(mode="json"), "digest").id
    studies.add_units(study, [("unit-c", ["ann"], {}, 1)])
    studies.set_state(study, "open", "operator")
    participant, _ = studies.enroll(study, "link", "somebody")
    leased = studies.lease_unit(study, participant.id, lambda units: units[0].id, 600)
    assert leased is not None
    conversations = ConversationStore(database)
    conversation = conversations.create(study_owner(study), "generic").id
    studies.attach_conversation(leased.id, conversation)
    opener = conversations.add_turn(conversation, "bot", "Hi!", key="0")
    exchange = conversations.say(conversation, study_owner(study), "<script>alert(1)</script>", key="1")
    provenance = {"bot": "generic", "checkpoint": "ab12cd", "settings": {"top_k": 3}, "seed": 7, "version": "1"}
    reply = {"provenance": provenance, "seconds": 0.125, "finish": "stop"}
    conversations.finish(exchange.bot.id, text="I don't know.", status="done", reply=reply)
    for key, turn, value in (("a", opener, True), ("b", exchange.bot, False), ("c", exchange.bot, True)):
        studies.add_labels(leased.id, participant.id, [(f"turn:{turn.id}", "sensible", value)], key)
    studies.add_labels(leased.id, participant.id, [(f"turn:{opener.id}", "specific", True)], "d")
    studies.undo_labels(leased.id, participant.id, "d")
    studies.submit(leased.id, participant.id)
    return FilledStudy(study, [leased.id], [participant.id])


class Researcher:
    """A browser of somebody, signed in or not."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=20)

    def csrf(self, page: str = "/admin/") -> str:
        match = re.search(r'name="csrf" value="([0-9a-f]{64})"', self.http.get(page).text)
        assert match is not None, page
        return match[1]

    def sign_in(self, name: str, password: str = PASSWORD) -> httpx.Response:
        form = {"csrf": self.csrf("/admin/signin"), "name": name, "password": password}
        return self.http.post("/admin/signin", data=form)

    def post(self, path: str, page: str = "/admin/", **fields: str) -> httpx.Response:
        return self.http.post(path, data={"csrf": self.csrf(page)} | fields)


class AdminServer(NamedTuple):
    url: str
    database: Database
    accounts: AccountStore
    studies: StudyStore
    pairwise: FilledStudy
    chat: FilledStudy
    visit: Callable[..., Researcher]


@contextmanager
def serving(path: Path, *, accounts: bool = True, filled: bool = True, **settings: Any) -> Iterator[AdminServer]:
    with Database.open(f"sqlite:///{path}") as database:
        store, studies = AccountStore(database), StudyStore(database)
        for role in ("owner", "researcher", "viewer") if accounts else ():
            store.create(role, PASSWORD, role)  # type: ignore[arg-type]
        nothing = FilledStudy("", [], [])
        pairwise, chat = (fill_pairwise(studies), fill_chat(database, studies)) if filled else (nothing, nothing)
        visitors: list[Researcher] = []
        with running(create_app({"generic": GenericBot()}, database, config=ServeConfig(**settings))) as url:

            def visit(name: str | None = None) -> Researcher:
                visitor = Researcher(url)
                visitors.append(visitor)
                if name is not None:  # not through the form, whose attempts are limited
                    visitor.http.cookies.set("tertulia_admin", store.sign_in(name, PASSWORD) or "")
                return visitor

            yield AdminServer(url, database, store, studies, pairwise, chat, visit)
            for visitor in visitors:
                visitor.http.close()


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[AdminServer]:
    with serving(tmp_path / "chat.db") as server:
        yield server


@pytest.fixture(scope="module")
def shared_admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminServer]:
    """For tests that change nothing."""
    with serving(tmp_path_factory.mktemp("admin") / "chat.db") as server:
        yield server


@pytest.fixture
def serve_admin() -> Callable[..., Any]:
    return serving
