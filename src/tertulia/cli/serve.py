"""`tertulia serve`: the chat page and the OpenAI-compatible API."""

import atexit
import getpass
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pydantic import SecretStr

from tertulia import sample
from tertulia.cli.command import command
from tertulia.cli.output import out
from tertulia.core.errors import UsageError
from tertulia.web.config import ServeConfig, lazy_bots
from tertulia.web.exposure import check_exposure


@command(ServeConfig)
def serve(config: ServeConfig) -> None:
    """Serve bots: a chat page, whose conversations are stored, and an OpenAI-compatible API under /v1.

    Beyond this machine, it must be protected: by a password for the page (--password, TERTULIA_PASSWORD), by API keys
    (TERTULIA_API_KEY, or [keys.NAME] in the config file), or explicitly by nothing (--open).
    """
    run_server(config)


def run_server(config: ServeConfig) -> None:
    """Open the database, load the bots in the background, and serve until a signal comes."""
    from tertulia.cli.database import announce_new  # SQLAlchemy and FastAPI, which --help does not need
    from tertulia.web.server import run

    bots = lazy_bots(config.bots)  # a name that is wrong is said before anything is created
    config = with_secrets(config)
    check_exposure(config)
    announce_new(config.db)
    setup_links: list[str] = []

    def ready(address: str) -> None:
        _print_address(address, bots)
        for path in setup_links:
            out.print(f"Researchers: create the first account, once, at {address}{path}", markup=False)

    run(config, personas=sample.personas(), ready=ready, on_setup=setup_links.append)


def _print_address(address: str, bots: Iterable[str]) -> None:
    out.print(f"\nServing {', '.join(bots)} at {address} (API: {address}/v1). Stop with Ctrl-C.", markup=False)


_SECRETS = {
    "TERTULIA_API_KEY": "api_key",
    "TERTULIA_PASSWORD": "password",
    "TERTULIA_SESSION_SECRET": "session_secret",
}
"""Environment variables, and the fields of the config that they set."""


def with_secrets(config: ServeConfig) -> ServeConfig:
    """The config with the secrets of the environment, and with a password from the terminal if one was requested."""
    changes: dict[str, object] = {}
    for variable, field in _SECRETS.items():
        value = os.environ.get(variable)
        if value is not None and not value.strip():
            raise UsageError(f"{variable} is set but empty.", hint="Set it to a value, or unset it.")
        changes |= {field: SecretStr(value)} if value is not None else {}
    if config.ask_password and "password" not in changes and config.password is None:
        changes["password"] = SecretStr(_ask_password())
    config = config.model_copy(update=changes)
    if config.is_protected and config.revoked_sessions is None:
        config = config.model_copy(update={"revoked_sessions": _session_file()})
    return config


def _ask_password() -> str:
    if not sys.stdin.isatty():
        raise UsageError("--password needs a terminal to ask on.", hint="Set TERTULIA_PASSWORD instead.")
    password = getpass.getpass("Password for the page: ")
    if not password.strip():
        raise UsageError("The password is empty.", hint="Type a password, or omit --password.")
    if getpass.getpass("Again: ") != password:
        raise UsageError("The passwords differ.", hint="Try again.")
    return password


def _session_file() -> Path:
    """A file that the processes of this server share, removed at the end."""
    folder = tempfile.mkdtemp(prefix="tertulia-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder) / "signed-out"
