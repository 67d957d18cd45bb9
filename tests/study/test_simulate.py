"""Simulated raters: what they answer follows from quality and bias, and is an answer."""

from statistics import mean

import pytest
from tests.study.conftest import MakeStudy

from tertulia.core.errors import UsageError
from tertulia.study.presets import load_preset
from tertulia.study.questions import Question, check_answers, fits
from tertulia.study.simulate import RaterBias, ShownBots, SimulatedRater, bot_qualities, simulated_raters

FAIR = RaterBias(leniency=0, noise=0)


def question(kind: str, **fields: object) -> Question:
    return Question.model_validate({"id": "q", "kind": kind, "text": "?", **fields})


def one(bias: RaterBias = FAIR, seed: int = 1) -> SimulatedRater:
    return simulated_raters(1, bias, seed=seed)[0]


def test_answers_fit_the_questions_of_every_preset(make_study: MakeStudy, preset: str) -> None:
    config, _ = make_study(preset)
    rater = one(RaterBias())
    for scope in ("turn", "unit", "side", "sentence"):
        asked = config.questions_of(scope)
        shown = ShownBots((0.6,), "B") if config.asks_persona else ShownBots((0.6, 0.4)[: config.sides])
        for _ in range(20):
            answers = rater.answers(asked, shown)
            assert check_answers(asked, answers, "en").items() >= answers.items()


def test_a_rater_without_bias_says_yes_as_often_as_the_bot_is_good() -> None:
    rater, yes_no, scale = one(), question("yes-no"), question("scale", low=1, high=5)
    shares = [mean(bool(rater.answer(yes_no, ShownBots((q,)))) for _ in range(2000)) for q in (0.3, 0.8)]
    assert shares == pytest.approx([0.3, 0.8], abs=0.05)  # 4.5 standard errors
    numbers = [rater.answer(scale, ShownBots((0.75,))) for _ in range(1000)]
    assert mean(int(n) for n in numbers) == pytest.approx(4.0, abs=0.15)
    bad = [rater.answer(question("scale", id="contradicted"), ShownBots((0.75,))) for _ in range(1000)]
    assert mean(int(n) for n in bad) == pytest.approx(2.0, abs=0.15)


def test_the_better_side_wins_wherever_it_stands() -> None:
    rater, side = one(), question("side")
    wins = [rater.answer(side, ShownBots((0.8, 0.3))) for _ in range(300)]
    reversed_ = [rater.answer(side, ShownBots((0.3, 0.8))) for _ in range(300)]
    assert wins.count("A") > 200
    assert reversed_.count("B") > 200
    assert "tie" in wins
    personas = [rater.answer(load_preset("persona-chat").questions[3], ShownBots((0.9,), "B")) for _ in range(200)]
    assert personas.count("B") > 160


def test_lenient_raters_say_yes_more_often_and_lazy_ones_always_the_same() -> None:
    raters = simulated_raters(40, RaterBias(leniency=2.0, noise=0), seed=3)
    shown, yes_no = ShownBots((0.5,)), question("yes-no")
    shares = {r.leniency: mean(bool(r.answer(yes_no, shown)) for _ in range(200)) for r in raters}
    assert shares[max(shares)] > 0.8 > 0.2 > shares[min(shares)]
    lazy = simulated_raters(10, RaterBias(laziness=0.3), seed=3)
    assert sum(r.lazy for r in lazy) == 3
    rater = next(r for r in lazy if r.lazy)
    assert {rater.answer(question("scale", high=7), shown) for _ in range(20)} == {4}


def test_inattentive_raters_fail_checks_with_wrong_answers() -> None:
    rater = one(RaterBias(failed_attention=1.0))
    assert not rater.pays_attention()
    assert one().pays_attention()
    for asked, right in ((question("yes-no"), True), (question("scale"), 1), (question("scale"), 5)):
        wrong = rater.wrong_answer(asked, right)
        assert fits(asked, wrong)
        assert wrong != right
    assert rater.wrong_answer(question("side"), "A") in ("B", "tie")


def test_the_same_seed_gives_the_same_raters() -> None:
    first, second = (simulated_raters(5, RaterBias(), seed=7) for _ in range(2))
    shown, scale = ShownBots((0.6,)), question("scale")
    assert [r.answer(scale, shown) for r in first] == [r.answer(scale, shown) for r in second]
    assert [r.leniency for r in first] != [r.leniency for r in simulated_raters(5, RaterBias(), seed=8)]


def test_qualities_are_checked() -> None:
    assert bot_qualities(["a", "b"], {}) == {"a": 0.8, "b": 0.4}
    with pytest.raises(UsageError, match="no bot called 'c'"):
        bot_qualities(["a"], {"c": 0.5})
    with pytest.raises(UsageError, match="between 0 and 1"):
        bot_qualities(["a"], {"a": 1.0})
