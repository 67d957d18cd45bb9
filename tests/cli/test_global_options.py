"""Options before the command, errors as JSON, completion by shells, and lists of what there is."""

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from typer.main import get_command

from tertulia.cli.command import help_of
from tertulia.cli.commands import COMMANDS, Group, leaves
from tertulia.cli.completion import NAMES
from tertulia.cli.help import HELP_OPTIONS, copied_help
from tertulia.cli.main import build
from tertulia.core.describe import choices_of, default_of, describe
from tertulia.core.registry import Row
from tertulia.talk.registry import BOTS
from tertulia.train.registry import RECIPES

Tertulia = Callable[..., Any]
HEAVY = tuple(
    "torch sklearn polars altair pandas scipy pyarrow fastapi sqlalchemy numpy transformers matplotlib".split()
)


def test_with_json_an_error_is_one_line_of_json_with_the_same_code(tertulia: Tertulia) -> None:
    plain = tertulia("corpus", "show", "no/such")
    result = tertulia("corpus", "show", "no/such", "--json")
    assert (result.out, result.code) == ("", plain.code)
    error = json.loads(result.err.splitlines()[-1])["error"]
    assert error.pop("hint") in plain.err
    assert error == {"type": "MissingFile", "message": "File not found: no/such", "exit_code": plain.code}
    usage = json.loads(tertulia("corpus", "show", "--limti", "3", "--json").err)["error"]
    assert (usage["type"], usage["exit_code"]) == ("UsageError", 2)
    assert "--limit" in usage["message"]


def test_debug_shows_where_an_error_comes_from(process: Tertulia, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tertulia", "--debug", "corpus", "show", "no/such"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("for the bundled corpus.\n")
    assert done.returncode == 2


def test_an_option_behind_the_command_that_belongs_before_it(tertulia: Tertulia) -> None:
    assert "--debug stands before the command" in tertulia("corpus", "show", "--debug").stderr


def test_quiet_shows_no_progress(tertulia: Tertulia) -> None:
    arguments = ("corpus", "stats", "sample", "--split", "valid")
    assert "Reading" in tertulia(*arguments).err or tertulia(*arguments).err
    quiet = tertulia("-q", *arguments)
    assert (quiet.code, quiet.err) == (0, "")


def complete(line: str) -> list[str]:
    """What bash offers for the last word of a line."""
    words = line.split(" ")
    env = {"_TERTULIA_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    command = [sys.executable, "-m", "tertulia"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=os.environ | env)
    return done.stdout.split()


def test_a_shell_completes_commands_names_and_choices() -> None:
    assert complete("tertulia corp") == ["corpus"]
    assert complete("tertulia --log-level info corpus mine --format re") == ["reddit"]
    assert complete("tertulia chat sm") == ["smollm2"]
    assert complete("tertulia train sample-f") == ["sample-finetune"]


def test_what_is_completed_by_name_is_a_field_of_some_command() -> None:
    fields = {field for _, configs, _ in commands() for config in configs for field in config.model_fields}
    assert set(NAMES) - fields == set()


def groups() -> list[str]:
    return [name for name, entry in COMMANDS.items() if isinstance(entry, Group)]


def test_help_of_everything_imports_nothing_heavy() -> None:
    """The root, every group and every command, one after the other in one process."""
    called = ["", *groups(), *(" ".join(path) for path, _ in leaves())]
    code = (
        "import sys\nfrom tertulia.cli.main import run\n"
        f"for words in {called!r}:\n"
        "    try:\n        run([*words.split(), '--help'])\n    except SystemExit:\n        pass\n"
        f"    print('HEAVY', words, [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("HEAVY")]
    assert lines == [f"HEAVY {words} []" for words in called]
    assert done.stdout.count("Usage: tertulia") == len(called)


def test_the_help_that_is_shown_is_that_of_the_command(tertulia: Tertulia) -> None:
    """It is a copy, which `python docs/reference.py` writes."""
    copy = copied_help()
    shown = {}
    for path, _, command in commands():
        context = command.make_context(path, [], resilient_parsing=True, help_option_names=[*HELP_OPTIONS])
        one = command.shown_help(context)
        shown[path] = one._replace(arguments=[*map(list, one.arguments)], options=[*map(list, one.options)])
    assert shown == copy
    for words in ("judge rank", "chat"):
        made = tertulia("--quiet", *words.split(), "--help")  # with anything more than --help, the command is imported
        assert (made.code, tertulia(*words.split(), "--help").out) == (0, made.out)


def test_what_commands_are_made_from_imports_no_package_that_takes_long() -> None:
    code = (
        "import sys\nfrom tertulia.cli.main import build\nfrom tertulia.cli.commands import leaves\n"
        "build([' '.join(path) for path, _ in leaves()])\n"
        "print([m for m in ('torch', 'sklearn', 'polars', 'altair', 'pandas', 'transformers', 'scipy.stats') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.strip() == "[]"


def commands() -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """Every command with its configs and what typer made of it."""
    root: Any = get_command(build(list(COMMANDS)))
    for path, _ in leaves():
        command = root
        for name in path:
            command = command.commands[name]
        yield " ".join(path), vars(inspect.unwrap(command.callback)).get("configs", ()), command


def test_the_line_in_a_groups_help_is_the_first_paragraph_of_the_commands_own() -> None:
    first = {path: " ".join((command.help or "").split("\n\n")[0].split()) for path, _, command in commands()}
    lines = {" ".join(path): command.help for path, command in leaves() if len(path) == 2}
    assert {path: line for path, line in lines.items() if first[path] != line} == {}


def test_choices_and_defaults_in_the_help_are_true() -> None:
    """What the help shows is what the config takes: every choice is valid, and a shown default gives the default."""
    wrong, seen = [], 0
    for path, configs, command in commands():
        helps = {parameter.name.rstrip("_"): (parameter.help or "") for parameter in command.params}
        for config in configs:
            for name, info in config.model_fields.items():
                where = f"{path}: {name}"
                for choice in choices_of(info):
                    seen += 1
                    if not accepts(config, name, choice):
                        wrong.append(f"{where} does not take {choice}")
                shown = re.search(r"Default: (.*?)\.?$", helps.get(name, ""))
                if shown and len(configs) == 1 and shown[1] not in ("yes", "no") and default_of(info) is not None:
                    seen += 1
                    if not gives_default(config, name, shown[1]):
                        wrong.append(f"{where} is not {shown[1]} by default")
                if re.search(r"PydanticUndefined|Default: (None|\(\)|\{\})|<class|\bnan\b", help_of(info)):
                    wrong.append(f"{where}: {help_of(info)}")
    assert wrong == []
    assert seen > 200


def accepts(config: Any, name: str, choice: str) -> bool:
    """Whether a field takes a value, alone or as an item of a list."""
    adapter = TypeAdapter(config.model_fields[name].annotation)
    for value in (choice, [choice], int(choice) if choice.isdigit() else choice):
        try:
            adapter.validate_python(value)
        except ValueError:
            continue
        return True
    return False


def gives_default(config: Any, name: str, text: str) -> bool:
    info = config.model_fields[name]
    default = default_of(info)
    parts = text.split(", ") if ", " in text else text.split(" ")
    adapter = TypeAdapter(info.annotation)
    for value in (text, f"{text}.", [text], parts, int(text) if text.isdigit() else text):
        try:
            if adapter.validate_python(value) == default:
                return True
        except ValueError:
            continue
    return bool(isinstance(default, tuple) and list(map(str, default)) == parts)


def test_the_reference_shows_no_python() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference.md").read_text(encoding="utf-8")
    odd = ("PydanticUndefined", "`None`", "`nan`", "`()`", "`{}`", "``", "<class", "tuple[")
    assert [line for line in page.splitlines() if any(word in line for word in odd)] == []


def test_lists_show_what_the_registries_have_with_options_and_defaults(tertulia: Tertulia) -> None:
    (listed,) = json.loads(tertulia("bots", "generic", "--json").out)
    options = {option["name"]: option for option in listed["options"]}
    assert options["to_statements"]["default"] == BOTS.get("generic").Options().to_statements
    every = {"bots": BOTS, "recipes": RECIPES}
    for command, registry in every.items():
        lines = tertulia(command).out
        assert [name for name in registry if f"\n{name} " not in lines] == []
    assert "citation" in tertulia("metrics", "hits@K").out
    assert "ubuntu-pairs" in tertulia("formats").out
    assert "ssa-static" in tertulia("presets").out
    assert "Did you mean 'generic'" in tertulia("bots", "gneric").stderr


def test_lists_include_plugins(tertulia: Tertulia, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("echo", "tertulia.talk.bots.generic:GenericBot", "from the package echo")
    monkeypatch.setitem(BOTS._rows, "echo", row)
    assert "from the package echo" in tertulia("bots").out
    assert "to_statements" in tertulia("bots", "echo").out


def test_a_description_has_dotted_names_for_nested_settings() -> None:
    fields = {field.key: field for field in describe(RECIPES.get("transformer").config)}
    assert "model.heads" in fields
    assert fields["recipe"].default == "transformer"
    assert all(field.help for field in fields.values())
