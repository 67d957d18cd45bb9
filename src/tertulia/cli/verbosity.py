"""How much a command says, and in which form its errors are: set once per call, read where something is printed."""

import logging
from contextvars import ContextVar
from typing import NamedTuple

LEVELS = ("debug", "info", "warning", "error")


class Verbosity(NamedTuple):
    """What the options before the command ask for."""

    quiet: bool = False
    """No progress, and no warnings."""
    log_level: str = ""
    """Messages of the log that are shown; empty for warnings and above, as Python shows them by default."""
    debug: bool = False
    """Whether errors show a traceback."""
    as_json: bool = False
    """Whether an error is printed as JSON, because the result would be."""


_VERBOSITY: ContextVar[Verbosity] = ContextVar("verbosity")
_DEFAULT = Verbosity()


def verbosity() -> Verbosity:
    """What was asked for."""
    return _VERBOSITY.get(_DEFAULT)


def set_verbosity(wanted: Verbosity) -> None:
    """Show the messages of our log from the level that is wanted; other packages keep to warnings."""
    _VERBOSITY.set(wanted)
    level = wanted.log_level or ("debug" if wanted.debug else "error" if wanted.quiet else "")
    log = logging.getLogger("tertulia")
    log.setLevel(logging.getLevelNamesMapping()[level.upper()] if level else logging.NOTSET)
    if level:
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
