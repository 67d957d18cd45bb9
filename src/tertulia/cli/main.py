"""The root of the command line. Only the command that is called is imported, which keeps `tertulia --help` fast.

However a command ends, it ends in `ending`: errors of the `TertuliaError` family become a message, a hint and an exit
code.
"""

import os
import sys
from collections.abc import Collection, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import typer
from typer.main import get_command

from tertulia import __version__
from tertulia.cli.commands import COMMANDS, Command, Group
from tertulia.cli.ending import end
from tertulia.cli.help import HELP_OPTIONS, App, copied_command, copied_help
from tertulia.cli.user_file import user_file
from tertulia.cli.verbosity import LEVELS, Verbosity, set_verbosity
from tertulia.core.command_line import set_command_line

_TAKES_VALUE = ("--log-level", "--show-completion", "--install-completion")
"""Options before the command that are followed by a value; that of the last two may be left out."""


def build(load: Collection[str] = (), *, describe: str = "") -> typer.Typer:
    """The root command. The commands in `load` ("chat", "corpus mine") are imported, of a group ("corpus") all of them;
    the others are only lines of help, and `describe` all of its help.
    """
    root = App(
        name="tertulia",
        order=tuple(COMMANDS),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="A lab for open-domain dialogue: build corpora, train models, talk to bots, and judge them.",
        epilog="Options of every command can also be set by environment variables and in a user config file: see"
        " docs/command-line.md.",
        context_settings={"help_option_names": list(HELP_OPTIONS)},
    )
    root.callback()(_options)
    for name, entry in COMMANDS.items():
        if isinstance(entry, Command):
            loaded = name in load
            _add(root, name, entry, loaded=loaded, described=describe == name, no_args_is_help=name == "chat")
        else:
            root.add_typer(_group(name, entry, load, describe), name=name, help=entry.help, no_args_is_help=True)
    return root


def run(argv: Sequence[str] | None = None) -> None:
    """The entry point of the `tertulia` command."""
    args = list(sys.argv[1:] if argv is None else argv)
    set_command_line(args)
    set_verbosity(Verbosity(as_json="--json" in args))
    called = _called(args)
    if called and args[:-1] == called[0].split() and args[-1] in HELP_OPTIONS:
        build_called = partial(build, describe=called[0])
    else:
        build_called = partial(build, called)
    end(lambda: get_command(build_called()).main(args, prog_name="tertulia", standalone_mode=False))


def _options(
    version: bool = typer.Option(
        False,
        "--version",
        "-V",
        help="Print the version and exit.",
        is_eager=True,
        callback=lambda requested: _version(requested),
    ),
    quiet: bool = typer.Option(
        False, "--quiet", "-q", help="Show no progress, and errors only.", envvar="TERTULIA_QUIET", show_envvar=False
    ),
    verbose: bool = typer.Option(
        False,
        "--verbose",
        "-v",
        help="Log what is done: the same as --log-level info.",
        envvar="TERTULIA_VERBOSE",
        show_envvar=False,
    ),
    log_level: str | None = typer.Option(
        None,
        "--log-level",
        help="Log messages of this level and above. Default: warning.",
        metavar=f"[{'|'.join(LEVELS)}]",
        envvar="TERTULIA_LOG_LEVEL",
        show_envvar=False,
        autocompletion=lambda: list(LEVELS),
    ),
    debug: bool = typer.Option(
        False,
        "--debug",
        help="Log everything, and show where in the code an error comes from.",
        envvar="TERTULIA_DEBUG",
        show_envvar=False,
    ),
) -> None:
    options: dict[str, Any] = {"quiet": quiet, "verbose": verbose, "log_level": log_level, "debug": debug}
    given = {name: value for name, value in options.items() if value}
    if given or user_file():
        from tertulia.cli.user_config import global_options  # pydantic, which the help of a group does not need

        set_verbosity(global_options(given))


def _called(args: Sequence[str]) -> list[str]:
    """The command that the arguments call: "corpus mine", nothing if only help is wanted.

    >>> _called(["--log-level", "info", "corpus", "mine", "a.jsonl"]), _called(["judge", "--help"]), _called([])
    (['corpus mine'], [], [])
    """
    if (
        "_TERTULIA_COMPLETE" in os.environ
    ):  # a shell completes this line: bash has it in one variable, others in another
        args = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()[1:]
    words: list[str] = []
    skip = False
    for argument in args:
        if skip:
            skip = False
        elif argument.startswith("-"):
            skip = argument in _TAKES_VALUE and not words
        else:
            words.append(argument)
    entry = COMMANDS.get(words[0]) if words else None
    if isinstance(entry, Group):
        return [" ".join(words[:2])] if len(words) > 1 and words[1] in entry.commands else []
    return words[:1] if entry else []


def _group(name: str, group: Group, load: Collection[str], describe: str) -> typer.Typer:
    app = App()
    app.callback()(lambda: None)  # also a group of one command is a group
    for sub, command in group.commands.items():
        path = f"{name} {sub}"
        _add(app, sub, command, loaded=name in load or path in load, described=path == describe, path=path)
    return app


def _add(
    app: App,
    name: str,
    command: Command,
    *,
    loaded: bool,
    described: bool,
    no_args_is_help: bool = False,
    path: str = "",
) -> None:
    if described:
        shown = copied_help()[path or name]
        app.command(name, help=shown.text, cls=copied_command(shown))(_not_loaded)
        return
    if not loaded:
        app.command(name, help=command.help)(_not_loaded)
        return
    module, _, attribute = command.target.partition(":")
    target = getattr(import_module(f"tertulia.cli.{module}"), attribute)
    app.command(name, no_args_is_help=no_args_is_help)(target)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"tertulia {__version__}")
        raise typer.Exit


def _not_loaded() -> None:
    raise AssertionError("a command was called that was not loaded")
