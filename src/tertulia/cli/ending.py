"""How a command ends: what it says on stderr, its exit code, and streams that are closed or full.

| code | meaning |
|---|---|
| 0 | done |
| 1 | failed: damaged data, a bot or server that does not answer, a full disk, a closed pipe |
| 2 | the call is wrong: an unknown name or option, a missing file, an output that exists |
| 130 | interrupted by Ctrl-C |

Any other exception is a bug of ours and keeps its traceback.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple, NoReturn

from tertulia.core.config import Config
from tertulia.core.errors import Interrupted, TertuliaError

FAILED, USAGE, INTERRUPTED = 1, 2, 130
_CHECK = "Check the path, or choose another."


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


def report_error(message: str, hint: str = "") -> None:
    """An error in two lines on stderr; if that is closed or full, there is nobody to tell."""
    from rich.text import Text  # not before there is something to print: --help must be fast

    from tertulia.cli.output import err

    with suppress(OSError):
        err.print(Text(f"Error: {message}", style="red"), soft_wrap=True)
        if hint:
            err.print(Text(hint), soft_wrap=True)


def prepare_outputs(
    config: Config, *, labels: Mapping[str, str] | None = None, given: Collection[str] | None = None
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
        call()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else FAILED if stop.code else 0
    except TertuliaError as error:
        report_error(error.message, error.hint)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output is gone (`| head`): there is nobody to report to
        return FAILED
    except OSError as error:
        if error.filename is None:
            report_error(f"{_reason(error)}.", "Check that there is room on the disk.")
        else:
            report_error(f"{error.filename}: {_reason(error)}.", _CHECK)
        return USAGE if isinstance(error, FileNotFoundError) else FAILED
    return 0


def _flush(code: int) -> int:
    """Write what is left in our streams while an error can still be reported; Python itself could not at its exit."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        code = code or FAILED
        _discard(sys.stdout.fileno())
    except OSError as error:
        code = code or FAILED
        _discard(sys.stdout.fileno())
        report_error(f"The standard output cannot be written: {_reason(error)}.")
    except ValueError:
        pass  # closed already
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError):
        _discard(2)
    return code


def _discard(descriptor: int) -> None:
    """What is still written to a stream that cannot take it goes nowhere."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


def _announce(path: Path, label: str) -> None:
    from rich.text import Text

    from tertulia.cli.output import err

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
