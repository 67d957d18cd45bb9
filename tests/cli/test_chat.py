"""`tertulia chat` as people run it: in a pipe, and at a real pseudo-terminal."""

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tertulia.cli.chat import RichScreen, chat
from tertulia.core.codec import dialogue_from_json, read_lines
from tertulia.core.dialogue import Dialogue
from tertulia.core.errors import ConfigError, UnknownName

COMMAND = [sys.executable, "-c", "from tertulia.cli.main import run; run()", "chat"]
CONTROL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
"""Makes standard input the controlling terminal of a new session."""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|[\x01\x02]")


def piped(text: str | bytes, *arguments: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    data = text if isinstance(text, bytes) else text.encode()
    return subprocess.run(
        [*COMMAND, *arguments], input=data, capture_output=True, timeout=60, env={**os.environ, **env}, check=False
    )


def saved(path: Path) -> list[Dialogue]:
    with path.open(encoding="utf-8") as lines:
        return list(read_lines(lines, dialogue_from_json))


class Terminal:
    """A program at a pseudo-terminal of its own, where Ctrl-C arrives as a signal."""

    def __init__(self, *arguments: str, **env: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND[:2], CONTROL + COMMAND[2], *COMMAND[3:], *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **env},
        )
        os.close(slave)
        self.output = ""
        self.at = 0

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def expect(self, text: str, seconds: float = 30) -> None:
        """Wait until a text appears on the screen, after the one waited for before."""
        deadline = time.monotonic() + seconds
        while (position := self.plain.find(text, self.at)) < 0:
            assert time.monotonic() < deadline, f"{text!r} did not appear; on the screen: {self.plain!r}"
            if not self._read(0.1) and self.process.poll() is not None and not self._read(0.1):
                raise AssertionError(f"{text!r} did not appear before the end: {self.plain!r}")
        self.at = position + len(text)

    def insist(self, text: str, act: Callable[[], object]) -> None:
        """Repeat an action until a text appears: a signal just before the read waits for the next key."""
        for patience in (4, 8, 16):
            time.sleep(0.1)
            act()
            with suppress(AssertionError):
                return self.expect(text, patience)
        raise AssertionError(f"{text!r} did not appear; on the screen: {self.plain!r}")

    def leave(self, seconds: float = 30) -> int:
        """Read to the end and return the exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            self._read(0.1)
            assert time.monotonic() < deadline, f"it does not end: {self.plain!r}"
        while self._read(0.05):
            pass
        return self.process.wait()

    @property
    def plain(self) -> str:
        return ESCAPES.sub("", self.output)

    def _read(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # Linux: the other side is closed
            return False
        self.output += data.decode("utf-8", "replace")
        return bool(data)


@contextmanager
def terminal(*arguments: str, **env: str) -> Iterator[Terminal]:
    it = Terminal(*arguments, **env)
    try:
        yield it
    finally:
        if it.process.poll() is None:
            it.process.kill()
        it.process.wait()
        os.close(it.master)


class Slow(BaseHTTPRequestHandler):
    """A model that begins a reply and then hangs."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for word in ("Well,", " let", " me", " think"):
            event = {"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.connection.settimeout(150)
        with suppress(TimeoutError):
            self.connection.recv(1)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        pass


@pytest.fixture
def slow_endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"openai:slow?base_url=http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def test_in_a_pipe() -> None:
    done = piped("Hello there.\nHow are you?\n", "generic")
    assert done.returncode == 0
    assert done.stderr == b""
    lines = done.stdout.decode().splitlines()
    assert lines[1:] == ["bot: ok", "bot: I don't know.", "Goodbye."]
    assert "\x1b" not in done.stdout.decode()


def test_odd_lines_in_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    odd = ["👩‍👩‍👧 hi", "שלום \u200fעולם", "<b onclick='x()'>&amp;</b> [bold red]x[/] :smile:", "x" * 100_000]
    text = "\n".join([*odd, "", "nul\0byte", "/history", ""]).encode() + b"\xff\xfe broken\n"
    done = piped(text, "generic", "--save", str(path))
    assert done.returncode == 0, done.stderr
    [dialogue] = saved(path)
    assert [t.text for t in dialogue.turns[::2]] == [s.strip() for s in odd] + ["nulbyte", "\ufffd\ufffd broken"]
    shown = done.stdout.decode().splitlines()
    for line in odd:
        assert f"you: {line.strip()}" in shown


def test_characters_the_output_cannot_encode_are_replaced() -> None:
    done = piped("hi\n/persona I like 🌊.\n", "generic", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert b"I like ?" in done.stdout


def test_options_come_from_a_file_and_the_command_line(tmp_path: Path) -> None:
    config, path = tmp_path / "chat.toml", tmp_path / "chat.jsonl"
    config.write_text(f'bot = "generic?to_statements=aha"\npersona = ["I sail."]\nseed = 5\nsave = "{path}"\n')
    assert b"bot: aha" in piped("hi\n", "--config", str(config)).stdout
    done = piped(
        "hi\n", "generic", "--config", str(config), "--seed", "9", "--persona", "I ski.", "--persona", "I bake."
    )
    assert b"bot: ok" in done.stdout
    first, second = saved(path)
    assert [d.turns[1].meta["provenance"]["seed"] for d in (first, second)] == [5, 9]
    assert [d.personas["bot"].sentences for d in (first, second)] == [("I sail.",), ("I ski.", "I bake.")]


def test_called_from_python_it_raises_user_errors(tmp_path: Path) -> None:
    def call(bot: str | None = None, config: Path | None = None) -> None:
        chat(bot=bot, persona=None, evidence=None, documents=None, seed=None, save=None, config=config)

    with pytest.raises(UnknownName, match="generik"):
        call("generik")
    with pytest.raises(ConfigError, match="Missing argument BOT"):
        call()
    (tmp_path / "a.toml").write_text('bott = "generic"')
    with pytest.raises(ConfigError, match="did you mean 'bot'"):
        call(config=tmp_path / "a.toml")


def test_help_lists_every_option() -> None:
    done = piped("", "--help", COLUMNS="200", NO_COLOR="1", TERM="dumb")
    shown = done.stdout.decode()
    for option in ("--persona", "--seed", "--save", "--config", "BOT", "one sentence per line"):
        assert option in shown


def test_at_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    with terminal("generic", "--save", str(path)) as it:
        it.expect("Ctrl-D to leave.")
        it.expect("you: ")
        it.type("How are you?\r")
        it.expect("bot: I don't know.")
        it.expect("you: ")
        it.type("/hepl\r")
        it.expect("Did you mean '/help'?")
        it.expect("you: ")
        it.type("half a line")
        it.expect("half a line")
        it.insist("Press Ctrl-D or type /quit to leave.", lambda: it.type("\x03"))
        it.expect("you: ")
        it.type("\x1b[A\x1b[A\r")
        it.expect("bot: I don't know.")
        it.expect("you: ")
        it.type("👋 שלום\r")
        it.expect("bot: ok")
        it.expect("you: ")
        it.type("\x04")
        assert it.leave() == 0
        assert "Goodbye." in it.plain
        assert "\x1b[1;35m" in it.output
    assert [t.text for t in saved(path)[0].turns][::2] == ["How are you?", "How are you?", "👋 שלום"]


def test_ctrl_c_stops_a_reply_and_keeps_its_text(slow_endpoint: str, tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    with terminal(slow_endpoint, "--save", str(path)) as it:
        it.expect("you: ")
        it.type("why?\r")
        it.expect("bot: Well, let me think")
        it.type("\x03")
        it.expect("Stopped. Type /again")
        it.expect("you: ")
        it.type("/why\r")
        it.expect("cancelled")
        it.expect("you: ")
        it.type("/bot generic\r")
        it.expect("You are now talking to generic")
        it.expect("you: ")
        it.type("/quit\r")
        it.expect("Goodbye.")
        assert it.leave(60) == 0  # without waiting for the model
    assert [t.text for t in saved(path)[0].turns] == ["why?", "Well, let me think"]


def test_a_bot_that_is_down_does_not_end_the_conversation() -> None:
    with terminal("openai:m?base_url=http://127.0.0.1:1/v1&retries=0") as it:
        it.expect("you: ")
        it.type("hello?\r")
        it.expect("127.0.0.1:1 cannot be reached")
        it.expect("Start the server, or give its address")
        it.expect("you: ")
        it.type("/quit\r")
        assert it.leave() == 0


def test_a_killed_chat_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    for number in (signal.SIGTERM, signal.SIGHUP):
        with terminal("generic", "--save", str(path)) as it:
            it.expect("you: ")
            it.type("remember me\r")
            it.expect("bot: ok")
            it.expect("you: ")
            it.insist("Saved to", lambda number=number: it.process.send_signal(number))
            assert it.leave() == 1
    assert [d.turns[0].text for d in saved(path)] == ["remember me"] * 2


def test_a_person_as_the_bot_at_the_same_terminal() -> None:
    with terminal("human") as it:
        it.expect("you: ")
        it.type("who is there?\r")
        it.expect("bot> ")
        it.type("only me\r")
        it.expect("bot: only me")
        it.expect("you: ")
        it.type("\x04")
        assert it.leave() == 0


def test_message_texts_are_never_markup() -> None:
    for colour in ("truecolor", None):
        out = io.StringIO()
        screen = RichScreen(
            Console(file=out, force_terminal=colour is not None, color_system=colour, width=60, highlight=False)  # type: ignore[arg-type]
        )
        text = "[bold]x[/bold] [/nothing] :smile: https://a.b 123 \\[ 'q'"
        screen.turn("user", text)
        screen.bot_turn(text)
        screen.bot_piece(text)
        screen.bot_turn(text)
        screen.note(text)
        screen.error(text, text)
        screen.table(text, (text, "b"), [(text, "c")])
        lines = ESCAPES.sub("", out.getvalue()).splitlines()
        assert lines[:6] == [f"you: {text}", f"bot: {text}", f"bot: {text}", text, text, text]
        assert "[/nothing]" in "".join(lines[6:])
