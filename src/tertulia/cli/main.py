"""The command line's root. Only the command that is called is imported, so that `tertulia --help` answers at once.

All errors of the `TertuliaError` family end here: what was wrong and what to do next on stderr, and an exit code.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

import typer

from tertulia import __version__
from tertulia.core.errors import TertuliaError


class Command(NamedTuple):
    """A verb: where it lives, and its line in the help."""

    target: str
    help: str


COMMANDS = {
    "demo": Command("tertulia.cli.demo:demo", "The main job, end to end, on the bundled sample."),
    "corpus": Command("tertulia.cli.corpus:app", "Look at, convert and mine corpora."),
    "train": Command("tertulia.cli.train:train", "Train what a recipe's TOML file describes."),
    "chat": Command("tertulia.cli.chat:chat", "Talk to a bot in the terminal."),
    "serve": Command("tertulia.cli.serve:serve", "Serve bots: a chat page and an OpenAI-compatible API."),
    "selfplay": Command("tertulia.cli.selfplay:selfplay", "Let bots talk to each other."),
    "judge": Command("tertulia.cli.judge:app", "Judge bots: ranking, perplexity, samples, learning curves, profiles."),
}


def build(load: Sequence[str] = ()) -> typer.Typer:
    """The root command; the commands named in `load` are real, the others only lines of the help."""
    root = typer.Typer(
        name="tertulia",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        help="A lab for open-domain dialogue: corpus, train, talk, judge.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @root.callback()
    def options(
        version: bool = typer.Option(
            False, "--version", help="Print the version and stop.", is_eager=True, callback=_version
        ),
    ) -> None:
        pass

    for name, command in COMMANDS.items():
        if name not in load:
            root.command(name, help=command.help)(_line_of_help)
            continue
        module, _, attribute = command.target.partition(":")
        thing = getattr(import_module(module), attribute)
        if isinstance(thing, typer.Typer):
            root.add_typer(thing, name=name, help=command.help, no_args_is_help=True)
        else:
            root.command(name, help=command.help, no_args_is_help=name == "chat")(thing)
    return root


def run(argv: Sequence[str] | None = None) -> None:
    """The entry point of the `tertulia` command."""
    args = list(sys.argv[1:] if argv is None else argv)
    called = next((a for a in args if not a.startswith("-")), None)
    try:
        build([called] if called in COMMANDS else [])(args, prog_name="tertulia")
    except TertuliaError as error:
        typer.secho(f"Error: {error.message}", fg="red", err=True)
        if error.hint:
            typer.echo(error.hint, err=True)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing to say, and nobody to say it to.
        sys.stderr.close()
        raise SystemExit(1) from None


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


def _line_of_help() -> None:
    raise AssertionError("a command was called that had not been loaded")
