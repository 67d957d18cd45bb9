"""Running the server: ports, signals, bots that load in the background, and several processes."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tertulia.core.errors import DataError, PortTaken, UnknownName, UsageError
from tertulia.store import Database
from tertulia.talk.bot import Bot, BotHealth
from tertulia.talk.bots.generic import GenericBot
from tertulia.web.app import create_app
from tertulia.web.config import LazyBot, ServeConfig
from tertulia.web.server import bind, run, running
from tertulia.web.server import serve as serve_app


def test_a_taken_port_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        Database.open(f"sqlite:///{tmp_path / 'chat.db'}") as database,
    ):
        port = taken.getsockname()[1]
        app = create_app({"generic": GenericBot()}, database)
        with pytest.raises(PortTaken, match=f"Port {port} on 127.0.0.1 is taken") as caught:
            serve_app(app, "127.0.0.1", port)
        assert f"--port {port + 1}" in caught.value.hint


def test_a_bound_port_is_taken_at_once() -> None:
    with bind("127.0.0.1", 0) as listening, pytest.raises(PortTaken):
        bind("127.0.0.1", listening.getsockname()[1])


@pytest.mark.parametrize("host", ["no-such-host.invalid", "203.0.113.7"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(UsageError):
        bind(host, 0)


def test_an_app_needs_a_bot(tmp_path: Path) -> None:
    with Database.open(f"sqlite:///{tmp_path / 'chat.db'}") as database, pytest.raises(UsageError, match="No bot"):
        create_app({}, database)


def test_a_port_is_free_again_after_the_server(tmp_path: Path) -> None:
    with Database.open(f"sqlite:///{tmp_path / 'chat.db'}") as database:
        with running(create_app({"generic": GenericBot()}, database)) as url:
            assert httpx.get(f"{url}/healthz").json()["bots"] == ["generic"]
        with running(create_app({"generic": GenericBot()}, database), port=int(url.rsplit(":", 1)[1])) as again:
            assert again == url
            assert httpx.get(f"{url}/healthz").status_code == 200


SLOW = """
import sys, time
from tertulia.core.reply import Piece, Provenance, Reply
from tertulia.store import Database
from tertulia.web.app import create_app
from tertulia.web.server import serve

class Slow:
    spec, summary = "count", "never ends"
    def reply(self, asks): ...
    def stream(self, asks, *, alive):
        while True:
            yield Piece(0, "more ")
            time.sleep(0.02)

with Database.open(sys.argv[1]) as database:
    serve(create_app({"count": Slow()}, database), port=0, ready=lambda url: print(url, flush=True))
"""


def test_a_killed_server_loses_no_message(tmp_path: Path, serve: Any, visitor: Any) -> None:
    command = [sys.executable, "-c", SLOW, f"sqlite:///{tmp_path / 'chat.db'}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        page = visitor(process.stdout.readline().strip())
        conversation = page.begin("count")
        events = page.stream(conversation, text="3 0", key="k")
        assert [next(events)[0] for _ in range(3)] == ["user", "start", "piece"]
        process.kill()
    with pytest.raises(httpx.HTTPError):
        list(events)
    with serve(tmp_path / "chat.db") as url:
        again = visitor(url)
        again.http.cookies = page.http.cookies
        user, bot = again.get(conversation)["turns"]
        assert (user["text"], bot["status"]) == ("3 0", "stopped")
        assert again.post(conversation, text="3 0", key="k").json() == {"user": user, "bot": bot}
        assert list(again.stream(conversation, "events"))[-1] == ("done", bot)
        assert again.post(conversation, "regenerate", key="k2").json()["bot"]["text"] == "1 2 3 "


INSTANT = """
import sys
from tertulia.store import Database
from tertulia.talk.spec import make_bot
from tertulia.web.app import create_app
from tertulia.web.server import serve

bots = {name: make_bot(name) for name in ("generic", "tfidf")}
assert all(bot.traits.instant for bot in bots.values())
with Database.open(sys.argv[1]) as database:
    serve(create_app(bots, database), port=0, ready=lambda url: print(url, flush=True))
"""


def test_a_killed_server_loses_no_message_that_was_stored_with_its_reply(
    tmp_path: Path, serve: Any, visitor: Any
) -> None:
    """Six visitors talk with instant bots until the server is killed: what they were told is there, and whole."""
    command = [sys.executable, "-c", INSTANT, f"sqlite:///{tmp_path / 'chat.db'}"]
    responses: dict[str, list[Any]] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        pages = [visitor(url) for _ in range(6)]
        conversations = [page.begin(("generic", "tfidf")[i % 2]) for i, page in enumerate(pages)]

        def talk(page: Any, conversation: str) -> None:
            for number in range(50):  # below the limit of messages a minute
                try:
                    response = page.post(conversation, text=f"do you sail, {number}?", key=f"key-{number}")
                except httpx.HTTPError:
                    return
                assert response.status_code == 200
                responses.setdefault(conversation, []).append(response.json())

        threads = [threading.Thread(target=talk, args=pair) for pair in zip(pages, conversations, strict=True)]
        for thread in threads:
            thread.start()
        while min(len(responses.get(conversation, ())) for conversation in conversations) < 20:
            time.sleep(0.01)
        process.kill()
        for thread in threads:
            thread.join()
    with serve(tmp_path / "chat.db") as url:
        for page, conversation in zip(pages, conversations, strict=True):
            again = visitor(url)
            again.http.cookies = page.http.cookies
            turns = again.get(conversation)["turns"]
            expected = [turn for exchange in responses[conversation] for turn in (exchange["user"], exchange["bot"])]
            assert turns[: len(expected)] == expected
            assert len(turns) - len(expected) in (0, 2), "the last message was stored, but nobody was told"
            assert {turn["status"] for turn in turns if turn["speaker"] != "user"} == {"done"}, "never half of a pair"


PROGRAM = """
import sys
from tertulia.store import Database
from tertulia.talk.bots.generic import GenericBot
from tertulia.web.app import create_app
from tertulia.web.server import serve

with Database.open(sys.argv[1]) as database:
    serve(create_app({"generic": GenericBot()}, database), port=0, ready=lambda url: print(url, flush=True))
print("closed", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", PROGRAM, f"sqlite:///{tmp_path / 'chat.db'}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with httpx.Client(base_url=url) as http:
            assert http.get("/healthz").status_code == 200
            began = time.monotonic()
            process.send_signal(number)  # while a connection is open
            rest, trouble = process.communicate(timeout=20)
    assert (rest, trouble, process.returncode) == ("closed\n", "", 0)
    assert time.monotonic() - began < 15  # it would wait 75 seconds for the connection


# Bots that load in the background.


class Gate:
    """Loads a bot when it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.open = threading.Event()
        self.error = error

    def __call__(self) -> Bot:
        assert self.open.wait(20)
        if self.error is not None:
            raise self.error
        return GenericBot()


def test_the_server_answers_while_bots_load(tmp_path: Path, visitor: Any, eventually: Any) -> None:
    gate = Gate()
    with (
        Database.open(f"sqlite:///{tmp_path / 'chat.db'}") as database,
        running(create_app({"slow": LazyBot(gate), "generic": GenericBot()}, database)) as url,
    ):
        assert httpx.get(f"{url}/healthz").json() == {
            "status": "ok",
            "bots": ["slow", "generic"],
            "loading": ["slow"],
            "unhealthy": {},
        }
        unready = httpx.get(f"{url}/readyz")
        assert (unready.status_code, unready.json()["status"]) == (503, "loading")
        assert [bot["state"] for bot in unready.json()["bots"].values()] == ["loading", "ready"]
        page = visitor(url)
        refused = page.http.post("/api/conversations", json={"bot": "slow"})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "'slow' is still loading" in refused.json()["error"]["message"]
        request = {"model": "slow", "messages": [{"role": "user", "content": "hi"}]}
        refused = httpx.post(f"{url}/v1/chat/completions", json=request)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "still loading" in refused.json()["error"]["message"]
        page.say(page.begin("generic"), "hello")
        gate.open.set()
        eventually(lambda: httpx.get(f"{url}/readyz").status_code == 200)
        assert [bot["id"] for bot in page.http.get("/api/bots").json()] == ["slow", "generic"]
        page.say(page.begin("slow"), "hello")


def test_the_list_of_bots_waits_for_the_first_one(tmp_path: Path) -> None:
    gate = Gate()
    with (
        Database.open(f"sqlite:///{tmp_path / 'chat.db'}") as database,
        running(create_app({"slow": LazyBot(gate)}, database)) as url,
    ):
        threading.Timer(0.3, gate.open.set).start()
        assert [bot["id"] for bot in httpx.get(f"{url}/api/bots").json()] == ["slow"]


def test_a_bot_that_cannot_be_loaded_does_not_stop_the_others(
    tmp_path: Path, visitor: Any, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(DataError("File not found: /private/path"))
    with (
        Database.open(f"sqlite:///{tmp_path / 'chat.db'}") as database,
        running(create_app({"lost": LazyBot(gate), "generic": GenericBot()}, database)) as url,
    ):
        gate.open.set()
        eventually(lambda: httpx.get(f"{url}/readyz").status_code == 200)
        shown = httpx.get(f"{url}/readyz").json()["bots"]["lost"]
        assert (shown["state"], shown["reason"]) == ("failed", "DataError")
        refused = visitor(url).http.post("/api/conversations", json={"bot": "lost"})
        assert (refused.status_code, "private" in refused.text) == (503, False)
        assert [bot["id"] for bot in httpx.get(f"{url}/api/bots").json()] == ["generic"]
    assert "/private/path" in caplog.text


def test_a_server_without_any_bot_stops_and_says_why(tmp_path: Path) -> None:
    config = ServeConfig(bots=(f"tfidf:{tmp_path / 'nofile.jsonl'}",), port=0, db=f"sqlite:///{tmp_path / 'chat.db'}")
    command = [sys.executable, "-m", "tertulia", "serve", *config.bots, "--port", "0", "--db", config.db]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "nofile.jsonl" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_unknown_bot_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="nosuchbot"):
        run(ServeConfig(bots=("nosuchbot",), port=0, db=f"sqlite:///{tmp_path / 'chat.db'}"))
    assert list(tmp_path.iterdir()) == []


def test_a_bot_without_progress_is_shown_as_stalled(serve: Any, visitor: Any, tmp_path: Path, eventually: Any) -> None:
    with serve(tmp_path / "chat.db", stall_seconds=0.2, grace_seconds=0) as url:
        for _ in range(4):  # it replies to four at a time, and is stalled if none of them gets on
            page = visitor(url)
            for name, _ in page.stream(page.begin("nap"), text="2", key="k"):
                if name == "start":
                    break
        eventually(lambda: httpx.get(f"{url}/readyz").json()["bots"]["nap"]["health"] == "stalled")
        assert httpx.get(f"{url}/healthz").json()["unhealthy"] == {"nap": "stalled"}
        eventually(lambda: httpx.get(f"{url}/readyz").json()["bots"]["nap"]["health"] == "ok")


class WithBreaker(GenericBot):
    """A bot whose endpoint has a circuit breaker."""

    def health(self) -> BotHealth:
        return BotHealth(False, "down", "The endpoint is considered down.", 12.0)


def test_the_state_of_a_circuit_breaker_is_shown(tmp_path: Path) -> None:
    with (
        Database.open(f"sqlite:///{tmp_path / 'chat.db'}") as database,
        running(create_app({"remote": WithBreaker(), "generic": GenericBot()}, database)) as url,
    ):
        bots = httpx.get(f"{url}/readyz").json()["bots"]
        assert (bots["remote"]["health"], bots["generic"]["health"]) == ("down", "ok")
        assert httpx.get(f"{url}/healthz").json()["unhealthy"] == {"remote": "down"}


# Several processes.


@contextmanager
def processes(tmp_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`tertulia serve --workers 2`, and its address once it is printed."""
    command = [sys.executable, "-m", "tertulia", "serve", "generic", "--port", "0", "--workers", "2", "--log", "json"]
    command += ["--db", f"sqlite:///{tmp_path / 'chat.db'}", *options]
    environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        line = next(line for line in parent.stdout if "http://" in line)
        try:
            yield parent, f"http://{line.partition('http://')[2].split()[0]}"
        finally:
            if parent.poll() is None:
                parent.kill()


def children(parent: int) -> set[int]:
    """The server processes; each is the parent's child and listens."""
    tasks = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in tasks}
    return {pid for pid, command in commands.items() if b"multiprocessing-fork" in command}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the processes in /proc")
def test_several_processes_serve_one_port_and_a_crashed_one_is_replaced(
    tmp_path: Path, visitor: Any, eventually: Any
) -> None:
    with processes(tmp_path) as (parent, url):
        first = children(parent.pid)
        assert len(first) == 2
        eventually(lambda: httpx.get(f"{url}/readyz").status_code == 200, 20)
        page = visitor(url)
        conversation = page.begin("generic")
        for n in range(6):
            with httpx.Client(base_url=url, cookies=page.http.cookies) as http:  # a new connection, to either process
                body = {"text": f"message {n}", "key": str(n)}
                assert http.post(f"/api/conversations/{conversation}/messages", json=body).status_code == 200
        requests = 'tertulia_requests_total{method="POST",route="/api/conversations/{id}/messages",status="200"}'
        assert f"{requests} 6.0" in httpx.get(f"{url}/metrics").text  # of both processes
        os.kill(min(first), signal.SIGKILL)
        eventually(lambda: len(children(parent.pid) - first) == 1, 20)
        page.http.close()
        assert len(visitor_with(visitor, url, page).get(conversation)["turns"]) == 12
        parent.send_signal(signal.SIGTERM)
        _, log = parent.communicate(timeout=30)
    assert parent.returncode == 0
    assert "ended with exit code -9; starting another" in log
    assert not any(Path(f"/proc/{pid}").exists() for pid in first)


def visitor_with(visitor: Any, url: str, page: Any) -> Any:
    """The same visitor on a new connection."""
    again = visitor(url)
    again.http.cookies = page.http.cookies
    return again


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the processes in /proc")
def test_processes_stop_when_their_parent_is_killed(tmp_path: Path, eventually: Any) -> None:
    with processes(tmp_path) as (parent, _):
        started = children(parent.pid)
        assert len(started) == 2
        parent.kill()
        parent.wait()
        eventually(lambda: not any(is_running(pid) for pid in started), 20)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_processes_without_any_bot_stop_and_say_why(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tertulia", "serve", f"tfidf:{tmp_path / 'nofile.jsonl'}", "--port", "0"]
    command += ["--workers", "2", "--db", f"sqlite:///{tmp_path / 'chat.db'}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert "File not found" in ended.stderr
    assert "Traceback" not in ended.stderr
