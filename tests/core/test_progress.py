"""The remaining time, measured with a clock that the test sets."""

import pytest

from tertulia.core.progress import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_remaining_time_is_unknown_before_any_progress() -> None:
    clock = Clock()
    pace = Pace(10, clock=clock)
    assert pace.left() is None
    pace.advance()
    assert pace.left() is None
    clock.now += 5
    pace.advance()
    assert pace.left() == pytest.approx(8 * 5)
    assert Pace(None, clock=clock).left() is None


def test_the_first_advance_does_not_count_for_the_pace() -> None:
    clock = Clock()
    pace = Pace(1000, clock=clock)
    pace.advance(900)
    for _ in range(10):
        clock.now += 2
        pace.advance()
    assert pace.left() == pytest.approx(90 * 2)


def test_the_pace_is_that_of_the_last_minutes() -> None:
    clock = Clock()
    pace = Pace(10_000, clock=clock)
    for seconds in [10.0] * 100 + [1.0] * 1000:
        clock.now += seconds
        pace.advance()
    assert pace.left() == pytest.approx((10_000 - 1100) * 1.0, rel=0.01)


def test_more_progress_than_expected_leaves_no_time() -> None:
    clock = Clock()
    pace = Pace(2, clock=clock)
    for _ in range(4):
        clock.now += 1
        pace.advance()
    assert pace.left() == 0
