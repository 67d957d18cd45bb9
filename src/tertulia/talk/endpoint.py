"""An OpenAI-compatible endpoint: its address, its key, and its failures as user errors."""

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
_TRANSIENT = frozenset({408, 409, 429})
"""Client errors that are worth a retry, like all server errors."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is served, and how failures there are explained."""

    url: str
    host: str
    port: int
    model: str
    key_env: str
    timeout: float
    key: str = field(repr=False)

    @classmethod
    def of(cls, model: str, *, base_url: str, api_key_env: str, timeout: float) -> Self:
        """The endpoint at an address, with its key from the environment."""
        # Checked here and not by the config, whose errors show the value: it may be a secret in the wrong option.
        if not re.fullmatch(r"[A-Za-z_]\w*", api_key_env, re.ASCII):
            raise UsageError(
                "api_key_env is the name of an environment variable, not a key.",
                hint="Put the key into an environment variable, and give its name.",
            )
        try:
            url = httpx.URL(base_url)
        except httpx.InvalidURL as why:
            raise UsageError(f"base_url is not a valid URL: {why}.", hint=f"For example: {OPENAI}") from None
        if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
            shape = "http(s)://HOST[:PORT]/PATH, without a password or a query"
            raise UsageError(f"base_url must be {shape}.", hint=f"For example: {OPENAI}")
        key = os.environ.get(api_key_env, "").strip()
        if not key.isascii() or not key.isprintable():
            raise EndpointError(
                f"The environment variable {api_key_env} does not hold a valid key.",
                hint="It has characters that cannot be part of a key: set it again.",
            )
        if not key and url.host == OPENAI_HOST:
            hint = f"Put it into the environment variable {api_key_env}, or name another with api_key_env=NAME."
            raise EndpointError(f"{url.host} requires an API key.", hint=hint)
        full = str(url).rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
        port = url.port or (443 if url.scheme == "https" else 80)
        return cls(full, url.host, port, model, api_key_env, timeout, key)

    def __str__(self) -> str:
        return f"The endpoint {self.host}:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        common = {"content-type": "application/json", "user-agent": f"tertulia/{__version__}"}
        return common | ({"authorization": f"Bearer {self.key}"} if self.key else {})

    @property
    def limit_field(self) -> str:
        """The token limit's name: OpenAI's newer models reject the old one, other servers may not know the new one."""
        return "max_completion_tokens" if self.host == OPENAI_HOST else "max_tokens"

    @property
    def address_hint(self) -> str:
        """What to check if this may not be an OpenAI-compatible endpoint at all."""
        return f"Check the model {self.model!r} and the address {self.url} (a base_url usually ends in /v1)."

    @staticmethod
    def is_transient(status: int) -> bool:
        """Whether a request with this status is worth a retry."""
        return status >= 500 or status in _TRANSIENT

    def connection_error(self, why: httpx.RequestError, *, in_reply: bool = False) -> EndpointError:
        """The error for a request without a (complete) response."""
        if isinstance(why, httpx.ConnectError | httpx.ConnectTimeout):
            hint = "Start the server, or give its address with base_url=URL."
            return EndpointError(f"{self} cannot be reached: {str(why) or 'no answer'}.", hint=hint)
        if isinstance(why, httpx.TimeoutException):
            hint = f"Wait longer with timeout={2 * self.timeout:g}, or check whether the server is overloaded."
            return EndpointError(f"{self} timed out: it sent nothing for {self.timeout:g} seconds.", hint=hint)
        when = "in the middle of its reply" if in_reply else "without a response"
        return EndpointError(
            f"{self} closed the connection {when} ({type(why).__name__}).",
            hint="Try again; if it keeps happening, check the log of the server.",
        )

    def status_error(self, status: int, body: str, *, tries: int) -> EndpointError:
        """The error for a response whose status is not a success."""
        hint = "If it rejects a field: send_seed=false and send_usage=false omit two of them."
        if status in (401, 403):
            source = "The key is from" if self.key else "No key was sent: there is none in"
            hint = f"{source} the environment variable {self.key_env}; use another one with api_key_env=NAME."
        elif status == 404 or status < 400:
            hint = self.address_hint
        elif status == 429:
            hint = "Too many requests, or the quota is used up: lower concurrency, raise retries, or wait."
        elif self.is_transient(status):
            hint = "The problem is on the server: try again later."
        times = f" {tries} times" if tries > 1 else ""
        return EndpointError(f"{self} responded with status {status}{times}: {self.describe(body)}", hint=hint)

    def decode(self, text: str) -> dict[str, Json]:
        """Parse a JSON object; the error shows what came instead."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            return value
        raise EndpointError(f"{self} did not send a JSON object: {self.describe(text)}", hint=self.address_hint)

    def describe(self, body: str) -> str:
        """The message of an error body, or its beginning; the key, which some servers repeat, is removed."""
        try:
            value = json.loads(body)
            value = value.get("error") or value.get("detail") or value.get("message") or value
            value = value.get("message", value) if isinstance(value, dict) else value
        except (ValueError, AttributeError, RecursionError):
            value = body
        text = squash(clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))
        text = text.replace(self.key, "[key]") if self.key else text
        return f"{text[:300]}…" if len(text) > 300 else text or "(empty)"


def sse_data(chunks: Iterable[bytes]) -> Iterator[str]:
    """The data lines of an event stream, however it was split into chunks; comments and other fields are skipped.

    Lines end at line feeds only: JSON may contain other characters that Unicode counts as line ends.

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
