"""The nginx configuration of docs/deploy.md, run for real: TLS in front of a real server, and a reply through it."""

import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from tertulia.core.reply import Ask, Piece, Provenance, Reply
from tertulia.store import Database
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import running

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
OPENSSL = shutil.which("openssl")
HOST = "chat.example.org"
MAIN = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
{site}
}}
"""

pytestmark = pytest.mark.skipif(
    NGINX is None or OPENSSL is None, reason="nginx and openssl are needed: apt-get install nginx-light openssl"
)


class Steps:
    """Streams one word each time the test allows it."""

    spec = "steps"
    summary = "Says a word at a time."

    def __init__(self) -> None:
        self.next = threading.Semaphore(0)

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [piece.reply for piece in self.stream(asks, alive=lambda _: True) if piece.reply is not None]

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        for index, _ in enumerate(asks):
            for word in ("one ", "two ", "three"):
                assert self.next.acquire(timeout=20)
                yield Piece(index, word)
            yield Piece(index, reply=Reply("one two three", Provenance(self.spec)))


def documented_site() -> str:
    page = Path(__file__).parents[2] / "docs" / "deploy.md"
    (site,) = re.findall(r"```nginx\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return str(site)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def replaced(text: str, changes: dict[str, str]) -> str:
    """The text with each change made; one that changes nothing means that the documentation has changed."""
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def bot() -> Steps:
    return Steps()


@pytest.fixture(scope="module")
def upstream(bot: Steps, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("server") / "chat.db"
    config = ServeConfig(messages_per_minute=12, address_factor=1, allow_hosts=(HOST,))
    with (
        Database.open(f"sqlite:///{file}") as database,
        running(create_app({"steps": bot}, database, config=config)) as url,
    ):
        yield url


@pytest.fixture(scope="module")
def nginx(upstream: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """The http and https addresses of nginx, and its certificate."""
    assert NGINX is not None
    assert OPENSSL is not None
    folder = tmp_path_factory.mktemp("nginx")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    request = [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
    request += ["-addext", f"subjectAltName=DNS:{HOST}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(request, check=True, capture_output=True)
    plain, tls = free_ports(2)
    changes = {
        "server 127.0.0.1:8000;": f"server {upstream.removeprefix('http://')};",
        "listen 80;": f"listen 127.0.0.1:{plain};",
        "listen 443 ssl;": f"listen 127.0.0.1:{tls} ssl;",
        "/etc/letsencrypt/live/chat.example.org/fullchain.pem": str(certificate),
        "/etc/letsencrypt/live/chat.example.org/privkey.pem": str(key),
    }
    file = folder / "nginx.conf"
    file.write_text(MAIN.format(folder=folder, site=replaced(documented_site(), changes)))
    checked = subprocess.run([NGINX, "-t", "-c", str(file), "-p", str(folder)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    process = subprocess.Popen([NGINX, "-c", str(file), "-p", str(folder)], stderr=subprocess.PIPE, text=True)
    try:
        wait_until_listening(process, tls)
        yield f"http://127.0.0.1:{plain}", f"https://127.0.0.1:{tls}", certificate
    finally:
        process.terminate()
        process.communicate(timeout=20)


def wait_until_listening(process: subprocess.Popen[str], port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def https(nginx: tuple[str, str, Path]) -> Iterator[httpx.Client]:
    """A client that checks the certificate, as a browser would."""
    _, address, certificate = nginx
    with httpx.Client(
        base_url=address,
        verify=ssl.create_default_context(cafile=str(certificate)),
        headers={"Host": HOST},
        timeout=20,
    ) as client:
        client.event_hooks["request"].append(name_server)
        yield client


def name_server(request: httpx.Request) -> None:
    """The name that the certificate is for, whatever the address."""
    request.extensions["sni_hostname"] = HOST


def test_a_reply_is_streamed_through_nginx_word_by_word(https: httpx.Client, bot: Steps) -> None:
    page = https.get("/")
    assert page.status_code == 200
    assert "; Secure" in page.headers["set-cookie"]
    headers = {"Cookie": page.headers["set-cookie"].partition(";")[0], "Origin": f"https://{HOST}"}
    created = https.post("/api/conversations", json={"bot": "steps"}, headers=headers)
    assert created.status_code == 201, created.text
    path = f"/api/conversations/{created.json()['id']}/messages"
    body = {"text": "go", "key": "k", "stream": True}
    with https.stream("POST", path, json=body, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        for word in ("one ", "two ", "three"):
            bot.next.release()  # only now can the bot say it: a proxy that buffers would wait here for ever
            assert any(f'"text":"{word}"' in line for line in until_piece(lines))
        assert any(line == "event: done" for line in lines)


def until_piece(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if line.startswith("data: ") and '"text":"' in line and '"id"' not in line:
            return


def test_clients_cannot_forge_their_address(https: httpx.Client) -> None:
    """Six at once, then one every five seconds; addresses that were believed would have six each."""
    codes = [400]
    while codes[-1] == 400 and len(codes) < 60:
        forged = {"X-Forwarded-For": f"192.0.2.{len(codes)}"}
        codes.append(https.post("/v1/chat/completions", json={}, headers=forged).status_code)
    assert codes[1:7] == [400] * 6
    assert codes[-1] == 429


def test_plain_http_is_redirected(nginx: tuple[str, str, Path]) -> None:
    answer = httpx.get(f"{nginx[0]}/some?thing", headers={"Host": HOST})
    assert (answer.status_code, answer.headers["location"]) == (301, f"https://{HOST}/some?thing")


@pytest.mark.parametrize("path", ["/metrics", "/readyz"])
def test_the_operators_pages_are_not_public(https: httpx.Client, upstream: str, path: str) -> None:
    assert https.get(path).status_code == 404
    assert httpx.get(upstream + path).status_code == 200


def test_a_request_that_is_too_large_is_refused_by_nginx(https: httpx.Client) -> None:
    assert https.post("/api/conversations", content=b"x" * 1_100_000).status_code == 413
