"""What a server may be exposed to: without protection, nothing but this machine."""

import ipaddress
import socket

from tertulia.core.errors import UsageError
from tertulia.talk.spec import parse_spec
from tertulia.web.config import NAMED_SPEC, ServeConfig


def check_exposure(config: ServeConfig) -> None:
    """Refuse to serve other machines without protection, or with a bot that is a person at this terminal."""
    if is_loopback(config.host):
        return
    if any(_is_human(text) for text in config.bots):
        raise UsageError(
            f"The bot 'human' cannot be served on {config.host}: strangers would talk to your terminal.",
            hint="Serve it on 127.0.0.1.",
        )
    if not (config.is_protected or config.open):
        raise UsageError(
            f"On {config.host}, anyone who can reach this machine could use the server.",
            hint="Require a password with --password (or TERTULIA_PASSWORD), or API keys with TERTULIA_API_KEY or "
            "[keys.NAME] in the config file (`tertulia key NAME` makes one). To serve everyone, add --open.",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("")
    (True, True, False, False)
    """
    try:
        addresses = socket.getaddrinfo(host or "0.0.0.0", None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in addresses)


def is_wildcard(host: str) -> bool:
    """Whether an address stands for all addresses of this machine."""
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _is_human(text: str) -> bool:
    named = NAMED_SPEC.fullmatch(text)
    return any(parse_spec(spec).name == "human" for spec in ((text, named[2]) if named else (text,)))
