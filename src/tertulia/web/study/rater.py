"""Who takes part: a participant at their place in a study, and somebody who comes by a link."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from tertulia.core.dialogue import Json
from tertulia.store.study_records import ParticipantRecord, ParticipantWork, StudyRecord, Visit
from tertulia.study.config import StudyConfig


@dataclass(frozen=True, slots=True)
class Rater:
    """A participant at their place in a study, at one moment.

    It is read once per request, and whoever changes something that matters afterwards reads it again.
    """

    study: StudyRecord
    config: StudyConfig
    visit: Visit

    @property
    def participant(self) -> ParticipantRecord:
        """The participant."""
        return self.visit.participant

    @property
    def work(self) -> ParticipantWork:
        """What they have done and are doing."""
        return self.visit.work

    def changed(self, participant: ParticipantRecord) -> "Rater":
        """With the participant as they are now."""
        return replace(self, visit=replace(self.visit, participant=participant))

    @property
    def id(self) -> str:
        """The participant's pseudonym."""
        return self.participant.id

    @property
    def language(self) -> str:
        """The language they chose, else the study's first one."""
        chosen = self.participant.data.get("language") or self.participant.language
        return chosen if chosen in self.config.languages else self.config.languages[0]

    @property
    def lease_seconds(self) -> float:
        """How long a task is kept for them."""
        return self.config.lease_minutes * 60


class Entry(NamedTuple):
    """Who comes, according to the link they opened."""

    source: str
    external_id: str
    meta: dict[str, Json]
