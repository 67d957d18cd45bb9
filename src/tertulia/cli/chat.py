"""`tertulia chat`: talk to a bot in the terminal."""

import io
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from tertulia.cli.command import command
from tertulia.cli.output import SafeConsole
from tertulia.talk.terminal import BOT, ChatConfig, TerminalChat

NAMES = {BOT: ("bot", "bold magenta")}
"""Name and style of each speaker; every other speaker is the user."""
YOU = ("you", "bold cyan")


@command(ChatConfig)
def chat(settings: ChatConfig) -> None:
    """Talk to a bot in the terminal; type /help there for the commands."""
    # Input that is not valid text, or a terminal that lacks a character, must not end the conversation.
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    console = SafeConsole(highlight=False, markup=False, emoji=False)
    with _exit_on_kill():
        TerminalChat(settings, RichScreen(console), _line_reader(console)).run()


class RichScreen:
    """The conversation on a rich console; texts are printed as they are, never interpreted as markup."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._status: Status | None = None
        self._in_turn = False

    def note(self, text: str) -> None:
        """Dim."""
        self._finish_line()
        self.console.out(text, style="dim")

    def error(self, message: str, hint: str) -> None:
        """Red, with the hint dim."""
        self._finish_line()
        self.console.out(message, style="red")
        if hint:
            self.console.out(hint, style="dim")

    def turn(self, speaker: str, text: str) -> None:
        """The name in its colour, then the text."""
        self._finish_line()
        name, style = NAMES.get(speaker, YOU)
        self.console.out(f"{name}: ", style=style, end="")
        self.console.out(text)

    def bot_piece(self, text: str) -> None:
        """On one line, with the name before the first piece."""
        if not self._in_turn:
            self._finish_line()
            name, style = NAMES[BOT]
            self.console.out(f"{name}: ", style=style, end="")
            self._in_turn = True
        self.console.out(text, end="")

    def bot_turn(self, text: str) -> None:
        """The complete turn, unless its pieces were printed already."""
        if self._in_turn:
            self._finish_line()
        else:
            self.turn(BOT, text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Without borders."""
        self._finish_line()
        table = Table(title=Text(title), title_justify="left", box=None, header_style="dim", padding=(0, 2, 0, 0))
        for column in columns:
            table.add_column(Text(column))
        for row in rows:
            table.add_row(*(Text(cell, overflow="fold") for cell in row))
        self.console.print(table)

    @contextmanager
    def busy(self, activity: str, stop: Callable[[], None] | None = None) -> Iterator[None]:
        """A spinner until something is printed; Ctrl-C calls `stop`, where there is one."""
        self._finish_line()
        if self.console.is_terminal:
            self._status = self.console.status(Text(f"{activity} …", style="dim"))
            self._status.start()
        try:
            with _signal_handlers({signal.SIGINT: stop} if stop else {}):
                yield
        finally:
            self._finish_line()

    def _finish_line(self) -> None:
        """Remove the spinner, and end the line of a turn that is being printed."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._in_turn:
            self._in_turn = False
            self.console.out("")


def _line_reader(console: Console) -> Callable[[], str]:
    """Reads lines from standard input: with a prompt and line editing at a terminal, without in a pipe."""
    at_terminal = sys.stdin.isatty() and console.is_terminal
    prompt = _prompt(console) if at_terminal else ""

    def read() -> str:
        try:
            return input(prompt)
        except (EOFError, KeyboardInterrupt):
            if at_terminal:
                console.out("")
            raise

    return read


def _prompt(console: Console) -> str:
    name = f"{YOU[0]}: "
    try:
        # Imported only at a terminal: importing it writes escape sequences to the standard output.
        import readline
    except ImportError:
        return name
    if "libedit" in (readline.__doc__ or "") or console.no_color or console.color_system is None:
        return name
    # \x01 and \x02 tell readline that the characters between them take no room on the line.
    return f"\x01\x1b[1;36m\x02{name}\x01\x1b[0m\x02"


@contextmanager
def _exit_on_kill() -> Iterator[None]:
    """When the window is closed or the process is killed, exit as /quit would, so that the conversation is saved."""

    def leave() -> None:
        raise SystemExit(1)

    # Windows has no SIGHUP.
    signals = [number for number in signal.Signals if number.name in ("SIGTERM", "SIGHUP")]
    with _signal_handlers(dict.fromkeys(signals, leave)):
        yield


@contextmanager
def _signal_handlers(handlers: dict[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """Handle these signals within the block. Only the main thread can; elsewhere nothing changes."""
    previous = {}
    if threading.current_thread() is threading.main_thread():
        for number, handle in handlers.items():
            previous[number] = signal.signal(number, _handler(handle))
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _handler(handle: Callable[[], None]) -> Callable[[int, FrameType | None], None]:
    return lambda number, frame: handle()
