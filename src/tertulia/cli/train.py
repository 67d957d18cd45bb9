"""`tertulia train RECIPE`: train the model that a recipe describes, once or with several seeds."""

from collections.abc import Mapping
from typing import Any

from tertulia.cli.command import command
from tertulia.cli.ending import prepare_outputs
from tertulia.cli.output import Bars, out, print_json, print_table
from tertulia.core.dialogue import Json
from tertulia.train.recipe import Recipe, RecipeConfig, TrainOptions, check_run_folder, read_recipe


@command(TrainOptions, file=False)
def train(settings: TrainOptions, *, as_json: bool) -> None:
    """Train a model; the run's folder explains itself.

    RECIPE is a name (`tertulia recipes` lists them) or a TOML file; --set changes single settings.
    """
    overrides = settings.model_dump(exclude={"recipe", "changes", "seeds"})
    recipe, config = read_recipe(settings.recipe, overrides, changes=settings.changes)
    if settings.seeds > 1:
        _train_seeds(recipe, config, settings.seeds, as_json=as_json)
        return
    prepare_outputs(config)
    check_run_folder(config)
    with Bars() as bars:
        outcome = recipe.train(config, bars)
    if as_json:
        print_json({"recipe": recipe.name, "out": str(outcome.folder), **outcome.figures()})
        return
    print_table(("", recipe.name), _flatten(outcome.figures()))
    out.print(f"The model is in {outcome.folder}", markup=False)


def _train_seeds(recipe: Recipe[Any], config: RecipeConfig, seeds: int, *, as_json: bool) -> None:
    from tertulia.train.seeds import seeded_configs, train_seeds

    configs = seeded_configs(config, seeds)
    for one in configs.values():
        prepare_outputs(one)
        check_run_folder(one)
    with Bars() as bars:
        outcome = train_seeds(recipe, configs, bars)
    if as_json:
        print_json({"recipe": recipe.name, **outcome.as_json()})
        return
    rows = [
        (
            name.replace("_", " ").replace(".", ": "),
            f"{one.mean:.3f}",
            f"{one.deviation:.3f}",
            *map(_figure, one.values),
        )
        for name, one in outcome.spreads.items()
    ]
    print_table((recipe.name, "mean", "std. dev.", *configs), rows)
    out.print(f"The models are in {outcome.folder}: {', '.join(configs)}", markup=False)


def _flatten(figures: Mapping[str, Json], prefix: str = "") -> list[tuple[str, Json]]:
    """Nested figures, one row each."""
    rows: list[tuple[str, Json]] = []
    for name, value in figures.items():
        label = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            rows += _flatten(value, f"{label}: ")
        else:
            rows.append((label, _figure(value)))
    return rows


def _figure(value: Json) -> Json:
    """A number for people; None and nan are left to the table, which has a sign for them."""
    return f"{value:.2f}" if isinstance(value, float) and value == value else value
