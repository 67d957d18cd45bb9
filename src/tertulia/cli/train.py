"""`tertulia train RECIPE.toml`: train what the file describes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tertulia.cli.output import AsJson, Bars, option, out, print_json, print_table
from tertulia.core.dialogue import Json
from tertulia.train.recipe import RecipeConfig, read_recipe


def train(
    recipe: Annotated[Path, typer.Argument(help="A TOML file: `recipe` names what is trained, the rest says how.")],
    data: Annotated[str | None, option(RecipeConfig, "data", "--data")] = None,
    out_folder: Annotated[Path | None, option(RecipeConfig, "out", "--out")] = None,
    resume: Annotated[bool | None, option(RecipeConfig, "resume", "--resume")] = None,
    json: AsJson = False,
) -> None:
    """Train a model; the run's folder explains itself."""
    chosen, config = read_recipe(recipe, {"data": data, "out": out_folder, "resume": resume})
    with Bars() as bars:
        outcome = chosen.train(config, bars)
    if json:
        print_json({"recipe": chosen.name, "out": str(outcome.folder), **outcome.figures()})
        return
    print_table(("", chosen.name), _flat(outcome.figures()))
    out.print(f"The model is in {outcome.folder}", markup=False)


def _flat(figures: Mapping[str, Json], prefix: str = "") -> list[tuple[str, Json]]:
    """Figures within figures, one line each."""
    rows: list[tuple[str, Json]] = []
    for name, value in figures.items():
        label = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            rows += _flat(value, f"{label}: ")
        else:
            rows.append((label, f"{value:.2f}" if isinstance(value, float) else value))
    return rows
