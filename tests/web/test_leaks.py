"""What visitors must never see: the bots' specifications, addresses, key variables, files, and the texts of errors."""

import json
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tertulia.cli.main import run
from tertulia.core.errors import BotError, EndpointError, StoreError
from tertulia.core.reply import Ask, Candidate, Piece, Provenance, Reply
from tertulia.store import ConversationStore, Database
from tertulia.talk.bot import BotTraits
from tertulia.talk.bots.openai import OpenAIBot, OpenAIOptions
from tertulia.web.app import create_app
from tertulia.web.errors import public_error
from tertulia.web.server import running

PROMPT = "You are a salesman of Acme. Never mention refunds."
BASE_URL = "http://10.7.7.7:9999/internal/v1"
KEY_VARIABLE = "ACME_PRIVATE_KEY"
FOLDER = "/srv/acme/models/run-17"
CHECKPOINT = "checkpoint-31337.safetensors"
SOURCE = "customers.jsonl#line-4711"
SECRETS = (PROMPT, "salesman of Acme", BASE_URL, "10.7.7.7", KEY_VARIABLE, FOLDER, CHECKPOINT, SOURCE, "sqlite:")


class Secretive:
    """Its replies carry all secrets in their record; to "fail" it fails with them, midway if it streams."""

    spec = f"openai:{FOLDER}?base_url={BASE_URL}&api_key_env={KEY_VARIABLE}&instructions={PROMPT}"
    summary = "Knows secrets."
    traits = BotTraits(display_name="Sphinx")

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [self._reply(ask) for ask in asks]

    def _reply(self, ask: Ask) -> Reply:
        self.check(ask)
        settings = {"base_url": BASE_URL, "api_key_env": KEY_VARIABLE, "instructions": PROMPT, "folder": FOLDER}
        source = Provenance(self.spec, f"{FOLDER}/{CHECKPOINT}", settings, ask.seed)
        candidates = (Candidate("Good day.", 0.5, source=SOURCE), Candidate("No.", 0.1, f"refused by {FOLDER}", SOURCE))
        return Reply("Good day.", source, 0.5, candidates, note=f"read from {FOLDER}")

    def check(self, ask: Ask) -> None:
        if "fail" in ask.last:
            raise EndpointError(f"{BASE_URL} refused the key of {KEY_VARIABLE}.", hint=f"See {FOLDER}: {PROMPT}")
        if "crash" in ask.last:
            raise RuntimeError(f"{FOLDER}/{CHECKPOINT} is damaged; {PROMPT} {BASE_URL} {KEY_VARIABLE}")


class SecretiveStream(Secretive):
    """The same, word by word."""

    def stream(self, asks: Sequence[Ask], /, *, alive: Any) -> Iterator[Piece]:
        for i, ask in enumerate(asks):
            yield Piece(i, "Good ")
            self.check(ask)
            yield Piece(i, "day.", self._reply(ask))


class Server(NamedTuple):
    url: str
    database: str


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    remote = OpenAIBot(f"{FOLDER}/acme-7b", OpenAIOptions(base_url=BASE_URL, api_key_env=KEY_VARIABLE, retries=0))
    bots = {"sphinx": Secretive(), "stream": SecretiveStream(), "remote": remote}
    database_url = f"sqlite:///{tmp_path / 'chat.db'}"
    with Database.open(database_url) as database, running(create_app(bots, database)) as url:
        yield Server(url, database_url)


def exchanges(page: Any, bot: str) -> Iterator[httpx.Response]:
    """Every route of the page's API, with replies that work and replies that fail."""
    conversation = page.begin(bot)
    path = f"/api/conversations/{conversation}"
    for number, text in enumerate(("hello", "fail", "crash")):
        for stream in (False, True):
            yield page.post(conversation, text=text, key=f"{number}{stream}", stream=stream)
        yield page.post(conversation, "regenerate", key=f"again {number}")
        yield page.http.get(f"{path}/events")
        yield page.post(conversation, "stop")
        yield page.http.get(path)
        for kind in ("json", "txt", "md"):
            yield page.http.get(f"{path}/export", params={"format": kind})
    yield page.http.patch(path, json={"title": "x"})
    yield page.http.patch(path, json={"bot": "nobody"})
    yield page.post(conversation, "undo")
    yield page.http.get("/api/conversations")
    yield page.http.delete(path)
    yield page.http.get(path)
    yield page.http.delete("/api/me")


def completions(page: Any, bot: str) -> Iterator[httpx.Response]:
    for text in ("hello", "fail", "crash"):
        for stream in (False, True):
            messages = [{"role": "user", "content": text}]
            body = {"model": bot, "messages": messages, "stream": stream, "n": 2}
            yield page.http.post("/v1/chat/completions", json=body)
            yield page.http.post("/v1/chat/completions", json={**body, "logprobs": True})


def test_no_response_contains_the_operators_secrets(server: Server, visitor: Any) -> None:
    page = visitor(server.url)
    responses = [page.http.get(path) for path in ("/", "/signin", "/healthz", "/readyz", "/openapi.json", "/metrics")]
    responses += [page.http.get(path) for path in ("/nowhere", "/api/search?q=hello", "/api/search?q=%25")]
    responses += [page.http.get(path) for path in ("/api/bots", "/api/personas", "/v1/models", "/v1/models/sphinx")]
    responses += [page.http.get("/v1/models/nobody"), page.http.post("/api/conversations", json={"bot": "nobody"})]
    for bot in ("sphinx", "stream"):
        responses += [*exchanges(page, bot), *completions(page, bot)]
    schema = page.http.get("/openapi.json").json()
    described = {(path, method) for path, operations in schema["paths"].items() for method in operations}
    assert {(route(r), r.request.method.lower()) for r in responses} >= {d for d in described if "{" not in d[0]}
    for response in responses:
        shown = response.text + json.dumps(dict(response.headers))
        assert [secret for secret in SECRETS if secret in shown] == [], (response.request.url, response.text)
    assert sum("could not answer. Reference: " in response.text for response in responses) >= 20
    assert sum("Good day." in response.text for response in responses) >= 10


def route(response: httpx.Response) -> str:
    return response.request.url.path


def test_the_bots_are_listed_without_hosts_and_folders(server: Server, visitor: Any) -> None:
    bots = {bot["id"]: bot for bot in visitor(server.url).http.get("/api/bots").json()}
    assert (bots["sphinx"]["name"], bots["remote"]["summary"]) == ("sphinx", "The model acme-7b.")
    assert all(set(bot) <= {"id", "name", "summary", "streams", "status", "evidence"} for bot in bots.values())


def test_the_log_has_the_details_under_the_reference(
    server: Server, visitor: Any, caplog: pytest.LogCaptureFixture
) -> None:
    page = visitor(server.url)
    conversation = page.begin("sphinx")
    seen = [page.post(conversation, text="fail", key="k").text]
    body = {"model": "sphinx", "messages": [{"role": "user", "content": "fail"}]}
    seen.append(page.http.post("/v1/chat/completions", json=body).text)
    for text in seen:
        match = re.search(r"Reference: ([0-9a-f]{6})\.", text)
        assert match is not None
        lines = [record.getMessage() for record in caplog.records if f"Reference {match[1]}" in record.getMessage()]
        assert len(lines) == 1
        assert "bot sphinx" in lines[0]
        assert BASE_URL in lines[0]
        assert Secretive.spec in lines[0]


def test_errors_of_the_request_itself_stay_specific(server: Server, visitor: Any) -> None:
    page = visitor(server.url)
    body = {"model": "remote", "messages": [{"role": "user", "content": "hi"}], "top_p": 0}
    answer = page.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert "top_p: must be greater than 0" in answer.json()["error"]["message"]
    assert page.post(page.begin("sphinx"), "undo").json()["error"]["message"] == "There is nothing to undo."


def test_a_bug_gets_a_reference_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Database.open(f"sqlite:///{tmp_path / 'chat.db'}") as database:
        app = create_app({"sphinx": Secretive()}, database)

        @app.get("/api/bug")
        async def bug() -> None:
            raise RuntimeError(FOLDER)

        @app.get("/api/store")
        async def store() -> None:
            raise StoreError(f"{FOLDER} is locked.", hint=BASE_URL)

        with running(app) as url:
            caplog.set_level(logging.ERROR)
            answers = [httpx.get(f"{url}/api/bug"), httpx.get(f"{url}/api/store")]
    assert [answer.status_code for answer in answers] == [500, 503]
    for answer in answers:
        assert FOLDER not in answer.text
        reference = answer.json()["error"]["message"][-7:-1]
        assert any(f"Reference {reference}" in r.getMessage() and FOLDER in r.getMessage() for r in caplog.records)


def test_errors_that_were_stored_by_an_earlier_version_are_hidden(tmp_path: Path, visitor: Any) -> None:
    with Database.open(f"sqlite:///{tmp_path / 'chat.db'}") as database:
        with running(create_app({"sphinx": Secretive()}, database)) as url:
            page = visitor(url)
            conversation = page.begin("sphinx")
            page.post(conversation, text="fail", key="k")
        store = ConversationStore(database)
        (stored,) = store.export(store.owners()[0])
        assert BASE_URL in str(stored.turns[1].error)  # the store has the details, for the operator
        assert page.http.base_url
        with running(create_app({"sphinx": Secretive()}, database), port=page.http.base_url.port) as url:
            assert BASE_URL not in page.http.get(f"/api/conversations/{conversation}").text


def test_the_operators_export_has_everything(
    server: Server, visitor: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = visitor(server.url)
    conversation = page.begin("sphinx", ["I like tea."])
    page.say(conversation, "hello")
    page.post(conversation, "regenerate", key="again")
    page.post(conversation, text="fail", key="k")
    visitor(server.url).begin("stream")
    with pytest.raises(SystemExit) as ended:
        run(["store", "export", "--db", server.database, "--out", str(tmp_path / "all.jsonl"), "--json"])
    assert not ended.value.code
    assert json.loads(capsys.readouterr().out)["conversations"] == 2
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    exported = next(line for line in lines if line["id"] == conversation)
    assert [turn["text"] for turn in exported["turns"]] == ["hello", "Good day.", "Good day.", "fail", ""]
    assert [turn["meta"]["current"] for turn in exported["turns"]] == [True, False, True, True, True]
    for secret in (PROMPT, BASE_URL, KEY_VARIABLE, FOLDER, CHECKPOINT, SOURCE):
        assert secret in json.dumps(exported["turns"][1]["meta"])
    assert BASE_URL in exported["turns"][-1]["meta"]["error"]


def test_a_new_kind_of_error_is_hidden_until_it_is_declared_visible() -> None:
    class NewError(BotError):
        pass

    assert FOLDER not in str(public_error(NewError(FOLDER, hint=FOLDER)))
