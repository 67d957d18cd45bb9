"""What may enter the store. PostgreSQL refuses NUL, no database takes half a surrogate pair, and JSON has no NaN.

Texts are stored exactly as they come or not at all: cleaning them (`tertulia.core.text.clean`) is up to the caller.
"""

import math
from collections.abc import Mapping

from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.store.records import NotFound

NAME_LENGTH = 200
"""The longest owner, key, id or bot: PostgreSQL cannot index much more."""


def check_text(text: str, what: str) -> None:
    """Refuse a text that not every database can hold."""
    if not _is_storable(text):
        raise UsageError(
            f"The {what} cannot be stored: it holds a NUL character or half a surrogate pair.",
            hint="Pass it through tertulia.core.text.clean first.",
        )


def check_names(**names: str | None) -> None:
    """Refuse owners, keys, ids and bots that cannot be indexed; those that are None were not given."""
    for what, name in names.items():
        if name is None:
            continue
        if not 1 <= len(name) <= NAME_LENGTH:
            raise UsageError(f"The {what} must have 1 to {NAME_LENGTH} characters, not {len(name)}.")
        check_text(name, what)


def check_found(id: str, kind: str) -> None:  # noqa: A002 - an id is called id everywhere
    """Refuse an id under which nothing can have been stored, in the same words as one under which nothing was."""
    if len(id) > NAME_LENGTH or not _is_storable(id):
        raise NotFound(kind)


def checked_json(value: Json, what: str) -> Json:
    """A value as JSON can hold it: tuples become lists, and numbers that are none null: no reply is lost over a score.

    >>> checked_json({"score": float("-inf"), "candidates": ("a", "b")}, "reply")
    {'score': None, 'candidates': ['a', 'b']}
    """
    match value:
        case str():
            check_text(value, what)
            return value
        case float():
            return value if math.isfinite(value) else None
        case None | bool() | int():
            return value
        case Mapping():
            return {checked_json(str(key), what): checked_json(item, what) for key, item in value.items()}
        case list() | tuple():
            return [checked_json(item, what) for item in value]
    raise UsageError(f"The {what} holds a {type(value).__name__}, which JSON does not know.")


def _is_storable(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
