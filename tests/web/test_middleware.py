"""Cookies, requests from other sites, headers and size limits; the page and its static files."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import tertulia.web


def test_a_visitor_gets_a_cookie_once(url: str) -> None:
    with httpx.Client(base_url=url) as http:
        first = http.get("/")
        cookie = first.headers["set-cookie"]
        assert re.fullmatch(r"tertulia=[\w-]{43}; Path=/; Max-Age=\d+; HttpOnly; SameSite=Lax", cookie)
        assert "set-cookie" not in http.get("/").headers
        assert "set-cookie" not in http.get("/api/conversations").headers
    assert "set-cookie" in httpx.get(f"{url}/api/conversations").headers
    assert "set-cookie" not in httpx.get(f"{url}/healthz").headers
    assert "set-cookie" not in httpx.get(f"{url}/v1/models").headers


def test_the_cookie_is_secure_behind_https(url: str) -> None:
    cookie = httpx.get(url, headers={"X-Forwarded-Proto": "https"}).headers["set-cookie"]
    assert cookie.endswith("; Secure")


@pytest.mark.parametrize("token", ["", "short", "x" * 44, "../" * 14 + "x", "é" * 43])
def test_an_invalid_token_is_replaced(url: str, token: str) -> None:
    headers = {"Cookie": f"tertulia={token}".encode()}
    assert "set-cookie" in httpx.get(f"{url}/api/conversations", headers=headers).headers


def test_only_the_hash_of_a_token_is_stored(serve: Any, visitor: Any, tmp_path: Path) -> None:
    with serve(tmp_path / "chat.db") as url:
        page = visitor(url)
        page.say(page.begin(), "find me")
        token = page.http.cookies["tertulia"].encode()
        page.http.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"find me" in kept
    assert token not in kept


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Origin": "{url}"}, True),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://["}, False),
    ],
)
def test_pages_of_other_sites_cannot_act_for_a_visitor(
    page: Any, url: str, headers: dict[str, str], allowed: bool
) -> None:
    sent = {name: value.format(url=url) for name, value in headers.items()}
    conversation = page.begin()
    created = page.http.post("/api/conversations", json={"bot": "echo"}, headers=sent)
    gone = page.http.delete(f"/api/conversations/{conversation}", headers=sent)
    assert (created.status_code, gone.status_code) == ((201, 204) if allowed else (403, 403))
    assert page.http.get("/api/conversations", headers=sent).status_code == 200
    if not allowed:
        assert "another site" in created.json()["error"]["message"]


def test_a_form_of_another_site_is_refused(page: Any) -> None:
    answer = page.http.post("/api/conversations", content='{"bot": "echo"}', headers={"Content-Type": "text/plain"})
    assert answer.status_code == 422


@pytest.mark.parametrize("path", ["/", "/api/bots", "/v1/models", "/healthz", "/nowhere", "/static/nowhere"])
def test_every_response_has_the_security_headers(url: str, path: str) -> None:
    headers = httpx.get(url + path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'; img-src 'self' data:;" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert "server" not in headers


def test_private_responses_are_not_cached(page: Any) -> None:
    assert page.http.get("/api/conversations").headers["cache-control"] == "no-store"
    assert page.http.get("/").headers["cache-control"] == "no-cache"


def chunks(size: int) -> Iterator[bytes]:
    for _ in range(size // 1000):
        yield b" " * 1000


@pytest.mark.parametrize("path", ["/api/conversations", "/v1/chat/completions"])
def test_a_huge_request_is_refused(url: str, path: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(url + path, content=b" " * 1_000_001, headers=headers)
    assert answer.status_code == 413
    assert "1,000,000 bytes" in answer.json()["error"]["message"]
    chunked = httpx.post(url + path, content=chunks(1_100_000), headers=headers)
    assert chunked.status_code == 413
    assert "1,000,000 bytes" in chunked.json()["error"]["message"]


def test_the_page_is_served(url: str) -> None:
    answer = httpx.get(url)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "<title>" in answer.text
    assert httpx.head(url).status_code == 200
    assert re.search(r"<script(?![^>]*\bsrc=)[^>]*>", answer.text) is None  # the policy forbids scripts in the page
    assert re.search(r"\son\w+=", answer.text) is None


def test_static_files_are_revalidated(url: str) -> None:
    folder = Path(tertulia.web.__file__).parent / "static"
    file = next(path for path in sorted(folder.rglob("*")) if path.is_file())
    where = f"{url}/static/{file.relative_to(folder).as_posix()}"
    first = httpx.get(where)
    assert first.content == file.read_bytes()
    assert first.headers["cache-control"] == "no-cache"
    again = httpx.get(where, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.headers["cache-control"]) == (304, "no-cache")


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/%00"])
def test_only_static_files_are_served(url: str, path: str) -> None:
    assert httpx.get(url + path).status_code == 404
