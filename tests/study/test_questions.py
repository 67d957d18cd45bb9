from typing import Any

import pytest

from tertulia.core.dialogue import Json
from tertulia.study.presets import load_preset
from tertulia.study.questions import MAX_TEXT, AnswerError, Question, allowed_values, check_answers, is_asked

WRONG: dict[str, tuple[Json, ...]] = {
    "yes-no": (1, 0, "yes", "", 0.5, [], {}),
    "scale": (True, "3", 2.0, -1, 10**30, [3], float("nan")),
    "choice": ("nothing", "", True, 1, ["A"], {"value": "A"}),
    "side": ("C", "a", "", False, 0, ["A"]),
    "vote": ("sideways", "", True, 1),
    "text": ("", "  \n", 3, True, ["x"], "x" * (MAX_TEXT + 1)),
}
MESSAGES = {
    "yes-no": ("Please answer yes or no: ", "Bitte antworten Sie mit Ja oder Nein: ", "Responda sí o no: "),
    "scale": ("Please choose a number from ", "Bitte wählen Sie eine Zahl von ", "Elija un número del "),
    "choice": ("Please choose one of the answers ", "Bitte wählen Sie eine der ", "Elija una de las respuestas "),
    "side": ("Please choose one of the answers ", "Bitte wählen Sie eine der ", "Elija una de las respuestas "),
    "vote": ("Please choose one of the answers ", "Bitte wählen Sie eine der ", "Elija una de las respuestas "),
    "text": ("Please write something: ", "Bitte schreiben Sie etwas: ", "Escriba algo, por favor: "),
}


def right_answer(question: Question) -> Json:
    if question.kind == "yes-no":
        return True
    if question.kind == "scale":
        return question.high
    return "Some words." if question.kind == "text" else allowed_values(question)[0]


def test_every_question_of_a_preset_can_be_answered_right_and_wrongly(preset: str) -> None:
    for question in load_preset(preset).questions:
        alone = question.model_copy(update={"when": None, "otherwise": None})
        answer = right_answer(alone)
        assert check_answers([alone], {alone.id: answer}, "en") == {alone.id: answer}
        for wrong in WRONG[question.kind]:
            for lang, message in zip(("en", "de", "es"), MESSAGES[question.kind], strict=True):
                with pytest.raises(AnswerError) as caught:
                    check_answers([alone], {alone.id: wrong}, lang)
                assert caught.value.question == question.id
                assert caught.value.message.startswith(message) or (
                    question.kind == "text" and isinstance(wrong, str) and str(MAX_TEXT) in caught.value.message
                )


def test_only_optional_questions_may_be_left_open(preset: str) -> None:
    for question in load_preset(preset).questions:
        alone = question.model_copy(update={"when": None, "otherwise": None})
        for answers in ({}, {alone.id: None}):
            if question.optional:
                assert check_answers([alone], answers, "en") == {}
            else:
                with pytest.raises(AnswerError, match="Please answer: "):
                    check_answers([alone], answers, "en")


def test_all_questions_of_a_preset_can_be_answered_together(preset: str) -> None:
    config = load_preset(preset)
    for scope in ("turn", "unit", "side", "sentence"):
        questions = config.questions_of(scope)  # type: ignore[arg-type]
        answers: dict[str, Any] = {}
        for question in questions:
            if is_asked(question, answers):
                answers[question.id] = right_answer(question)
        assert check_answers(questions, answers, "en") == answers


@pytest.mark.parametrize("preset", ["ssa-static", "ssa-interactive"])
@pytest.mark.parametrize("claimed", [True, None])
def test_what_is_not_sensible_is_not_specific(preset: str, claimed: bool | None) -> None:
    questions = load_preset(preset).questions
    assert check_answers(questions, {"sensible": False, "specific": claimed}, "en") == {
        "sensible": False,
        "specific": False,
    }
    assert check_answers(questions, {"sensible": True, "specific": True, "human_like": False}, "en") == {
        "sensible": True,
        "specific": True,
        "human_like": False,
    }
    with pytest.raises(AnswerError) as caught:
        check_answers(questions, {"sensible": True}, "de")
    assert (caught.value.question, "Bitte beantworten Sie: Ist" in caught.value.message) == ("specific", True)


def test_answers_to_questions_that_are_not_asked_are_dropped() -> None:
    questions = load_preset("begin").questions
    assert check_answers(questions, {"on_topic": 1, "why_not": "generic", "supported": 5}, "en") == {
        "on_topic": 1,
        "why_not": "generic",
    }
    # Personal sentences do not claim to inform, so neither support nor contradiction is asked.
    personal = {"on_topic": 4, "cooperative": 4, "personal": 5}
    assert check_answers(questions, personal, "en") == personal


def test_unknown_questions_are_refused() -> None:
    with pytest.raises(AnswerError, match="no question called cute") as caught:
        check_answers(load_preset("ssa-static").questions, {"sensible": True, "cute": 1}, "en")
    assert caught.value.question == "cute"


def test_a_yes_does_not_count_as_the_number_one() -> None:
    number = Question.model_validate({"id": "n", "kind": "scale", "text": "?"})
    then = Question.model_validate(
        {"id": "t", "kind": "yes-no", "text": "?", "when": {"n": [True]}, "otherwise": False}
    )
    assert check_answers([number, then], {"n": 1, "t": True}, "en") == {"n": 1, "t": False}
