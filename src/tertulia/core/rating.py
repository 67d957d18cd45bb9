"""What a person or an automatic judge answered about a turn or a conversation."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tertulia.core.dialogue import Json


@dataclass(frozen=True, slots=True)
class Target:
    """What a rating is about: a stored conversation, or one turn of it. Stored turns are never rewritten."""

    conversation: str
    turn: str | None = None


@dataclass(frozen=True, slots=True)
class Rating:
    """One answer of one rater to one question."""

    target: Target
    rater: str
    """A pseudonym; never a name or an address."""
    question: str
    value: bool | int | float | str
    time: float | None = None
    study: str | None = None
    meta: Mapping[str, Json] = field(default_factory=dict)
