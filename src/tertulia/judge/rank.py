"""Ranking the next reply: each true reply among distractors from the same set, hits@k with intervals.

Known pitfalls are avoided: the true reply has a random position, ties are broken at random, no distractor has the same
text, and intervals are over dialogues, since replies of one dialogue are not independent. In each persona setting a bot
is judged on the replies that have such personas.
"""

from collections.abc import Callable, Sequence
from statistics import fmean

import numpy as np

from tertulia.core.codec import Problems
from tertulia.core.errors import BotError, UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.core.score import Score
from tertulia.core.text import plural
from tertulia.corpus.candidates import RankTask
from tertulia.judge.config import OWN, PersonaSetting, RankConfig, RankSettings, planned
from tertulia.judge.paper_tables import RANK_PLANS
from tertulia.judge.ranking_tasks import load_tasks
from tertulia.judge.runs import JudgedItem, JudgedRun, Subject, describe_config, describe_subject, unique_ids
from tertulia.metrics.metric import Metric, RankBatch
from tertulia.metrics.ranking import Ranks, ranks_of_truth
from tertulia.metrics.registry import metrics_named
from tertulia.talk.bot import Bot, RankingBot
from tertulia.talk.spec import make_bot


def run_rank(config: RankConfig, progress: Progress | None = None, problems: Problems | None = None) -> JudgedRun:
    """Judge all bots in all settings. With `problems`, damaged lines are counted there instead of being an error."""
    progress = progress or Silent()
    config = _planned(config)
    metrics_named(config.metrics, unit="ranks", verb="judge rank")  # an unknown name is an error before the work
    progress.step("Reading")
    tasks, published = load_tasks(config, problems)
    metrics = rank_metrics(config, tasks)
    settings = settings_of(config, tasks)
    if config.table == "ubuntu" and len(settings) > 1:
        raise UsageError("The Ubuntu table has one setting: give at most one --persona and one --wording.")
    scores: list[Score] = []
    names: list[str] = []
    subjects: list[Subject] = []
    for spec in config.bots:
        progress.step(f"Loading {spec}")
        bot = make_bot(spec, reference=True)
        names.append(spec if bot.spec in names else bot.spec)  # bots that differ only in an option keep the option
        subjects.append(describe_subject(names[-1], spec, bot))
        for setting in settings:
            progress.step(f"Ranking with {spec}, persona: {setting}", total=len(fitting(tasks, setting)))
            scores += judge_rank(bot, tasks, config, setting=setting, subject=names[-1], progress=progress.advance)
    progress.step("Comparing")
    return JudgedRun(
        verb="rank",
        config=describe_config(config),
        subjects=tuple(subjects),
        settings=tuple(map(str, settings)),
        scores=tuple(scores),
        metrics={metric.name: metric.info for metric in metrics},
        items=tuple(rank_items(tasks)),
        notes=(_data_note(config, tasks, published=published), *_missing_notes(tasks, settings)),
        details=rank_details(tasks),
    )


def judge_rank(
    bot: Bot,
    tasks: Sequence[RankTask],
    config: RankSettings,
    *,
    setting: PersonaSetting | None = None,
    subject: str = "",
    batch: int = 256,
    progress: Callable[[int], None] = lambda n: None,
) -> list[Score]:
    """One score per metric for one bot in one setting; without a setting, the first one of the config.

    Units are the tasks that fit the setting; `progress` is called with the number of tasks done.
    """
    metrics = rank_metrics(config, tasks)
    setting = setting or settings_of(config, tasks)[0]
    kept = [(unit, task) for unit, task in zip(task_ids(tasks), tasks, strict=True) if setting.fits(task.exchange)]
    fit = [task for _, task in kept]
    ranks = rank_candidates(bot, fit, setting, seed=config.seed, batch=batch, progress=progress)
    ranked = RankBatch(ranks, np.array([len(task.candidates) for task in fit], dtype=np.int64))
    return [
        metric.score(
            ranked,
            subject=subject or bot.spec,
            setting=str(setting),
            units=[unit for unit, _ in kept],
            clusters=[task.dialogue for task in fit],
        )
        for metric in metrics
    ]


def rank_candidates(
    bot: Bot,
    tasks: Sequence[RankTask],
    setting: PersonaSetting,
    *,
    seed: int = 0,
    batch: int = 256,
    progress: Callable[[int], None] = lambda n: None,
) -> Ranks:
    """The rank of each true reply by the bot's scores of all candidates."""
    if not isinstance(bot, RankingBot):
        raise BotError(
            f"The bot {bot.spec!r} cannot rank given replies.",
            hint="Use tfidf, generic, a trained ranker or a trained generative model.",
        )
    scores: list[list[float]] = []
    for start in range(0, len(tasks), batch):
        part = tasks[start : start + batch]
        asks = [setting.ask(task.exchange, seed=seed) for task in part]
        scores += bot.score(asks, [task.candidates for task in part])
        progress(len(part))
    return ranks_of_truth(scores, [task.truth for task in tasks], seed=seed)


def settings_of(config: RankSettings, tasks: Sequence[RankTask]) -> list[PersonaSetting]:
    """The persona settings to judge in; by default own personas, if the data has any."""
    return config.settings(has_personas=any(OWN.fits(task.exchange) for task in tasks))


def fitting(tasks: Sequence[RankTask], setting: PersonaSetting) -> list[RankTask]:
    """The tasks whose exchange has the personas of the setting."""
    return [task for task in tasks if setting.fits(task.exchange)]


def rank_metrics(config: RankSettings, tasks: Sequence[RankTask]) -> list[Metric]:
    """The metrics of the config, if the tasks have enough candidates for them."""
    metrics = metrics_named(config.metrics, unit="ranks", verb="judge rank")
    fewest = min((len(task.candidates) for task in tasks), default=0)
    for metric in metrics:
        if tasks and metric.min_candidates > fewest:
            raise UsageError(
                f"{metric.name} needs {metric.min_candidates} candidates, but there are only {fewest}.",
                hint="Increase --candidates.",
            )
    return metrics


def task_ids(tasks: Sequence[RankTask]) -> list[str]:
    """Unit ids of the tasks: the ids of their exchanges."""
    return unique_ids(task.exchange.id for task in tasks)


def rank_items(tasks: Sequence[RankTask]) -> list[JudgedItem]:
    """The texts behind each task."""
    return [
        JudgedItem(
            unit,
            {
                "dialogue": task.dialogue,
                "turns": len(task.exchange.context),
                "context": [turn.text for turn in task.exchange.context],
                "reference": task.exchange.response.text,
                "candidates": list(task.candidates),
                "truth": task.truth,
            },
        )
        for unit, task in zip(task_ids(tasks), tasks, strict=True)
    ]


def rank_details(tasks: Sequence[RankTask]) -> dict[str, float | int | list[int]]:
    """How many tasks, candidates per task (fewest and most), and hits@1 of a random choice."""
    sizes = [len(task.candidates) for task in tasks]
    return {
        "tasks": len(tasks),
        "candidates": [min(sizes), max(sizes)],
        "chance": fmean(1 / size for size in sizes),
    }


def _planned(config: RankConfig) -> RankConfig:
    """The config with what its table needs; metrics of the table are added to those that were given."""
    if config.table is None:
        return config
    plan = dict(RANK_PLANS[config.table])
    if "metrics" in config.model_fields_set:
        config = config.model_copy(update={"metrics": tuple(dict.fromkeys((*config.metrics, *plan["metrics"])))})
    return planned(config, [plan])


def _data_note(config: RankConfig, tasks: Sequence[RankTask], *, published: bool) -> str:
    """What the bots were judged on."""
    details = rank_details(tasks)
    fewest, most = min(len(t.candidates) for t in tasks), max(len(t.candidates) for t in tasks)
    among = str(fewest) if fewest == most else f"{fewest} to {most}"
    of = f" of {config.speaker}" if config.speaker else ""
    drawn = "a random sample" if config.limit == len(tasks) else "all there are"
    kind = "as published with the data" if published else f"drawn from the same set, {_kind(config)}"
    return (
        f"{plural(len(tasks), 'reply', 'replies')}{of} among {among} in {config.source} ({drawn}), distractors"
        f" {kind}; chance hits@1 {details['chance']:.3f}; 95 % intervals by bootstrap over dialogues; seed"
        f" {config.seed}."
    )


def _kind(config: RankConfig) -> str:
    return "similar" if config.hard else "random"


def _missing_notes(tasks: Sequence[RankTask], settings: Sequence[PersonaSetting]) -> list[str]:
    """Which settings the data does not have, or not for all replies."""
    counts = {setting: len(fitting(tasks, setting)) for setting in settings}
    absent = [f"persona {s}: the data has no such personas, n = 0." for s, count in counts.items() if count == 0]
    return absent + [
        f"persona {s}: only what has such personas: {plural(count, 'reply', 'replies')}."
        for s, count in counts.items()
        if 0 < count < len(tasks)
    ]
