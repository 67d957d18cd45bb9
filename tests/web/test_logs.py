"""The log of a real server process: what it says about a request, and what it never says."""

import io
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tertulia.web.logs import JsonFormatter, TextFormatter, request_id

SERVER = """
import sys
from tertulia.talk.bots.generic import GenericBot
from tertulia.core.errors import BotError
from tertulia.store import Database
from tertulia.web import logs
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import serve

class Broken:
    spec, summary = "broken", "fails"
    def reply(self, asks):
        raise ZeroDivisionError("a bug")

logs.configure(sys.argv[2])
with Database.open(sys.argv[1]) as database:
    app = create_app({"generic": GenericBot(), "broken": Broken()}, database, config=ServeConfig(api_key="s3cret-key"))
    serve(app, port=0, ready=lambda url: print(url, flush=True))
"""


def log_of(tmp_path: Path, kind: str, visitor: Any) -> tuple[list[str], str, httpx.Response]:
    """The log of a server after a conversation; the visitor's token; the response to the message."""
    command = [sys.executable, "-c", SERVER, f"sqlite:///{tmp_path / 'chat.db'}", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        page = visitor(process.stdout.readline().strip())
        page.http.headers["Authorization"] = "Bearer s3cret-key"
        answer = page.post(page.begin("generic"), text="my private words", key="my-key")
        assert answer.status_code == 200
        page.post(page.begin("broken"), text="my private words", key="my-key")
        page.http.get("/nowhere?secret=my-private-query")
        page.http.get("/v1/models", headers={"Authorization": "Bearer s3cret-key"})
        token = page.http.cookies["tertulia"]
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
    return log.splitlines(), token, answer


def test_each_request_is_one_json_object_without_private_data(tmp_path: Path, visitor: Any) -> None:
    lines, token, answer = log_of(tmp_path, "json", visitor)
    entries = [json.loads(line) for line in lines]
    (message,) = (e for e in entries if e.get("request") == answer.headers["x-request-id"])
    assert message["route"] == "/api/conversations/{id}/messages"
    assert (message["method"], message["status"], message["level"]) == ("POST", 200, "info")
    assert message["ms"] > 0
    assert len(message["visitor"]) == 12
    assert message["time"].endswith("+00:00")
    assert {e["visitor"] for e in entries if e.get("route", "").startswith("/api/")} == {message["visitor"]}
    assert "unmatched" in {e.get("route") for e in entries}
    failures = [e for e in entries if "ZeroDivisionError" in e.get("exception", "")]
    assert [e["level"] for e in failures] == ["error"]
    everything = "\n".join(lines)
    for private in ("private", "s3cret", token, "my-key", "127.0.0.1"):
        assert private not in everything


def test_each_request_is_a_line_of_text(tmp_path: Path, visitor: Any) -> None:
    lines, token, answer = log_of(tmp_path, "text", visitor)
    (line,) = (line for line in lines if answer.headers["x-request-id"] in line)
    assert "INFO" in line
    assert "POST /api/conversations/{id}/messages 200 in " in line
    assert token not in "\n".join(lines)


@pytest.fixture
def logger() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    stream = io.StringIO()
    made = logging.getLogger("test of logs")
    made.propagate = False
    made.addHandler(logging.StreamHandler(stream))
    yield made, stream
    made.handlers.clear()


def test_all_that_is_logged_during_a_request_has_its_id(logger: tuple[logging.Logger, io.StringIO]) -> None:
    made, stream = logger
    token = request_id.set("abc123")
    try:
        for formatter in (JsonFormatter(), TextFormatter()):
            made.handlers[0].setFormatter(formatter)
            try:
                raise ValueError("line one\nline two")
            except ValueError:
                made.exception("It failed")
    finally:
        request_id.reset(token)
    first, text = stream.getvalue().split("\n", 1)
    entry = json.loads(first)
    assert (entry["request"], entry["message"], entry["level"]) == ("abc123", "It failed", "error")
    assert "line two" in entry["exception"]
    assert text.splitlines()[0].endswith("It failed [abc123]")
    assert "line two" in text
