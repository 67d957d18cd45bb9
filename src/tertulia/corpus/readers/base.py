"""What a reader of a format is: how to recognise a record, and how to make a dialogue of it."""

from collections.abc import Callable
from dataclasses import dataclass

from tertulia.core.dialogue import Dialogue, Json


@dataclass(frozen=True, slots=True)
class Reader:
    """A format of one JSON object a line."""

    name: str
    recognises: Callable[[dict[str, Json]], bool]
    """Whether a record (the first of a file) is of this format."""
    decode: Callable[[Json], Dialogue]
    """A record as a dialogue; raises ValueError, KeyError or TypeError where it is damaged."""
    encode: Callable[[Dialogue], dict[str, Json]] | None = None
    """A dialogue as a record, for formats we can write."""
