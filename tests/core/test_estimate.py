import json
import math

from tertulia.core.estimate import Estimate


def test_as_text() -> None:
    assert str(Estimate(0.25, 0.2, 0.3, 40)) == "0.250 [0.200, 0.300] (n = 40)"
    assert str(Estimate(0.25, n=4)) == "0.250 (n = 4)"


def test_nothing_measured_is_nan_and_null_in_json() -> None:
    nothing = Estimate(math.nan)
    assert str(nothing) == "n/a (n = 0)"
    assert nothing.as_json() == {"value": None, "low": None, "high": None, "n": 0}
    assert json.loads(json.dumps(Estimate(0.5, 0.4, 0.6, 9).as_json(), allow_nan=False)) == {
        "value": 0.5,
        "low": 0.4,
        "high": 0.6,
        "n": 9,
    }
