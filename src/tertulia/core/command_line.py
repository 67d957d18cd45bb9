"""The command line of this process, for the records of what it makes: set by `tertulia`, empty in other programs."""

import re
import shlex
from collections.abc import Sequence
from contextvars import ContextVar

_LINE: ContextVar[str] = ContextVar("command_line", default="")
_SECRET = re.compile(r"((?:key|token|secret|password)[\w-]*(?:=|\s+))[^&\s'\"]+", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(://[^:/@\s]+:)[^@\s]+@")


def set_command_line(arguments: Sequence[str]) -> None:
    """Remember what `tertulia` was called with."""
    _LINE.set(without_secrets(shlex.join(["tertulia", *arguments])))


def command_line() -> str:
    """The command line, ready to be run again in a shell, but for passwords and keys."""
    return _LINE.get()


def without_secrets(line: str) -> str:
    """The text with what looks like a password or a key replaced.

    >>> without_secrets("tertulia judge rank 'openai:x?api_key=abc&n=1' --db postgresql://me:pw@host/db")
    "tertulia judge rank 'openai:x?api_key=***&n=1' --db postgresql://me:***@host/db"
    """
    return _CREDENTIALS.sub(r"\1***@", _SECRET.sub(r"\1***", line))
