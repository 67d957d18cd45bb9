"""The one family of errors that users see: what went wrong, and a hint what to do next.

Library code raises these and never prints or exits. The command line turns them into two lines and an exit code, the
web server into a status code. Any other exception that escapes is a bug in Tertulia and keeps its traceback.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

_MAX_LISTED = 40
"""An error lists at most this many names."""


class TertuliaError(Exception):
    """Base of all errors that are not bugs: bad input, missing files, a server that does not answer."""

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
    """A name that is not registered; the hint suggests similar names, or lists all names."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        near = close_names(name, self.known)
        if near:
            hint = f"Did you mean {' or '.join(repr(n) for n in near)}?"
        elif self.known:
            more = f", ... ({len(self.known)} in all)" if len(self.known) > _MAX_LISTED else ""
            hint = f"Known: {', '.join(self.known[: _MAX_LISTED - 10 if more else None])}{more}."
        else:
            hint = ""
        super().__init__(f"There is no {kind} called {name!r}.", hint=hint)


class ConfigError(UsageError):
    """A config file or a set of options that does not fit its schema."""


class DataError(TertuliaError):
    """A corpus file that is missing, empty or damaged."""


class MissingFile(DataError):  # noqa: N818
    """A file or folder that is named and does not exist: the call is wrong, not the data."""

    exit_code = 2


class DamagedLine(DataError):  # noqa: N818
    """A line of a file that cannot be decoded, with its number."""

    def __init__(self, source: str, line: int, why: str) -> None:
        self.source, self.line, self.why = source, line, why
        super().__init__(
            f"{source}, line {line}: {why}",
            hint="Repair or remove the line; without --strict, such lines are skipped and counted.",
        )


class MissingExtra(TertuliaError):  # noqa: N818
    """An optional package that is not installed."""

    exit_code = 2

    def __init__(self, what: str, install: str) -> None:
        super().__init__(f"{what} is not installed.", hint=f"Install it with: {install}")


class BotError(TertuliaError):
    """A bot failed to reply."""


class EndpointError(BotError):
    """The endpoint of a remote bot is down, too slow, or responded with an error."""


class StoreError(TertuliaError):
    """The database is locked, unreachable, or has the schema of another version."""


class MissingStore(StoreError):  # noqa: N818
    """A database, a backup or their folder that is named and does not exist."""

    exit_code = 2


class PortTaken(TertuliaError):  # noqa: N818
    """Another program is listening on the port to serve on."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"Port {port} on {host} is taken by another program.",
            hint=f"Choose another port with --port {port + 1}, or stop that program.",
        )


class Interrupted(KeyboardInterrupt):
    """The user stopped the work (Ctrl-C): what was kept, and how to go on."""

    def __init__(self, kept: str, *, hint: str = "") -> None:
        super().__init__(kept)
        self.kept = kept
        self.hint = hint


@contextmanager
def keeping(kept: str, *, hint: str = "Run the same command again to continue.") -> Iterator[None]:
    """Say what is kept of the work in the block, and how to go on, should the user interrupt it."""
    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(kept, hint=hint) from None


def close_names(name: str, known: Iterable[str], *, n: int = 3) -> list[str]:
    """The known names that a mistyped name probably means, closest first; none if none is similar.

    >>> close_names("tfdif", ["generic", "tfidf", "hf"]), close_names("nope", ["openai"]), close_names("mmr", ["mrr"])
    (['tfidf'], [], ['mrr'])
    """
    by_lower = {k.lower(): k for k in known}
    # One wrong letter in a word of three or four leaves a ratio of .67 to .75: short names need a lower bar, and then
    # the same length, or "nope" would resemble "openai".
    same_length = [k for k in by_lower if len(k) == len(name) < 5]
    close = get_close_matches(name.lower(), list(by_lower), n=n, cutoff=0.7)
    close += [k for k in get_close_matches(name.lower(), same_length, n=n, cutoff=0.6) if k not in close]
    return [by_lower[match] for match in close[:n]]
