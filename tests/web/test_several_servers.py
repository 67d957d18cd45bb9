"""Real servers that crash, and real servers that share a database: no reader loses what they have seen."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.store.conftest import postgresql, postgresql_url, sqlite_url  # noqa: F401 - fixtures

REPLIES = 13
SERVER = """
import sys, time
from tertulia.core.reply import Piece, Provenance, Reply
from tertulia.store import Database
from tertulia.talk.bot import BotTraits
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import serve

class Endless:
    spec = "endless"
    summary = "Counts until it is stopped."
    traits = BotTraits(parallel=32, max_batch=1)  # one visitor may take three quarters

    def reply(self, asks, /):
        raise NotImplementedError

    def stream(self, asks, /, *, alive):
        text = ""
        while alive(0):
            text += f"{len(text.split()) + 1} "
            yield Piece(0, text.split()[-1] + " ")
            time.sleep(0.02)
        print("ended", flush=True)
        yield Piece(0, reply=Reply(text, Provenance(self.spec), finish="cancelled"))

with Database.open(sys.argv[1]) as database:
    app = create_app({"endless": Endless()}, database, config=ServeConfig(grace_seconds=0, max_in_flight=0))
    serve(app, port=0, ready=lambda address: print(address, flush=True))
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def start(database: str) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts servers on the database, as processes of their own."""
    started: list[subprocess.Popen[str]] = []

    def run() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", SERVER, database]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    address = process.stdout.readline().strip()
    assert address.startswith("http://"), address
    return address


def shown_text(events: Iterator[tuple[str, Any]], shown: list[str], enough: threading.Event, pieces: int) -> None:
    """Read a stream to its end, or to the server's; keep what was shown."""
    with suppress(httpx.TransportError):
        for name, value in events:
            if name in ("start", "piece"):
                shown.append(value["text"])
            if len(shown) >= pieces:
                enough.set()


@pytest.mark.timeout(120)
def test_after_kill_9_every_reply_comes_back_with_the_text_that_was_shown(
    start: Any, visitor: Any, eventually: Callable[..., None]
) -> None:
    server = start()
    page = visitor(address_of(server))
    conversations = [page.begin("endless") for _ in range(REPLIES)]
    shown: list[list[str]] = [[] for _ in conversations]
    enough = [threading.Event() for _ in conversations]
    with ThreadPoolExecutor(REPLIES) as pool:
        for conversation, pieces, event in zip(conversations, shown, enough, strict=True):
            events = page.stream(conversation, text="count", key="k")
            pool.submit(shown_text, events, pieces, event, 4)
        assert all(event.wait(60) for event in enough)
        server.kill()
    again = visitor(address_of(start()))
    again.http.cookies = page.http.cookies
    eventually(lambda: all(again.get(id_)["turns"][1]["status"] != "pending" for id_ in conversations), 20)
    for conversation, pieces in zip(conversations, shown, strict=True):
        user, bot = again.get(conversation)["turns"]
        assert user["text"] == "count"
        assert (bot["status"], bot["error"]) == ("stopped", "The server stopped before this reply was finished.")
        assert "".join(pieces).split()[:3] == ["1", "2", "3"]
        assert bot["text"].startswith("".join(pieces))
    assert again.post(conversations[0], text="count", key="k").json()["bot"]["status"] == "stopped"


@pytest.mark.timeout(120)
def test_a_server_streams_the_reply_that_another_generates(start: Any, visitor: Any) -> None:
    """The bot never ends by itself: all that the second server shows, it has while the reply is being generated."""
    one, two = start(), start()
    first, second = visitor(address_of(one)), visitor(address_of(two))
    first.http.get("/api/conversations")
    second.http.cookies = first.http.cookies
    conversation = first.begin("endless")
    shown: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        origin = pool.submit(lambda: list(first.stream(conversation, text="count", key="k")))
        while not second.get(conversation)["turns"]:
            pass
        watched = second.stream(conversation, "events")
        for name, value in watched:
            assert name in ("start", "piece", "")
            shown.append(value["text"] if name else "")
            if len(shown) > 6:
                break
        numbers = "".join(shown).split()
        assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
        assert second.get(conversation)["turns"][1]["status"] == "pending"
        stopped = second.post(conversation, "stop").json()
        assert stopped["status"] == "stopped"
        assert stopped["text"].startswith("".join(shown))
        end = origin.result(60)[-1]  # the first server notices, and tells its clients
    assert end == ("done", stopped)
    assert one.stdout.readline() == "ended\n"  # and its bot has been told to stop


@pytest.mark.timeout(120)
def test_watchers_at_another_server_see_that_the_server_of_a_reply_has_died(start: Any, visitor: Any) -> None:
    one, two = start(), start()
    first, second = visitor(address_of(one)), visitor(address_of(two))
    first.http.get("/api/conversations")
    second.http.cookies = first.http.cookies
    conversation = first.begin("endless")
    events = first.stream(conversation, text="count", key="k")
    assert [next(events)[0] for _ in range(3)] == ["user", "start", "piece"]
    watched = second.stream(conversation, "events")
    assert next(watched)[0] == "start"
    one.kill()
    one.wait()
    *_, (name, end) = watched
    assert (name, end["status"]) == ("done", "stopped")
    assert end["error"] == "The server stopped before this reply was finished."
    assert end["text"].startswith("1 "), "what was shown before it died"


@pytest.mark.timeout(120)
def test_a_shutdown_says_why_the_reply_ends(start: Any, visitor: Any) -> None:
    server = start()
    page = visitor(address_of(server))
    conversation = page.begin("endless")
    events = page.stream(conversation, text="count", key="k")
    assert [next(events)[0] for _ in range(3)] == ["user", "start", "piece"]
    server.terminate()
    *_, (name, end) = events
    assert (name, end["status"]) == ("done", "stopped")
    assert end["error"] == "The server was shut down before this reply was finished."
    server.wait(20)
    again = visitor(address_of(start()))
    again.http.cookies = page.http.cookies
    assert again.get(conversation)["turns"][1] == end
