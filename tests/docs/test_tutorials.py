"""The tutorials, walked: their files are written, their commands run in an empty folder, their outputs compared.

A block with a title is a file. `sh` blocks are run by a shell, except for those that only call `tertulia`: these and
`python` blocks run in this process, which has imported everything already. `console` blocks are run one command at a
time by a shell (what follows `you: ` is typed). A `text` block says what the block before it prints: its lines occur in
the output, in this order, and `...` stands for anything. `<!-- not run: WHY -->` before a block leaves it out.
"""

import os
import re
import shlex
import stat
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from tests.docs.markdown import ROOT, Block, blocks

from tertulia.cli.main import run

TUTORIALS = sorted(p for p in (ROOT / "docs/tutorials").glob("*.md") if p.name != "index.md")


def missing(expected: str, output: str) -> str | None:
    """The first expected line that does not occur in the output after those before it."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    start = 0
    for line in filter(None, (" ".join(line.split()) for line in expected.splitlines())):
        if line == "...":
            continue
        pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
        match = next((index for index in range(start, len(lines)) if pattern.fullmatch(lines[index])), None)
        if match is None:
            return line
        start = match + 1
    return None


def shell(script: str, folder: Path, typed: str = "") -> str:
    environment = {
        **os.environ,
        "PATH": f"{folder.parent / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "80",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        input=typed,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, f"{script}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def calls_of(script: str) -> list[list[str]] | None:
    """The arguments of each `tertulia` that a script calls, or None if it needs a shell."""
    lines = re.sub(r"\\\n\s*", " ", script).splitlines()
    if any(not line.startswith("tertulia ") or re.search(r"[|&;<>$`*~]", line) for line in lines):
        return None
    return [shlex.split(line, comments=True)[1:] for line in lines]


def called(arguments: list[str]) -> str:
    """What the command prints, in this process."""
    with redirect_stdout(StringIO()) as printed, pytest.raises(SystemExit) as ended:
        run(arguments)
    assert not ended.value.code, f"tertulia {shlex.join(arguments)}\nended with {ended.value.code}"
    return printed.getvalue()


def run_console(text: str, folder: Path) -> None:
    """Commands after `$ `, typed lines after `you: `, everything else is output."""
    for session in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *rest = session.splitlines()
        typed = [line.removeprefix("you: ") for line in rest if line.startswith("you: ")]
        shown = "\n".join(line for line in rest if not line.startswith("you: "))
        output = shell(command, folder, typed="".join(f"{line}\n" for line in typed))
        assert missing(shown, output) is None, f"$ {command}\ndoes not print {missing(shown, output)!r}:\n{output}"


def run_block(block: Block, folder: Path, namespace: dict[str, object]) -> str:
    """What the block printed."""
    if block.title:
        path = folder / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        return ""
    if block.language == "sh":
        calls = calls_of(block.text)
        return shell(block.text, folder) if calls is None else "".join(map(called, calls))
    if block.language == "python":
        with redirect_stdout(StringIO()) as printed:
            exec(compile(block.text, f"line {block.line}", "exec"), namespace)
        return printed.getvalue()
    assert block.language == "console", f"line {block.line}: what is a block of {block.language or 'no language'}?"
    run_console(block.text, folder)
    return ""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and the command `tertulia` of this very code on the PATH."""
    command = tmp_path / "bin" / "tertulia"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tertulia "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "walk").mkdir()
    monkeypatch.chdir(tmp_path / "walk")
    return tmp_path / "walk"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_the_tutorial_works(page: Path, folder: Path) -> None:
    if page.stem == "finetune-and-prefer":
        pytest.importorskip("peft")
    output, namespace, ran = "", {"__name__": "__main__"}, 0
    for block in blocks(page):
        if block.not_run:
            continue
        if block.language == "text" and not block.title:
            line = missing(block.text, output)
            assert line is None, f"{page.name}:{block.line}: {line!r} is not printed:\n{output}"
            continue
        output = run_block(block, folder, namespace)
        ran += not block.title
    assert ran >= 2, "a tutorial is a walk of several steps"


def test_only_plain_calls_do_without_a_shell() -> None:
    assert calls_of("tertulia corpus stats \\\n  'my file' # why\n") == [["corpus", "stats", "my file"]]
    assert calls_of("tertulia bots | head\n") is None
    assert calls_of("cd x\ntertulia bots\n") is None


def test_an_expectation_can_fail() -> None:
    assert missing("a ... c\nd", "x\na b c\ny\nd") is None
    assert missing("d\na", "a\nd") == "a"
    assert missing("n = 5", "n = 50") == "n = 5"
