"""The table of filters. Plugins add rows through the entry-point group `tertulia.filters`.

A row points at a config that is a filter (see `tertulia.talk.filters.base`). In a bot's options filters are written as
names with commas between, and their parameters behind colons: `empty,too-long:max_words=30,safety`.
"""

from urllib.parse import unquote

from tertulia.core.config import Config, validate
from tertulia.core.errors import UsageError
from tertulia.core.registry import Registry
from tertulia.talk.filters.base import Filter

FILTERS = Registry("filter", "tertulia.filters")

FILTERS.add("empty", "tertulia.talk.filters.empty:Empty", "drops what has no word in it")
FILTERS.add("too-long", "tertulia.talk.filters.too_long:TooLong", "drops what is too long for a chat")
FILTERS.add("cross-turn", "tertulia.talk.filters.cross_turn:CrossTurn", "drops what was said in an earlier turn")
FILTERS.add("in-turn", "tertulia.talk.filters.in_turn:InTurn", "drops what repeats itself")
FILTERS.add("safety", "tertulia.talk.filters.safety:Safety", "drops slurs, threats, and talk into self-harm")

ALL = "empty,too-long,cross-turn,in-turn,safety"
"""All built-in ones, as written in a bot's options."""
NONE = "none"


def make_filters(text: str) -> tuple[Filter, ...]:
    """The filters that an option names; `none` or nothing for no filter at all.

    >>> make_filters("empty, too-long:max_words=30")
    (Empty(), TooLong(max_words=30))
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    if names == [NONE]:
        return ()
    return tuple(_filter(name) for name in names)


def _filter(text: str) -> Filter:
    """One filter with its parameters; %3A and %2C stand for a colon and a comma in a parameter."""
    name, *parameters = text.split(":")
    kind: type[Config] = FILTERS.get(name.strip())
    values: dict[str, str] = {}
    for parameter in parameters:
        key, equals, value = parameter.partition("=")
        if not equals:
            raise UsageError(f"In the filter {text!r}: {parameter!r} is no parameter.", hint="Write name:key=value.")
        values[key.strip()] = unquote(value.strip())
    made: Filter = validate(kind, values, where=f"the filter {name!r}")  # type: ignore[assignment]
    return made
