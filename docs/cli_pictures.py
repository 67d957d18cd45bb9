"""Take the pictures of the command line in README and docs: docs/images/cli/*.svg.

    python docs/cli_pictures.py             # all of them, or some: python docs/cli_pictures.py rank chat

Each is what a real command printed on a terminal of its own, in an empty folder, on the bundled sample. Nothing is
edited.
"""

import argparse
import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

DOCS = Path(__file__).parent
FOLDER = DOCS / "images" / "cli"
WIDTH, HEIGHT = 96, 50
MAX_BYTES = 60_000
"""No picture is larger."""
SECONDS = 300.0
"""No command takes longer."""
THEME = TerminalTheme(
    (30, 30, 36),
    (222, 222, 218),
    [
        (0, 0, 0),
        (224, 96, 90),
        (120, 190, 110),
        (220, 180, 90),
        (100, 150, 220),
        (190, 130, 200),
        (90, 185, 185),
        (200, 200, 200),
    ],
)
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""  # noqa: E501 - rich's own loads a font from another host
_CONTROL = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\x1b[()=>][0-9A-B]?|[\r\n\a\b]")
_TITLED = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Picture:
    """A command to be run."""

    command: str
    files: str = ""
    """A page of the docs whose titled blocks are written to the folder first."""
    typed: tuple[str, ...] = ()
    """Lines to type, each as soon as the prompt is there."""


PICTURES = {
    "help": Picture("tertulia --help"),
    "stats": Picture("tertulia corpus stats sample"),
    "rank": Picture("tertulia judge rank tfidf generic"),
    "train": Picture("tertulia train starspace --out run/mine"),
    "study": Picture(
        "tertulia study simulate study.toml --raters 6 --seed 1 --quality retrieval=0.75 --quality floor=0.3",
        files="tutorials/study.md",
    ),
    "chat": Picture("tertulia chat tfidf", typed=("Hi! Do you like bees?", "/why", "/quit")),
}


class Screen:
    """The lines of a terminal, with their colours, after everything that was written to it.

    It knows what our commands send: colours, line breaks, going up, going back, deleting a line.
    """

    def __init__(self) -> None:
        self.lines = [""]
        self.row = 0
        self._fresh = False
        """Whether the next text replaces the line, because the cursor is at its beginning."""

    def feed(self, text: str) -> None:
        """Write to it."""
        end = 0
        for match in _CONTROL.finditer(text):
            self._write(text[end : match.start()])
            end = match.end()
            self._control(match)
        self._write(text[end:])

    def _write(self, text: str) -> None:
        if text:
            self.lines[self.row] = text if self._fresh else self.lines[self.row] + text
            self._fresh = False

    def _control(self, match: re.Match[str]) -> None:
        number, kind = match[1] or "", match[2]
        if kind == "m":
            self._write(match[0])
        elif kind == "A":
            self.row = max(0, self.row - int(number or 1))
        elif kind == "K" and number == "2":
            self.lines[self.row], self._fresh = "", False
        elif match[0] == "\n":
            self.row, self._fresh = self.row + 1, True
            self.lines += [""] * (self.row + 1 - len(self.lines))
        elif match[0] == "\r":
            self._fresh = True

    def __str__(self) -> str:
        return "\n".join(self.lines).rstrip()


def show(picture: Picture) -> str:
    """Run the command on a terminal, and return what it shows."""
    with tempfile.TemporaryDirectory() as folder:
        if picture.files:
            for name, text in _TITLED.findall((DOCS / picture.files).read_text(encoding="utf-8")):
                (Path(folder) / name).write_text(text, encoding="utf-8")
        return _run(picture, folder)


def _run(picture: Picture, folder: str) -> str:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    environment |= {"TERM": "xterm-256color", "COLORTERM": "", "INPUTRC": "/dev/null"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tertulia", *picture.command.split()[1:]],
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    screen, waiting, end = Screen(), list(picture.typed), time.monotonic() + SECONDS
    while time.monotonic() < end and (data := _read(ours)) is not None:
        screen.feed(data)
        if waiting and _plain(screen.lines[screen.row]).endswith("you: "):
            os.write(ours, f"{waiting.pop(0)}\n".encode())
    os.close(ours)  # which also ends a command that is not done in time
    if code := process.wait(timeout=60):
        raise SystemExit(f"{picture.command} ended with {code}:\n{screen}")
    return str(screen)


def _read(terminal: int) -> str | None:
    """What was written since; None at the end."""
    select.select([terminal], [], [], 1.0)
    try:
        data = os.read(terminal, 65536)
    except OSError:  # Linux says so when the other side is closed
        return None
    return data.decode(errors="replace") or None


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def save_picture(name: str, picture: Picture, shown: str) -> Path:
    """Draw what is shown below the command."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.assemble(("$ ", "bold green"), (picture.command, "bold")), highlight=False)
    console.print(Text.from_ansi(shown), highlight=False)
    file = FOLDER / f"{name}.svg"
    svg = console.export_svg(title="", theme=THEME, code_format=SVG, unique_id=name, font_aspect_ratio=0.61)
    file.write_text("\n".join(line.strip() for line in svg.splitlines() if line.strip()) + "\n", encoding="utf-8")
    return file


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *PICTURES], help="pictures to take; all by default")
    names = parser.parse_args().names or list(PICTURES)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        file = save_picture(name, PICTURES[name], show(PICTURES[name]))
        size = file.stat().st_size
        print(f"{file.relative_to(DOCS.parent)}: {size:,} bytes")
        if size > MAX_BYTES:
            raise SystemExit(f"{file} is larger than {MAX_BYTES:,} bytes.")


if __name__ == "__main__":
    main()
