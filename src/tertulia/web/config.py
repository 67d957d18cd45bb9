"""The config of `tertulia serve`, and the bots it names."""

import hashlib
import re
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, field_validator

from tertulia.core.config import Cli, Config
from tertulia.core.errors import UsageError
from tertulia.talk.bot import Bot
from tertulia.talk.registry import BOTS
from tertulia.talk.spec import make_bot, parse_spec

NAMED_SPEC = re.compile(r"(\w[\w .-]*)=(.+)", re.DOTALL)
"""A specification with a public name before it."""


def _secret(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text.strip():
        raise ValueError("must not be empty")
    if not text.strip("*"):  # what pydantic shows instead of a secret: somebody has copied a printed config
        raise ValueError("must not consist of asterisks")
    return value


Secret = Annotated[SecretStr, AfterValidator(_secret)]


class KeyConfig(Config):
    """An API key: `[keys.NAME]` in the config file. `tertulia key NAME` makes one."""

    key_sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """SHA-256 of the key, in hexadecimal digits; the key itself is not kept."""
    per_minute: int | None = Field(default=None, ge=1)
    """Maximum number of requests per minute with this key; unlimited if not given."""
    revoked: bool = False
    """Whether the key is no longer accepted."""


class ServeConfig(Config):
    """What to serve, where, and within which limits."""

    bots: Annotated[tuple[str, ...], Cli(argument=True)] = Field(default=("tfidf", "generic"), min_length=1)
    """Specifications of the bots to serve, each optionally with a display name: `anna=tfidf:data.jsonl`."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 accepts connections from other machines."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 picks a free one."""
    db: str = "sqlite:///tertulia.db"
    """Database for conversations: sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/NAME."""
    max_message: int = Field(default=16_000, ge=1)
    """Maximum length of a message, in characters."""
    max_body: Annotated[int, Cli(hidden=True)] = Field(default=1_000_000, ge=1_000)
    """Maximum size of a request, in bytes."""
    max_batch: int = Field(default=16, ge=1)
    """Maximum number of dialogues a bot answers in one batch; a bot may have a lower limit of its own."""
    max_waiting: int = Field(default=1_024, ge=1)
    """Maximum length of a bot's queue; further requests get status 503."""
    store_threads: Annotated[int, Cli(hidden=True)] = Field(default=32, ge=1)
    """Threads for calls of the database that wait for it; messages and replies need none on SQLite."""
    keep_alive_seconds: Annotated[float, Cli(hidden=True)] = Field(default=15.0, gt=0)
    """How often an idle stream sends a comment, so that proxies do not close it."""
    stop_seconds: Annotated[float, Cli(hidden=True)] = Field(default=1.0, ge=0)
    """How long to wait for a streaming bot to confirm that it has stopped."""
    grace_seconds: float = Field(default=5.0, ge=0)
    """How many seconds pending replies get to finish on shutdown."""
    cors_origins: Annotated[tuple[str, ...], Cli("--cors-origin")] = ()
    """Origin whose web pages may call the OpenAI-compatible API; can be repeated, "*" for all."""
    markdown: bool = True
    """Whether the page formats Markdown in replies; visitors can still switch it off for themselves."""
    explain: bool = False
    """Whether visitors may see how a reply was chosen: its candidates, scores, settings, seed and timing."""
    grounding: str = ""
    """Grounding classifier that marks the sentences of replies which had evidence, such as `overlap`, or `default`;
    visitors see its verdicts. None by default. Studies never show them."""
    allow_hosts: Annotated[tuple[str, ...], Cli("--allow-host")] = ()
    """Host name under which the server may be called, such as chat.example.org; can be repeated, "*" for all."""
    ask_password: Annotated[bool, Cli("--password")] = False
    """Require a password for the page: the one in TERTULIA_PASSWORD, or else you are asked for it."""
    open: Annotated[bool, Cli("--open")] = False
    """Serve other machines without a password or API keys."""
    password: Secret | None = None
    """The page's password; better kept in TERTULIA_PASSWORD than in a file."""
    api_key: Secret | None = None
    """API key that clients of the OpenAI-compatible API must send as bearer token; see also `keys`."""
    keys: dict[str, KeyConfig] = Field(default_factory=dict)
    """Named API keys; with keys or a password, all visitors must sign in."""
    session_secret: Secret = Field(default_factory=lambda: SecretStr(secrets.token_urlsafe(32)))
    """Signs the sessions of visitors who signed in; random by default, so that a restart ends them. Servers that share
    the load must share it (TERTULIA_SESSION_SECRET)."""
    session_seconds: Annotated[int, Cli(hidden=True)] = Field(default=7 * 24 * 3600, ge=1)
    """How long a visitor stays signed in."""
    setup_sha256: Annotated[str, Cli(hidden=True)] = ""
    """SHA-256 of the token in the link that creates the first account of a researcher; set when the server starts."""
    revoked_sessions: Annotated[Path | None, Cli(hidden=True)] = None
    """File in which server processes share the sessions that were signed out; needed with several processes."""

    # Operations: processes, log, and limits per visitor (tertulia.web.limits) and connection (tertulia.web.protocol).
    workers: int = Field(default=1, ge=1, le=64)
    """Number of server processes, each with bots of its own. They share the port and the database."""
    log: Literal["text", "json"] = "text"
    """Format of the log on standard error: lines of text, or one JSON object per line."""
    messages_per_minute: int = Field(default=120, ge=0)
    """Messages that one visitor may send within a minute, long ones counting more; 0 for any number."""
    max_in_flight: int = Field(default=8, ge=0)
    """Replies that may be generated for one visitor at the same time; 0 for any number."""
    max_conversations: int = Field(default=2_000, ge=0)
    """Conversations that one visitor may keep; 0 for any number."""
    max_stored_bytes: int = Field(default=20_000_000, ge=0)
    """Bytes of text that one visitor may keep; 0 for any number."""
    address_factor: Annotated[int, Cli(hidden=True)] = Field(default=50, ge=1)
    """One address or API key may send as many messages as this many visitors."""
    max_connections: int = Field(default=512, ge=0)
    """Connections that one address may have open; 0 for any number. Trusted proxies may have any number."""
    head_seconds: Annotated[float, Cli(hidden=True)] = Field(default=10.0, gt=0)
    """How long a request's head may take to arrive."""
    body_seconds: Annotated[float, Cli(hidden=True)] = Field(default=30.0, gt=0)
    """How long a request's body may take to arrive."""
    trusted_proxies: Annotated[tuple[str, ...], Cli("--trusted-proxy")] = ("127.0.0.1", "::1")
    """Address of a proxy whose X-Forwarded-For and X-Forwarded-Proto are believed; can be repeated."""
    stall_seconds: Annotated[float, Cli(hidden=True)] = Field(default=60.0, gt=0)
    """A bot that has asks but has made no progress for this long counts as stalled."""

    @field_validator("keys")
    @classmethod
    def _check_keys(cls, keys: dict[str, KeyConfig]) -> dict[str, KeyConfig]:
        for name in keys:
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) or name in ("password", "default"):
                raise ValueError(f"a key cannot be called {name!r}: use letters, digits, '-' and '_'")
        digests = [key.key_sha256 for key in keys.values()]
        if len(set(digests)) < len(digests):
            raise ValueError("two names have the same key")
        if hashlib.sha256(b"").hexdigest() in digests:
            raise ValueError("a key must not be empty")
        return keys

    @property
    def is_protected(self) -> bool:
        """Whether visitors must sign in."""
        return self.password is not None or self.api_key is not None or bool(self.keys)


@dataclass(frozen=True, slots=True)
class LazyBot:
    """A bot that is made later, on another thread."""

    load: Callable[[], Bot]
    """Makes the bot."""
    spec: str = ""
    """The specification that it is made from, with its options; empty if there is none."""


def lazy_bots(specs: Sequence[str]) -> dict[str, LazyBot]:
    """Bots by public name: the given one, else the bot's own, with a number appended if that is taken.

    Names are checked now, all else when a bot is loaded: that can take minutes.
    """
    bots: dict[str, LazyBot] = {}
    for text in specs:
        named = NAMED_SPEC.fullmatch(text)
        name = named[1].strip() if named and not Path(text).exists() else None
        spec = named[2] if named and name else text
        if name in bots:
            raise UsageError(f"Two bots are called {name!r}.", hint="Give each its own name: NAME=BOT.")
        kind = parse_spec(spec).name
        if kind not in BOTS:
            make_bot(spec)  # raises the error that says what is wrong
        bots[name or _free_name(kind, bots)] = LazyBot(partial(make_bot, spec), spec)
    return bots


def _free_name(name: str, taken: Collection[str]) -> str:
    candidates = [name, *(f"{name}-{i}" for i in range(2, len(taken) + 3))]
    return next(candidate for candidate in candidates if candidate not in taken)
