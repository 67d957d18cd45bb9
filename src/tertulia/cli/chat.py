"""`tertulia chat`: talk with a bot in the terminal."""

import io
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from tertulia.core.config import resolve
from tertulia.talk.terminal import BOT, ChatConfig, TerminalChat

app = typer.Typer(add_completion=False)

NAMES = {BOT: ("bot", "bold magenta")}
"""How speakers are called and coloured; all others are the person."""
YOU = ("you", "bold cyan")


def _help(field: str) -> str:
    return ChatConfig.model_fields[field].description or ""


@app.command()
def chat(
    bot: Annotated[str | None, typer.Argument(help=_help("bot"), metavar="[BOT]", show_default=False)] = None,
    persona: Annotated[list[str] | None, typer.Option(help=_help("persona"), show_default=False)] = None,
    seed: Annotated[int | None, typer.Option(help=_help("seed"), show_default="0")] = None,
    save: Annotated[Path | None, typer.Option(help=_help("save"), show_default=False)] = None,
    config: Annotated[
        Path | None, typer.Option(help="Read these options from a TOML file.", show_default=False)
    ] = None,
) -> None:
    """Talk with a bot in the terminal; /help lists what you can do there."""
    given = {"bot": bot, "persona": persona or None, "seed": seed, "save": save}
    resolved = resolve(ChatConfig, config, given)
    # A line that is no valid text, or a terminal that lacks a letter, must not end the conversation.
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    console = Console(highlight=False, markup=False, emoji=False)
    with _killed_politely():
        TerminalChat(resolved, RichScreen(console), _reader(console)).run()


class RichScreen:
    """The conversation on a rich console; message texts are written as they are, never read as markup."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._status: Status | None = None
        self._in_turn = False

    def note(self, text: str) -> None:
        """Dim."""
        self._settle()
        self.console.out(text, style="dim")

    def error(self, message: str, hint: str) -> None:
        """Red, its hint dim."""
        self._settle()
        self.console.out(message, style="red")
        if hint:
            self.console.out(hint, style="dim")

    def turn(self, speaker: str, text: str) -> None:
        """The name in its colour, then the text."""
        self._settle()
        name, style = NAMES.get(speaker, YOU)
        self.console.out(f"{name}: ", style=style, end="")
        self.console.out(text)

    def bot_piece(self, text: str) -> None:
        """The name before the first one."""
        if not self._in_turn:
            self._settle()
            name, style = NAMES[BOT]
            self.console.out(f"{name}: ", style=style, end="")
            self._in_turn = True
        self.console.out(text, end="")

    def bot_turn(self, text: str) -> None:
        """Whole, unless its pieces stand there already."""
        if self._in_turn:
            self._settle()
        else:
            self.turn(BOT, text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Without lines around it."""
        self._settle()
        table = Table(title=Text(title), title_justify="left", box=None, header_style="dim", padding=(0, 2, 0, 0))
        for column in columns:
            table.add_column(Text(column))
        for row in rows:
            table.add_row(*(Text(cell, overflow="fold") for cell in row))
        self.console.print(table)

    @contextmanager
    def busy(self, what: str, stop: Callable[[], None] | None = None) -> Iterator[None]:
        """A spinner until something is shown; Ctrl-C stops the work where it can be stopped."""
        self._settle()
        if self.console.is_terminal:
            self._status = self.console.status(Text(f"{what} …", style="dim"))
            self._status.start()
        try:
            with _handling({signal.SIGINT: stop} if stop else {}):
                yield
        finally:
            self._settle()

    def _settle(self) -> None:
        """Take the spinner away and end the line of a turn in the making."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._in_turn:
            self._in_turn = False
            self.console.out("")


def _reader(console: Console) -> Callable[[], str]:
    """Lines from the standard input: with a prompt and line history at a terminal, bare in a pipe."""
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
        # Here and not above: it writes escape sequences to the terminal, and there may be none.
        import readline
    except ImportError:
        return name
    if "libedit" in (readline.__doc__ or "") or console.no_color or console.color_system is None:
        return name
    # \x01 and \x02 tell readline that what stands between them takes no room on the line.
    return f"\x01\x1b[1;36m\x02{name}\x01\x1b[0m\x02"


@contextmanager
def _killed_politely() -> Iterator[None]:
    """A closed window or a kill ends the conversation as /quit would, so that it is saved."""

    def leave() -> None:
        raise SystemExit(1)

    with _handling({getattr(signal, name): leave for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)}):
        yield


@contextmanager
def _handling(handlers: dict[int, Callable[[], None]]) -> Iterator[None]:
    """Call these when signals come, for a while; only a program's main thread can, elsewhere nothing changes."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number, handle in handlers.items():
            before[number] = signal.signal(number, _calling(handle))
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _calling(handle: Callable[[], None]) -> Callable[[int, FrameType | None], None]:
    return lambda number, frame: handle()
