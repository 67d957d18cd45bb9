"""`tertulia train RECIPE.toml`: train the model that the file describes."""

from collections.abc import Mapping

from tertulia.cli.command import command
from tertulia.cli.ending import prepare_outputs
from tertulia.cli.output import Bars, out, print_json, print_table
from tertulia.core.dialogue import Json
from tertulia.train.recipe import TrainOptions, check_run_folder, read_recipe


@command(TrainOptions, file=False)
def train(settings: TrainOptions, *, as_json: bool) -> None:
    """Train a model; the run's folder explains itself."""
    recipe, config = read_recipe(settings.recipe, settings.model_dump(exclude={"recipe"}))
    prepare_outputs(config)
    check_run_folder(config)
    with Bars() as bars:
        outcome = recipe.train(config, bars)
    if as_json:
        print_json({"recipe": recipe.name, "out": str(outcome.folder), **outcome.figures()})
        return
    print_table(("", recipe.name), _flatten(outcome.figures()))
    out.print(f"The model is in {outcome.folder}", markup=False)


def _flatten(figures: Mapping[str, Json], prefix: str = "") -> list[tuple[str, Json]]:
    """Nested figures, one row each."""
    rows: list[tuple[str, Json]] = []
    for name, value in figures.items():
        label = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            rows += _flatten(value, f"{label}: ")
        else:
            rows.append((label, f"{value:.2f}" if isinstance(value, float) else value))
    return rows
