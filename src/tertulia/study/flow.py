"""The way of a participant through a study: consent, tutorial, training, work, and how it ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tertulia.core.dialogue import Json
from tertulia.study.config import AttentionCheck, StudyConfig
from tertulia.study.questions import AnswerError, fits
from tertulia.study.texts import text as interface_text

Step = Literal["consent", "tutorial", "training", "work", "waiting", "done", "screened_out", "withdrawn"]


@dataclass(frozen=True, slots=True)
class ParticipantState:
    """What is on record about a participant."""

    consent_version: str | None = None
    tutorial_done: bool = False
    training_passed: bool = False
    training_failures: int = 0
    units_done: int = 0
    nothing_left: bool = False
    """No unit is left that this participant may rate."""
    waiting: bool = False
    """In the waiting room for a partner."""
    ended: Literal["done", "screened_out", "withdrawn"] | None = None
    """How it ended before all units were done: released with a code, or withdrawn."""


def next_step(config: StudyConfig, state: ParticipantState) -> Step:
    """Where the participant has to go. A new version of the consent text asks for consent again."""
    if state.ended:
        return state.ended
    if state.consent_version != config.consent.version:
        return "consent"
    if config.training and not state.training_passed and state.training_failures >= config.training_attempts:
        return "screened_out"
    if config.tutorial and not state.tutorial_done:
        return "tutorial"
    if config.training and not state.training_passed:
        return "training"
    if state.nothing_left or _has_enough(config, state.units_done):
        return "done"
    return "waiting" if state.waiting else "work"


def _has_enough(config: StudyConfig, units_done: int) -> bool:
    return config.units_per_participant is not None and units_done >= config.units_per_participant


@dataclass(frozen=True, slots=True)
class TrainingGrade:
    """The result of one attempt at the training questions."""

    passed: bool
    correct: tuple[bool, ...]
    explanations: tuple[str, ...]
    """By question; empty where the answer is correct."""


def grade_training(config: StudyConfig, answers: Sequence[Json], lang: str) -> TrainingGrade:
    """Grade the answers, in the order of the training questions; all must be correct.

    On a scale, the neighbour of the right number is correct too.
    """
    if len(answers) != len(config.training):
        raise AnswerError("training", interface_text("training.intro", lang))
    correct = tuple(is_right(config, i, answer) for i, answer in enumerate(answers))
    explanations = tuple(
        "" if right else training.explanation.get(lang)
        for right, training in zip(correct, config.training, strict=True)
    )
    return TrainingGrade(all(correct), correct, explanations)


def is_right(config: StudyConfig, index: int, answer: Json) -> bool:
    """Whether one training question is answered correctly."""
    training = config.training[index]
    question = config.question(training.question)
    if question is None or not fits(question, answer):
        return False
    if question.kind == "scale" and isinstance(training.answer, int):
        return abs(int(answer) - training.answer) <= 1
    return bool(answer == training.answer)


def attention_due(config: StudyConfig, units_done: int) -> int | None:
    """The index of the attention check that follows so many units; None if there is none."""
    due = [i for i, check in enumerate(config.attention) if units_done > 0 and units_done % check.every == 0]
    return due[0] if due else None


def check_attention(check: AttentionCheck, answer: Json) -> bool:
    """Whether the answer is the right one."""
    return fits(check.question, answer) and bool(answer == check.answer)


def completion_code(config: StudyConfig, reason: str) -> str:
    """The code of a participant who leaves for a reason: done, screened_out, partner_left or timed_out."""
    codes: Mapping[str, str] = config.completion.model_dump()
    return codes[reason]
