"""Every `tertulia ...` in README and docs is a command there is, with options there are and values they take."""

import re
from pathlib import Path

import pytest
import typer
from tests.docs.markdown import ROOT, CommandLine, command_lines, words

from tertulia.cli.main import COMMANDS, build

GENERATED = {"reference.md", "figures.md"}
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if p.name not in GENERATED)]
LINES = [line for page in PAGES for line in command_lines(page)]
UsageError = typer.BadParameter.__base__  # of the click that typer carries
TREE = typer.main.get_command(build(list(COMMANDS)))


def problem(line: CommandLine) -> str | None:
    """What the command line itself would say against this call; required arguments may be missing in a sentence."""
    if line.pasted and re.search(r" {3,}[^#\\ ]", line.text):
        return "an explanation that the shell would take for arguments: put # before it"
    command, path, rest = TREE, ["tertulia"], words(line)
    while rest and hasattr(command, "commands"):
        name = rest.pop(0)
        if name in ("--help", "-h"):
            return None
        if name not in command.commands:
            return f"there is no {' '.join([*path, name])}"
        command, path = command.commands[name], [*path, name]
    if hasattr(command, "commands"):
        return None if not line.pasted else f"{' '.join(path)} needs a command"
    try:
        command.make_context(" ".join(path), rest)
    except UsageError as error:
        message = error.format_message()
        named_only = not line.pasted and ("Missing" in message or "requires an argument" in message or len(rest) == 0)
        return None if named_only else message
    except (typer.Exit, SystemExit):
        return None  # --help
    return None


def test_there_are_commands_to_check() -> None:
    assert len(LINES) > 150
    assert problem(CommandLine("here", "tertulia judge rank tfidf --dat x", pasted=True))
    assert problem(CommandLine("here", "tertulia corpus mines x", pasted=True))


def test_every_command_of_readme_and_docs_parses() -> None:
    wrong = [f"{line.where}: {line.text}\n    {why}" for line in LINES if (why := problem(line))]
    assert wrong == [], "\n".join(wrong)


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs/getting-started.md"], ids=lambda page: page.stem)
def test_paths_of_the_repository_exist(page: Path) -> None:
    named = [word for line in command_lines(page) for word in words(line) if word.startswith("configs/")]
    assert [word for word in named if not (ROOT / word).is_file()] == []
