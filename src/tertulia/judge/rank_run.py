"""`judge rank` as one call: all bots in all settings on the same tasks, compared, counted and told in tables."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tertulia.core.codec import Problems
from tertulia.core.dialogue import Json
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.candidates import RankTask
from tertulia.judge.rank import (
    Difference,
    RankConfig,
    RankResult,
    Setting,
    difference,
    fitting,
    judge_rank,
    measures_of,
    settings_of,
)
from tertulia.judge.rank_tables import PaperTable, paper_table, planned
from tertulia.judge.rank_tasks import load_tasks
from tertulia.metrics.ranking import measure_named
from tertulia.talk.spec import make_bot


@dataclass(frozen=True, slots=True)
class RankOutcome:
    """Everything there is to tell."""

    config: RankConfig
    settings: tuple[Setting, ...]
    results: tuple[tuple[RankResult, ...], ...]
    """A row for each bot, with a result for each setting."""
    differences: tuple[Difference, ...]
    """The first bot against each of the others, in each setting."""
    tasks: int
    chance: float
    """hits@1 of somebody who guesses."""
    sizes: tuple[int, int]
    """The fewest and the most candidates of a task."""
    notes: tuple[str, ...]
    """What has to be said beside the figures: what was drawn, and which settings the data does not have."""
    table: PaperTable | None = None

    @property
    def rows(self) -> list[RankResult]:
        """All results, bot by bot."""
        return [result for row in self.results for result in row]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the measures."""
        return tuple(dict.fromkeys(self.config.metrics))

    def as_json(self) -> dict[str, Json]:
        """For `--json` and `--out`."""
        return {
            "chance": self.chance,
            "settings": self.config.model_dump(mode="json"),
            "tasks": self.tasks,
            "bots": [result.as_json() for result in self.rows],
            "differences": [found.as_json() for found in self.differences],
            "notes": list(self.notes),
        } | ({"table": self.table.as_json()} if self.table else {})


def run_rank(config: RankConfig, progress: Progress | None = None, problems: Problems | None = None) -> RankOutcome:
    """Judge all bots in all settings. With `problems`, damaged lines are counted there, else refused."""
    progress = progress or Silent()
    config = planned(config)
    for name in config.metrics:
        measure_named(name)
    progress.step("Reading")
    tasks, brought = load_tasks(config, problems)
    measures_of(config, tasks)
    settings = settings_of(config, tasks)
    results = _judge_all(config, tasks, settings, progress)
    progress.step("Comparing")
    notes = (_told(config, tasks, brought=brought), *_missing(tasks, settings))
    return RankOutcome(
        config=config,
        settings=tuple(settings),
        results=results,
        differences=tuple(
            difference(first, other, tasks, config)
            for row in results[1:]
            for first, other in zip(results[0], row, strict=True)
            if first.ranks
        ),
        tasks=len(tasks),
        chance=fmean(1 / len(task.candidates) for task in tasks),
        sizes=(min(len(t.candidates) for t in tasks), max(len(t.candidates) for t in tasks)),
        notes=notes,
        table=paper_table(config.table, results, notes) if config.table else None,
    )


def _judge_all(
    config: RankConfig, tasks: Sequence[RankTask], settings: Sequence[Setting], progress: Progress
) -> tuple[tuple[RankResult, ...], ...]:
    names: set[str] = set()
    found = []
    for spec in config.bots:
        progress.step(f"Loading {spec}")
        bot = make_bot(spec)
        name = spec if bot.spec in names else bot.spec  # bots that differ in an option only are told apart by it
        names.add(name)
        row = []
        for setting in settings:
            fit = fitting(tasks, setting)
            progress.step(f"Ranking with {spec}, persona: {setting}", total=len(fit))
            row.append(judge_rank(bot, fit, config, setting=setting, progress=progress.advance))
        found.append(tuple(replace(result, bot=name) for result in row))
    return tuple(found)


def _told(config: RankConfig, tasks: Sequence[RankTask], *, brought: bool) -> str:
    """What was judged on."""
    of = f" of {config.speaker}" if config.speaker else ""
    drawn = "drawn by the seed" if config.limit == len(tasks) else "all there are"
    where = f"{config.data}, split {config.split}" if config.split else config.data
    kind = "that come with them" if brought else f"of the same set, {'similar' if config.hard else 'random'}"
    return (
        f"Ours: {len(tasks)} replies{of} in {where} ({drawn}), {len(tasks[0].candidates) - 1} distractors {kind};"
        f" seed {config.seed}."
    )


def _missing(tasks: Sequence[RankTask], settings: Sequence[Setting]) -> list[str]:
    """Which settings the data does not have, or not for all."""
    counts = {setting: len(fitting(tasks, setting)) for setting in settings}
    none = [f"persona {s}: the data has no such personas, n = 0." for s, count in counts.items() if count == 0]
    return none + [
        f"persona {s}: only the {count} replies that have such personas."
        for s, count in counts.items()
        if 0 < count < len(tasks)
    ]
