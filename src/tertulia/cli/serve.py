"""`tertulia serve`: the chat page and the OpenAI-compatible API."""

import os
from collections.abc import Iterable
from typing import Annotated

from tertulia import sample
from tertulia.cli.output import Bars, ConfigFile, argument, option, out
from tertulia.core.config import resolve
from tertulia.store import Store
from tertulia.web.app import create_app
from tertulia.web.server import bind
from tertulia.web.server import serve as serve_app
from tertulia.web.serving import ServeConfig, make_bots


def serve(
    bots: Annotated[list[str] | None, argument(ServeConfig, "bots")] = None,
    host: Annotated[str | None, option(ServeConfig, "host", "--host")] = None,
    port: Annotated[int | None, option(ServeConfig, "port", "--port")] = None,
    db: Annotated[str | None, option(ServeConfig, "db", "--db")] = None,
    config: ConfigFile = None,
) -> None:
    """Serve bots. Conversations are kept; the API key for /v1, if you want one, is read from TERTULIA_API_KEY."""
    given = {"bots": bots or None, "host": host, "port": port, "db": db, "api_key": os.environ.get("TERTULIA_API_KEY")}
    run_server(resolve(ServeConfig, config, given))


def run_server(config: ServeConfig) -> None:
    """Make the bots, open the store, serve until told to stop."""
    bind(config.host, config.port).close()  # a taken port should be known before bots are loaded
    with Bars() as bars:
        bars.step(f"Loading {len(config.bots)} bots")
        bots = make_bots(config.bots)
    with Store.open(config.db) as store:
        app = create_app(bots, store, personas=sample.personas(), settings=config)
        serve_app(app, config.host, config.port, ready=lambda address: _tell(address, bots))


def _tell(address: str, bots: Iterable[str]) -> None:
    out.print(f"\nServing {', '.join(bots)} at {address} (API: {address}/v1). Stop with Ctrl-C.", markup=False)
