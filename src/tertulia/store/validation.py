"""Checks of what is stored. PostgreSQL refuses NUL, no database takes half a surrogate pair, and JSON has no NaN.

Texts are stored unchanged or not at all: cleaning them (`tertulia.core.text.clean`) is up to the caller.
"""

import math
from collections.abc import Mapping

import orjson

from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.store.records import NotFound

_STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
NAME_LENGTH = 200
"""Maximum length of an owner, key, id or bot: PostgreSQL cannot index much more."""


def check_text(text: str, what: str) -> None:
    """Refuse a text that not every database can store."""
    if not _is_storable(text):
        raise UsageError(
            f"The {what} cannot be stored: it contains a NUL character or half a surrogate pair.",
            hint="Pass it through tertulia.core.text.clean first.",
        )


def check_names(**names: str | None) -> None:
    """Refuse owners, keys, ids and bots that cannot be indexed; None means not given."""
    for what, name in names.items():
        if name is None:
            continue
        if not 1 <= len(name) <= NAME_LENGTH:
            raise UsageError(f"The {what} must have 1 to {NAME_LENGTH} characters, not {len(name)}.")
        check_text(name, what)


def check_id(id: str, kind: str) -> None:  # noqa: A002 - an id is called id everywhere
    """Refuse an id that cannot be stored, with the same error as one that does not exist."""
    if len(id) > NAME_LENGTH or not _is_storable(id):
        raise NotFound(kind)


def json_value(value: Json, what: str) -> Json:
    """The value as JSON: tuples become lists, and NaN and infinity null, so that no reply is lost because of its score.

    >>> json_value({"score": float("-inf"), "candidates": ("a", "b")}, "reply")
    {'score': None, 'candidates': ['a', 'b']}
    """
    try:
        text = orjson.dumps(value, option=_STRICT)
    except TypeError:  # not JSON, or an integer that orjson does not know
        return _walk(value, what)
    if b"\\u0000" in text:
        return _walk(value, what)
    normal: Json = orjson.loads(text)  # there and back takes a tenth of the time of walking through it
    return normal


def _walk(value: Json, what: str) -> Json:
    match value:
        case str():
            check_text(value, what)
            return value
        case float():
            return value if math.isfinite(value) else None
        case None | bool() | int():
            return value
        case list() | tuple():
            return [_walk(item, what) for item in value]
        case dict() | Mapping():
            return {_walk(str(key), what): _walk(item, what) for key, item in value.items()}
    raise UsageError(f"The {what} contains a {type(value).__name__}, which is not a JSON type.")


def _is_storable(text: str) -> bool:
    if text.isascii():
        return "\0" not in text
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
