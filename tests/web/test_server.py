"""Running the server: ports, signals, and an app without bots."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tertulia.core.errors import PortTaken, UsageError
from tertulia.store import Store
from tertulia.talk.bots.generic import GenericBot
from tertulia.web.app import create_app
from tertulia.web.server import bind, running
from tertulia.web.server import serve as serve_app


def test_a_taken_port_is_known_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, Store.open(f"sqlite:///{tmp_path / 'chat.db'}") as store:
        port = taken.getsockname()[1]
        app = create_app({"generic": GenericBot()}, store)
        with pytest.raises(PortTaken, match=f"Port {port} on 127.0.0.1 is taken") as caught:
            serve_app(app, "127.0.0.1", port)
        assert f"--port {port + 1}" in caught.value.hint


def test_a_port_bound_by_us_is_taken_at_once() -> None:
    with bind("127.0.0.1", 0) as listening, pytest.raises(PortTaken):
        bind("127.0.0.1", listening.getsockname()[1])


@pytest.mark.parametrize("host", ["no-such-host.invalid", "203.0.113.7"])
def test_an_address_that_is_not_ours(host: str) -> None:
    with pytest.raises(UsageError):
        bind(host, 0)


def test_an_app_needs_a_bot(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'chat.db'}") as store, pytest.raises(UsageError, match="no bot"):
        create_app({}, store)


def test_a_port_is_free_again_after_the_server(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'chat.db'}") as store:
        with running(create_app({"generic": GenericBot()}, store)) as url:
            assert httpx.get(f"{url}/healthz").json()["bots"] == ["generic"]
        with running(create_app({"generic": GenericBot()}, store), port=int(url.rsplit(":", 1)[1])) as again:
            assert again == url
            assert httpx.get(f"{url}/healthz").status_code == 200


SLOW = """
import sys, time
from tertulia.core.reply import Piece, Provenance, Reply
from tertulia.store import Store
from tertulia.web.app import create_app
from tertulia.web.server import serve

class Slow:
    spec, summary = "count", "never ends"
    def reply(self, asks): ...
    def stream(self, asks, *, alive):
        while True:
            yield Piece(0, "more ")
            time.sleep(0.02)

with Store.open(sys.argv[1]) as store:
    serve(create_app({"count": Slow()}, store), port=0, ready=lambda url: print(url, flush=True))
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


PROGRAM = """
import sys
from tertulia.store import Store
from tertulia.talk.bots.generic import GenericBot
from tertulia.web.app import create_app
from tertulia.web.server import serve

with Store.open(sys.argv[1]) as store:
    serve(create_app({"generic": GenericBot()}, store), port=0, ready=lambda url: print(url, flush=True))
print("closed", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
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
    assert time.monotonic() - began < 5
