"""A figure with its uncertainty: value, interval, number of observations."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured value with its interval. No data gives nan and n = 0, never a made-up zero."""

    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    level: float = 0.95

    def __str__(self) -> str:
        if math.isnan(self.value):
            return f"n/a (n = {self.n})"
        if math.isnan(self.low):
            return f"{self.value:.3f} (n = {self.n})"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}] (n = {self.n})"

    def as_json(self) -> dict[str, float | int | None]:
        """For `--json`: nan becomes null, as JSON has no nan."""
        return {
            name: None if isinstance(x, float) and math.isnan(x) else x
            for name, x in (("value", self.value), ("low", self.low), ("high", self.high), ("n", self.n))
        }
