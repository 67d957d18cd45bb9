"""`tertulia judge curve`: train a recipe on more and more dialogues, and see what it gains."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tertulia.cli.output import AsJson, Bars, ConfigFile, option, out, print_json, print_table, tell_problems
from tertulia.core.codec import Problems
from tertulia.core.config import resolve
from tertulia.core.errors import UsageError
from tertulia.corpus.load import load_dialogues
from tertulia.judge.curve import PICTURE, POINTS, CurveConfig, Train, learning_curve
from tertulia.judge.rank_tasks import load_tasks
from tertulia.talk.bot import Bot
from tertulia.talk.spec import MANIFEST, make_bot
from tertulia.train.recipe import RecipeConfig, read_recipe

SIZE = "max_dialogues"
"""The field of a recipe's config that says how many dialogues to learn from."""


def curve(
    recipe: Annotated[Path, typer.Argument(help="A TOML file: `recipe` names what is trained, the rest says how.")],
    sizes: Annotated[str | None, option(CurveConfig, "sizes", "--sizes")] = None,
    data: Annotated[str | None, option(CurveConfig, "data", "--data")] = None,
    split: Annotated[str | None, option(CurveConfig, "split", "--split")] = None,
    candidates: Annotated[int | None, option(CurveConfig, "candidates", "--candidates")] = None,
    persona: Annotated[str | None, option(CurveConfig, "persona", "--persona")] = None,
    wording: Annotated[str | None, option(CurveConfig, "wording", "--wording")] = None,
    speaker: Annotated[str | None, option(CurveConfig, "speaker", "--speaker")] = None,
    metrics: Annotated[list[str] | None, option(CurveConfig, "metrics", "--metric")] = None,
    limit: Annotated[int | None, option(CurveConfig, "limit", "--limit")] = None,
    out_folder: Annotated[Path | None, option(CurveConfig, "out", "--out")] = None,
    seed: Annotated[int | None, option(CurveConfig, "seed", "--seed")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """What a recipe gains from more dialogues: hits@1 against training size, as figure 3 of the Ubuntu paper."""
    given: dict[str, Any] = {"sizes": sizes, "data": data, "split": split, "candidates": candidates, "seed": seed}
    given |= {"persona": persona, "wording": wording, "speaker": speaker, "metrics": metrics or None, "limit": limit}
    settings = resolve(CurveConfig, config, given | {"out": out_folder})
    if not settings.data:
        settings = settings.model_copy(update={"data": read_recipe(recipe)[1].data})
    problems = Problems()
    with Bars() as bars:
        bars.step("Reading")
        how = _check(recipe, settings)
        tasks = load_tasks(settings, problems).tasks
        points = learning_curve(
            _training(recipe, settings, bars),
            tasks,
            settings,
            recipe=how.model_dump(mode="json", exclude={"out", "resume", SIZE}),
            progress=bars,
        )
    if json:
        print_json({"settings": settings.model_dump(mode="json"), "points": [p.as_json() for p in points]})
    else:
        names = list(dict.fromkeys(settings.metrics))
        print_table(
            ("dialogues", *names, "training s"),
            [(p.size, *(p.figures[name] for name in names), f"{p.seconds:.0f}") for p in points],
        )
        out.print(
            f"{len(tasks)} replies among {len(tasks[0].candidates)}; 95 % intervals by bootstrap over dialogues. "
            f"In {settings.out}: {POINTS}, {PICTURE} and the models.",
            markup=False,
        )
    tell_problems(problems)


def _training(recipe: Path, settings: CurveConfig, bars: Bars) -> Train:
    """Train into a folder for each size; a model that is there already was finished before, and only loaded."""

    def train(size: int) -> Bot:
        folder = settings.out / str(size)
        if not (folder / MANIFEST).is_file():
            chosen, how = read_recipe(recipe, {"data": settings.data, "out": folder, "resume": True, SIZE: size})
            bars.step(f"Training on {size} dialogues")
            chosen.train(how, bars)
        return make_bot(str(folder))

    return train


def _check(recipe: Path, settings: CurveConfig) -> RecipeConfig:
    """The recipe's config, if it can be told how much to learn from, and there is so much."""
    chosen, how = read_recipe(recipe, {"data": settings.data})
    if SIZE not in type(how).model_fields:
        raise UsageError(f"The recipe {chosen.name!r} cannot be told how many dialogues to learn from ({SIZE}).")
    there = sum(1 for _ in load_dialogues(how.data, split=getattr(how, "split", None)))
    if max(settings.sizes) > there:
        raise UsageError(
            f"There are only {there} dialogues to learn from in {how.data}, not {max(settings.sizes)}.",
            hint="Give smaller ones with --sizes.",
        )
    return how
