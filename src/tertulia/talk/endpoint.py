"""An OpenAI-compatible endpoint: its address, its key, and all that may go wrong there, in words people can use."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Self

import httpx

from tertulia import __version__
from tertulia.core.dialogue import Json
from tertulia.core.errors import EndpointError, UsageError
from tertulia.core.text import clean, squash

OPENAI_HOST = "api.openai.com"
OPENAI = f"https://{OPENAI_HOST}/v1"
AGAIN = frozenset({408, 409, 429})
"""Refusals that may pass, beside all of 500 and above."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the model lives, and what may go wrong there, in words."""

    url: str
    host: str
    port: int
    model: str
    key_env: str
    timeout: float
    key: str = field(repr=False)

    @classmethod
    def of(cls, model: str, *, base_url: str, api_key_env: str, timeout: float) -> Self:
        """The endpoint at an address, with the key that the environment holds for it."""
        # Checked here and not by the config, whose errors repeat what was given: it may be a secret in a wrong place.
        if not re.fullmatch(r"[A-Za-z_]\w*", api_key_env, re.ASCII):
            raise UsageError(
                "api_key_env is the name of an environment variable, not a key.", hint="Put the key into one."
            )
        try:
            url = httpx.URL(base_url)
        except httpx.InvalidURL as why:
            raise UsageError(f"base_url is not an address: {why}.", hint=f"For example: {OPENAI}") from None
        if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
            shape = "http(s)://HOST[:PORT]/PATH, without a password or a query"
            raise UsageError(f"base_url must be {shape}.", hint=f"For example: {OPENAI}")
        key = os.environ.get(api_key_env, "").strip()
        if not key.isascii() or not key.isprintable():
            what = f"What the environment variable {api_key_env} holds cannot be a key."
            raise EndpointError(what, hint="It has characters that no key has: set it again.")
        if not key and url.host == OPENAI_HOST:
            hint = f"Put it into the environment variable {api_key_env}, or name another with api_key_env=NAME."
            raise EndpointError(f"{url.host} wants a key, and there is none.", hint=hint)
        full = str(url).rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
        port = url.port or (443 if url.scheme == "https" else 80)
        return cls(full, url.host, port, model, api_key_env, timeout, key)

    def __str__(self) -> str:
        return f"The endpoint {self.host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """Of every request."""
        common = {"content-type": "application/json", "user-agent": f"tertulia/{__version__}"}
        return common | ({"authorization": f"Bearer {self.key}"} if self.key else {})

    @property
    def limit_field(self) -> str:
        """OpenAI's newer models refuse the old name of it; everybody else's servers may not know the new one."""
        return "max_completion_tokens" if self.host == OPENAI_HOST else "max_tokens"

    @property
    def address_hint(self) -> str:
        """What to check when it is perhaps no such endpoint at all."""
        return f"Check the model {self.model!r} and the address {self.url} (a base_url usually ends in /v1)."

    def trouble(self, why: httpx.RequestError, *, begun: bool = False) -> EndpointError:
        """A request that met no answer."""
        if isinstance(why, httpx.ConnectError | httpx.ConnectTimeout):
            hint = "Start it, or give the right address with base_url=URL."
            return EndpointError(f"{self} cannot be reached: {str(why) or 'no answer'}.", hint=hint)
        if isinstance(why, httpx.TimeoutException):
            hint = f"Wait longer with timeout={2 * self.timeout:g}, or see whether the server is overloaded."
            return EndpointError(f"{self} timed out: it sent nothing for {self.timeout:g} seconds.", hint=hint)
        when = "in the middle of its reply" if begun else "without an answer"
        return EndpointError(
            f"{self} broke off {when} ({type(why).__name__}).", hint="Ask again; if it stays so, see its log."
        )

    def refusal(self, status: int, body: str, *, tries: int) -> EndpointError:
        """An answer whose status is an error."""
        hint = "If it objects to a field: send_seed=false and send_usage=false leave two of them out."
        if status in (401, 403):
            found = "The key came from" if self.key else "No key was sent: there is none in"
            hint = f"{found} the environment variable {self.key_env}; api_key_env=NAME names another one."
        elif status == 404 or status < 400:
            hint = self.address_hint
        elif status == 429:
            hint = "Too many requests, or the quota is used up: lower concurrency, raise retries, or wait."
        elif status >= 500 or status in AGAIN:
            hint = "The trouble is the server's: ask again later."
        times = f" {tries} times" if tries > 1 else ""
        return EndpointError(f"{self} answered {status}{times}: {self.said(body)}", hint=hint)

    def decode(self, text: str) -> dict[str, Json]:
        """A JSON object, or an error that shows what came instead."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            return value
        raise EndpointError(f"{self} sent something that is no JSON object: {self.said(text)}", hint=self.address_hint)

    def said(self, body: str) -> str:
        """The message inside an error's body, or the beginning of it; never the key, which some servers repeat."""
        try:
            value = json.loads(body)
            value = value.get("error") or value.get("detail") or value.get("message") or value
            value = value.get("message", value) if isinstance(value, dict) else value
        except (ValueError, AttributeError, RecursionError):
            value = body
        text = squash(clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))
        text = text.replace(self.key, "[key]") if self.key else text
        return f"{text[:300]}…" if len(text) > 300 else text or "(nothing)"


def sse_data(chunks: Iterable[bytes]) -> Iterator[str]:
    """The data lines of an event stream, wherever the network cut it; comments and other fields are left out.

    Lines end at line feeds alone: JSON may hold other characters that Unicode counts as line ends.

    >>> list(sse_data([b'data: {"a"', b': 1}\\n\\n: ping\\n\\ndata:[DONE]\\r\\n\\r\\n']))
    ['{"a": 1}', '[DONE]']
    """
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip().decode("utf-8", "replace")


def retry_after(value: str | None) -> float | None:
    """Seconds from a Retry-After header: a number or a date.

    >>> retry_after("1.5"), retry_after("Thu, 01 Jan 1970 00:00:00 GMT"), retry_after("soon")
    (1.5, 0.0, None)
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return None
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        seconds = (date - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if isfinite(seconds) else None
