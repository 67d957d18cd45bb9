"""Filters, taggers and rules by name, with options: `too-long:max_words=30`, `shouting:share=0.5`."""

from typing import Any
from urllib.parse import unquote

from tertulia.core.config import Config, validate
from tertulia.core.errors import UsageError
from tertulia.core.registry import Registry


def make_named(registry: Registry, text: str) -> Any:
    """The config that `name:key=value:key=value` describes; %3A and %2C stand for a colon and a comma in a value."""
    name, *options = text.split(":")
    kind: type[Config] = registry.get(name.strip())
    values: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise UsageError(
                f"In the {registry.kind} {text!r}: {option!r} is not of the form key=value.",
                hint="Write options as name:key=value.",
            )
        values[key.strip()] = unquote(value.strip())
    return validate(kind, values, where=f"the {registry.kind} {name.strip()!r}")
