"""What participants do in a study: the study's logic (`tertulia.study`) joined with the stores.

Every method blocks, so handlers call them on threads. A method gets the participant whose token came with the request,
checks that what they want fits the step they are at, and returns what the page shows next. Actions of one participant
run one after the other within a server; across servers the stores decide.
"""

import hashlib
import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from tertulia.core.config import validate
from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.core.text import clean
from tertulia.store import NotFound, StudyStore
from tertulia.store.study_records import (
    WITHDRAWN,
    AssignmentRecord,
    ParticipantWithdrawn,
    ParticipantWork,
    StudyNotOpen,
    StudyRecord,
    StudyUnitRecord,
    UnitCandidate,
    utc_now,
)
from tertulia.study.assignment import choose_unit, side_order
from tertulia.study.config import HUMAN, StudyConfig
from tertulia.study.flow import (
    ParticipantState,
    attention_due,
    check_attention,
    completion_code,
    grade_training,
    is_right,
    next_step,
)
from tertulia.study.questions import AnswerError, fits
from tertulia.study.texts import text as interface_text
from tertulia.web.study import encode
from tertulia.web.study.bots import StudyBots
from tertulia.web.study.chats import Chats, has_people, is_pair
from tertulia.web.study.errors import NotEnrolled, WrongStep
from tertulia.web.study.rater import Entry, Rater
from tertulia.web.study.tasks import Task, TaskLabel

LOCKS = 256
"""Participants share so many locks."""
MAX_UNITS = 1000
"""Units that are kept in memory."""


class Lease(NamedTuple):
    """What `next` gave: a task, a partner to wait for, bots to wait for, or nothing."""

    assignment: AssignmentRecord | None = None
    pair_unit: str | None = None
    preparing: bool = False


class StudyService:
    """The actions of participants."""

    def __init__(
        self,
        store: StudyStore,
        chats: Chats,
        bots: StudyBots,
        *,
        now: Callable[[], datetime] = utc_now,
        rng: random.Random | None = None,
    ) -> None:
        self.store = store
        self.chats = chats
        self.bots = bots
        self.now = now
        self.rng = rng or random.Random()
        self._studies: dict[str, tuple[StudyRecord, StudyConfig]] = {}  # nothing but a study's state ever changes
        self._units: dict[tuple[str, str], StudyUnitRecord] = {}
        self._locks = [threading.RLock() for _ in range(LOCKS)]

    # Who is there.

    def study(self, study: str) -> tuple[StudyRecord, StudyConfig]:
        """A study that is or was open."""
        if (cached := self._studies.get(study)) is not None:
            record, config = cached
            record = replace(record, state=self.store.state(study))
        else:
            record = self.store.get(study)
            config = validate(StudyConfig, dict(record.config), where=f"the study {record.name}")
            self._studies[study] = record, config
        if record.state == "draft":
            raise NotFound("study")
        if record.state == "open" and config.is_over(self.now()):
            record = self.store.set_state(record.id, "closed", "end of the study")
        return record, config

    def enroll(self, study: str, entry: Entry) -> str:
        """Take part; returns the token for the participant's cookie."""
        record, config = self.study(study)
        self.load_bots(config)  # while they read the consent text
        limit = config.max_participants
        _, token = self.store.enroll(record.id, entry.source, entry.external_id, entry.meta, limit=limit)
        return token

    def load_bots(self, config: StudyConfig) -> None:
        """Start to load the bots that participants talk with, unless they are there."""
        if config.protocol == "chat":
            self.bots.load(bot.spec for bot in config.bots if bot.spec != HUMAN)

    def rater(self, study: str, token: str | None) -> Rater:
        """The participant of this study who has the token."""
        record, config = self.study(study)
        try:
            participant = self.store.participant(token or "")
        except NotFound:
            raise NotEnrolled from None
        if participant.study != record.id:
            raise NotEnrolled
        return Rater(record, config, participant)

    @contextmanager
    def acting(self, study: str, token: str | None) -> Iterator[Rater]:
        """The participant, whose other actions wait until this one is done."""
        with self.locked(self.rater(study, token)) as rater:
            yield rater

    @contextmanager
    def locked(self, rater: Rater) -> Iterator[Rater]:
        """The participant as they are now, whose other actions wait."""
        with self._locks[int(rater.id[:8], 16) % LOCKS]:
            yield self.again(rater)

    def again(self, rater: Rater) -> Rater:
        """The participant as they are now."""
        return Rater(rater.study, rater.config, self.store.participant_by_id(rater.id))

    # Where they are.

    def is_open(self, rater: Rater) -> bool:
        """Whether the study takes answers."""
        return rater.study.state == "open"

    def step(self, rater: Rater, work: ParticipantWork) -> str:
        """The step a participant is at; how it ended, if it has."""
        participant, data = rater.participant, rater.participant.data
        if participant.step == WITHDRAWN:
            return WITHDRAWN
        if participant.code is not None:
            return str(data.get("reason") or participant.step)
        if not self.is_open(rater):
            return "closed"
        state = ParticipantState(
            consent_version=participant.consent_version,
            tutorial_done=bool(data.get("tutorial_done")),
            training_passed=bool(data.get("training_passed")),
            training_failures=int(data.get("training_failures", 0)),
            units_done=work.submitted,
            nothing_left=bool(data.get("nothing_left")),
            waiting=bool(data.get("waiting")) and work.live is None,
        )
        return next_step(rater.config, state)

    def require(self, rater: Rater, *steps: str) -> ParticipantWork:
        """Refuse what does not fit the participant's step."""
        work = self.store.work_of(rater.id)
        step = self.step(rater, work)
        if step == WITHDRAWN:
            raise ParticipantWithdrawn
        if step == "closed":
            raise StudyNotOpen("closed")
        if step not in steps:
            raise WrongStep(f"This is not possible at the step {step!r}.")
        return work

    def state(self, rater: Rater) -> dict[str, Json]:
        """What the page shows; what has come to its end gets its code."""
        rater = self.settle_pair(rater)
        work = self.store.work_of(rater.id)
        step = self.step(rater, work)
        if step in ("done", "screened_out") and rater.participant.code is None:
            rater = self.end(rater, step)
        elif step == "closed" and work.submitted and rater.participant.code is None:
            rater = self.end(rater, "done")
            step = "done"
        elif step not in (rater.participant.step, WITHDRAWN, "closed") and rater.participant.code is None:
            self.store.set_step(rater.id, step)
        return encode.head_out(rater.config, step, rater.language, work.submitted) | self._step_out(rater, step, work)

    def _step_out(self, rater: Rater, step: str, work: ParticipantWork) -> dict[str, Json]:
        config, lang, data = rater.config, rater.language, rater.participant.data
        match step:
            case "consent":
                return encode.consent_out(config, lang)
            case "tutorial":
                return encode.tutorial_out(config, lang)
            case "training":
                answers, failures = data.get("training_answers", ()), data.get("training_failures", 0)
                return encode.training_out(config, lang, len(answers), failures)
            case "waiting":
                return encode.waiting_out(config, self._waited(rater))
            case "work":
                return self._work_out(rater, work)
        ending = "nothing_left" if step == "done" and data.get("nothing_left") else step
        return encode.end_out(ending, lang, rater.participant.code)

    def _work_out(self, rater: Rater, work: ParticipantWork) -> dict[str, Json]:
        if work.live is not None:
            return self.task(rater, work.live).out(rater.language)
        due = self._attention(rater, work)
        if due is not None:
            return encode.attention_out(rater.config, rater.language, due)
        return {"task": None, "preparing": False}

    def _waited(self, rater: Rater) -> float:
        since = rater.participant.data.get("waiting_since")
        return max(0.0, self.now().timestamp() - since) if since is not None else 0.0

    def task(self, rater: Rater, assignment: AssignmentRecord) -> Task:
        """An assignment with all that belongs to it."""
        unit = self._unit(rater.study.id, assignment.unit)
        chat = None
        if rater.config.protocol == "chat":
            self.load_bots(rater.config)  # in case that the server was restarted
            assignment = self.chats.open(rater.config, assignment, unit, rater.language)
            finished = rater.participant.data.get("finished") == assignment.id
            chat = self.chats.read(rater.config, assignment, unit, self.now(), finished=finished)
        return Task(rater.config, assignment, unit, self.store.labels_of(assignment.id), chat, self.now())

    def _unit(self, study: str, unit: str) -> StudyUnitRecord:
        """A unit; those that participants are at stay in memory, because they never change."""
        record = self._units.get((study, unit))
        if record is None:
            if len(self._units) >= MAX_UNITS:
                self._units.clear()
            record = self._units[study, unit] = self.store.unit(study, unit)
        return record

    def live_task(self, rater: Rater, assignment: str) -> Task:
        """The participant's own assignment, which must be live."""
        live = self.require(rater, "work").live
        enough = self.now() + timedelta(seconds=rater.lease_seconds / 2)
        if live is None or live.id != assignment or live.expires < enough:
            live = self.store.renew_own(assignment, rater.id, rater.lease_seconds)
        return self.task(rater, live)

    def settle_pair(self, rater: Rater) -> Rater:
        """Release a participant whose partner has left before the conversation was long enough."""
        if not has_people(rater.config) or rater.participant.code is not None or rater.participant.step == WITHDRAWN:
            return rater
        live = self.store.work_of(rater.id).live
        if live is None:
            return rater
        chat = self.task(rater, live).chat
        if chat is None or not chat.partner_left or chat.is_long_enough:
            return rater
        self.store.release(live.id, "partner left")
        return self.end(rater, "partner_left")

    # Before the work.

    def preview(self, study: str) -> dict[str, Json]:
        """The consent text for somebody who only looks, such as a worker who has not accepted yet."""
        _, config = self.study(study)
        lang = config.languages[0]
        head = encode.head_out(config, "consent", lang, 0)
        return head | encode.consent_out(config, lang) | {"preview": True}

    def choose_language(self, rater: Rater, language: str) -> dict[str, Json]:
        """Change the language."""
        _check_language(rater.config, language)
        if rater.participant.step != WITHDRAWN:
            rater = self.remember(rater, language=language)
        return self.state(rater)

    def consent(self, rater: Rater, version: str, language: str) -> dict[str, Json]:
        """Agree to the current version of the consent text."""
        _check_language(rater.config, language)
        if version != rater.config.consent.version:
            raise WrongStep("The consent text has changed since you read it.", hint="Reload the page and read it.")
        if rater.participant.consent_version != version:
            self.require(rater, "consent")
            self.store.consent(rater.id, version, language)
            rater = self.remember(self.again(rater), language=language)
        return self.state(rater)

    def finish_tutorial(self, rater: Rater) -> dict[str, Json]:
        """The tutorial was read."""
        if not rater.participant.data.get("tutorial_done"):
            self.require(rater, "tutorial")
            rater = self.remember(rater, tutorial_done=True)
        return self.state(rater)

    def answer_training(self, rater: Rater, index: int, value: Json) -> dict[str, Json]:
        """Answer one training question; the last one decides about the attempt."""
        self.require(rater, "training")
        config, lang, data = rater.config, rater.language, rater.participant.data
        answers = [*data.get("training_answers", ())]
        if index != len(answers):
            raise WrongStep("This is not the current training question.")
        question = config.question(config.training[index].question)
        if question is None or not fits(question, value):
            raise AnswerError("training", interface_text("training.intro", lang))
        correct = is_right(config, index, value)
        explanation = "" if correct else config.training[index].explanation.get(lang)
        feedback = encode.feedback_out(correct, explanation, lang)
        answers.append(value)
        if len(answers) < len(config.training):
            rater = self.remember(rater, training_answers=answers)
        elif grade_training(config, answers, lang).passed:
            rater = self.remember(rater, training_passed=True, training_answers=[])
        else:
            failures = int(data.get("training_failures", 0)) + 1
            rater = self.remember(rater, training_failures=failures, training_answers=[])
        return self.state(rater) | feedback

    # The work.

    def next(self, rater: Rater) -> dict[str, Json]:
        """Get the next task, unless there is one at hand or something else comes first."""
        work = self.require(rater, "work", "waiting")
        if work.live is not None or rater.participant.data.get("waiting") or self._attention(rater, work) is not None:
            return self.state(rater)
        lease = self._lease(rater, work)
        if lease.assignment is not None:
            return self.state(rater)
        if lease.pair_unit is not None:
            record = self.store.join_waiting(rater.study.id, rater.id, lease.pair_unit)
            return self.state(self.remember(rater, waiting=True, waiting_since=record.since.timestamp()))
        if lease.preparing:
            return self.state(rater) | {"preparing": True}
        return self.state(self.remember(rater, nothing_left=True))

    def _lease(self, rater: Rater, work: ParticipantWork) -> Lease:
        """Lease a unit. A conversation between people is only chosen here, and leased when there are two of them."""
        config = rater.config
        states = self._bot_states(config)
        pair_unit: str | None = None
        preparing = False

        def choose(candidates: list[UnitCandidate]) -> str | None:
            nonlocal pair_unit, preparing
            ready = candidates
            if any(state != "ready" for state in states.values()):
                ready = [unit for unit in candidates if all(states.get(bot, "ready") == "ready" for bot in unit.bots)]
                preparing = any("loading" in [states.get(bot) for bot in unit.bots] for unit in candidates)
            chosen = choose_unit(ready, work.bots, self.rng)
            if chosen is not None and is_pair(config, next(unit.bots for unit in ready if unit.id == chosen)):
                pair_unit, chosen = chosen, None
            return chosen

        def order(unit: UnitCandidate) -> Sequence[int]:
            return side_order(unit.id, rater.id, sides_of(config))

        leased = self.store.lease_unit(rater.study.id, rater.id, choose, rater.lease_seconds, side_order=order)
        return Lease(leased, pair_unit, preparing)

    def _bot_states(self, config: StudyConfig) -> dict[str, str]:
        """Whether the bots of chats can reply; all others have done so before."""
        if config.protocol != "chat":
            return {}
        return {bot.name: self.bots.state(bot.spec) for bot in config.bots if bot.spec != HUMAN}

    def _attention(self, rater: Rater, work: ParticipantWork) -> int | None:
        """The attention check that is due and not answered yet."""
        answered = {entry["units"] for entry in rater.participant.data.get("attention", ())}
        return None if work.submitted in answered else attention_due(rater.config, work.submitted)

    def answer_attention(self, rater: Rater, value: Json) -> dict[str, Json]:
        """Answer the attention check; a wrong answer is a flag for the researcher and no more."""
        work = self.require(rater, "work")
        due = self._attention(rater, work)
        if due is None or work.live is not None:
            raise WrongStep("There is no check of attention to answer.")
        check = rater.config.attention[due]
        if not fits(check.question, value):
            raise AnswerError(check.question.id, interface_text("answer.unknown", rater.language, question="attention"))
        passed = check_attention(check, value)
        entry = {"units": work.submitted, "index": due, "passed": passed}
        attention = [*rater.participant.data.get("attention", ()), entry]
        text = "" if passed else interface_text("error.attention", rater.language)
        rater = self.remember(rater, attention=attention)
        return self.state(rater) | encode.feedback_out(passed, text, rater.language)

    def add_labels(
        self, rater: Rater, assignment: str, key: str, labels: Sequence[TaskLabel], seconds: float | None
    ) -> dict[str, Json]:
        """Save answers: they are on disk when this returns."""
        task = self.live_task(rater, assignment)
        cleaned = [label._replace(value=clean(v) if isinstance(v := label.value, str) else v) for label in labels]
        warnings = task.check(cleaned, rater.language)
        self.store.add_labels(assignment, rater.id, cleaned, key, seconds)
        return encode.saved_out(self.store.labels_of(assignment), warnings)

    def undo_labels(self, rater: Rater, assignment: str, key: str) -> dict[str, Json]:
        """Take back the answers of one request."""
        self.live_task(rater, assignment)
        return encode.saved_out(self.store.undo_labels(assignment, rater.id, key))

    def finish_chat(self, rater: Rater, assignment: str) -> dict[str, Json]:
        """End a chat that is long enough; what is asked at the end comes now."""
        task = self.live_task(rater, assignment)
        task.require_finishable(rater.language)
        return self.state(self.remember(rater, finished=assignment))

    def submit(self, rater: Rater, assignment: str, key: str) -> dict[str, Json]:
        """Hand in a task whose questions are all answered. The same request again changes nothing."""
        record = self.store.assignment(assignment, rater.id)
        summary = {"key": key}
        if record.state == "live":
            task = self.live_task(rater, assignment)
            if implied := task.complete(rater.language):
                digest = hashlib.sha256(json.dumps(implied).encode()).hexdigest()[:16]
                self.store.add_labels(assignment, rater.id, implied, f"implied-{digest}")
            if task.chat is not None and task.chat.is_pair:
                for conversation in record.conversations:
                    self.store.depart(conversation, rater.id)
        self.store.submit(assignment, rater.id, summary)
        return self.state(self.remember(self.again(rater), waiting=False))

    # The end.

    def end(self, rater: Rater, reason: str) -> Rater:
        """Give a participant the code for how it ended."""
        code = completion_code(rater.config, reason)
        self.remember(rater, reason=reason)
        step = "screened_out" if reason == "screened_out" else "done"
        participant = self.store.complete(rater.id, code, step=step)
        return Rater(rater.study, rater.config, participant)

    def withdraw(self, rater: Rater) -> dict[str, Json]:
        """Delete everything."""
        self.store.withdraw(rater.id)
        return self.state(self.again(rater))

    def heartbeat(self, rater: Rater, assignment: str | None) -> dict[str, Json]:
        """Show that the participant is there; keeps their task."""
        self.store.touch(rater.id)
        expires = 0
        if assignment is not None:
            record = self.store.renew_own(assignment, rater.id, rater.lease_seconds)
            expires = encode.seconds_left(record, self.now())
        if has_people(rater.config) and (pair := self.store.pair_of(rater.id)) is not None:
            self.store.mark_present(pair.conversation, rater.id)
        return {"step": self.step(rater, self.store.work_of(rater.id)), "expires_seconds": expires}

    def remember(self, rater: Rater, **changes: Json) -> Rater:
        """Change what the flow remembers of a participant."""
        data = {**rater.participant.data, **changes}
        participant = self.store.set_step(rater.id, rater.participant.step, data)
        return Rater(rater.study, rater.config, participant)


def sides_of(config: StudyConfig) -> int:
    """How many things change places in the units of a study."""
    return 2 if config.sides == 2 or config.asks_persona or config.persona == "participant" else 1


def _check_language(config: StudyConfig, language: str) -> None:
    if language not in config.languages:
        raise UsageError(f"This study is not available in {language!r}.", hint=f"Choose {', '.join(config.languages)}.")
