"""What the conversation store returns: plain frozen values, with no tie to the database.

Whoever holds one can keep it, compare it or pass it to another thread.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final, Literal, NamedTuple

from tertulia.core.dialogue import Evidence, Json, Persona
from tertulia.core.errors import TertuliaError

TurnStatus = Literal["done", "pending", "stopped", "failed"]
"""A bot's turn starts as pending, and ends as done, stopped (by the user, or with its server) or failed."""
FinalStatus = Literal["done", "stopped", "failed"]


class Unset(Enum):
    """The type of `UNSET`, which means "leave this unchanged" where None is a value of its own."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


class NotFound(TertuliaError):  # noqa: N818 - reads better than NotFoundError where it is raised
    """The id is unknown or belongs to another owner: the message is the same, so that nobody can probe for ids."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"There is no such {kind}.", hint="It may have been deleted, or belong to another visitor.")


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """One turn. Once it is no longer pending, only `current` can change."""

    id: str
    conversation: str
    position: int
    """0, 1, 2 ... A turn and its replacement share a position; positions are never reused for anything else."""
    speaker: str
    """"user" or "bot"; in a conversation between people, the role of the one who wrote it."""
    text: str
    created: datetime
    status: TurnStatus
    bot: str | None = None
    """Public id of the bot that generated it."""
    reply: dict[str, Json] | None = None
    """The bot's record of its reply: provenance, score, candidates, seconds, finish, usage, note, evidence."""
    replaces: str | None = None
    """Id of the turn that it regenerates or, for a user's turn, of the earlier version of the message."""
    current: bool = True
    """False once it was replaced or undone."""
    error: str | None = None
    """Why it failed, or why it was stopped if the user did not stop it."""
    attempt: int = 1
    """1 for the first turn at its position, 2 for the one that replaced it ..."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation with its turns in order: the current ones, or all of them where the history was requested."""

    id: str
    owner: str
    title: str
    bot: str
    persona: Persona | None
    created: datetime
    updated: datetime
    turns: tuple[StoredTurn, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    """What its next replies should rest on."""


class ConversationPage(NamedTuple):
    """A conversation with some of its turns."""

    conversation: Conversation
    attempts: dict[int, int]
    """By position, the number of attempts at a reply or versions of a message, where there are several."""
    earlier: int | None
    """The position below which earlier turns are; None if there are none."""


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation in a list; `turns` is the number of current turns."""

    id: str
    title: str
    bot: str
    updated: datetime
    turns: int


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A conversation that matches a search; `text` is the first turn with all the words, None if only the title has."""

    id: str
    title: str
    bot: str
    updated: datetime
    text: str | None


class TurnEnd(NamedTuple):
    """How a bot's turn ends."""

    text: str
    status: FinalStatus
    reply: dict[str, Json] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StoredExchange:
    """A user's message and the bot's reply to it, pending at first."""

    user: StoredTurn
    bot: StoredTurn
    is_new: bool
    """False when the key was used before: nothing was added, and these are the turns of the earlier request."""
    conversation: Conversation = field(compare=False)
    """The conversation as it was before, without its turns."""
    context: tuple[StoredTurn, ...] = ()
    """The current turns before the user's, for the bot to read; without their `reply`, which bots do not need."""
