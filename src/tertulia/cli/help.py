"""Help as plain text in two columns. Typer's boxes have five, which leaves no room for the text at 80 characters."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

F = TypeVar("F", bound=Callable[..., Any])


class PlainCommand(TyperCommand):
    """A command whose help shows each argument by its metavar alone: `RECIPE`, `[BOTS]...`."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The parts of the usage line."""
        return [self.options_metavar or "", *(str(argument.metavar) for argument in self._arguments(ctx))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options."""
        options = (parameter for parameter in self.get_params(ctx) if parameter.param_type_name == "option")
        _write_section(formatter, "Arguments", [(str(a.metavar), a.help or "") for a in self._arguments(ctx)])
        _write_section(formatter, "Options", [row for option in options if (row := option.get_help_record(ctx))])

    def _arguments(self, ctx: Any) -> list[Any]:
        return [parameter for parameter in self.get_params(ctx) if parameter.param_type_name == "argument"]


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
        return super().command(name, cls=PlainCommand, **options)


def _write_section(formatter: Any, title: str, rows: list[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)
