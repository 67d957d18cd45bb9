"""What participants do in a study: the study's logic (`tertulia.study`) joined with the stores.

Every method blocks, so handlers call them on threads. A method gets the participant whose token came with the request,
checks that what they want fits the step they are at, and returns what the page shows next. Actions of one participant
run one after the other within a server; across servers the stores decide.
"""

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.core.text import clean
from tertulia.store import StudyStore
from tertulia.store.study_records import (
    WITHDRAWN,
    AssignmentRecord,
    LeaseExpired,
    ParticipantWithdrawn,
    ParticipantWork,
    StudyNotOpen,
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
from tertulia.web.study.chats import chat_of, has_people, is_pair, missing_sides, open_chats
from tertulia.web.study.errors import WrongStep
from tertulia.web.study.rater import Entry, Rater
from tertulia.web.study.tasks import Task, TaskLabel
from tertulia.web.study.visitors import Visitors

MAX_UNITS = 1000
"""Units that are kept in memory."""


class Lease(NamedTuple):
    """What `next` gave: a task, a partner to wait for, bots to wait for, or nothing."""

    assignment: AssignmentRecord | None = None
    pair_unit: str | None = None
    preparing: bool = False


class StudyService(Visitors):
    """The actions of participants."""

    def __init__(
        self,
        store: StudyStore,
        bots: StudyBots,
        *,
        now: Callable[[], datetime] = utc_now,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(store, now)
        self.bots = bots
        self.rng = rng or random.Random()
        self._units: dict[tuple[str, str], StudyUnitRecord] = {}

    # Who is there.

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

    # Where they are.

    def is_open(self, rater: Rater) -> bool:
        """Whether the study takes answers."""
        return rater.study.state == "open"

    def step(self, rater: Rater) -> str:
        """The step a participant is at; how it ended, if it has."""
        participant, data, work = rater.participant, rater.participant.data, rater.work
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
        step = self.step(rater)
        if step == WITHDRAWN:
            raise ParticipantWithdrawn
        if step == "closed":
            raise StudyNotOpen("closed")
        if step not in steps:
            raise WrongStep(f"This is not possible at the step {step!r}.")
        return rater.work

    def state(self, rater: Rater) -> dict[str, Json]:
        """What the page shows; what has come to its end gets its code."""
        rater = self.settle_pair(rater)
        work, step = rater.work, self.step(rater)
        if step in ("done", "screened_out") and rater.participant.code is None:
            rater = self.end(rater, step)
        elif step == "closed" and work.submitted and rater.participant.code is None:
            rater = self.end(rater, "done")
            step = "done"
        elif step not in (rater.participant.step, WITHDRAWN, "closed") and rater.participant.code is None:
            self.store.set_step(rater.id, step)
        return encode.head_out(rater.config, step, rater.language, work.submitted) | self._step_out(rater, step)

    def _step_out(self, rater: Rater, step: str) -> dict[str, Json]:
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
                return self._work_out(rater)
        ending = "nothing_left" if step == "done" and data.get("nothing_left") else step
        return encode.end_out(ending, lang, rater.participant.code)

    def _work_out(self, rater: Rater) -> dict[str, Json]:
        if rater.work.live is not None:
            return self.task(rater).out(rater.language)
        due = self._attention(rater)
        if due is not None:
            return encode.attention_out(rater.config, rater.language, due)
        return {"task": None, "preparing": False}

    def _waited(self, rater: Rater) -> float:
        since = rater.participant.data.get("waiting_since")
        return max(0.0, self.now().timestamp() - since) if since is not None else 0.0

    def task(self, rater: Rater) -> Task:
        """The assignment at hand with all that belongs to it."""
        assignment = rater.work.live
        assert assignment is not None
        config, now = rater.config, self.now()
        unit = self.unit(rater.study.id, assignment.unit)
        if config.protocol != "chat":
            return Task(config, assignment, unit, rater.visit.live.labels, None, now)
        self.load_bots(config)  # in case that the server was restarted
        if missing_sides(config, assignment, unit):
            open_chats(self.store, config, assignment, unit, rater.language)
            rater = self.again(rater)
            if rater.work.live is None:  # it has just ended
                raise LeaseExpired
        chat = chat_of(config, rater.visit, unit, now)
        return Task(config, rater.work.live or assignment, unit, rater.visit.live.labels, chat, now)

    def unit(self, study: str, unit: str) -> StudyUnitRecord:
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
            self.store.renew_own(assignment, rater.id, rater.lease_seconds)  # refuses one that is not theirs, or ended
            rater = self.again(rater)
            if rater.work.live is None or rater.work.live.id != assignment:
                raise LeaseExpired
        return self.task(rater)

    def settle_pair(self, rater: Rater) -> Rater:
        """Release a participant whose partner has left before the conversation was long enough."""
        if not has_people(rater.config) or rater.participant.code is not None or rater.participant.step == WITHDRAWN:
            return rater
        live = rater.work.live
        if live is None:
            return rater
        chat = self.task(rater).chat
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
            rater = rater.changed(self.store.consent(rater.id, version, language))
            rater = self.remember(rater, language=language)
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
        if work.live is not None or rater.participant.data.get("waiting") or self._attention(rater) is not None:
            return self.state(rater)
        lease = self._lease(rater)
        if lease.assignment is not None:
            unit = self.unit(rater.study.id, lease.assignment.unit)
            if rater.config.protocol == "chat":
                open_chats(self.store, rater.config, lease.assignment, unit, rater.language)
            return self.state(self.again(rater))
        if lease.pair_unit is not None:
            record = self.store.join_waiting(rater.study.id, rater.id, lease.pair_unit)
            return self.state(self.remember(rater, waiting=True, waiting_since=record.since.timestamp()))
        if lease.preparing:
            return self.state(rater) | {"preparing": True}
        return self.state(self.remember(rater, nothing_left=True))

    def _lease(self, rater: Rater) -> Lease:
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
            chosen = choose_unit(ready, rater.work.bots, self.rng)
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

    def _attention(self, rater: Rater) -> int | None:
        """The attention check that is due and not answered yet."""
        work = rater.work
        answered = {entry["units"] for entry in rater.participant.data.get("attention", ())}
        return None if work.submitted in answered else attention_due(rater.config, work.submitted)

    def answer_attention(self, rater: Rater, value: Json) -> dict[str, Json]:
        """Answer the attention check; a wrong answer is a flag for the researcher and no more."""
        work = self.require(rater, "work")
        due = self._attention(rater)
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
        return encode.saved_out(self.store.save_labels(assignment, rater.id, cleaned, key, seconds), warnings)

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
        live = rater.work.live
        if (live is not None and live.id == assignment) or self._is_live(assignment, rater.id):
            task = self.live_task(rater, assignment)
            if implied := task.complete(rater.language):
                digest = hashlib.sha256(json.dumps(implied).encode()).hexdigest()[:16]
                self.store.add_labels(assignment, rater.id, implied, f"implied-{digest}")
            if task.chat is not None and task.chat.is_pair:
                for conversation in task.assignment.conversations:
                    self.store.depart(conversation, rater.id)
        self.store.submit(assignment, rater.id, {"key": key})
        rater = self.again(rater)
        if rater.participant.data.get("waiting"):
            rater = self.remember(rater, waiting=False)
        return self.state(rater)

    def _is_live(self, assignment: str, participant: str) -> bool:
        return self.store.assignment(assignment, participant).state == "live"

    # The end.

    def end(self, rater: Rater, reason: str) -> Rater:
        """Give a participant the code for how it ended."""
        code = completion_code(rater.config, reason)
        self.remember(rater, reason=reason)
        step = "screened_out" if reason == "screened_out" else "done"
        return rater.changed(self.store.complete(rater.id, code, step=step))

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
        if (pair := rater.visit.live.pair) is not None:
            self.store.mark_present(pair.conversation, rater.id)
        return {"step": self.step(rater), "expires_seconds": expires}

    def remember(self, rater: Rater, **changes: Json) -> Rater:
        """Change what the flow remembers of a participant."""
        data = {**rater.participant.data, **changes}
        return rater.changed(self.store.set_step(rater.id, rater.participant.step, data))


def sides_of(config: StudyConfig) -> int:
    """How many things change places in the units of a study."""
    return 2 if config.sides == 2 or config.asks_persona or config.persona == "participant" else 1


def _check_language(config: StudyConfig, language: str) -> None:
    if language not in config.languages:
        raise UsageError(f"This study is not available in {language!r}.", hint=f"Choose {', '.join(config.languages)}.")
