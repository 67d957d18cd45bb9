"""A learning curve: the same bot trained on more and more dialogues, each judged on the same replies.

Figure 3 of the Ubuntu Dialogue Corpus (Lowe et al. 2015). Training is somebody else's work: a function that takes a
number of dialogues and returns the bot. A size that was judged is written down at once and not trained again; a folder
that holds another curve is refused.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, UsageError
from tertulia.core.estimate import Estimate
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.candidates import RankTask
from tertulia.judge.rank import Figures, RankSettings, figures_as_json, judge_rank, settings_of
from tertulia.metrics.plots import band_plot
from tertulia.talk.bot import Bot

POINTS = "curve.jsonl"
PICTURE = "curve.svg"
ABOUT = "curve.json"
"""What the curve in a folder is of."""


def _numbers(value: Any) -> Any:
    """ "100,1000" as well as a list."""
    return [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class CurveConfig(RankSettings):
    """Which sizes, and how each is judged."""

    data: str = ""
    """A folder of dialogues, with a split to learn from and the one to judge on; by default that of the recipe."""
    sizes: Annotated[tuple[Annotated[int, Field(ge=2)], ...], BeforeValidator(_numbers)] = Field(
        (100, 300, 1000, 3000), min_length=1
    )
    """Numbers of dialogues to train on, with commas between them."""
    out: Path = Path("curve")
    """Folder for the models, the figures and the picture; sizes that are there already are not trained again."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A size, and what came of it."""

    size: int
    bot: str
    figures: Figures
    seconds: float
    """Time it took to train (or to load, where it had been trained before)."""

    def as_json(self) -> dict[str, Json]:
        """For `--json` and the file of points."""
        seconds = round(self.seconds, 1)
        return {"size": self.size, "bot": self.bot, "seconds": seconds} | figures_as_json(self.figures)


Train = Callable[[int], Bot]
"""Trains on so many dialogues."""


def learning_curve(
    train: Train,
    tasks: Sequence[RankTask],
    config: CurveConfig,
    *,
    recipe: Mapping[str, Json] | None = None,
    progress: Progress | None = None,
) -> list[CurvePoint]:
    """Train and judge each size, smallest first; leave points and picture in `config.out`.

    `recipe` says how is trained: a folder whose curve was made another way is refused.
    """
    progress = progress or Silent()
    if len(settings := settings_of(config, tasks)) > 1:
        raise UsageError(f"A curve has one setting, not {len(settings)}: give one persona and one wording.")
    config.out.mkdir(parents=True, exist_ok=True)
    _same_curve(config, recipe or {})
    done = {point.size: point for point in read_points(config.out / POINTS)}
    for size in sorted(set(config.sizes) - set(done)):
        start = time.perf_counter()
        bot = train(size)
        seconds = time.perf_counter() - start
        progress.step(f"Ranking after {size} dialogues", total=len(tasks))
        result = judge_rank(bot, tasks, config, progress=progress.advance)
        progress.note(" ".join(f"{name} {figure}" for name, figure in result.figures.items()))
        done[size] = CurvePoint(size, result.bot, result.figures, seconds)
        with (config.out / POINTS).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(done[size].as_json()) + "\n")
    points = [done[size] for size in sorted(done)]
    (config.out / PICTURE).write_text(draw_curve(points, config.metrics[0]), encoding="utf-8")
    return points


def draw_curve(points: Sequence[CurvePoint], metric: str) -> str:
    """The picture: a measure against the number of dialogues, with the band of its interval."""
    return band_plot([(p.size, p.figures[metric]) for p in points], x="dialogues to learn from", y=metric)


def read_points(file: Path) -> list[CurvePoint]:
    """What was written down; nothing where nothing was."""
    if not file.is_file():
        return []
    try:
        return [_point(json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} is damaged ({error}).", hint="Remove it; finished models stay.") from None


def _point(value: dict[str, Json]) -> CurvePoint:
    size, bot, seconds = (value.pop(name) for name in ("size", "bot", "seconds"))
    return CurvePoint(size, bot, {name: _estimate(figure) for name, figure in value.items()}, seconds)


def _estimate(value: dict[str, Json]) -> Estimate:
    known: dict[str, Any] = {name: float("nan") if number is None else number for name, number in value.items()}
    return Estimate(**known)


def _same_curve(config: CurveConfig, recipe: Mapping[str, Json]) -> None:
    """Write down what the curve is of, or check that it is the one in the folder."""
    about = {"judged": config.model_dump(mode="json", exclude={"sizes", "out"}), "trained": dict(recipe)}
    file = config.out / ABOUT
    if not file.is_file():
        file.write_text(json.dumps(about, indent=2), encoding="utf-8")
        return
    there = json.loads(file.read_text(encoding="utf-8"))
    differs = [
        name
        for part in ("judged", "trained")
        for name in sorted({*about[part], *there.get(part, {})})
        if about[part].get(name) != there.get(part, {}).get(name)
    ]
    if differs:
        raise UsageError(
            f"{config.out} holds another curve: {', '.join(differs)} differ.", hint="Choose another folder with --out."
        )
