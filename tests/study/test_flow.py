from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tertulia.study.config import with_codes
from tertulia.study.flow import (
    ParticipantState,
    attention_due,
    check_attention,
    completion_code,
    grade_training,
    next_step,
)
from tertulia.study.presets import PRESETS, load_preset
from tertulia.study.questions import AnswerError

STATIC = load_preset("pairwise-static")
READY = ParticipantState(consent_version="1", tutorial_done=True, training_passed=True)


def test_the_way_through_a_study() -> None:
    state = ParticipantState()
    assert next_step(STATIC, state) == "consent"
    state = replace(state, consent_version="1")
    assert next_step(STATIC, state) == "tutorial"
    state = replace(state, tutorial_done=True)
    assert next_step(STATIC, state) == "training"
    assert next_step(STATIC, replace(state, training_failures=1)) == "training"
    assert next_step(STATIC, replace(state, training_failures=2)) == "screened_out"
    state = replace(state, training_passed=True, training_failures=1)
    assert next_step(STATIC, state) == "work"
    assert next_step(STATIC, replace(state, units_done=49)) == "work"
    assert next_step(STATIC, replace(state, units_done=50)) == "done"
    assert next_step(STATIC, replace(state, nothing_left=True)) == "done"


def test_a_new_version_of_the_consent_text_is_shown_again() -> None:
    assert next_step(STATIC, replace(READY, consent_version="0")) == "consent"


@pytest.mark.parametrize("ended", ["done", "screened_out", "withdrawn"])
def test_what_has_ended_stays_ended(ended: str) -> None:
    assert next_step(STATIC, replace(READY, ended=ended)) == ended  # type: ignore[arg-type]


def test_studies_without_training_go_on_to_work_and_pairs_wait() -> None:
    collect = load_preset("collect-dialogues")
    state = ParticipantState(consent_version="1", tutorial_done=True)
    assert next_step(collect, state) == "work"
    assert next_step(collect, replace(state, waiting=True)) == "waiting"


@pytest.mark.parametrize("name", [name for name in PRESETS if load_preset(name).training])
def test_the_right_answers_pass_and_each_wrong_one_is_explained(name: str) -> None:
    config = load_preset(name)
    right = [training.answer for training in config.training]
    assert grade_training(config, right, "en").passed
    for i in range(len(right)):
        for wrong in (None, "nonsense", [1]):
            grade = grade_training(config, [*right[:i], wrong, *right[i + 1 :]], "de")
            assert (grade.passed, grade.correct.index(False), sum(grade.correct)) == (False, i, len(right) - 1)
            assert grade.explanations[i] == config.training[i].explanation.get("de")
    with pytest.raises(AnswerError):
        grade_training(config, right[:-1], "en")


def test_pairwise_studies_train_on_three_questions() -> None:
    assert len(STATIC.training) == 3
    assert not grade_training(STATIC, ["B", "A", "tie"], "en").passed


def test_on_a_scale_the_neighbour_of_the_right_number_is_correct() -> None:
    begin = load_preset("begin")
    assert grade_training(begin, [4, 5, 4], "en").passed
    assert grade_training(begin, [3, 5, 5], "en").correct == (False, True, True)
    assert not grade_training(begin, [True, 5, 5], "en").passed


def test_attention_checks_come_every_n_units_and_have_one_right_answer() -> None:
    assert [attention_due(STATIC, n) for n in (0, 9, 10, 11, 20)] == [None, None, 0, None, 0]
    assert attention_due(load_preset("arena"), 10) is None
    check = STATIC.attention[0]
    assert [check_attention(check, answer) for answer in ("blue", "red", None, 3, ["blue"])] == [True, *[False] * 4]


def test_every_way_to_leave_has_its_code() -> None:
    config = with_codes(STATIC)
    codes = {completion_code(config, reason) for reason in ("done", "screened_out", "partner_left", "timed_out")}
    assert len(codes) == 4


def test_a_study_is_over_when_its_time_has_come() -> None:
    end = datetime(2030, 1, 1, tzinfo=UTC)
    timed = STATIC.model_copy(update={"ends": end})
    assert [timed.is_over(end + timedelta(seconds=s)) for s in (-1, 0, 1)] == [False, True, True]
    assert not STATIC.is_over(end)
