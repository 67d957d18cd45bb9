"""How the server behaves; every field is an option of `tertulia serve` or a key of its config file."""

from pydantic import Field, SecretStr

from tertulia.core.config import Config


class WebSettings(Config):
    """Limits, patience and doors of the web server."""

    max_message: int = Field(default=16_000, ge=1)
    """Longest message in characters."""
    max_body: int = Field(default=1_000_000, ge=1_000)
    """Largest request in bytes."""
    max_batch: int = Field(default=16, ge=1)
    """Most asks a bot answers at once; a bot that takes fewer says so itself."""
    max_waiting: int = Field(default=1_024, ge=1)
    """Most asks that may wait for one bot; the next one is told to try again later."""
    store_threads: int = Field(default=32, ge=1)
    """Threads that talk to the database; what they write at the same time is committed together."""
    keep_alive_seconds: float = Field(default=15.0, gt=0)
    """How often a silent stream sends a comment, so that no proxy takes it for dead."""
    stop_seconds: float = Field(default=1.0, ge=0)
    """How long a bot that was told to stop may take to say where it stopped."""
    grace_seconds: float = Field(default=5.0, ge=0)
    """How long replies in the making may take to finish when the server is stopped."""
    api_key: SecretStr | None = None
    """With it, the OpenAI-compatible API wants it as bearer token."""
    cors_origins: tuple[str, ...] = ()
    """Web pages of other origins that may call the OpenAI-compatible API; "*" for all."""
