import pytest
from tests.study.conftest import MakeStudy

from tertulia.study.config import StudyConfig
from tertulia.study.estimate import what_it_asks
from tertulia.study.presets import load_preset
from tertulia.study.units import Unit

UNITS = [Unit(f"u{i}", ("a",), {}) for i in range(100)]


def changed(config: StudyConfig, **changes: object) -> StudyConfig:
    return StudyConfig.model_validate(config.model_dump(mode="json") | changes)


def test_the_size_of_a_study() -> None:
    # 100 units x 5 ratings, 40 per person, 5 minutes + half a minute each, 12 an hour
    asks = what_it_asks(load_preset("ssa-static"), UNITS)
    assert (asks.units, asks.ratings, asks.participants) == (100, 500, 13)
    assert asks.units_per_participant == pytest.approx(500 / 13)
    assert asks.minutes_per_participant == pytest.approx(5 + 500 / 13 / 2)
    assert asks.hours == pytest.approx((13 * 5 + 250) / 60)
    assert (asks.cost, asks.currency, asks.warnings) == (63.0, "EUR", ())


def test_nobody_rates_a_unit_twice() -> None:
    asks = what_it_asks(load_preset("ssa-static"), UNITS[:2])
    assert (asks.ratings, asks.participants, asks.units_per_participant) == (10, 5, 2)


def test_conversations_between_people_need_two(make_study: MakeStudy) -> None:
    config, units = make_study("collect-dialogues")
    asks = what_it_asks(config, units)
    assert (asks.units, asks.ratings, asks.participants) == (2, 4, 2)


def test_the_unit_with_most_ratings_decides_how_many_people_are_needed() -> None:
    bots = [{"name": "bot", "spec": "generic"}, {"name": "person", "spec": "human"}]
    config = changed(load_preset("ssa-interactive"), bots=bots, ratings_per_unit=5)
    asks = what_it_asks(config, [Unit("u", ("bot",), {}), Unit("v", ("person",), {})])
    assert (asks.ratings, asks.participants) == (15, 10)


def test_every_preset_has_a_size(preset: str, make_study: MakeStudy) -> None:
    asks = what_it_asks(*make_study(preset))
    assert asks.participants > 0
    assert 0 < asks.minutes_per_participant <= 45
    assert asks.cost > 0


def test_what_cannot_work_is_a_warning() -> None:
    config = load_preset("ssa-static")
    assert what_it_asks(config, []).warnings == ("The study has no units.",)
    assert "13 people" in what_it_asks(changed(config, max_participants=12), UNITS).warnings[0]
    assert (
        "lower units_per_participant"
        in what_it_asks(changed(config, units_per_participant=None), UNITS * 2).warnings[0]
    )
    assert "lease_minutes" in what_it_asks(changed(config, lease_minutes=0.1), UNITS).warnings[0]
