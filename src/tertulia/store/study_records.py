"""What the stores of studies and accounts return, and the errors with which they refuse.

Records are plain frozen values, with no tie to the database. Every kind of refusal is a class of its own, so that the
web server can map each to a status code and a text in the participant's language.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from tertulia.core.dialogue import Json
from tertulia.core.errors import TertuliaError, UsageError
from tertulia.store.records import NotFound, StoredTurn

StudyState = Literal["draft", "open", "closed"]
AssignmentState = Literal["live", "submitted", "expired", "released"]
AccountRole = Literal["owner", "researcher", "viewer"]

HUMAN = "human"
"""The bot of a conversation between two people."""
WITHDRAWN = "withdrawn"
"""The step of participants who had their data deleted."""
FINAL_STEPS = ("done", "screened_out", WITHDRAWN)
"""Participants in these steps have left the study; those in any other step may have dropped out."""


def utc_now() -> datetime:
    """The time of day. Every comparison of times in these stores uses this clock, or the one a test injects."""
    return datetime.now(UTC)


class NotYours(NotFound):
    """The id exists, but belongs to somebody else. Same message as for an unknown id, so that nobody can probe."""


class StudyNotOpen(TertuliaError):  # noqa: N818 - reads better without "Error", as do those below
    """The study is a draft or closed: it takes no participants, assignments or labels."""

    def __init__(self, state: str) -> None:
        self.state = state
        super().__init__(f"This study is not open: its state is {state!r}.", hint="Ask the researcher to open it.")


class StudyFull(TertuliaError):  # noqa: N818
    """The study has all the participants it wants."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"This study has all its {limit} participants.", hint="Return the study to its platform.")


class LeaseExpired(TertuliaError):  # noqa: N818
    """The time for the assignment is over, and the unit may have been given to somebody else."""

    def __init__(self) -> None:
        super().__init__("The time for this task is over.", hint="Continue with the next task.")


class AssignmentEnded(TertuliaError):  # noqa: N818
    """The assignment was submitted or released before."""

    def __init__(self, state: str) -> None:
        self.state = state
        super().__init__(f"This task was {state} before.", hint="Continue with the next task.")


class KeyReused(UsageError):  # noqa: N818
    """A request repeats the key of an earlier one, but asks for something else."""

    def __init__(self) -> None:
        super().__init__("This key was used before, with other content.", hint="Use a new key for each request.")


class ParticipantWithdrawn(TertuliaError):  # noqa: N818
    """The participant has withdrawn from the study."""

    def __init__(self) -> None:
        super().__init__("This participant has withdrawn from the study.", hint="Their data was deleted for good.")


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A study. The store does not interpret its config."""

    id: str
    name: str
    config: Mapping[str, Json]
    digest: str
    state: StudyState
    created: datetime


@dataclass(frozen=True, slots=True)
class StudyUnitRecord:
    """A unit as it was added."""

    id: str
    bots: tuple[str, ...]
    payload: Mapping[str, Json]
    wanted: int


class UnitCandidate(NamedTuple):
    """A unit to choose from, or whose progress is reported. A tuple, since every lease makes thousands of them."""

    id: str
    bots: tuple[str, ...]
    wanted: int
    done: int
    """Submitted assignments."""
    live: int
    """Leased assignments that have not expired."""


@dataclass(frozen=True, slots=True)
class ParticipantRecord:
    """A participant under a random pseudonym; who they are is in another table."""

    id: str
    study: str
    source: str
    step: str
    data: Mapping[str, Json]
    consent_version: str | None
    consented: datetime | None
    language: str | None
    code: str | None
    completed: datetime | None
    created: datetime
    seen: datetime


@dataclass(frozen=True, slots=True)
class IdentityRecord:
    """Who a participant is outside the study, such as a Prolific id. Personal data: never part of an export."""

    participant: str
    source: str
    external_id: str
    meta: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class AssignmentRecord:
    """A unit that was given to a participant."""

    id: str
    study: str
    unit: str
    participant: str
    state: AssignmentState
    side_order: tuple[int, ...]
    """The index of the bot (among the unit's) that is shown on each side."""
    created: datetime
    expires: datetime
    ended: datetime | None
    reason: str | None
    """Why it was released."""
    summary: Mapping[str, Json] | None
    """Given when it was submitted."""
    conversations: tuple[str, ...] = ()
    """Those held for it, by side."""


@dataclass(frozen=True, slots=True)
class ParticipantWork:
    """What a participant has done and is doing."""

    submitted: int
    """Assignments that were submitted."""
    bots: tuple[str, ...]
    """The bots of all units they had, each as often as it occurred."""
    live: AssignmentRecord | None
    """The assignment whose lease has not ended."""


class NewLabel(NamedTuple):
    """One answer to one question about one target, to be added."""

    target: str
    question: str
    value: Json


@dataclass(frozen=True, slots=True)
class LabelRecord:
    """A label as it is stored. Only `current` and `undone` ever change."""

    assignment: str
    number: int
    key: str
    target: str
    question: str
    value: Json
    seconds: float | None
    created: datetime
    current: bool
    """Whether it is the latest of its target and question that was not undone."""
    undone: bool


@dataclass(frozen=True, slots=True)
class LiveWork:
    """What was said and answered in an assignment so far."""

    labels: tuple[LabelRecord, ...] = ()
    """Those that count."""
    turns: tuple[tuple[StoredTurn, ...], ...] = ()
    """The current turns of its conversations, without the bots' records of their replies."""
    pair: "PairRecord | None" = None
    """Who talks in it, if these are people, and if that was asked for."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A participant at one moment."""

    state: StudyState
    """Of the study."""
    participant: ParticipantRecord
    work: ParticipantWork
    live: LiveWork


class HeldTurn(NamedTuple):
    """A turn of a chat that was held for a study."""

    id: str
    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class LabelRow:
    """A label with everything it refers to, for exports. Contains pseudonyms, never identities."""

    study: str
    unit: str
    bots: tuple[str, ...]
    side_order: tuple[int, ...]
    participant: str
    assignment: str
    state: AssignmentState
    number: int
    target: str
    question: str
    value: Json
    created: datetime
    seconds: float | None
    current: bool
    conversation: str | None
    """The conversation of the turn, or else the only one that was held for the assignment."""
    conversations: tuple[str, ...]
    turn_text: str | None = None
    turn_bot: str | None = None
    """Public id of the bot that generated the turn."""
    reply: Mapping[str, Json] | None = None
    """The bot's record of the reply: provenance, settings, seconds."""


@dataclass(frozen=True, slots=True)
class StudyEvent:
    """Something that happened in a study: who did what. Written once, never changed."""

    id: str
    created: datetime
    who: str
    what: str
    detail: Json


class Ratings(NamedTuple):
    """How many assignments are wanted, submitted and leased."""

    wanted: int
    done: int
    live: int


@dataclass(frozen=True, slots=True)
class StudyProgress:
    """How far a study is."""

    units: tuple[UnitCandidate, ...]
    by_bot: Mapping[str, Ratings]
    """A unit with two bots counts for both."""
    by_step: Mapping[str, int]
    """Participants by the step they are in."""
    dropped_out: Mapping[str, int]
    """Participants by the step they were in when they were last seen, if that is long ago."""

    @property
    def total(self) -> Ratings:
        """The sums over all units."""
        sums = (sum(getattr(unit, name) for unit in self.units) for name in Ratings._fields)
        return Ratings(*sums)


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A participant in a conversation with another one."""

    participant: str
    role: str
    """The speaker of their turns."""
    unit: str | None
    """The unit they waited with."""
    seen: datetime
    departed: datetime | None


@dataclass(frozen=True, slots=True)
class PairRecord:
    """Two participants and their conversation. In the conversation store, `owner` owns it."""

    conversation: str
    owner: str
    members: tuple[MemberRecord, ...]
    created: datetime

    def member(self, participant: str) -> MemberRecord:
        """The member who is this participant."""
        for member in self.members:
            if member.participant == participant:
                return member
        raise NotYours("conversation")

    def partner(self, participant: str) -> MemberRecord:
        """The other member."""
        own = self.member(participant)
        return next(member for member in self.members if member is not own)


@dataclass(frozen=True, slots=True)
class WaitingRecord:
    """A participant in the waiting room, or already in a pair."""

    participant: str
    unit: str | None
    since: datetime
    pair: PairRecord | None = None


@dataclass(frozen=True, slots=True)
class AccountRecord:
    """A researcher's account, without the password."""

    id: str
    name: str
    role: AccountRole
    created: datetime
