"""One recipe with several seeds: how much of a figure is the model, and how much is luck."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from tertulia.artefacts.manifest import is_complete, read_about
from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.core.progress import Progress
from tertulia.train.recipe import Recipe, RecipeConfig


class Spread(NamedTuple):
    """One figure over several runs."""

    mean: float
    deviation: float
    """Standard deviation of the sample; nan for one run."""
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SeededRuns:
    """What several runs of one recipe measured."""

    folder: Path
    runs: dict[str, Mapping[str, Json]]
    """The figures of each run, by the name of its folder."""

    @property
    def spreads(self) -> dict[str, Spread]:
        """Figures that all runs have, by name; those that are the same in all runs (sizes of data) are left out."""
        rows = [dict(_numbers(figures)) for figures in self.runs.values()]
        shared = [name for name in rows[0] if all(name in row for row in rows)]
        spreads = {name: spread([row[name] for row in rows]) for name in shared}
        return {name: one for name, one in spreads.items() if len(set(one.values)) > 1 or len(rows) == 1}

    def as_json(self) -> dict[str, Json]:
        """All of it."""
        spreads = {
            name: {"mean": one.mean, "standard_deviation": None if math.isnan(one.deviation) else one.deviation}
            for name, one in self.spreads.items()
        }
        return {
            "out": str(self.folder),
            "spread": spreads,
            "runs": {name: dict(run) for name, run in self.runs.items()},
        }


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard deviation.

    >>> spread([1.0, 2.0, 3.0])
    Spread(mean=2.0, deviation=1.0, values=(1.0, 2.0, 3.0))
    """
    return Spread(fmean(values), stdev(values) if len(values) > 1 else math.nan, tuple(values))


def seeded_configs(config: RecipeConfig, seeds: int) -> dict[str, RecipeConfig]:
    """The config once per seed, each with a folder of its own in the config's folder."""
    first = getattr(config, "seed", None)
    if not isinstance(first, int):
        raise UsageError(f"The recipe {config.recipe!r} has no seed.", hint="Leave out --seeds.")
    changes = {
        f"seed-{seed}": {"seed": seed, "out": config.out / f"seed-{seed}"} for seed in range(first, first + seeds)
    }
    return {name: config.model_copy(update=change) for name, change in changes.items()}


def train_seeds(recipe: Recipe[Any], configs: Mapping[str, RecipeConfig], progress: Progress) -> SeededRuns:
    """Train one after the other; with `resume`, a finished run is taken as it is."""
    runs: dict[str, Mapping[str, Json]] = {}
    for name, config in configs.items():
        if config.resume and is_complete(config.out):
            runs[name] = read_about(config.out).get("training", {})
        else:
            runs[name] = recipe.train(config, _Named(progress, name)).figures()
    return SeededRuns(next(iter(configs.values())).out.parent, runs)


class _Named:
    """Progress whose steps begin with the name of the run."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress, self._name = progress, name
        self.advance, self.note = progress.advance, progress.note

    def step(self, title: str, total: int | None = None) -> None:
        self._progress.step(f"{self._name}: {title}", total)


def _numbers(figures: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield f"{prefix}{name}", float(value)
