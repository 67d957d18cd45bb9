"""The one family of errors a user can meet: what was wrong, and what to do next.

Library code raises these and never prints or exits; the command line turns them into two lines and an exit code, the
web into a status code. Anything else that escapes is a bug of ours and keeps its traceback.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class TertuliaError(Exception):
    """Base of all errors that are the world's fault: bad input, missing files, a sleeping server."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(TertuliaError):
    """The call itself was wrong: an unknown name, an option out of range, a malformed specification."""

    exit_code = 2


class UnknownName(UsageError):  # noqa: N818 - reads better than UnknownNameError where it is raised
    """A name that is in no table; the message suggests the nearest ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        near = close_names(name, self.known)
        if near:
            hint = f"Did you mean {' or '.join(repr(n) for n in near)}?"
        elif self.known:
            hint = f"Known: {', '.join(self.known)}."
        else:
            hint = ""
        super().__init__(f"There is no {kind} called {name!r}.", hint=hint)


class ConfigError(UsageError):
    """A config file or a set of options that does not fit its schema."""


class DataError(TertuliaError):
    """A corpus file that is missing, empty or damaged."""


class DamagedLine(DataError):  # noqa: N818
    """One line that cannot be read, with its place."""

    def __init__(self, source: str, line: int, why: str) -> None:
        self.source, self.line, self.why = source, line, why
        super().__init__(
            f"{source}, line {line}: {why}",
            hint="Repair or remove it; without --strict, commands skip such lines and count them.",
        )


class MissingExtra(TertuliaError):  # noqa: N818
    """An optional part that is not installed."""

    def __init__(self, what: str, install: str) -> None:
        super().__init__(f"{what} is not installed.", hint=f"Install it with: {install}")


class BotError(TertuliaError):
    """A bot that could not answer."""


class EndpointError(BotError):
    """A remote bot whose endpoint is down, slow, or answered with an error."""


class StoreError(TertuliaError):
    """The database is locked, out of reach, or of another version."""


class PortTaken(TertuliaError):  # noqa: N818
    """Another program listens on the port we were asked to serve on."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"Port {port} on {host} is taken by another program.",
            hint=f"Choose another one with --port {port + 1}, or stop that program.",
        )


def close_names(name: str, known: Iterable[str], *, n: int = 3) -> list[str]:
    """The known names nearest to a mistyped one, nearest first.

    >>> close_names("tfdif", ["generic", "tfidf", "hf"])
    ['tfidf']
    """
    by_lower = {k.lower(): k for k in known}
    return [by_lower[m] for m in get_close_matches(name.lower(), list(by_lower), n=n, cutoff=0.55)]
