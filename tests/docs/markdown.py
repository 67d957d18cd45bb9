"""Fenced blocks of a page, and the commands in it."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
OPENING = re.compile(r"(```+)\s*(\w*)\s*(.*)$")
END = {"|", ">", "<", "<<", "&&", ";", "&", "||", "2>"}
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")


class Block(NamedTuple):
    """A fenced block: where it begins, its language, the file it is (`title="NAME"`), and why it is not run."""

    line: int
    language: str
    title: str
    not_run: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    fence, opened, not_run, inside = "", (0, "", "", ""), "", []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if fence:
            if line.strip() == fence:
                yield Block(*opened, text="\n".join(inside) + "\n")
                fence, not_run = "", ""
            else:
                inside.append(line)
        elif opening := OPENING.match(line):
            fence, language, rest = opening.groups()
            title = re.search(r'title="([^"]+)"', rest)
            opened, inside = (number, language, title[1] if title else "", not_run), []
        elif line.strip():
            reason = NOT_RUN.match(line)
            not_run = reason[1] if reason else ""
    assert not fence, f"{page}: a block is not closed"


class CommandLine(NamedTuple):
    """One `tertulia ...` as a page prints it."""

    where: str
    text: str
    pasted: bool
    """Whether it stands in a block, to be pasted, and not in a sentence."""


def command_lines(page: Path) -> Iterator[CommandLine]:
    """All calls of `tertulia` on a page: in blocks of commands, and in code within the text."""
    name = page.relative_to(ROOT).as_posix()
    text = page.read_text(encoding="utf-8")
    for block in blocks(page):
        if block.language in ("", "sh", "console", "dockerfile"):
            joined = re.sub(r"\\\n\s*", " ", block.text)
            for line in joined.splitlines():
                if call := re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*(tertulia [a-z].*)", line):
                    yield CommandLine(f"{name}:{block.line}", call[1], pasted=True)
    outside = re.sub(r"^(```+).*?^\1$", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    for number, line in enumerate(outside.splitlines(), 1):
        for code in re.finditer(r"`(tertulia [a-z][^`]*)`", line):
            yield CommandLine(f"{name}:{number}", code[1].replace("\\|", "|"), pasted=False)


def words(line: CommandLine) -> list[str]:
    """The words of a command line without what the shell makes of it; `[--option X]` in a sentence is an option."""
    text = line.text if line.pasted else re.sub(r"[\[\]]|\.\.\.", " ", line.text)
    try:
        split = shlex.split(text, comments=True)[1:]
    except ValueError as error:
        return [f"--{error}"]
    ends = [index for index, word in enumerate(split) if word in END or re.match(r"<<?\S|\d?>>?\S*$", word)]
    return split[: min(ends, default=len(split))]
