"""Help as plain text in two columns. Typer's boxes have five, which leaves no room for the text at 80 characters.

The help of a command is made from its configs, which stand beside what they configure: to import them takes up to a
second. So `help.json` has a copy of it, which is shown when help is all that is wanted. `python docs/reference.py`
writes the copy, and a test compares it with the commands.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

F = TypeVar("F", bound=Callable[..., Any])
HELP_OPTIONS = ("-h", "--help")
COPY = Path(__file__).with_name("help.json")
"""The help of every command, by its name: "judge rank"."""


class CommandHelp(NamedTuple):
    """What the help of a command says; how wide it is depends on the terminal."""

    text: str
    usage: Sequence[str]
    """The parts of the usage line behind the command."""
    arguments: Sequence[Sequence[str]]
    """Each with its description."""
    options: Sequence[Sequence[str]]
    """Each with its description."""


class PlainCommand(TyperCommand):
    """A command whose help shows each argument by its metavar alone: `RECIPE`, `[BOTS]...`."""

    def shown_help(self, ctx: Any) -> CommandHelp:
        """What the help says."""
        parameters = self.get_params(ctx)
        given = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
        arguments = [(str(argument.metavar), str(getattr(argument, "help", None) or "")) for argument in given]
        options = [p.get_help_record(ctx) for p in parameters if p.param_type_name == "option"]
        usage = [self.options_metavar or "", *(metavar for metavar, _ in arguments)]
        return CommandHelp(self.help or "", usage, arguments, [row for row in options if row])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The parts of the usage line."""
        return list(self.shown_help(ctx).usage)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options."""
        shown = self.shown_help(ctx)
        _write_section(formatter, "Arguments", shown.arguments)
        _write_section(formatter, "Options", shown.options)


def copied_command(shown: CommandHelp) -> type[PlainCommand]:
    """The class of a command that has nothing but its help."""

    class CopiedCommand(PlainCommand):
        def shown_help(self, ctx: Any) -> CommandHelp:
            return shown

    return CopiedCommand


def copied_help() -> Mapping[str, CommandHelp]:
    """The copy of the help of all commands."""
    return {name: CommandHelp(**one) for name, one in json.loads(COPY.read_text(encoding="utf-8")).items()}


def copy_text(commands: Mapping[str, CommandHelp]) -> str:
    """The copy, as it is written: a line for each option, so that a change of one is a change of a line."""
    values = {name: shown._asdict() for name, shown in commands.items()}
    return json.dumps(values, indent=1, ensure_ascii=False) + "\n"


class PlainGroup(TyperGroup):
    """A group whose help shows the full description of each command; typer's cuts it after one line."""

    order: Sequence[str] = ()
    """The commands in the order in which the help shows them; typer has groups behind commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands."""
        names = super().list_commands(ctx)
        return sorted(names, key=self.order.index) if set(names) <= set(self.order) else names

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in their order."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        _write_section(formatter, "Commands", [(name, (c.help or "").split("\n\n")[0]) for name, c in commands if c])


class App(typer.Typer):
    """Commands, or groups of them, with plain help."""

    def __init__(self, *, order: Sequence[str] = (), **options: Any) -> None:
        group = type("OrderedGroup", (PlainGroup,), {"order": tuple(order)})
        super().__init__(cls=group, rich_markup_mode=None, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """Register a function as a command."""
        return super().command(name, **{"cls": PlainCommand, **options})


def _write_section(formatter: Any, title: str, rows: Sequence[Sequence[str]]) -> None:
    if rows:
        with formatter.section(title):
            formatter.write_dl([(name, text) for name, text in rows])
