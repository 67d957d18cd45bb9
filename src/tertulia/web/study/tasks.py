"""One assignment with its unit, labels and chat: what may be answered about it, and whether all of it was."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from tertulia.core.dialogue import Json
from tertulia.core.text import sentences
from tertulia.store.study_records import AssignmentRecord, LabelRecord, StudyUnitRecord
from tertulia.study.blinding import plain
from tertulia.study.config import StudyConfig
from tertulia.study.questions import SIDES, AnswerError, Question, check_answers, fits
from tertulia.study.texts import text as interface_text
from tertulia.study.writing import check_text, copy_warning
from tertulia.web.study import encode
from tertulia.web.study.chats import Chat
from tertulia.web.study.errors import WrongStep


class TaskLabel(NamedTuple):
    """An answer to one question about one target."""

    target: str
    question: str
    value: Json


@dataclass(frozen=True, slots=True)
class Task:
    """An assignment at one moment."""

    config: StudyConfig
    assignment: AssignmentRecord
    unit: StudyUnitRecord
    labels: Sequence[LabelRecord]
    chat: Chat | None
    now: datetime

    def out(self, lang: str) -> dict[str, Json]:
        """What the page shows."""
        can_finish = self.chat is not None and self._problem(lang) is None
        return encode.task_out(
            self.config, self.assignment, self.unit, self.labels, self.chat, lang, self.now, can_finish
        )

    def targets(self, question: Question) -> list[str]:
        """What a question is asked about."""
        match question.scope:
            case "turn":
                return self.chat.targets(question) if self.chat is not None else []
            case "side":
                return [f"side:{side}" for side in SIDES[: self.config.sides]]
            case "sentence":
                return [f"sentence:{i}" for i in range(len(self._sentences))]
        return ["unit"]

    @property
    def _sentences(self) -> list[str]:
        """The sentences that are judged or rewritten."""
        if self.config.protocol == "write":
            return list(self.unit.payload["persona"])
        return sentences(plain(self.unit.payload["responses"][self.assignment.side_order[0]]))

    @property
    def own_persona(self) -> list[str]:
        """The sentences that the participant must not copy into messages."""
        personas = self.unit.payload.get("personas")
        return list(personas[self.assignment.side_order[0]]) if personas else []

    def check(self, labels: Sequence[TaskLabel], lang: str) -> list[dict[str, Json]]:
        """Refuse labels that do not fit; returns warnings about those that are allowed but could be better."""
        warnings: list[dict[str, Json]] = []
        for label in labels:
            question = self.config.question(label.question)
            if question is None or label.target not in self.targets(question):
                raise AnswerError(label.question, interface_text("answer.unknown", lang, question=label.question))
            if self._comes_later(question):
                raise WrongStep("This is asked when the conversation has ended.")
            if not fits(question, label.value):
                check_answers([question.model_copy(update={"when": None})], {question.id: label.value}, lang)
                raise AnswerError(question.id, interface_text("answer.missing", lang, question=question.text.get(lang)))
            if self.config.protocol == "write" and question.kind == "text":
                warnings += self._check_written(label, lang)
        return warnings

    def _comes_later(self, question: Question) -> bool:
        """Whether a question gives away what must stay hidden until the chat has ended: the bot's persona."""
        return self.chat is not None and not self.chat.ended and self.config.asks_persona and question.kind == "side"

    def _check_written(self, label: TaskLabel, lang: str) -> list[dict[str, Json]]:
        if problem := check_text(self.config, label.value, self._sentences, lang):
            raise AnswerError(label.question, problem)
        if not label.target.startswith("sentence:"):
            return []
        original = self._sentences[int(label.target.removeprefix("sentence:"))]
        warning = copy_warning(label.value, original, lang)
        return [{"target": label.target, "text": warning}] if warning else []

    def complete(self, lang: str) -> list[TaskLabel]:
        """Refuse a task that is not finished; returns the labels that follow from the others."""
        if self.chat is not None:
            self.require_finishable(lang)
        return self._implied(self.config.questions, lang)

    def require_finishable(self, lang: str) -> None:
        """Refuse to end a chat that is too short, or whose turns are not labelled."""
        if self.chat is None:
            raise WrongStep("This task has no conversation.")
        if problem := self._problem(lang):
            raise problem

    def _problem(self, lang: str) -> WrongStep | AnswerError | None:
        """Why a chat cannot be ended."""
        assert self.chat is not None
        if not self.chat.is_long_enough:
            left = max(0, self.chat.min_turns - self.chat.count)
            return WrongStep(interface_text("progress.turns_left", lang, count=left), hint="")
        return self.unanswered_turn(lang)

    def unanswered_turn(self, lang: str) -> AnswerError | None:
        """Why nothing can be said before a turn is labelled."""
        try:
            self._implied(self.config.questions_of("turn"), lang)
        except AnswerError as error:
            return error
        return None

    def _implied(self, questions: Sequence[Question], lang: str) -> list[TaskLabel]:
        """Check all answers; returns those that others imply and that are not stored yet."""
        stored = {(label.target, label.question): label.value for label in self.labels if label.current}
        targets = dict.fromkeys(target for question in questions for target in self.targets(question))
        implied: list[TaskLabel] = []
        for target in targets:
            asked = [question for question in questions if target in self.targets(question)]
            answers = {question.id: stored.get((target, question.id)) for question in asked}
            checked = check_answers(asked, answers, lang)
            implied += [TaskLabel(target, name, value) for name, value in checked.items() if answers[name] != value]
        return implied
