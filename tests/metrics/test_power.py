import math

import numpy as np
import pytest

from tertulia.core.errors import UsageError
from tertulia.metrics.power import (
    StudyDesign,
    VarianceComponents,
    components_from_pilot,
    plan_study,
    planned_half_width,
    planned_power,
    study_cost,
)
from tertulia.metrics.ratings import SubjectRating, compare_subjects, mean_ratings

COMPONENTS = VarianceComponents(conversation=0.6, rater=0.4, residual=1.0)


def simulate(
    rng: np.random.Generator, design: StudyDesign, means: dict[str, float], turns: int = 1
) -> list[SubjectRating]:
    """A study of this design with these means and COMPONENTS."""
    bias, rows = rng.normal(scale=math.sqrt(COMPONENTS.rater), size=design.raters), []
    for subject, mean in means.items():
        talks = rng.normal(scale=math.sqrt(COMPONENTS.conversation), size=design.conversations)
        for c, talk in enumerate(talks):
            for r in rng.choice(design.raters, design.ratings_per_conversation, replace=False):
                value = mean + talk + bias[r] + rng.normal(scale=math.sqrt(COMPONENTS.residual))
                rows += [SubjectRating(subject, f"{subject}{c}", f"r{r}", value)] * turns
    return rows


@pytest.mark.parametrize("turns", [1, 3])
def test_components_are_recovered_from_a_pilot(turns: int) -> None:
    design = StudyDesign(conversations=60, raters=40, ratings_per_conversation=4)
    pilots = [
        components_from_pilot(simulate(np.random.default_rng(i), design, {"a": 2.0, "b": 4.0}, turns))
        for i in range(30)
    ]
    for name in ("conversation", "rater", "residual"):
        assert np.mean([getattr(pilot, name) for pilot in pilots]) == pytest.approx(getattr(COMPONENTS, name), rel=0.1)


def test_one_rating_per_conversation_leaves_its_variance_in_the_residual() -> None:
    design = StudyDesign(conversations=200, raters=20)
    pilots = [components_from_pilot(simulate(np.random.default_rng(i), design, {"a": 2.0})) for i in range(30)]
    assert {pilot.conversation for pilot in pilots} == {0.0}
    assert np.mean([pilot.residual for pilot in pilots]) == pytest.approx(1.6, rel=0.05)
    assert np.mean([pilot.rater for pilot in pilots]) == pytest.approx(0.4, rel=0.2)


@pytest.mark.parametrize("rows", [[], [SubjectRating("a", f"c{i}", f"r{i}", float(i)) for i in range(9)]])
def test_a_pilot_that_cannot_tell_raters_from_conversations_is_an_error(rows: list[SubjectRating]) -> None:
    with pytest.raises(UsageError, match="too small"):
        components_from_pilot(rows)


@pytest.mark.parametrize(
    "design",
    [
        StudyDesign(conversations=60, raters=12),
        StudyDesign(conversations=40, raters=30, ratings_per_conversation=5),
        StudyDesign(conversations=150, raters=8, ratings_per_conversation=2),
    ],
)
def test_planned_half_widths_are_those_of_simulated_studies(design: StudyDesign) -> None:
    means, differences = [], []
    for trial in range(60):
        rows = simulate(np.random.default_rng(trial), design, {"a": 0.0, "b": 0.0})
        figure = mean_ratings(rows)["a"]
        means.append((figure.high - figure.low) / 2)
        difference = compare_subjects(rows)[0].difference
        differences.append((difference.high - difference.low) / 2)
    assert planned_half_width(COMPONENTS, design) == pytest.approx(np.mean(means), rel=0.08)
    assert planned_half_width(COMPONENTS, design, compare=True) == pytest.approx(np.mean(differences), rel=0.12)


def test_planned_power_is_that_of_simulated_studies() -> None:
    plan = plan_study(COMPONENTS, raters=20, ratings_per_conversation=2, effect=0.5, power=0.8)
    assert 0.8 <= plan.power < 0.83
    rejected = [
        compare_subjects(simulate(np.random.default_rng(trial), plan.design, {"a": 0.5, "b": 0.0}))[0].p_value < 0.05
        for trial in range(200)
    ]
    assert 0.70 < np.mean(rejected) < 0.88


def test_the_plan_is_the_smallest_that_reaches_the_half_width() -> None:
    plan = plan_study(COMPONENTS, raters=30, half_width=0.35)
    fewer = StudyDesign(conversations=plan.design.conversations - 1, raters=30)
    assert plan.half_width <= 0.35 < planned_half_width(COMPONENTS, fewer)
    assert math.isnan(plan.power)
    assert plan_study(COMPONENTS, raters=60, half_width=0.35).design.conversations < plan.design.conversations


def test_too_few_raters_are_an_error_whatever_the_conversations() -> None:
    with pytest.raises(UsageError, match="No number of conversations"):
        plan_study(COMPONENTS, raters=5, half_width=0.3)
    with pytest.raises(UsageError, match="need as many raters"):
        StudyDesign(conversations=10, raters=2, ratings_per_conversation=3)
    with pytest.raises(UsageError, match="either"):
        plan_study(COMPONENTS, raters=5)
    with pytest.raises(UsageError, match="positive"):
        plan_study(COMPONENTS, raters=5, effect=0.0)


def test_shared_raters_and_contexts_make_differences_more_certain() -> None:
    designs = [
        StudyDesign(conversations=100, raters=10, shared_raters=raters, shared_contexts=contexts)
        for raters, contexts in ((False, False), (True, False), (True, True))
    ]
    widths = [planned_half_width(COMPONENTS, design, compare=True) for design in designs]
    assert widths[0] > 1.3 * widths[1] > 1.3 * widths[2]
    powers = [planned_power(COMPONENTS, design, 0.5) for design in designs]
    assert powers == sorted(powers)
    assert planned_power(COMPONENTS, designs[0], 0.0) == pytest.approx(0.05, abs=1e-6)


def test_the_cost_counts_every_rating_and_conversation() -> None:
    design = StudyDesign(conversations=100, raters=10, ratings_per_conversation=3)
    cost = study_cost(design, minutes_per_rating=2, minutes_per_conversation=5, hourly_wage=12, subjects=4)
    assert cost == (4 * 100 * 11, 880.0)
