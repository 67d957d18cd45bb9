"""Limits per visitor, key and address; time-outs of half-sent requests; caps on connections. Over real sockets."""

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tertulia.store import Database
from tertulia.store.usage import StoredUsage, usage_of
from tertulia.web.limits import (
    FREE_REFUSALS,
    MAX_DELAY,
    USAGE_SECONDS,
    Identity,
    Limiter,
    LimitReached,
    Limits,
    is_message,
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


ANA = Identity("ana", "page 192.0.2.1")
BEN = Identity("ben", "page 192.0.2.1")


def test_a_bucket_allows_a_burst_and_refills_within_half_a_minute() -> None:
    clock = Clock()
    limiter = Limiter(Limits(messages_per_minute=6), clock=clock)
    for _ in range(3):
        limiter.admit_message(ANA)
    with pytest.raises(LimitReached, match="Too many messages") as caught:
        limiter.admit_message(ANA)
    assert caught.value.retry_after == 10
    clock.now += caught.value.retry_after
    limiter.admit_message(ANA)
    with pytest.raises(LimitReached):
        limiter.admit_message(ANA)
    clock.now += 3600
    for _ in range(3):
        limiter.admit_message(ANA)


def test_a_long_message_counts_as_several() -> None:
    clock = Clock()
    limiter = Limiter(Limits(messages_per_minute=20), clock=clock)
    limiter.admit_message(ANA, size=16_000)
    for _ in range(2):
        limiter.admit_message(ANA, size=100)
    with pytest.raises(LimitReached):
        limiter.admit_message(ANA, size=100)
    clock.now += 3600
    limiter.admit_message(ANA, size=10_000_000)  # more than a full bucket can be had, but then nothing for a long time
    clock.now += 3600
    with pytest.raises(LimitReached):
        limiter.admit_message(ANA)


def test_long_messages_that_come_at_once_are_spread_over_time() -> None:
    clock, script = Clock(), Identity(None, "v1 192.0.2.1")
    limiter = Limiter(Limits(messages_per_minute=120), clock=clock)
    paces = [limiter.admit_message(script, size=75_000).pace for _ in range(30)]
    assert paces[:10] == [0.0] * 10, "four seconds' worth at once"
    assert paces[-1] == pytest.approx(30 * 37.5 / 100 - 4)
    assert paces[10:] == sorted(paces[10:])
    assert limiter.admit_message(script, size=500).pace == 0, "a short message does not wait behind long ones"
    for _ in range(7):
        limiter.admit_message(script, size=75_000)
    with pytest.raises(LimitReached, match="long messages"):  # it would have to wait for more than ten seconds
        limiter.admit_message(script, size=75_000)
    clock.now += 60
    assert limiter.admit_message(script, size=75_000).pace == 0
    assert limiter.admit_message(BEN, size=75_000).pace == 0, "another visitor's"
    unlimited = Limiter(Limits(), clock=clock)
    assert [unlimited.admit_message(script, size=75_000).pace for _ in range(100)] == [0.0] * 100


def test_one_visitor_does_not_use_up_what_another_may_send() -> None:
    limiter = Limiter(Limits(messages_per_minute=4), clock=Clock())
    for _ in range(2):
        limiter.admit_message(ANA)
    with pytest.raises(LimitReached):
        limiter.admit_message(ANA)
    limiter.admit_message(BEN)


def test_made_up_cookies_count_for_their_address() -> None:
    limiter = Limiter(Limits(messages_per_minute=4, address_factor=3), clock=Clock())
    for n in range(6):
        limiter.admit_message(Identity(f"made up {n}", "page 192.0.2.9"))
    with pytest.raises(LimitReached):
        limiter.admit_message(Identity("another one", "page 192.0.2.9"))
    limiter.admit_message(ANA)


def test_messages_and_other_requests_are_counted_apart() -> None:
    limiter = Limiter(Limits(messages_per_minute=2), clock=Clock())
    limiter.admit_message(ANA)
    with pytest.raises(LimitReached, match="messages"):
        limiter.admit_message(ANA)
    for _ in range(10):
        limiter.admit_request(ANA)
    with pytest.raises(LimitReached, match="requests"):
        limiter.admit_request(ANA)


def test_a_reply_is_in_flight_until_its_job_ends_whatever_becomes_of_the_request() -> None:
    limiter = Limiter(Limits(max_in_flight=2))
    first, second = limiter.admit_message(ANA), limiter.admit_message(ANA)
    with pytest.raises(LimitReached, match="being generated"):
        limiter.admit_message(ANA)
    second.close()  # the request ended before there was a job
    end_job = first.hold()
    first.close()
    assert limiter.in_flight("ana") == 1
    with ThreadPoolExecutor(1) as pool:
        pool.submit(end_job).result()
    assert (limiter.in_flight("ana"), limiter.in_flight("page 192.0.2.1")) == (0, 0)


def test_each_reply_of_one_request_is_counted() -> None:
    limiter = Limiter(Limits(messages_per_minute=8, max_in_flight=8))
    admission = limiter.admit_message(ANA)
    for _ in range(4):
        admission.hold()
    assert limiter.in_flight("ana") == 4
    with pytest.raises(LimitReached, match="messages"):
        limiter.admit_message(ANA)


def test_whoever_keeps_sending_gets_slower_refusals() -> None:
    limiter = Limiter(Limits(messages_per_minute=2), clock=Clock())
    limiter.admit_message(ANA)
    delays = []
    for _ in range(FREE_REFUSALS + 100):
        with pytest.raises(LimitReached) as caught:
            limiter.admit_message(ANA)
        delays.append(caught.value.delay)
    assert set(delays[:FREE_REFUSALS]) == {0.0}
    assert delays == sorted(delays)
    assert delays[-1] == MAX_DELAY


def test_what_is_stored_is_read_once_a_minute_and_counted_in_between() -> None:
    clock = Clock()
    limiter = Limiter(Limits(max_conversations=3, max_stored_bytes=100), clock=clock)
    stored, reads = StoredUsage(1, 40), []

    async def read() -> StoredUsage:
        reads.append(clock.now)
        return stored

    def check(*, creates: bool = False, size: int = 0) -> None:
        asyncio.run(limiter.check_usage("ana", read, creates=creates, size=size))

    check(creates=True)
    check(creates=True)
    with pytest.raises(LimitReached, match="3 conversations"):
        check(creates=True)
    check(size=60)
    with pytest.raises(LimitReached, match="100 bytes"):
        check(size=1)
    assert len(reads) == 1
    limiter.forget_usage("ana")  # something was deleted
    check(size=1)
    assert len(reads) == 2
    clock.now += USAGE_SECONDS
    check()
    assert len(reads) == 3


@pytest.mark.parametrize(
    ("method", "path", "counts"),
    [
        ("POST", "/api/conversations", True),
        ("POST", "/api/conversations/x/messages", True),
        ("POST", "/v1/chat/completions", True),
        ("GET", "/api/conversations", False),
        ("POST", "/api/conversations/x/undo", False),
        ("DELETE", "/api/me", False),
    ],
)
def test_what_counts_as_a_message(method: str, path: str, counts: bool) -> None:
    assert is_message(method, path) is counts


def test_usage_counts_bytes_of_all_turns(tmp_path: Path, serve: Any, visitor: Any) -> None:
    with serve(tmp_path / "chat.db") as url:
        page = visitor(url)
        page.say(page.begin(), "é" * 10)
        page.begin()
    with Database.open(f"sqlite:///{tmp_path / 'chat.db'}") as database:
        owner = database.read(lambda c: c.exec_driver_sql("SELECT owner FROM conversations").scalars().first())
        assert usage_of(database, owner) == StoredUsage(2, 40)
        assert usage_of(database, "nobody") == StoredUsage(0, 0)


# Over HTTP.


def test_a_flooding_visitor_gets_429_and_nobody_else_does(serve: Any, visitor: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db", messages_per_minute=10) as url:
        flooding, polite = visitor(url), visitor(url)
        for page in (flooding, polite):
            page.http.get("/")
        conversation, other = flooding.begin(), polite.begin()
        answers = [flooding.post(conversation, text="hi", key=str(n)) for n in range(8)]
        assert [answer.status_code for answer in answers] == [200] * 4 + [429] * 4
        refused = answers[-1]
        assert 1 <= int(refused.headers["retry-after"]) <= 12
        assert refused.json()["error"]["message"] == "Too many messages within a minute."
        assert "Try again in" in refused.json()["error"]["hint"]
        assert refused.headers["x-content-type-options"] == "nosniff"
        assert len(flooding.get(conversation)["turns"]) == 8
        polite.say(other, "hello")


def test_the_openai_api_answers_429_in_its_own_format(serve: Any, tmp_path: Path) -> None:
    request = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}
    with serve(tmp_path / "chat.db", messages_per_minute=2, address_factor=2) as url, httpx.Client() as http:
        statuses = [http.post(f"{url}/v1/chat/completions", json=request).status_code for _ in range(2)]
        refused = http.post(f"{url}/v1/chat/completions", json=request)
        assert statuses == [200, 200]
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert int(refused.headers["retry-after"]) >= 1
        assert http.post(f"{url}/api/conversations", json={"bot": "echo"}).status_code == 201  # the page counts apart


def test_a_key_has_the_limits_of_an_address(serve: Any, tmp_path: Path) -> None:
    request = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}
    settings = {"messages_per_minute": 2, "address_factor": 3, "api_key": "secret"}
    with serve(tmp_path / "chat.db", **settings) as url:
        headers = {"Authorization": "Bearer secret"}
        codes = [httpx.post(f"{url}/v1/chat/completions", json=request, headers=headers).status_code for _ in range(4)]
    assert codes == [200, 200, 200, 429]


def test_replies_in_flight_stay_counted_when_the_visitor_disconnects(
    serve: Any, visitor: Any, tmp_path: Path, eventually: Any
) -> None:
    with serve(tmp_path / "chat.db", max_in_flight=2, grace_seconds=0) as url:
        page, polite = visitor(url), visitor(url)
        page.http.get("/")
        running = [page.begin("count") for _ in range(2)]
        for conversation in running:
            for name, _ in page.stream(conversation, text="500 0.02", key="k"):
                if name == "start":
                    break
        third = page.begin()
        refused = page.post(third, text="hi", key="k")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        assert "being generated" in refused.json()["error"]["message"]
        polite.say(polite.begin(), "hello")
        for conversation in running:
            page.post(conversation, "stop")
        eventually(lambda: page.post(third, text="hi", key="k").status_code == 200)


def test_a_visitor_keeps_a_limited_number_of_conversations_and_bytes(serve: Any, visitor: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db", max_conversations=2, max_stored_bytes=2_000) as url:
        page = visitor(url)
        page.http.get("/")
        conversation, second = page.begin(), page.begin()
        refused = page.http.post("/api/conversations", json={"bot": "echo"})
        assert (refused.status_code, "2 conversations" in refused.json()["error"]["message"]) == (429, True)
        assert "Delete" in refused.json()["error"]["hint"]
        page.http.delete(f"/api/conversations/{second}")
        page.begin()
        page.say(conversation, "x" * 900)
        page.say(conversation, "x" * 200)  # what the bot said is counted when the database is read again
        refused = page.post(conversation, text="x" * 900, key="too much")
        assert (refused.status_code, "2,000 bytes" in refused.json()["error"]["message"]) == (429, True)


def test_forwarded_addresses_are_believed_from_trusted_proxies_only(serve: Any, tmp_path: Path) -> None:
    request = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}

    def codes(url: str) -> list[int]:
        headers = [{"X-Forwarded-For": f"192.0.2.{n}"} for n in range(3)]
        return [httpx.post(f"{url}/v1/chat/completions", json=request, headers=h).status_code for h in headers]

    limits = {"messages_per_minute": 2, "address_factor": 1}
    with serve(tmp_path / "chat.db", **limits, trusted_proxies=["127.0.0.1"]) as url:
        assert codes(url) == [200, 200, 200]
    with serve(tmp_path / "chat.db", **limits, trusted_proxies=[]) as url:
        assert codes(url) == [200, 429, 429]


def test_two_hundred_polite_users_touch_no_limit(serve: Any, tmp_path: Path) -> None:
    async def chat(http: httpx.AsyncClient) -> list[int]:
        created = await http.post("/api/conversations", json={"bot": "echo"})
        path = f"/api/conversations/{created.json()['id']}/messages"
        token = {"Cookie": created.headers["set-cookie"].partition(";")[0]}
        replies = [await http.post(path, json={"text": "hi", "key": str(n)}, headers=token) for n in range(2)]
        return [created.status_code, *(reply.status_code for reply in replies)]

    async def crowd(url: str) -> list[list[int]]:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as http:
            http.cookies = NoCookies()
            return await asyncio.gather(*(chat(http) for _ in range(200)))

    with serve(tmp_path / "chat.db", trusted_proxies=[]) as url:
        assert asyncio.run(crowd(url)) == [[201, 200, 200]] * 200


class NoCookies(httpx.Cookies):
    """Many visitors share one client here, but no cookies."""

    def extract_cookies(self, response: httpx.Response) -> None:
        pass


# Half-sent requests, over plain sockets.

HALF_HEAD = b"POST /api/conversations HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
HALF_BODY = HALF_HEAD + b"1\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def connect(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=15)
    connection.settimeout(15)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
    return received


@contextmanager
def connections(url: str, count: int, data: bytes) -> Iterator[list[socket.socket]]:
    with ExitStack() as opened:
        made = [opened.enter_context(connect(url)) for _ in range(count)]
        for connection in made:
            connection.sendall(data)
        yield made


@pytest.mark.parametrize(
    ("data", "answer"), [(HALF_HEAD, b"408"), (HALF_BODY, b"408"), (b"\r\n", b"408"), (b"", b"408")]
)
def test_half_sent_requests_are_closed_and_nobody_else_notices(
    serve: Any, visitor: Any, tmp_path: Path, data: bytes, answer: bytes
) -> None:
    with serve(tmp_path / "chat.db", head_seconds=1.0, body_seconds=1.0) as url:
        page = visitor(url)
        conversation = page.begin()
        with connections(url, 250, data) as half_sent:
            page.say(conversation, "hello")
            for connection in half_sent:
                assert read_all(connection).split(b" ")[1] == answer
        page.say(conversation, "hello again")
        assert b"tertulia_request_timeouts_total 250.0" in httpx.get(f"{url}/metrics").content


def trickle(connection: socket.socket) -> None:
    """A byte now and then, for a minute and a half at most."""
    for _ in range(1800):
        connection.sendall(b"x")
        time.sleep(0.05)


def test_a_trickle_of_bytes_does_not_prolong_a_time_out(serve: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db", head_seconds=0.6, body_seconds=0.6) as url:
        for data in (HALF_HEAD, HALF_BODY):
            with connect(url) as connection:
                connection.sendall(data)
                with pytest.raises(ConnectionError):  # reset, broken pipe or aborted
                    trickle(connection)


def test_a_blank_line_does_not_keep_an_idle_connection_open(serve: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db", head_seconds=0.5) as url, connect(url) as connection:
        connection.sendall(WHOLE)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"\r\n")
        assert b" 408 " in read_all(connection)


def test_half_of_a_pipelined_request_does_not_cut_off_a_reply(serve: Any, visitor: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db", head_seconds=0.3, body_seconds=0.3) as url, connect(url) as connection:
        page = visitor(url)
        conversation = page.begin("nap")
        body = b'{"text": "1.5", "key": "k"}'
        cookie = page.http.cookies["tertulia"].encode()
        head = b"POST /api/conversations/%b/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: tertulia=%b\r\n"
        head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b%b"
        connection.sendall(head % (conversation.encode(), cookie, len(body), body, HALF_HEAD))
        answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"Good morning." in answer
        assert answer.endswith(b"408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")


def test_a_slow_reply_and_an_idle_connection_are_not_timed_out(serve: Any, visitor: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db", head_seconds=1, body_seconds=1) as url:
        page = visitor(url)
        assert page.say(page.begin("nap"), "2")["bot"]["text"] == "Good morning."
        with connect(url) as connection:
            for _ in range(2):
                connection.sendall(WHOLE)
                answer = b""
                while not answer.endswith(b"}"):  # it may come in parts
                    received = connection.recv(65536)
                    assert received, "the connection was closed"
                    answer += received
                assert answer.startswith(b"HTTP/1.1 200")
                time.sleep(1.5)


def test_an_address_has_a_limited_number_of_connections(serve: Any, tmp_path: Path, eventually: Any) -> None:
    with serve(tmp_path / "chat.db", max_connections=5, trusted_proxies=[]) as url:
        with connections(url, 5, WHOLE) as open_ones:
            for connection in open_ones:
                assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            assert not is_up(url)
        eventually(lambda: is_up(url))  # once they are closed, there is room again
    with serve(tmp_path / "chat.db", max_connections=5) as url, connections(url, 9, WHOLE) as many:  # a trusted proxy
        assert all(connection.recv(65536).startswith(b"HTTP/1.1 200") for connection in many)


def is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.HTTPError:
        return False
