"""Questions of a study, and the check of what a participant answers.

A question may depend on earlier ones: `when = {sensible = [true]}` asks it only after these answers, and `otherwise`
is the answer it has if it is not asked. Meena's rule that a reply that makes no sense is not specific either is
such an implied answer.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from tertulia.core.config import Config, InvalidKey
from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.study.localised import Localised
from tertulia.study.texts import text as interface_text

Answer = bool | int | str
Scope = Literal["turn", "unit", "side", "sentence"]
Kind = Literal["yes-no", "scale", "choice", "vote", "side", "text"]
VOTES = ("up", "down")
SIDES = ("A", "B")
TIE = "tie"
MAX_TEXT = 5000
"""Characters of a text answer."""


class AnswerError(UsageError):
    """An answer that does not fit its question; the message is written for the participant."""

    def __init__(self, question: str, message: str) -> None:
        super().__init__(message)
        self.question = question


class AnswerChoice(Config):
    """One of the answers to choose from."""

    value: str = Field(min_length=1, max_length=100)
    """What is stored."""
    text: Localised
    """What participants read."""


class Question(Config):
    """One question about a target."""

    id: str = Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")
    """Name of the question in the results."""
    scope: Scope = "unit"
    """What it is asked about: each turn of the bot, the unit, each side, or each sentence of a response."""
    kind: Kind
    """What an answer is: yes or no, a number on a scale, one of several choices, an up or down vote, a side, a text."""
    text: Localised
    """The question."""
    help: Localised | None = None
    """An explanation for people who want to be sure."""
    low: int = 1
    """Lowest number of the scale."""
    high: int = 5
    """Highest number of the scale."""
    low_label: Localised | None = None
    """What the lowest number means."""
    high_label: Localised | None = None
    """What the highest number means."""
    choices: tuple[AnswerChoice, ...] = ()
    """The answers to choose from; for sides: A, B and a tie unless given."""
    optional: bool = False
    """Whether it may be left open."""
    when: dict[str, tuple[Answer, ...]] | None = None
    """Ask it only if earlier questions have one of these answers."""
    otherwise: Answer | None = None
    """The answer it has if it is not asked."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "scale" and self.low >= self.high:
            raise InvalidKey("the lowest number of a scale must be below the highest", ("low",), ("high",))
        if self.kind == "scale" and self.high - self.low > 100:
            raise InvalidKey("a scale has at most 101 numbers", ("high",), ("low",))
        if self.kind == "choice" and len(self.choices) < 2:
            raise InvalidKey("needs at least two choices", ("choices",))
        if self.choices and self.kind not in ("choice", "side"):
            raise InvalidKey(f"a question of the kind {self.kind!r} has no choices", ("choices",))
        values = [choice.value for choice in self.choices]
        if len({*values}) < len(values):
            raise InvalidKey("two choices have the same value", ("choices",))
        if self.kind == "side" and values and not {*SIDES} <= {*values}:
            raise InvalidKey("the choices of a question about sides need the values 'A' and 'B'", ("choices",))
        if self.otherwise is not None and self.when is None:
            raise InvalidKey("is of no use without 'when'", ("otherwise",))
        if self.otherwise is not None and not fits(self, self.otherwise):
            raise InvalidKey(f"{self.otherwise!r} is no answer to this question", ("otherwise",))
        return self

    def languages_missing(self, language: str) -> list[tuple[str | int, ...]]:
        """Keys of the texts that lack a language."""
        texts: list[tuple[tuple[str | int, ...], Localised | None]] = [
            (("text",), self.text),
            (("help",), self.help),
            (("low_label",), self.low_label),
            (("high_label",), self.high_label),
            *((("choices", i, "text"), choice.text) for i, choice in enumerate(self.choices)),
        ]
        return [key for key, text in texts if text and not text.has(language)]


def allowed_values(question: Question) -> tuple[str, ...]:
    """The words that answer a question of choices, votes or sides; empty for other kinds."""
    if question.kind == "vote":
        return VOTES
    if question.kind == "side" and not question.choices:
        return (*SIDES, TIE)
    return tuple(choice.value for choice in question.choices)


def fits(question: Question, value: Json) -> bool:
    """Whether a value is an answer to the question."""
    match question.kind:
        case "yes-no":
            return isinstance(value, bool)
        case "scale":
            return isinstance(value, int) and not isinstance(value, bool) and question.low <= value <= question.high
        case "text":
            return isinstance(value, str) and bool(value.strip()) and len(value) <= MAX_TEXT
        case _:
            return isinstance(value, str) and value in allowed_values(question)


def check_answers(questions: Sequence[Question], answers: Mapping[str, Any], lang: str) -> dict[str, Answer]:
    """The answers about one target, checked, with implied ones filled in.

    None counts as not answered. An answer to a question that is not asked is replaced by the implied answer, or
    dropped: a page may still hold it from before the participant changed an earlier answer.
    """
    for name in answers:
        if not any(question.id == name for question in questions):
            raise AnswerError(name, interface_text("answer.unknown", lang, question=name))
    checked: dict[str, Answer] = {}
    for question in questions:
        value = answers.get(question.id)
        if not is_asked(question, checked):
            if question.otherwise is not None:
                checked[question.id] = question.otherwise
        elif value is not None:
            if not fits(question, value):
                raise AnswerError(question.id, _complaint(question, value, lang))
            checked[question.id] = value.strip() if isinstance(value, str) else value
        elif not question.optional:
            raise AnswerError(question.id, interface_text("answer.missing", lang, question=question.text.get(lang)))
    return checked


def is_asked(question: Question, answers: Mapping[str, Answer]) -> bool:
    """Whether the answers to earlier questions lead to this one."""
    return all(_among(answers.get(name), values) for name, values in (question.when or {}).items())


def _among(value: Answer | None, values: Sequence[Answer]) -> bool:
    """Membership by type and value, because True == 1 in Python."""
    return any(value == wanted and type(value) is type(wanted) for wanted in values)


def _complaint(question: Question, value: Json, lang: str) -> str:
    if question.kind == "yes-no":
        return interface_text("answer.yes_no", lang, question=question.text.get(lang))
    if question.kind == "scale":
        return interface_text(
            "answer.scale", lang, question=question.text.get(lang), low=question.low, high=question.high
        )
    if question.kind == "text":
        if isinstance(value, str) and len(value) > MAX_TEXT:
            return interface_text("answer.too_long", lang, limit=MAX_TEXT)
        return interface_text("answer.text", lang, question=question.text.get(lang))
    values = ", ".join(allowed_values(question))
    return interface_text("answer.choice", lang, question=question.text.get(lang), values=values)
