"""The bot for OpenAI-compatible endpoints against a real HTTP server, well-behaved and failing."""

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tertulia.core.dialogue import Dialogue, Persona, Turn
from tertulia.core.errors import ConfigError, EndpointError, UsageError
from tertulia.core.reply import Ask, Piece, Usage
from tertulia.talk.bot import StreamingBot
from tertulia.talk.bots.openai import OpenAIBot, OpenAIOptions
from tertulia.talk.endpoint import retry_after
from tertulia.talk.spec import make_bot

KEY = "sk-very-secret-0123456789"

Behaviour = Callable[["Handler", dict[str, Any]], None]


class Handler(BaseHTTPRequestHandler):
    """Does what the plan says for this request, or responds normally."""

    server: "Server"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.requests.append({"path": self.path, "headers": dict(self.headers), "body": body})
            behave = self.server.plan.pop(0) if self.server.plan else self.server.usual
            self.server.busy += 1
            self.server.busiest = max(self.server.busiest, self.server.busy)
        try:
            behave(self, body)
        except (BrokenPipeError, ConnectionResetError):
            self.server.hung_up.set()
        finally:
            with self.server.lock:
                self.server.busy -= 1

    def send(self, status: int, text: str, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(text.encode())

    def events(self, *events: dict[str, Any] | bytes) -> None:
        self.send(200, "", kind="text/event-stream; charset=utf-8")
        for event in events:
            self.wfile.write(event if isinstance(event, bytes) else b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()

    def await_hang_up(self) -> None:
        """Send nothing until the client closes the connection (or the test is over)."""
        self.connection.settimeout(0.05)
        while not self.server.over.is_set():
            try:
                if self.connection.recv(1) == b"":
                    self.server.hung_up.set()
                    return
            except TimeoutError:
                continue

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.plan: list[Behaviour] = []
        self.usual: Behaviour = answer()
        self.requests: list[dict[str, Any]] = []
        self.busy = self.busiest = 0
        self.hung_up = threading.Event()
        self.over = threading.Event()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def bot(self, **options: Any) -> OpenAIBot:
        quick = {"backoff": 0.001, "timeout": 5.0, "retries": 2}
        return OpenAIBot("tiny", OpenAIOptions(base_url=self.base_url, **(quick | options)))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Server() as it:
        thread = threading.Thread(target=it.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield it
        it.over.set()
        it.shutdown()
        thread.join()


def answer(text: str | None = None, finish: str = "stop", delay: float = 0.0, **more: Any) -> Behaviour:
    """A complete response; without a text, it repeats the message."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        time.sleep(delay)
        content = f"You said: {body['messages'][-1]['content']}" if text is None else text
        choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        handler.send(200, json.dumps({"model": "tiny-0925", "choices": [choice], "usage": usage, **more}))

    return behave


def refuse(status: int, text: str = '{"error": {"message": "no luck today"}}', **headers: str) -> Behaviour:
    return lambda handler, _: handler.send(status, text, **headers)


def delta(text: str = "", finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}], **more}


def stream(*events: dict[str, Any] | bytes) -> Behaviour:
    return lambda handler, _: handler.events(*events)


def stream_words(handler: Handler, body: dict[str, Any]) -> None:
    """A well-behaved stream of four words, then the usage, then the end."""
    message = body["messages"][-1]["content"]
    role = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
    words = [delta(word) for word in (message, " is", " what", " you said")]
    handler.events(role, *words, delta(finish="stop"), usage, b": ping\n\n", b"data: [DONE]\n\n")


def ask(text: str = "hi", **more: Any) -> Ask:
    return Ask(Dialogue("d", (Turn("user", text),)), **more)


def everyone(_: int) -> bool:
    return True


def test_a_reply_has_its_provenance(server: Server) -> None:
    [reply] = server.bot(temperature=0.3).reply([ask("hi", seed=5)])
    assert reply.text == "You said: hi"
    assert reply.finish == "stop"
    assert reply.usage == Usage(7, 3)
    assert reply.seconds > 0
    assert reply.provenance.bot == f"openai:tiny?base_url={server.base_url}"
    assert reply.provenance.checkpoint == "tiny-0925"
    assert reply.provenance.seed == 5
    assert reply.provenance.settings["temperature"] == 0.3
    assert json.dumps(dict(reply.provenance.settings))
    assert make_bot(reply.provenance.bot).spec == reply.provenance.bot


def test_the_request_has_the_conversation_and_the_options(server: Server) -> None:
    persona = Persona(("I sail.",))
    dialogue = Dialogue("d", (Turn("user", "hi"), Turn("bot", "hello"), Turn("user", "who?")), {"bot": persona})
    server.bot(instructions="Be brief.", max_tokens=50).reply([Ask(dialogue, seed=2**40 + 3)])
    [request] = server.requests
    assert request["path"] == "/v1/chat/completions"
    assert "authorization" not in {name.lower() for name in request["headers"]}
    assert request["body"] == {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "About you: I sail. Be brief."},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
            {"role": "user", "content": "who?"},
        ],
        "max_tokens": 50,
        "seed": 3,
    }


def test_an_ask_may_set_sampling_and_stop_words_but_not_the_address(server: Server) -> None:
    options = {"temperature": 0, "stop": ["\n"], "base_url": "http://127.0.0.1:9/v1", "retries": 0, "mood": "good"}
    [reply] = server.bot(temperature=1.0, send_seed=False).reply([ask(options=options)])
    sent = server.requests[0]["body"]
    assert (sent["temperature"], sent["stop"]) == (0, ["\n"])
    assert not {"seed", "base_url", "mood"} & set(sent)
    assert reply.provenance.settings["stop"] == ["\n"]
    assert reply.provenance.settings["base_url"] == server.base_url
    with pytest.raises(ConfigError, match="temperature"):
        server.bot().reply([ask(options={"temperature": 9})])


def test_unusual_text_survives_in_both_directions(server: Server) -> None:
    for text in ("👩‍👩‍👧 emoji", "שלום עולם", "<b>&amp;</b>", "line\u2028separator", "x" * 100_000):
        assert server.bot().reply([ask(text)])[0].text == f"You said: {text}"
        assert "".join(p.text for p in _streamed(server, text)) == f"{text} is what you said"
    assert server.bot().reply([ask("lone \ud800 surrogate")])[0].text == "You said: lone ? surrogate"
    server.usual = answer("NUL \0 and \ud83d half")
    assert server.bot().reply([ask()])[0].text == "NUL  and ? half"


def _streamed(server: Server, text: str) -> list[Piece]:
    server.plan = [stream_words]
    return list(server.bot().stream([ask(text)], alive=everyone))


def test_the_reason_for_ending_is_reported(server: Server) -> None:
    server.plan = [answer("a bit", "length"), answer("", "content_filter"), answer("")]
    bot = server.bot()
    assert bot.reply([ask()])[0].finish == "length"
    assert bot.reply([ask()])[0].note == "the endpoint ended it with 'content_filter'"
    assert bot.reply([ask()])[0].note == "the model generated nothing"


def test_content_in_parts_and_refusals_are_text(server: Server) -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "Hello"}]
    server.plan = [
        refuse(200, json.dumps({"choices": [{"message": {"content": parts}}]})),
        refuse(200, json.dumps({"choices": [{"message": {"content": None, "refusal": "I will not."}}]})),
    ]
    assert [server.bot().reply([ask()])[0].text for _ in range(2)] == ["Hello", "I will not."]


def test_a_batch_is_sent_in_parallel_and_returned_in_order(server: Server) -> None:
    server.usual = answer(delay=0.1)
    replies = server.bot(concurrency=3).reply([ask(str(i)) for i in range(9)])
    assert [r.text for r in replies] == [f"You said: {i}" for i in range(9)]
    assert server.busiest == 3
    assert server.bot().reply([]) == []


def test_one_failure_in_a_batch_is_raised(server: Server) -> None:
    server.plan = [answer(), refuse(400), answer()]
    with pytest.raises(EndpointError, match="no luck today"):
        server.bot(concurrency=1).reply([ask() for _ in range(3)])


def test_a_stream_arrives_in_pieces(server: Server) -> None:
    pieces = _streamed(server, "tea")
    assert isinstance(server.bot(), StreamingBot)
    assert [p.text for p in pieces] == ["tea", " is", " what", " you said", ""]
    assert [p.reply is None for p in pieces] == [True] * 4 + [False]
    reply = pieces[-1].reply
    assert reply is not None
    assert (reply.text, reply.usage, reply.finish) == ("tea is what you said", Usage(9, 4), "stop")
    assert server.requests[-1]["body"]["stream_options"] == {"include_usage": True}
    list(server.bot(send_usage=False).stream([ask()], alive=everyone))
    assert "stream_options" not in server.requests[-1]["body"]


def test_a_character_split_by_the_network_is_joined(server: Server) -> None:
    event = b"data: " + json.dumps(delta("\u2028 🌊", "stop"), ensure_ascii=False).encode() + b"\r\n\r\n"
    server.plan = [stream(*(event[i : i + 1] for i in range(len(event))))]
    assert "".join(p.text for p in server.bot().stream([ask()], alive=everyone)) == "🌊"


def test_many_streams_are_merged(server: Server) -> None:
    all_started = threading.Event()

    def in_step(handler: Handler, body: dict[str, Any]) -> None:
        handler.events(delta("one "))
        assert all_started.wait(20)
        last = delta(body["messages"][-1]["content"], "stop")
        handler.wfile.write(f"data: {json.dumps(last)}\n\n".encode())

    server.usual = in_step
    started: set[int] = set()
    texts = {}
    for piece in server.bot(timeout=20).stream([ask(str(i)) for i in range(3)], alive=everyone):
        started |= {piece.index} if piece.text == "one " else set()
        if started == {0, 1, 2}:
            all_started.set()
        if piece.reply:
            texts[piece.index] = piece.reply.text
    assert texts == {i: f"one {i}" for i in range(3)}


def test_a_cancelled_stream_keeps_the_text_shown_and_closes_the_connection(server: Server) -> None:
    def endless(handler: Handler, body: dict[str, Any]) -> None:
        handler.events(delta("one"), delta(" two"))
        handler.await_hang_up()

    server.plan = [endless]
    server.usual = stream_words
    gone: set[int] = set()
    done = {}
    for piece in server.bot(timeout=30).stream([ask("a"), ask("b")], alive=lambda i: i not in gone):
        if piece.text == " two":
            gone.add(piece.index)
        if piece.reply:
            done[piece.index] = piece.reply
    assert server.hung_up.wait(5)
    assert sorted(r.finish for r in done.values()) == ["cancelled", "stop"]
    [cancelled] = [r for r in done.values() if r.finish == "cancelled"]
    assert cancelled.text == "one two"
    assert cancelled.note is None


def test_cancelling_does_not_wait_for_a_silent_server(server: Server) -> None:
    server.usual = lambda handler, _: handler.await_hang_up()
    start = time.perf_counter()
    [piece] = server.bot(timeout=30).stream([ask()], alive=lambda _: time.perf_counter() - start < 0.3)
    assert piece.reply is not None
    assert (piece.reply.text, piece.reply.finish) == ("", "cancelled")
    assert server.hung_up.wait(5)


def test_an_abandoned_stream_is_closed(server: Server) -> None:
    def endless(handler: Handler, body: dict[str, Any]) -> None:
        handler.events(delta("one"))
        handler.await_hang_up()

    server.usual = endless
    pieces = server.bot(timeout=30).stream([ask()], alive=everyone)
    assert next(pieces).text == "one"
    pieces.close()  # type: ignore[attr-defined]
    assert server.hung_up.wait(5)


def test_an_error_in_mid_stream_is_raised_and_not_retried(server: Server) -> None:
    server.usual = stream(delta("so far"), {"error": {"message": "out of memory", "type": "server_error"}})
    pieces = server.bot().stream([ask()], alive=everyone)
    assert next(pieces).text == "so far"
    with pytest.raises(EndpointError, match="in the middle of its reply: out of memory"):
        next(pieces)
    assert len(server.requests) == 1


def test_an_incomplete_stream_is_an_error(server: Server) -> None:
    def cut_chunk(handler: Handler, body: dict[str, Any]) -> None:
        handler.send(200, "40\r\ndata: {", kind="text/event-stream", Transfer_Encoding="chunked")

    handlers = (stream(delta("half")), stream(delta("half"), b'data: {"choi'), cut_chunk)
    for behave in handlers:
        server.plan = [behave]
        with pytest.raises(EndpointError, match=r"(closed the connection|ended the stream) in the middle"):
            list(server.bot().stream([ask()], alive=everyone))
    assert len(server.requests) == len(handlers)


def test_a_stream_may_end_without_done(server: Server) -> None:
    server.plan = [stream(delta("all"), delta("", "length"))]
    *_, last = server.bot().stream([ask()], alive=everyone)
    assert last.reply is not None
    assert (last.reply.text, last.reply.finish) == ("all", "length")


def test_a_server_that_cannot_stream_still_works(server: Server) -> None:
    pieces = list(server.bot().stream([ask("hi")], alive=everyone))
    assert [p.text for p in pieces] == ["You said: hi", ""]


def test_a_stream_is_retried_before_its_first_byte(server: Server) -> None:
    server.plan = [refuse(503), stream_words]
    *_, last = server.bot().stream([ask("tea")], alive=everyone)
    assert last.reply is not None
    assert last.reply.text == "tea is what you said"
    assert len(server.requests) == 2


def test_retry_after_is_obeyed(server: Server) -> None:
    server.plan = [refuse(429, Retry_After="0.3"), answer("at last")]
    start = time.perf_counter()
    assert server.bot().reply([ask()])[0].text == "at last"
    assert time.perf_counter() - start >= 0.3
    assert len(server.requests) == 2


def test_a_retry_after_that_is_too_long_is_an_error(server: Server) -> None:
    server.usual = refuse(429, Retry_After="3600")
    with pytest.raises(EndpointError, match="no luck today") as caught:
        server.bot().reply([ask()])
    assert "wait 3600 seconds, more than max_wait=30" in caught.value.hint
    assert len(server.requests) == 1


def test_retry_after_as_a_date() -> None:
    assert retry_after(None) is None
    assert retry_after("nan") is None
    assert retry_after("-3") == 0
    in_an_hour = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 3600))
    assert retry_after(in_an_hour) == pytest.approx(3600, abs=60)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
def test_transient_errors_are_retried_and_then_raised(server: Server, status: int) -> None:
    server.usual = refuse(status)
    with pytest.raises(EndpointError, match=f"status {status} 3 times: no luck today") as caught:
        server.bot().reply([ask()])
    assert caught.value.hint
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [301, 400, 404, 413, 422])
def test_permanent_errors_are_raised_without_a_retry(server: Server, status: int) -> None:
    server.usual = refuse(status)
    with pytest.raises(EndpointError, match=f"status {status}: no luck today") as caught:
        server.bot().reply([ask()])
    assert caught.value.hint
    assert len(server.requests) == 1


def test_not_found_hints_at_model_and_address(server: Server) -> None:
    server.usual = refuse(404, "<html><h1>Not Found</h1></html>", kind="text/html")
    with pytest.raises(EndpointError) as caught:
        server.bot().reply([ask()])
    assert "'tiny'" in caught.value.hint
    assert f"{server.base_url}/chat/completions" in caught.value.hint


@pytest.mark.parametrize("status", [401, 403])
def test_unauthorised_names_the_environment_variable(
    server: Server, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.usual = refuse(status)
    with pytest.raises(EndpointError) as caught:
        server.bot(api_key_env="MY_KEY").reply([ask()])
    assert "No key was sent: there is none in the environment variable MY_KEY" in caught.value.hint
    monkeypatch.setenv("MY_KEY", KEY)
    with pytest.raises(EndpointError) as caught:
        server.bot(api_key_env="MY_KEY").reply([ask()])
    assert "The key is from the environment variable MY_KEY" in caught.value.hint


def test_the_key_goes_into_the_header_and_nowhere_else(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    caplog.set_level(logging.DEBUG)
    bot = server.bot()
    [reply] = bot.reply([ask()])
    assert server.requests[0]["headers"]["authorization"] == f"Bearer {KEY}"
    server.plan = [refuse(401, json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}}))]
    with pytest.raises(EndpointError, match=r"provided: \[key\]") as caught:
        bot.reply([ask()])
    texts = [repr(reply), bot.spec, bot.summary, repr(bot.endpoint), repr(vars(bot)), caplog.text, str(caught.value)]
    assert not [text for text in texts if KEY in text]


def test_secrets_in_wrong_options_are_not_shown() -> None:
    for options in (
        {"base_url": f"http://user:{KEY}@127.0.0.1/v1"},
        {"base_url": f"http://127.0.0.1/v1?key={KEY}"},
        {"api_key_env": KEY},
    ):
        with pytest.raises(UsageError) as caught:
            OpenAIBot("tiny", OpenAIOptions(**options))
        assert KEY not in str(caught.value)


def test_a_key_with_invalid_characters_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "clé\x07")
    with pytest.raises(EndpointError, match="OPENAI_API_KEY does not hold a valid key") as caught:
        OpenAIBot("tiny")
    assert "clé" not in str(caught.value)


def test_openai_itself_requires_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(EndpointError, match=r"api\.openai\.com requires an API key") as caught:
        make_bot("openai:gpt-x")
    assert "OPENAI_API_KEY" in caught.value.hint
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert make_bot("openai:gpt-x").spec == "openai:gpt-x"


def test_specifications_name_model_and_address(server: Server) -> None:
    with pytest.raises(UsageError, match="needs a model"):
        make_bot("openai")
    for url in ("ftp://x/v1", "x/v1", "http://", "http://[::1/v1"):
        with pytest.raises(UsageError, match="base_url"):
            make_bot(f"openai:m?base_url={url}")
    with pytest.raises(ConfigError, match="did you mean 'timeout'"):
        make_bot(f"openai:m?base_url={server.base_url}&timout=5")
    bot = make_bot(f"openai:org/model@v 1%?base_url={server.base_url}/chat/completions/&temperature=0.5")
    assert bot.reply([ask("hi")])[0].text == "You said: hi"
    assert server.requests[0]["body"]["model"] == "org/model@v 1%"
    assert make_bot(bot.spec).spec == bot.spec


def test_a_refused_connection_is_an_error() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    options = OpenAIOptions(base_url=f"http://127.0.0.1:{port}/v1", retries=1, backoff=0.001)
    for attempt in (
        OpenAIBot("tiny", options).reply,
        lambda asks: list(OpenAIBot("tiny", options).stream(asks, alive=everyone)),
    ):
        with pytest.raises(EndpointError, match=f"127.0.0.1:{port} cannot be reached: .*refused") as caught:
            attempt([ask()])
        assert "base_url" in caught.value.hint


def test_local_endpoints_bypass_proxies(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert server.bot(retries=0).reply([ask("hi")])[0].text == "You said: hi"


def test_a_server_that_hangs_times_out(server: Server) -> None:
    server.usual = lambda handler, _: handler.await_hang_up()
    with pytest.raises(EndpointError, match=r"timed out: it sent nothing for 0\.2 seconds") as caught:
        server.bot(timeout=0.2, retries=1).reply([ask()])
    assert "timeout=0.4" in caught.value.hint
    assert len(server.requests) == 2


def test_a_silent_stream_times_out_without_a_retry(server: Server) -> None:
    def falls_silent(handler: Handler, body: dict[str, Any]) -> None:
        handler.events(delta("well"))
        handler.await_hang_up()

    server.usual = falls_silent
    with pytest.raises(EndpointError, match="timed out"):
        list(server.bot(timeout=0.2).stream([ask()], alive=everyone))
    assert len(server.requests) == 1


def test_a_connection_closed_without_a_response_is_retried(server: Server) -> None:
    server.plan = [lambda handler, _: None, answer("here")]
    assert server.bot().reply([ask()])[0].text == "here"
    server.usual = lambda handler, _: None
    with pytest.raises(EndpointError, match="closed the connection without a response"):
        server.bot().reply([ask()])


@pytest.mark.parametrize("text", ["", "<html>hello</html>", "[1, 2]", "null", '"hi"', "\ufffd\0", "[" * 5000])
def test_invalid_responses_are_shown_shortened(server: Server, text: str) -> None:
    server.usual = refuse(200, text)
    for attempt in (server.bot().reply, lambda asks: list(server.bot().stream(asks, alive=everyone))):
        with pytest.raises(EndpointError, match="did not send a JSON object") as caught:
            attempt([ask()])
        assert len(caught.value.message) < 500
        assert caught.value.hint


@pytest.mark.parametrize("choices", [{}, {"choices": []}, {"choices": None}, {"choices": "x"}])
def test_a_response_without_choices_is_an_error(server: Server, choices: dict[str, Any]) -> None:
    server.usual = refuse(200, json.dumps({"object": "chat.completion", **choices}))
    with pytest.raises(EndpointError, match="without choices"):
        server.bot().reply([ask()])


def test_invalid_values_in_a_response_do_not_crash(server: Server) -> None:
    for odd in (
        {"choices": [1]},
        {"choices": [{"message": "x"}]},
        {"choices": [{}], "usage": {"prompt_tokens": "many"}},
    ):
        server.plan = [refuse(200, json.dumps(odd))]
        assert server.bot().reply([ask()])[0].text == ""
    server.plan = [stream(b"data: what?\n\n")]
    with pytest.raises(EndpointError, match="did not send a JSON object"):
        list(server.bot().stream([ask()], alive=everyone))
