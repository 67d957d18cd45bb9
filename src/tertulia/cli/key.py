"""`tertulia key`: an API key, and the lines of the server's config that accept it."""

from typing import Annotated

from pydantic import Field

from tertulia.cli.command import command
from tertulia.cli.output import err, out, print_json
from tertulia.core.config import Cli, Config
from tertulia.web.auth import key_digest, new_key


class NewKeyConfig(Config):
    """A new API key."""

    name: Annotated[str, Cli(argument=True)] = Field(pattern="^[A-Za-z0-9_-]{1,64}$")
    """Name of the key, such as the person or program that will use it."""
    per_minute: int | None = Field(default=None, ge=1)
    """Maximum number of requests for replies per minute; unlimited if not given."""


@command(NewKeyConfig, file=False)
def key(settings: NewKeyConfig, *, as_json: bool) -> None:
    """Make an API key. It is shown once: the server's config gets its SHA-256. To revoke it, set revoked = true."""
    new = new_key()
    digest = key_digest(new)
    if as_json:
        print_json({"name": settings.name, "key": new, "key_sha256": digest, "per_minute": settings.per_minute})
        return
    err.print("Give this key to its user; it is not shown again. Add the lines below it to the file of serve --config.")
    quota = f"\nper_minute = {settings.per_minute}" if settings.per_minute else ""
    out.print(f'{new}\n\n[keys.{settings.name}]\nkey_sha256 = "{digest}"{quota}', markup=False)
