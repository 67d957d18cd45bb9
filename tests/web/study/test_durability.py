"""A server that is killed: every label that was acknowledged is stored, and none is stored twice."""

import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson
import pytest
from tests.study.conftest import item_lines
from tests.web.study.conftest import Rater, chat_toml, judge_toml, ok

from tertulia.store import Database, StudyStore
from tertulia.study.units import read_items
from tertulia.web.study.opening import open_study

SERVER = """
import sys, time
from tertulia.core.reply import Provenance, Reply
from tertulia.store import Database
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import serve

class Stuck:
    spec = "stuck"
    summary = "Answers 'Hello!' only; anything else keeps it busy."

    def reply(self, asks, /):
        while asks[0].last != "Hello!":
            time.sleep(1)
        return [Reply("Hi there.", Provenance(self.spec)) for _ in asks]

with Database.open(sys.argv[1]) as database:
    app = create_app({"stuck": Stuck()}, database, config=ServeConfig(messages_per_minute=0))
    serve(app, port=0, ready=lambda address: print(address, flush=True))
"""
ROUNDS = 3


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], tuple[subprocess.Popen[str], str]]]:
    """Starts servers on the same database, as processes of their own."""
    started: list[subprocess.Popen[str]] = []

    def run() -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-c", SERVER, f"sqlite:///{tmp_path / 'study.db'}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
        started.append(process)
        assert process.stdout
        return process, process.stdout.readline().strip()

    yield run
    for process in started:
        process.kill()
        process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def send_only(rater: Rater, what: str, body: dict[str, Any]) -> socket.socket:
    """Send a request, and do not wait for the answer."""
    url = urlsplit(str(rater.http.base_url))
    content = orjson.dumps(body)
    head = f"POST /api/study/{rater.study}/{what} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
    head += f"Cookie: tertulia_study_{rater.study}={rater.token}\r\nContent-Length: {len(content)}\r\n\r\n"
    connection = socket.create_connection((url.hostname, url.port))
    connection.sendall(head.encode() + content)
    return connection


def test_a_kill_between_label_and_answer_loses_and_doubles_nothing(
    tmp_path: Path, start: Callable[[], tuple[subprocess.Popen[str], str]]
) -> None:
    with Database.open(f"sqlite:///{tmp_path / 'study.db'}") as database:
        store = StudyStore(database)
        toml = judge_toml("ssa-static", training=[])
        study = open_study(store, toml, "kill.toml", read_items(item_lines("ssa-static")), {}, random.Random(0))
        process, url = start()
        rater = Rater(url, study.id)
        rater.enter(PROLIFIC_PID="w")
        assignment = rater.begin()["assignment"]
        for i in range(ROUNDS):
            ok(rater.label(assignment, ("unit", "sensible", bool(i % 2)), key=f"acknowledged-{i}"))
            label = {"target": "unit", "question": "human_like", "value": bool(i % 2)}
            body = {"assignment": assignment, "key": f"in-flight-{i}", "labels": [label]}
            connection = send_only(rater, "labels", body)
            kill(process)
            connection.close()
            process, url = start()
            rater.http.base_url = httpx.URL(url)
            ok(rater.post("labels", **body))
        stored = [label.key for label in store.labels_of(assignment, history=True)]
        assert sorted(stored) == sorted(f"{kind}-{i}" for i in range(ROUNDS) for kind in ("acknowledged", "in-flight"))
        assert {label.question: label.value for label in store.labels_of(assignment)} == {
            "sensible": False,
            "human_like": False,
        }
        rater.http.close()


def test_a_message_that_a_killed_server_left_unanswered_can_be_sent_again(
    tmp_path: Path, start: Callable[[], tuple[subprocess.Popen[str], str]]
) -> None:
    with Database.open(f"sqlite:///{tmp_path / 'study.db'}") as database:
        toml = chat_toml("interactive-likert", "stuck")
        study = open_study(StudyStore(database), toml, "kill.toml", [], {}, random.Random(0))
        process, url = start()
        rater = Rater(url, study.id)
        rater.enter(PROLIFIC_PID="w")
        assignment = rater.begin()["assignment"]
        body = {"assignment": assignment, "text": "Wait.", "key": "k"}
        with rater.http.stream("POST", f"/api/study/{rater.study}/say", json=body) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "event: user"
            kill(process)
        process, url = start()
        rater.http.base_url = httpx.URL(url)
        chat = rater.state()["task"]["chat"]
        assert [turn["text"] for turn in chat["turns"]][:1] == ["Wait."]
        answer = rater.say(assignment, "Wait.", "k")  # attaches to the reply that never came
        assert answer.status_code == 502
        chat = ok(rater.say(assignment, "Hello!"))["chat"]
        assert [turn["text"] for turn in chat["turns"]] == ["Hello!", "Hi there."]
        rater.http.close()
