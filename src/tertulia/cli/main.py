"""The root of the command line. Only the command that is called is imported, which keeps `tertulia --help` fast.

How a command ends, with which exit code, is the business of `ending`.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

import typer

from tertulia import __version__
from tertulia.cli.ending import end
from tertulia.cli.help import App
from tertulia.core.command_line import set_command_line


class Command(NamedTuple):
    """A command: where it is defined, and its line of help."""

    target: str
    help: str


COMMANDS = {
    "demo": Command("tertulia.cli.demo:demo", "Run everything on the bundled sample: mine, rank, talk, report, serve."),
    "corpus": Command("tertulia.cli.corpus:app", "Download, inspect, convert and mine corpora."),
    "train": Command("tertulia.cli.train:train", "Train the model that a recipe (a TOML file) describes."),
    "export": Command("tertulia.cli.export:export", "Write a fine-tuned model for others: merged, or its adapter."),
    "chat": Command("tertulia.cli.chat:chat", "Talk to a bot in the terminal."),
    "serve": Command("tertulia.cli.serve:serve", "Serve bots: a chat page and an OpenAI-compatible API."),
    "key": Command("tertulia.cli.key:key", "Make an API key for the server."),
    "account": Command("tertulia.cli.account:app", "Manage the accounts of researchers."),
    "store": Command("tertulia.cli.store:app", "Export the conversations of a server."),
    "selfplay": Command("tertulia.cli.selfplay:selfplay", "Let bots talk to each other."),
    "judge": Command("tertulia.cli.judge:app", "Judge bots: ranking, perplexity, samples and learning curves."),
    "study": Command("tertulia.cli.study:app", "Studies with people: plan, open, simulate, report."),
    "report": Command("tertulia.cli.report:report", "Report the results of judged runs and compare them."),
}


def build(load: Sequence[str] = ()) -> typer.Typer:
    """The root command. The commands named in `load` are imported; the others are only lines of help."""
    root = App(
        name="tertulia",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        help="A lab for open-domain dialogue: build corpora, train models, talk to bots, and judge them.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @root.callback()
    def options(
        version: bool = typer.Option(
            False, "--version", help="Print the version and exit.", is_eager=True, callback=_version
        ),
    ) -> None:
        pass

    for name, command in COMMANDS.items():
        if name not in load:
            root.command(name, help=command.help)(_not_loaded)
            continue
        module, _, attribute = command.target.partition(":")
        target = getattr(import_module(module), attribute)
        if isinstance(target, typer.Typer):
            root.add_typer(target, name=name, help=command.help, no_args_is_help=True)
        else:
            root.command(name, help=command.help, no_args_is_help=name == "chat")(target)
    return root


def run(argv: Sequence[str] | None = None) -> None:
    """The entry point of the `tertulia` command."""
    args = list(sys.argv[1:] if argv is None else argv)
    name = next((argument for argument in args if not argument.startswith("-")), None)
    set_command_line(args)
    end(lambda: build([name] if name in COMMANDS else [])(args, prog_name="tertulia"))


def _version(requested: bool) -> None:
    if requested:
        typer.echo(__version__)
        raise typer.Exit


def _not_loaded() -> None:
    raise AssertionError("a command was called that was not loaded")
