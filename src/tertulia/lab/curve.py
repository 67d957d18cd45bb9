"""A learning curve: the same recipe trained on more and more dialogues, each model judged on the same replies.

Figure 3 of the Ubuntu Dialogue Corpus (Lowe et al. 2015). Each size is saved as a judged run of its own as soon as it
is done, under `points/`, and is not trained again; a folder that holds another curve is refused. The curve itself is
the judged run of all sizes together.
"""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from tertulia.artefacts.files import read_json, write_json
from tertulia.artefacts.manifest import is_complete
from tertulia.artefacts.outputs import Output
from tertulia.core.codec import Problems
from tertulia.core.config import Cli
from tertulia.core.dialogue import Json
from tertulia.core.errors import UsageError
from tertulia.core.progress import Progress, Silent
from tertulia.core.text import plural
from tertulia.corpus.candidates import RankTask
from tertulia.corpus.load import load_dialogues
from tertulia.judge.config import RankSettings, comma_separated
from tertulia.judge.rank import judge_rank, rank_details, rank_items, rank_metrics, settings_of
from tertulia.judge.ranking_tasks import load_tasks
from tertulia.judge.runs import JudgedRun, Subject, describe_config, describe_subject, load_run, save_run
from tertulia.talk.bot import Bot
from tertulia.talk.spec import make_bot
from tertulia.train.recipe import RecipeConfig, read_recipe

POINTS, CURVE = "points", "curve.json"
"""Folder of the judged runs of single sizes, and what the curve in a folder is of."""
SIZE_FIELD = "max_dialogues"
"""The field of a recipe's config that limits the number of training dialogues."""


class CurveConfig(RankSettings):
    """Which recipe, which sizes, and how each model is judged."""

    recipe: Annotated[Path, Cli(argument=True)]
    """A TOML file: the key `recipe` names the recipe, the other keys configure it."""
    data: str = ""
    """A folder of dialogues with a training split and the split to judge on; by default the one in the recipe."""
    sizes: Annotated[tuple[Annotated[int, Field(ge=2)], ...], BeforeValidator(comma_separated)] = Field(
        default=(100, 300, 1000, 3000), min_length=1
    )
    """Numbers of training dialogues, separated by commas."""
    out: Annotated[Path, Output("folder", "own", known_by=(CURVE,))] = Path("curve")
    """Folder for the models, the judged run and the plot; sizes that it already contains are not trained again."""


Train = Callable[[int], Bot]
"""Trains on so many dialogues."""


def run_curve(config: CurveConfig, progress: Progress | None = None, problems: Problems | None = None) -> JudgedRun:
    """Train the recipe of the config on each size and judge it."""
    progress, file = progress or Silent(), config.recipe
    if not config.data:
        config = config.model_copy(update={"data": read_recipe(file)[1].data})
    progress.step("Reading")
    recipe = _checked_recipe(file, config)
    tasks = load_tasks(config, problems).tasks
    return learning_curve(
        _trainer(file, config, progress),
        tasks,
        config,
        recipe=recipe.model_dump(mode="json", exclude={"out", "resume", "force", SIZE_FIELD}),
        progress=progress,
    )


def learning_curve(
    train: Train,
    tasks: Sequence[RankTask],
    config: CurveConfig,
    *,
    recipe: Mapping[str, Json] | None = None,
    progress: Progress | None = None,
) -> JudgedRun:
    """Train and judge each size, smallest first; the run has one setting per size that is in the folder.

    `recipe` describes the training: a folder whose curve was trained otherwise is refused.
    """
    progress = progress or Silent()
    if len(settings := settings_of(config, tasks)) > 1:
        raise UsageError(f"A curve has one setting, not {len(settings)}: give one --persona and one --wording.")
    config.out.mkdir(parents=True, exist_ok=True)
    _check_same_curve(config, recipe or {})
    for size in sorted(set(config.sizes)):
        if not is_complete(_point_folder(config.out, size)):
            _judge_size(size, train, tasks, config, progress)
    return _combined(config, tasks, read_points(config.out))


def read_points(folder: Path) -> dict[int, JudgedRun]:
    """The judged runs of all sizes in the folder of a curve, smallest first."""
    sizes = sorted(int(point.name) for point in (folder / POINTS).glob("[0-9]*") if is_complete(point))
    return {size: load_run(_point_folder(folder, size)) for size in sizes}


def _point_folder(folder: Path, size: int) -> Path:
    return folder / POINTS / str(size)


def _judge_size(size: int, train: Train, tasks: Sequence[RankTask], config: CurveConfig, progress: Progress) -> None:
    """Train on one size, judge the model and save the run of this size."""
    start = time.perf_counter()
    bot = train(size)
    seconds = time.perf_counter() - start
    progress.step(f"Ranking after {size} dialogues", total=len(tasks))
    scores = judge_rank(bot, tasks, config, subject=bot.spec, progress=progress.advance)
    run = JudgedRun(
        verb="curve",
        config=describe_config(config),
        subjects=(describe_subject(bot.spec, bot.spec, bot),),
        settings=(scores[0].setting,),
        scores=tuple(scores),
        metrics={metric.name: metric.info for metric in rank_metrics(config, tasks)},
        details={"size": size, "seconds": round(seconds, 1)},
    )
    progress.note(" ".join(f"{metric} {figure}" for (_, _, metric), figure in run.estimates().items()))
    save_run(run, _point_folder(config.out, size))


def _combined(config: CurveConfig, tasks: Sequence[RankTask], points: Mapping[int, JudgedRun]) -> JudgedRun:
    """One run with a setting for each size. The subject is the recipe: the models are one per size."""
    largest = points[max(points)].subjects[0]
    subject = Subject(config.recipe.stem, largest.spec, largest.kind, largest.fingerprint)
    scores = [
        replace(score, subject=subject.name, setting=f"{size} dialogues")
        for size, point in points.items()
        for score in point.scores
    ]
    seconds = {str(size): point.details["seconds"] for size, point in points.items()}
    persona = next(iter(points.values())).settings[0]
    return JudgedRun(
        verb="curve",
        config=describe_config(config),
        subjects=(subject,),
        settings=tuple(f"{size} dialogues" for size in points),
        scores=tuple(scores),
        metrics={name: info for point in points.values() for name, info in point.metrics.items()},
        items=tuple(rank_items(tasks)),
        notes=(
            f"{plural(len(tasks), 'reply', 'replies')} among {len(tasks[0].candidates)} in {config.source}; persona:"
            f" {persona}; 95 % intervals by bootstrap over dialogues; seed {config.seed}.",
            "Training took " + ", ".join(f"{s:.0f} s on {size} dialogues" for size, s in seconds.items()) + ".",
        ),
        details=rank_details(tasks) | {"seconds": seconds},
    )


def _check_same_curve(config: CurveConfig, recipe: Mapping[str, Json]) -> None:
    """Record what the curve is of, or check that it is the one in the folder."""
    judged = config.model_dump(mode="json", exclude={"sizes", "out", "force", "recipe"})
    about: dict[str, dict[str, Json]] = {"judged": judged, "trained": dict(recipe)}
    file = config.out / CURVE
    if config.force and file.is_file():  # an earlier curve, and nothing but that
        for folder in (config.out / POINTS, *config.out.glob("[0-9]*")):
            shutil.rmtree(folder, ignore_errors=True)
    if config.force or not file.is_file():
        write_json(file, about)
        return
    there = read_json(file)
    differing = [
        name
        for part in ("judged", "trained")
        for name in sorted({*about[part], *there.get(part, {})})
        if about[part].get(name) != there.get(part, {}).get(name)
    ]
    if differing:
        raise UsageError(
            f"{config.out} holds another curve: {', '.join(differing)} differ.",
            hint="Choose another folder with --out, or replace the curve with --force.",
        )


def _trainer(recipe: Path, config: CurveConfig, progress: Progress) -> Train:
    """Train into a folder for each size; a finished model is only loaded."""

    def train(size: int) -> Bot:
        folder = config.out / str(size)
        if not is_complete(folder):
            overrides = {"data": config.data, "out": folder, "resume": True, SIZE_FIELD: size}
            chosen, settings = read_recipe(recipe, overrides)
            progress.step(f"Training on {size} dialogues")
            chosen.train(settings, progress)
        return make_bot(str(folder))

    return train


def _checked_recipe(recipe: Path, config: CurveConfig) -> RecipeConfig:
    """The recipe's config, if it can limit the training dialogues and there are enough of them."""
    chosen, settings = read_recipe(recipe, {"data": config.data})
    if SIZE_FIELD not in type(settings).model_fields:
        raise UsageError(f"The recipe {chosen.name!r} has no option {SIZE_FIELD} to limit its training dialogues.")
    split = settings.model_dump().get("split")
    available = sum(1 for _ in load_dialogues(settings.data, split=split))
    if max(config.sizes) > available:
        raise UsageError(
            f"There are only {available} training dialogues in {settings.data}, not {max(config.sizes)}.",
            hint="Give smaller numbers with --sizes.",
        )
    return settings
