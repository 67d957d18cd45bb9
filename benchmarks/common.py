"""Shared by the benchmarks: a description of the machine, percentiles, and the JSON object on the last line."""

import json
import os
import platform
from collections.abc import Mapping, Sequence


def machine() -> str:
    """Describe the machine, without identifying it."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of values lies (nearest rank); nan for no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def finish(name: str, figures: Mapping[str, float], settings: Mapping[str, object]) -> None:
    """Print the last line: one JSON object."""
    rounded = {key: round(value, 4) for key, value in figures.items()}
    print(json.dumps({"benchmark": name, "figures": rounded, "settings": {**settings, "machine": machine()}}))
