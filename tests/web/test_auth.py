"""Keys, passwords, sessions and hosts: forged and hostile requests against a real server, and what the parts do."""

import hashlib
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import openai
import pytest
from pydantic import ValidationError

from tertulia.core.errors import ConfigError, UsageError
from tertulia.web.auth import Access, Attempts, Quota, RevokedSessions, WebSession, key_digest, new_key
from tertulia.web.config import KeyConfig, ServeConfig
from tertulia.web.errors import TooMany
from tertulia.web.exposure import check_exposure, is_loopback

ALICE, BOB, CAROL, PASSWORD, SECRET = "alice-key", "bob-key", "carol-key", "open sesame", "signs sessions"
COOKIE = "tertulia_session"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
CHAT = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}


def settings(**changes: Any) -> dict[str, Any]:
    keys = {
        "alice": KeyConfig(key_sha256=key_digest(ALICE)),
        "bob": KeyConfig(key_sha256=key_digest(BOB), revoked=True),
        "carol": KeyConfig(key_sha256=key_digest(CAROL), per_minute=2),
    }
    return {"keys": keys, "password": PASSWORD, "session_secret": SECRET} | changes


def protected(**changes: Any) -> ServeConfig:
    return ServeConfig(**settings(**changes))


def signed_in(config: ServeConfig | None = None, text: str = PASSWORD, *, age: float = 0.0) -> str:
    """The value of a session's cookie, from a server with this config, `age` seconds ago."""
    cookie = Access(config or protected(), clock=lambda: time.time() - age).sign_in(text)
    assert cookie is not None
    return cookie


class World:
    """A protected server, and a visitor with a conversation on it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, cookies={COOKIE: signed_in()}, timeout=20)
        self.conversation = self.http.post("/api/conversations", json={"bot": "echo"}).json()["id"]

    def get(self, path: str, *, key: str | bytes | None = None, cookie: str | None = None, **headers: Any) -> int:
        return self.send("GET", path, key=key, cookie=cookie, headers=headers)

    def send(
        self,
        method: str,
        path: str,
        *,
        key: str | bytes | None = None,
        cookie: str | None = None,
        headers: dict[str, Any] | None = None,
        **body: Any,
    ) -> int:
        """As a stranger: without cookies but for this one."""
        sent = dict(headers or {})
        if key is not None:
            sent["Authorization"] = b"Bearer " + (key if isinstance(key, bytes) else key.encode())
        if cookie is not None:
            sent["Cookie"] = f"{COOKIE}={cookie}"
        answer = httpx.request(method, self.url + path, headers=sent, timeout=20, **body)
        assert "Traceback" not in answer.text
        return answer.status_code

    def sign_in(self, content: bytes, **headers: str) -> int:
        return self.send("POST", "/signin", content=content, headers=FORM | headers)

    def raw(self, request: bytes) -> int:
        """Bytes as they are, which no client would send."""
        host, port = self.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(request.replace(b"\n", b"\r\n").replace(b"HOST", f"{host}:{port}".encode()))
            answer = connection.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 "), answer
        return int(answer[9:12])

    def as_visitor(self, method: str, path: str, **options: Any) -> int:
        return self.http.request(method, path, **options).status_code

    def as_stranger(self, method: str, path: str) -> int:
        """Signed in, but another visitor."""
        return self.send(method, path.format(id=self.conversation), cookie=signed_in())

    def replayed_after_sign_out(self) -> int:
        cookie = signed_in()
        assert self.get("/api/bots", cookie=cookie) == 200
        assert self.send("POST", "/signout", cookie=cookie) == 303
        return self.get("/api/bots", cookie=cookie)


@pytest.fixture(scope="module")
def world(serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serve(tmp_path_factory.mktemp("auth") / "chat.db", **settings()) as url:
        world = World(url)
        yield world
        world.http.close()


def altered(cookie: str, part: int, value: str) -> str:
    parts = cookie.split(".")
    parts[part] = value
    return ".".join(parts)


class Attack(NamedTuple):
    name: str
    send: Callable[[World], int]
    status: int | tuple[int, ...]


PAGE_ROOT = 303
"""The page sends strangers to the sign-in form."""
AUTH = b"Authorization: Bearer alice-key\n"
ATTACKS = [
    # Keys.
    Attack("no key", lambda w: w.get("/v1/models"), 401),
    Attack("wrong key", lambda w: w.get("/v1/models", key="mallory-key"), 401),
    Attack("empty key", lambda w: w.raw(b"GET /v1/models HTTP/1.1\nHost: HOST\nAuthorization: Bearer \n\n"), 401),
    Attack("only the scheme", lambda w: w.get("/v1/models", Authorization="Bearer"), 401),
    Attack("revoked key", lambda w: w.get("/v1/models", key=BOB), 401),
    Attack("other scheme", lambda w: w.get("/v1/models", Authorization=f"Basic {ALICE}"), 401),
    Attack("key in the query", lambda w: w.get(f"/v1/models?api_key={ALICE}"), 401),
    Attack("key in a cookie", lambda w: w.get("/v1/models", cookie=ALICE), 401),
    Attack("digest instead of the key", lambda w: w.get("/v1/models", key=key_digest(ALICE)), 401),
    Attack("truncated key", lambda w: w.get("/v1/models", key=ALICE[:-1]), 401),
    Attack("key with a tail", lambda w: w.get("/v1/models", key=f"{ALICE} x"), 401),
    Attack("key in capitals", lambda w: w.get("/v1/models", key=ALICE.upper()), 401),
    Attack("not ASCII", lambda w: w.get("/v1/models", key="ключ".encode()), 401),
    Attack("not UTF-8", lambda w: w.get("/v1/models", key=b"\xff\xfe"), 401),
    Attack("password as key", lambda w: w.get("/v1/models", key=PASSWORD), 401),
    Attack("session for the API", lambda w: w.get("/v1/models", cookie=signed_in()), 401),
    Attack("two keys", lambda w: w.raw(b"GET /v1/models HTTP/1.1\nHost: HOST\n" + AUTH * 2 + b"\n"), 401),
    Attack("completion without a key", lambda w: w.send("POST", "/v1/chat/completions", json=CHAT), 401),
    Attack("model by path without a key", lambda w: w.get("/v1/models/echo"), 401),
    # The page without a session.
    Attack("page without a session", lambda w: w.get("/"), PAGE_ROOT),
    Attack("bots without a session", lambda w: w.get("/api/bots"), 401),
    Attack("schema without a session", lambda w: w.get("/openapi.json"), 401),
    Attack("unknown path without a session", lambda w: w.get("/metrics"), 401),
    Attack("message without a session", lambda w: w.send("POST", "/api/conversations", json={"bot": "echo"}), 401),
    Attack("export without a session", lambda w: w.get(f"/api/conversations/{w.conversation}/export"), 401),
    Attack("page with a revoked key", lambda w: w.get("/api/bots", key=BOB), 401),
    # Forged sessions.
    Attack("made-up session", lambda w: w.get("/", cookie="x"), PAGE_ROOT),
    Attack("session without a signature", lambda w: w.get("/api/bots", cookie=altered(signed_in(), 3, "")), 401),
    Attack("wrong signature", lambda w: w.get("/api/bots", cookie=altered(signed_in(), 3, "0" * 64)), 401),
    Attack("prolonged session", lambda w: w.get("/api/bots", cookie=altered(signed_in(), 0, "9999999999")), 401),
    Attack("other session id", lambda w: w.get("/api/bots", cookie=altered(signed_in(), 1, "A" * 22)), 401),
    Attack("other credential", lambda w: w.get("/api/bots", cookie=altered(signed_in(), 2, "alice")), 401),
    Attack("unknown credential", lambda w: w.get("/api/bots", cookie=altered(signed_in(), 2, "root")), 401),
    Attack("other secret", lambda w: w.get("/api/bots", cookie=signed_in(protected(session_secret="guess"))), 401),
    Attack(
        "session of an earlier password",
        lambda w: w.get("/api/bots", cookie=signed_in(protected(password="old"), "old")),
        401,
    ),
    Attack(
        "session of a key that was revoked since",
        lambda w: w.get("/api/bots", cookie=signed_in(protected(keys={"bob": key_of(BOB)}), BOB)),
        401,
    ),
    Attack("expired session", lambda w: w.get("/api/bots", cookie=signed_in(age=8 * 24 * 3600)), 401),
    Attack("session after sign-out", World.replayed_after_sign_out, 401),
    Attack("sign-out by a stranger", lambda w: w.send("POST", "/signout"), 401),
    # Signing in.
    Attack("wrong password", lambda w: w.sign_in(b"password=guess"), 401),
    Attack("empty password", lambda w: w.sign_in(b"password="), 401),
    Attack("two passwords", lambda w: w.sign_in(b"password=open+sesame&password=x"), 401),
    Attack("password as JSON", lambda w: w.send("POST", "/signin", json={"password": PASSWORD}), 401),
    Attack("huge form", lambda w: w.sign_in(b"password=open+sesame&x=" + b"x" * 5_000), 401),
    Attack("revoked key as password", lambda w: w.sign_in(b"password=bob-key"), 401),
    Attack("sign-in from another site", lambda w: w.sign_in(b"password=open+sesame", Origin="https://evil.org"), 403),
    # Hosts.
    Attack("other host", lambda w: w.get("/", key=ALICE, Host="evil.example"), 421),
    Attack("rebound host", lambda w: w.get("/api/bots", key=ALICE, Host="127.0.0.1.evil.example:8000"), 421),
    Attack("host with user", lambda w: w.get("/v1/models", key=ALICE, Host="evil@127.0.0.1"), 421),
    Attack("host with a path", lambda w: w.get("/v1/models", key=ALICE, Host="127.0.0.1/x"), 421),
    Attack("other address", lambda w: w.get("/v1/models", key=ALICE, Host="10.0.0.1"), 421),
    Attack("empty host", lambda w: w.raw(b"GET / HTTP/1.1\nHost:\n" + AUTH + b"\n"), (400, 421)),
    Attack("no host", lambda w: w.raw(b"GET / HTTP/1.0\n" + AUTH + b"\n"), (400, 421)),
    Attack("two hosts", lambda w: w.raw(b"GET / HTTP/1.1\nHost: HOST\nHost: evil\n" + AUTH + b"\n"), (400, 421)),
    # Other sites.
    Attack(
        "post from another site",
        lambda w: w.as_visitor("POST", "/api/conversations", json={"bot": "echo"}, headers={"Origin": "http://evil"}),
        403,
    ),
    Attack(
        "post from a sandboxed frame",
        lambda w: w.as_visitor("POST", "/api/conversations", json={"bot": "echo"}, headers={"Origin": "null"}),
        403,
    ),
    Attack(
        "post from a sibling site",
        lambda w: w.as_visitor("DELETE", "/api/me", headers={"Sec-Fetch-Site": "same-site"}),
        403,
    ),
    Attack(
        "sign-out from another site",
        lambda w: w.as_visitor("POST", "/signout", headers={"Sec-Fetch-Site": "cross-site"}),
        403,
    ),
    # Bodies.
    Attack("large body", lambda w: w.send("POST", "/v1/chat/completions", key=ALICE, content=b" " * 1_000_001), 413),
    Attack("large chunked body", lambda w: w.as_visitor("POST", "/api/conversations", content=chunked()), 413),
    Attack(
        "absurd length",
        lambda w: w.raw(b"POST /signin HTTP/1.1\nHost: HOST\nContent-Length: " + b"9" * 5_000 + b"\n\n"),
        (400, 413),
    ),
    Attack(
        "negative length", lambda w: w.raw(b"POST /signin HTTP/1.1\nHost: HOST\nContent-Length: -1\n\n"), (400, 413)
    ),
    Attack("bad JSON", lambda w: w.as_visitor("POST", "/api/conversations", content=b"{", headers=JSON), 422),
    Attack(
        "bad JSON for the API",
        lambda w: w.send("POST", "/v1/chat/completions", key=ALICE, content=b"[", headers=JSON),
        400,
    ),
    Attack(
        "deeply nested JSON",
        lambda w: w.send("POST", "/v1/chat/completions", key=ALICE, content=b"[" * 100_000, headers=JSON),
        400,
    ),
    # Other visitors.
    Attack("another's conversation", lambda w: w.as_stranger("GET", "/api/conversations/{id}"), 404),
    Attack("another's export", lambda w: w.as_stranger("GET", "/api/conversations/{id}/export"), 404),
    Attack("another's events", lambda w: w.as_stranger("GET", "/api/conversations/{id}/events"), 404),
    Attack("delete another's conversation", lambda w: w.as_stranger("DELETE", "/api/conversations/{id}"), 404),
    Attack(
        "another's id in capitals", lambda w: w.as_visitor("GET", f"/api/conversations/{w.conversation.upper()}"), 404
    ),
    # Paths.
    *(
        Attack(
            f"path {path.decode()}", lambda w, path=path: w.raw(b"GET %b HTTP/1.1\nHost: HOST\n\n" % path), (401, 404)
        )
        for path in (
            b"/static/../api/bots",
            b"/static/%2e%2e/%2e%2e/app.py",
            b"/static/..%2f..%2fetc/passwd",
            b"/signin/../api/bots",
            b"/healthz/../api/bots",
            b"/healthz/",
            b"//api/bots",
            b"/API/bots",
            b"/api/bots/",
            b"/api/bots%00",
            b"/v1/../api/bots",
        )
    ),
    # The protocol.
    Attack("TRACE", lambda w: w.raw(b"TRACE / HTTP/1.1\nHost: HOST\n\n"), (400, 401, 405)),
    Attack("NUL in a header", lambda w: w.raw(b"GET /healthz HTTP/1.1\nHost: HOST\nX: a\0b\n\n"), 400),
    Attack("space in a header's name", lambda w: w.raw(b"GET /healthz HTTP/1.1\nHost: HOST\nX Y: a\n\n"), 400),
    Attack(
        "smuggled request",
        lambda w: w.raw(
            b"POST /signin HTTP/1.1\nHost: HOST\nContent-Length: 4\nTransfer-Encoding: chunked\n\n0\n\nGET /api/bots"
        ),
        (400, 401, 413),
    ),
]
JSON = {"Content-Type": "application/json"}


def key_of(text: str) -> KeyConfig:
    return KeyConfig(key_sha256=key_digest(text))


def chunked() -> Iterator[bytes]:
    yield from [b" " * 100_000] * 11


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
def test_forged_and_hostile_requests_are_refused(world: World, attack: Attack) -> None:
    status = attack.send(world)
    assert status in (attack.status if isinstance(attack.status, tuple) else (attack.status,))
    assert world.as_visitor("GET", f"/api/conversations/{world.conversation}") == 200  # the honest visitor is unharmed


def test_there_are_at_least_thirty_kinds_of_attack() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 30


def test_a_header_cannot_be_injected(world: World) -> None:
    title = "x\r\nSet-Cookie: evil=1"
    changed = world.http.patch(f"/api/conversations/{world.conversation}", json={"title": title})
    exported = world.http.get(f"/api/conversations/{world.conversation}/export")
    redirected = httpx.get(f"{world.url}/?x=%0d%0aSet-Cookie:%20evil=1")
    for answer in (changed, exported, redirected):
        assert not any("evil" in value for value in answer.headers.values())


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
@pytest.mark.parametrize("key", [ALICE, CAROL])
def test_a_valid_key_opens_the_api_and_the_page(world: World, scheme: str, key: str) -> None:
    headers = {"Authorization": f"{scheme} {key}"}
    assert httpx.get(f"{world.url}/v1/models", headers=headers).status_code == 200
    assert httpx.get(f"{world.url}/api/bots", headers=headers).status_code == 200


def test_public_paths_need_no_session(world: World) -> None:
    for path in ("/signin", "/healthz", "/static/logo.svg", "/static/signin.css"):
        assert httpx.get(world.url + path).status_code == 200


@pytest.mark.parametrize("text", [PASSWORD, ALICE])
def test_a_visitor_signs_in_and_out(world: World, text: str) -> None:
    with httpx.Client(base_url=world.url) as http:
        to_form = http.get("/")
        assert (to_form.status_code, to_form.headers["location"]) == (303, "signin")
        signed = http.post("/signin", data={"password": text})
        assert (signed.status_code, signed.headers["location"]) == (303, "./")
        cookie = signed.headers["set-cookie"]
        assert re.fullmatch(rf"{COOKIE}=[\w.-]+; Path=/; Max-Age=604800; HttpOnly; SameSite=Lax", cookie)
        page = http.get("/")
        assert page.status_code == 200
        assert 'action="signout"' in page.text
        assert http.get("/signin").headers["location"] == "./"
        assert http.post("/api/conversations", json={"bot": "echo"}).status_code == 201
        out = http.post("/signout")
        assert (out.status_code, out.headers["location"]) == (303, "signin")
        assert COOKIE not in http.cookies
        assert http.get("/").status_code == 303


def test_the_session_cookie_is_secure_behind_https(world: World) -> None:
    headers = {"X-Forwarded-Proto": "https"}
    answer = httpx.post(f"{world.url}/signin", data={"password": PASSWORD}, headers=headers)
    assert answer.headers["set-cookie"].endswith("; Secure")


def test_the_sign_in_page_names_its_field_and_announces_errors(world: World) -> None:
    form = httpx.get(f"{world.url}/signin")
    assert form.headers["cache-control"] == "no-store"
    assert '<label class="field" for="password">Password or access key</label>' in form.text
    assert "role=" not in form.text
    wrong = httpx.post(f"{world.url}/signin", data={"password": "<b>"})
    assert wrong.status_code == 401
    assert 'role="alert">That is not the password.' in wrong.text
    assert 'aria-invalid="true" aria-describedby="error"' in wrong.text
    assert "<b>" not in wrong.text


def test_attempts_to_sign_in_are_limited(serve: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db", **settings()) as url:
        answers = [httpx.post(f"{url}/signin", data={"password": "guess"}) for _ in range(11)]
        assert [answer.status_code for answer in answers] == [401] * 10 + [429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
        assert "Too many attempts" in answers[-1].text
        late = httpx.post(f"{url}/signin", data={"password": PASSWORD})
        assert late.status_code == 429  # else the limit would tell a guess from a hit
        forwarded = {"X-Forwarded-For": "203.0.113.9"}
        assert httpx.post(f"{url}/signin", data={"password": PASSWORD}, headers=forwarded).status_code == 303


def test_a_key_has_a_quota(serve: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db", **settings()) as url:
        with openai.OpenAI(base_url=f"{url}/v1", api_key=CAROL, max_retries=0) as client:
            for _ in range(2):
                client.chat.completions.create(**CHAT)  # type: ignore[call-overload]
            with pytest.raises(openai.RateLimitError, match="the limit is 2 a minute") as caught:
                client.chat.completions.create(**CHAT)  # type: ignore[call-overload]
            assert caught.value.code == "rate_limit_exceeded"
            assert 1 <= int(caught.value.response.headers["retry-after"]) <= 60
            assert len(client.models.list().data) == 5
        headers = {COOKIE: signed_in(text=CAROL)}
        page = httpx.post(f"{url}/api/conversations/{'0' * 32}/messages", json={}, cookies=headers)
        assert page.status_code == 429
        with openai.OpenAI(base_url=f"{url}/v1", api_key=ALICE, max_retries=0) as client:
            client.chat.completions.create(**CHAT)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("key", "message"), [("wrong", "Incorrect API key provided"), (BOB, "Incorrect API key provided")]
)
def test_the_official_client_shows_why_it_was_refused(world: World, key: str, message: str) -> None:
    with openai.OpenAI(base_url=f"{world.url}/v1", api_key=key, max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError, match=message) as caught:
            client.chat.completions.create(**CHAT)  # type: ignore[call-overload]
        assert (caught.value.code, caught.value.type) == ("invalid_api_key", "invalid_request_error")


def test_a_password_alone_closes_the_api(serve: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db", password=PASSWORD) as url:
        answer = httpx.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {PASSWORD}"})
        assert answer.status_code == 401
        assert "no API keys" in answer.json()["error"]["message"]


def test_a_server_whose_keys_are_all_revoked_stays_closed(serve: Any, tmp_path: Path) -> None:
    keys = {"bob": KeyConfig(key_sha256=key_digest(BOB), revoked=True)}
    with serve(tmp_path / "chat.db", keys=keys) as url:
        assert httpx.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {BOB}"}).status_code == 401
        assert httpx.get(f"{url}/api/bots").status_code == 401


def test_without_protection_there_is_nothing_to_sign_in_to(url: str) -> None:
    assert httpx.get(f"{url}/signin").headers["location"] == "./"
    assert "signout" not in httpx.get(url).text
    assert httpx.post(f"{url}/signin", data={"password": "x"}).status_code == 401


def test_preflight_requests_need_no_key(serve: Any, tmp_path: Path) -> None:
    origin = {"Origin": "https://chat.example"}
    with serve(tmp_path / "chat.db", **settings(cors_origins=("https://chat.example",))) as url:
        asked = {**origin, "Access-Control-Request-Method": "POST"}
        assert httpx.options(f"{url}/v1/chat/completions", headers=asked).status_code == 200
        refused = httpx.post(f"{url}/v1/chat/completions", json=CHAT, headers=origin)
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://chat.example"


@pytest.mark.parametrize(
    ("config", "host", "allowed"),
    [
        ({}, "localhost:8000", True),
        ({}, "LOCALHOST", True),
        ({}, "localhost.", True),
        ({}, "127.0.0.1", True),
        ({}, "[::1]:8000", True),
        ({}, "::1", False),
        ({}, "192.168.1.5", False),
        ({}, "example.org", False),
        ({}, "", False),
        ({}, "localhost:", False),
        ({}, "local host", False),
        ({"host": "192.168.1.5"}, "192.168.1.5:8000", True),
        ({"host": "192.168.1.5"}, "192.168.1.6:8000", False),
        ({"host": "2001:db8::5"}, "[2001:db8::5]:8000", True),
        ({"host": "0.0.0.0"}, "192.168.1.5:8000", True),
        ({"host": "0.0.0.0"}, "192.168.1.5.evil.org", False),
        ({"host": "0.0.0.0"}, "evil.org", False),
        ({"host": "::"}, "[2001:db8::5]:8000", True),
        ({"allow_hosts": ("chat.example.org",)}, "chat.example.org", True),
        ({"allow_hosts": ("chat.example.org",)}, "Chat.Example.org:443", True),
        ({"allow_hosts": ("chat.example.org",)}, "evil.chat.example.org", False),
        ({"allow_hosts": ("*",)}, "anything.example", True),
    ],
)
def test_only_hosts_of_the_server_are_allowed(config: dict[str, Any], host: str, allowed: bool) -> None:
    assert Access(ServeConfig(**config)).allows_host(host.encode()) is allowed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": "0.0.0.0"}, "anyone who can reach this machine"),
        ({"host": "::"}, "anyone who can reach this machine"),
        ({"host": ""}, "anyone who can reach this machine"),
        ({"host": "192.168.1.5"}, "anyone who can reach this machine"),
        ({"host": "0.0.0.0", "bots": ("human",), "open": True}, "'human' cannot be served"),
        ({"host": "0.0.0.0", "bots": ("tfidf", "me=human?turns=3"), "password": "x"}, "'human' cannot be served"),
    ],
)
def test_an_unprotected_server_is_not_exposed(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_exposure(ServeConfig(**options))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bots": ("human",)},
        {"host": "localhost"},
        {"host": "::1", "bots": ("human",)},
        {"host": "0.0.0.0", "open": True},
        {"host": "0.0.0.0", "password": "x"},
        {"host": "0.0.0.0", "api_key": "x"},
        {"host": "0.0.0.0", "keys": {"ana": {"key_sha256": "0" * 64}}},
    ],
)
def test_a_local_or_protected_server_is_allowed(options: dict[str, Any]) -> None:
    check_exposure(ServeConfig(**options))


def test_all_of_127_is_loopback() -> None:
    assert is_loopback("127.3.2.1")
    assert not is_loopback("no-such-host.invalid")


@pytest.mark.parametrize(
    "settings",
    [
        {"api_key": ""},
        {"api_key": "  "},
        {"password": ""},
        {"password": "**********"},
        {"session_secret": ""},
        {"keys": {"ana": {"key_sha256": "abc"}}},
        {"keys": {"ana": {"key_sha256": hashlib.sha256(b"").hexdigest()}}},
        {"keys": {"ana": {"key_sha256": "0" * 64, "per_minute": 0}}},
        {"keys": {"an a": {"key_sha256": "0" * 64}}},
        {"keys": {"password": {"key_sha256": "0" * 64}}},
        {"keys": {"ana": {"key_sha256": "0" * 64}, "ben": {"key_sha256": "0" * 64}}},
    ],
)
def test_unsafe_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises((ValidationError, ConfigError)):
        ServeConfig(**settings)


def test_a_printed_config_shows_no_secrets() -> None:
    assert not any(secret in repr(protected()) for secret in (PASSWORD, SECRET, ALICE))


def test_sessions_end_in_all_processes(tmp_path: Path) -> None:
    config = protected(revoked_sessions=tmp_path / "signed-out")
    one, two = Access(config), Access(config)
    cookies = [signed_in(config) for _ in range(2)]
    for cookie in cookies:
        session = two.session(cookie)
        assert session is not None
        one.sign_out(session)
        assert two.session(cookie) is None
    assert Access(config).session(cookies[0]) is None
    assert two.session(signed_in(config)) is not None


def test_sessions_that_expired_are_forgotten() -> None:
    now = [0.0]
    revoked = RevokedSessions(None, lambda: now[0])
    revoked.add(WebSession("a", "password", 10))
    assert "a" in revoked
    now[0] = 11.0
    revoked.add(WebSession("b", "password", 20))
    assert "a" not in revoked
    assert "b" in revoked


def test_a_quota_counts_the_last_minute() -> None:
    now = [0.0]
    quota = Quota(2, clock=lambda: now[0])
    quota.take("requests")
    now[0] = 30.0
    quota.take("requests")
    with pytest.raises(TooMany) as caught:
        quota.take("requests")
    assert caught.value.retry_after == 30
    now[0] = 60.0
    quota.take("requests")


def test_an_ipv6_network_counts_as_one_address() -> None:
    attempts = Attempts(1, clock=lambda: 0.0)
    attempts.take("2001:db8::1")
    with pytest.raises(TooMany):
        attempts.take("2001:db8::ffff")
    attempts.take("2001:db8:0:1::1")
    attempts.take("192.0.2.1")
    attempts.take("192.0.2.2")


def test_new_keys_differ_and_are_long() -> None:
    assert len({new_key() for _ in range(100)}) == 100
    assert len(new_key()) >= 40
