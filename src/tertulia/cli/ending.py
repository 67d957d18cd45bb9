"""How a command ends: what it says on stderr, its exit code, and streams that are closed or full.

| code | meaning |
|---|---|
| 0 | done |
| 1 | failed: damaged data, a bot or server that does not answer, a full disk, a closed pipe |
| 2 | the call is wrong: an unknown name or option, a missing file, an output that exists |
| 130 | interrupted by Ctrl-C |

Any other exception is a bug of ours and keeps its traceback. With --json, an error is one line of JSON, the last one on
stderr; with --debug, every error has its traceback.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TextIO

import typer

from tertulia.cli.verbosity import verbosity
from tertulia.core.errors import Interrupted, TertuliaError

if TYPE_CHECKING:
    from tertulia.core.config import Config  # pydantic, which --help does not need

FAILED, USAGE, INTERRUPTED = 1, 2, 130
_CHECK = "Check the path, or choose another."
_ROOM = "Check that there is room on the disk."
_PRINTERS = ("rich.", "typer.")
_BEFORE_COMMAND = ("-q", "--quiet", "-v", "--verbose", "--log-level", "--debug", "-V", "--version")


class _Before(NamedTuple):
    """An output before the work."""

    path: Path
    state: tuple[int, ...] | None
    """What changes when it is written; None if it is not there."""


_OUTPUTS: ContextVar[tuple[_Before, ...]] = ContextVar("outputs", default=())
"""The outputs of the command that runs."""


def end(call: Callable[[], object]) -> NoReturn:
    """Run the program, report what it raises, and exit; what it printed is written before."""
    code = _run(call)
    raise SystemExit(_flush(code))


def report_error(message: str, hint: str = "", *, kind: str = "Error", code: int = FAILED) -> None:
    """An error in two lines on stderr, or in one of JSON; if that is closed or full, there is nobody to tell."""
    from rich.text import Text  # not before there is something to print: --help must be fast

    from tertulia.cli.output import err

    with suppress(OSError):
        if verbosity().as_json:
            error = {"type": kind, "message": message, "hint": hint, "exit_code": code}
            typer.echo(json.dumps({"error": error}), err=True)
            return
        err.print(Text(f"Error: {message}", style="red"), soft_wrap=True)
        if hint:
            err.print(Text(hint), soft_wrap=True)


def prepare_outputs(
    config: "Config", *, labels: Mapping[str, str] | None = None, given: Collection[str] | None = None
) -> None:
    """Check the outputs of a config before the work, and announce those that were not asked for.

    `given` are the fields that the user named; without it, those that were set.
    """
    from tertulia.artefacts.outputs import check_outputs, marked_paths  # imports more than --help needs

    check_outputs(config, labels)
    paths = marked_paths(config)
    _OUTPUTS.set((*_OUTPUTS.get(), *(_Before(path, _state(path)) for _, path, _ in paths)))
    for field, path, _ in paths:
        if field not in (config.model_fields_set if given is None else given):
            _announce(path, (labels or {}).get(field, f"--{field}"))


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C within the block ends the program, which says what was kept."""
    _OUTPUTS.set(())
    try:
        yield
    except KeyboardInterrupt as stop:
        kept, hint = (stop.kept, stop.hint) if isinstance(stop, Interrupted) else _kept()
        _report_interrupt(kept, hint)
        raise SystemExit(INTERRUPTED) from None


def _run(call: Callable[[], object]) -> int:
    try:
        result = call()
        return result if isinstance(result, int) else 0
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else FAILED if stop.code else 0
    except TertuliaError as error:
        _show_traceback()
        report_error(error.message, error.hint, kind=type(error).__name__, code=error.exit_code)
        return error.exit_code
    except typer.TyperException as error:  # an option that does not exist, a value that is missing
        _report_usage(error)
        return error.exit_code
    except typer.Abort:
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output is gone (`| head`): there is nobody to report to
        return FAILED
    except OSError as error:
        _show_traceback()
        code = USAGE if isinstance(error, FileNotFoundError) else FAILED
        if error.filename is not None:
            report_error(f"{error.filename}: {_reason(error)}.", _CHECK, code=code)
        elif _is_printing(error):
            report_error(f"The output cannot be printed: {_reason(error)}.", code=code)
            _discard(getattr(sys.stdout, "wrapped", sys.stdout))
        else:
            paths = ", ".join(str(before.path) for before in _OUTPUTS.get())
            report_error(f"{paths}: {_reason(error)}." if paths else f"{_reason(error)}.", _ROOM, code=code)
        return code


def _show_traceback() -> None:
    """Where the error comes from, with --debug; without JSON only, where it would be in the way."""
    if verbosity().debug and not verbosity().as_json:
        with suppress(OSError):
            traceback.print_exc()


def _report_usage(error: typer.TyperException) -> None:
    option = getattr(error, "option_name", "")
    hint = f"{option} stands before the command: tertulia {option} COMMAND ..." if option in _BEFORE_COMMAND else ""
    if option == "--json":
        hint = "--json stands behind a command that prints results: tertulia COMMAND ... --json"
    show = getattr(error, "show", None)  # with the usage of the command, if it is about one
    if show is None or verbosity().as_json:
        report_error(error.format_message(), hint, kind="UsageError", code=error.exit_code)
        return
    with suppress(OSError):
        show()
        if hint:
            typer.echo(hint, err=True)


def _is_printing(error: OSError) -> bool:
    """Whether an error comes from what prints, and not from a file that is written."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(_PRINTERS)


def _flush(code: int) -> int:
    """Write what is left in our streams while an error can still be reported; Python itself could not at its exit."""
    stdout, stderr = (getattr(stream, "wrapped", stream) for stream in (sys.stdout, sys.stderr))  # typer wraps them
    try:
        if stdout is not None:
            stdout.flush()
    except OSError as error:
        code = code or FAILED
        _discard(stdout)
        if not isinstance(error, BrokenPipeError):
            report_error(f"The output cannot be printed: {_reason(error)}.")
    except ValueError:
        pass  # closed already
    try:
        if stderr is not None:
            stderr.flush()
    except (OSError, ValueError):
        _discard(stderr)
    return code


def _discard(stream: TextIO) -> None:
    """What a stream holds and cannot write goes nowhere."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


def _announce(path: Path, label: str) -> None:
    from rich.text import Text

    from tertulia.cli.output import err

    if not verbosity().quiet:
        err.print(Text(f"Writing to {path}; {label} names another place."), soft_wrap=True)


def _report_interrupt(kept: str, hint: str) -> None:
    from rich.text import Text

    from tertulia.cli.output import err

    with suppress(OSError):
        err.print(Text(f"Interrupted. {kept}".rstrip(), style="yellow"), soft_wrap=True)
        if hint:
            err.print(Text(hint), soft_wrap=True)


def _kept() -> tuple[str, str]:
    """What a command leaves that has nothing to continue: its outputs are complete, unchanged or not there."""
    outputs = _OUTPUTS.get()
    changed = [before.path for before in outputs if _state(before.path) != before.state]
    if changed:
        names = ", ".join(map(str, changed))
        return f"{names} may be incomplete.", "Run the same command again with --force, or remove what is there."
    if outputs and all(before.state is None for before in outputs):
        return "Nothing was written.", "Run the same command again to start over."
    return ("What was there before is unchanged.", "Run the same command again to start over.") if outputs else ("", "")


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        files = [path, *sorted(path.iterdir())] if path.is_dir() else [path]
        return tuple(value for file in files for value in (file.stat().st_ino, file.stat().st_mtime_ns))
    except OSError:
        return None
