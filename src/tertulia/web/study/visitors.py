"""Who makes a request: the study, the participant whose token came with it, and a lock on what they do.

A participant is read in one transaction, with all that their request needs. What never changes is kept in memory: a
study's config, and whose a token is.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from tertulia.core.config import validate
from tertulia.store import NotFound, StudyStore
from tertulia.store.study_records import StudyRecord, StudyState
from tertulia.study.config import StudyConfig
from tertulia.web.study.chats import has_people
from tertulia.web.study.errors import NotEnrolled
from tertulia.web.study.rater import Rater

LOCKS = 256
"""Participants share so many locks."""
MAX_TOKENS = 20_000
"""Tokens whose participants are kept in memory."""


class Visitors:
    """The studies and their participants."""

    def __init__(self, store: StudyStore, now: Callable[[], datetime]) -> None:
        self.store = store
        self.now = now
        self._studies: dict[str, tuple[StudyRecord, StudyConfig]] = {}  # nothing but a study's state ever changes
        self._participants: dict[str, str] = {}  # by token, which is never given to anybody else
        self._locks = [threading.RLock() for _ in range(LOCKS)]

    def study(self, study: str) -> tuple[StudyRecord, StudyConfig]:
        """A study that is or was open."""
        record, config = self._known_study(study)
        return self._in_state(record, config, self.store.state(study)), config

    def _known_study(self, study: str) -> tuple[StudyRecord, StudyConfig]:
        """A study and its config; its state may have changed since."""
        if study not in self._studies:
            record = self.store.get(study)
            config = validate(StudyConfig, dict(record.config), where=f"the study {record.name}")
            self._studies[study] = record, config
        return self._studies[study]

    def _in_state(self, record: StudyRecord, config: StudyConfig, state: StudyState) -> StudyRecord:
        """A study in its present state, which ends when its time is over."""
        if state == "draft":
            raise NotFound("study")
        if state == "open" and config.is_over(self.now()):
            return self.store.set_state(record.id, "closed", "end of the study")
        return record if record.state == state else replace(record, state=state)

    def rater(self, study: str, token: str | None) -> Rater:
        """The participant of this study who has the token."""
        record, config = self._known_study(study)
        participant = self._participant(token)
        visit = self.store.visit(participant, with_pair=has_people(config))
        if visit.participant.study != record.id:
            raise NotEnrolled
        return Rater(self._in_state(record, config, visit.state), config, visit)

    def _participant(self, token: str | None) -> str:
        """The pseudonym of whoever has a token."""
        if (known := self._participants.get(token or "")) is not None:
            return known
        try:
            participant = self.store.participant(token or "").id
        except NotFound:
            raise NotEnrolled from None
        if len(self._participants) >= MAX_TOKENS:
            self._participants.clear()
        self._participants[token or ""] = participant
        return participant

    @contextmanager
    def acting(self, study: str, token: str | None) -> Iterator[Rater]:
        """The participant, whose other actions wait until this one is done."""
        self._known_study(study)  # one that does not exist is not found, whoever asks
        with self._lock(self._participant(token)):
            yield self.rater(study, token)

    @contextmanager
    def locked(self, rater: Rater) -> Iterator[Rater]:
        """The participant as they are now, whose other actions wait."""
        with self._lock(rater.id):
            yield self.again(rater)

    def _lock(self, participant: str) -> threading.RLock:
        return self._locks[int(participant[:8], 16) % LOCKS]

    def again(self, rater: Rater) -> Rater:
        """The participant as they are now."""
        visit = self.store.visit(rater.id, with_pair=has_people(rater.config))
        return Rater(self._in_state(rater.study, rater.config, visit.state), rater.config, visit)
