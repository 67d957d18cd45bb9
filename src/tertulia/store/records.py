"""What the store gives back: plain frozen values, complete when they leave it.

Nothing of the database leaks out of them, so whoever holds one can keep it, compare it or hand it to another thread.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final, Literal

from tertulia.core.dialogue import Json, Persona
from tertulia.core.errors import TertuliaError

Speaker = Literal["user", "bot"]
Status = Literal["done", "pending", "stopped", "failed"]
"""A turn of the bot is born pending, and ends done, stopped (by the user, or with its server) or failed."""
Ending = Literal["done", "stopped", "failed"]


class Unset(Enum):
    """The type of `UNSET`: where None is itself a value, it says "leave this alone"."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


class NotFound(TertuliaError):  # noqa: N818 - reads better than NotFoundError where it is raised
    """There is no such thing, or it is another owner's: the message is the same, so that nobody can probe for ids."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"There is no such {kind}.", hint="It may have been erased, or belong to another visitor.")


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """One turn as it was said. Once it is no longer pending only `current` can change."""

    id: str
    conversation: str
    position: int
    """Its place: 0, 1, 2 ... A turn and its replacement share one; a place is never given to anything else."""
    speaker: Speaker
    text: str
    created: datetime
    status: Status
    bot: str | None = None
    """Public id of the bot that wrote it."""
    reply: dict[str, Json] | None = None
    """What the bot told about its reply: provenance, score, candidates, seconds, finish, usage, note."""
    replaces: str | None = None
    """Id of the turn that it regenerates."""
    current: bool = True
    """False once it was replaced or undone."""
    error: str | None = None
    attempt: int = 1
    """1 for the first turn at its place, 2 for the one that replaced it ..."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation with its turns in order: the current ones, or all where the history was asked for."""

    id: str
    owner: str
    title: str
    bot: str
    persona: Persona | None
    created: datetime
    updated: datetime
    turns: tuple[StoredTurn, ...] = ()


@dataclass(frozen=True, slots=True)
class ConversationLine:
    """A conversation in a list; `turns` counts the current ones."""

    id: str
    title: str
    bot: str
    updated: datetime
    turns: int


@dataclass(frozen=True, slots=True)
class Said:
    """A message and the pending reply to it."""

    user: StoredTurn
    bot: StoredTurn
    fresh: bool
    """False when the key was used before: nothing was added, and these are the turns it made then."""
    before: tuple[StoredTurn, ...] = ()
    """The current turns before the user's, for the bot to know: without their `reply`, which is for the record."""
