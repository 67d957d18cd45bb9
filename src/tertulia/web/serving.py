"""What `tertulia serve` needs besides the app: its config, and names for the bots it serves."""

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from tertulia.core.errors import UsageError
from tertulia.talk.bot import Bot
from tertulia.talk.spec import make_bot, parse_spec
from tertulia.web.settings import WebSettings

_NAMED = re.compile(r"([A-Za-z0-9_.-]+)=(.+)", re.DOTALL)


class ServeConfig(WebSettings):
    """Which bots are served, where, and where conversations are kept."""

    bots: tuple[str, ...] = Field(("tfidf", "generic"), min_length=1)
    """Bots to serve: specifications, each with a public name before it if you like (`ana=tfidf:data.jsonl`)."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 lets other machines in."""
    port: int = Field(8000, ge=0, le=65535)
    """Port to listen on; 0 takes any free one."""
    db: str = "sqlite:///tertulia.db"
    """Where conversations are kept: sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/NAME."""


def make_bots(specs: Sequence[str]) -> dict[str, Bot]:
    """Bots by their public names: the one given, else the bot's own, with a number where that is taken."""
    bots: dict[str, Bot] = {}
    for text in specs:
        named = _NAMED.fullmatch(text)
        name = named[1] if named and not Path(text).exists() else None
        spec = named[2] if named and name else text
        if name in bots:
            raise UsageError(f"Two bots are called {name!r}.", hint="Give each its own name: NAME=BOT.")
        bots[name or _free_name(parse_spec(spec).name, bots)] = make_bot(spec)
    return bots


def _free_name(name: str, taken: dict[str, Bot]) -> str:
    candidates = [name, *(f"{name}-{i}" for i in range(2, len(taken) + 3))]
    return next(c for c in candidates if c not in taken)
