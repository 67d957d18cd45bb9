"""What a recipe is: a config and a function; and how a TOML file names the recipe that it configures."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

from pydantic import Field, create_model

from tertulia.artefacts.manifest import is_complete
from tertulia.artefacts.outputs import Force, Output, contents
from tertulia.core.config import Cli, Config, load_toml, validate
from tertulia.core.dialogue import Json
from tertulia.core.errors import ConfigError, UsageError
from tertulia.core.progress import Progress
from tertulia.train.registry import RECIPES


class RecipeConfig(Config):
    """What every recipe has: where its data is, where the model goes, and whether to resume."""

    recipe: str = ""
    """The recipe's name, so that the config saved with a run can be trained again."""
    data: str = "sample"
    """A folder of data, or `sample` for the bundled corpus."""
    out: Annotated[Path, Output("folder", "own")] = Path("run")
    """Folder for the trained model."""
    resume: bool = False
    """Resume an interrupted run, if the folder has one."""
    force: Force = False


class TrainOptions(Config):
    """What the command line can say about a run; the recipe's file says the rest."""

    recipe: Annotated[Path, Cli(argument=True)]
    """A TOML file: the key `recipe` names the recipe, the other keys configure it."""
    data: str | None = None
    """A folder of data, or `sample` for the bundled corpus; by default the one in the recipe."""
    out: Path | None = None
    """Folder for the trained model; by default the one in the recipe."""
    resume: Annotated[bool | None, Cli("--resume")] = None
    """Resume an interrupted run, if the folder has one."""
    force: Annotated[bool | None, Cli("--force")] = None
    """Train again in a folder that has a run, or something else."""


C = TypeVar("C", bound=RecipeConfig)


class TrainingOutcome(Protocol):
    """The result of a training run."""

    @property
    def folder(self) -> Path:
        """Where the model is."""
        ...

    def figures(self) -> Mapping[str, Json]:
        """What was measured."""
        ...


@dataclass(frozen=True, slots=True)
class Recipe(Generic[C]):
    """A way to train something."""

    name: str
    config: type[C]
    train: Callable[[C, Progress], TrainingOutcome]


def config_for(base: type[C], name: str, model: type[Config]) -> type[C]:
    """The config of a recipe that several architectures share: the base, with an architecture's config as `model`."""
    described = {field: base.model_fields[field].description for field in ("recipe", "model")}
    only_name: Any = Literal[name]
    return create_model(
        f"{model.__name__.removesuffix('Config')}Recipe",
        __base__=base,
        __doc__=f"How {name} is trained.",
        recipe=(only_name, Field(name, description=described["recipe"])),
        model=(model, Field(model(), description=described["model"])),
    )


def check_run_folder(config: RecipeConfig) -> None:
    """Refuse a folder that has a run, or something else, unless the config says to resume it or to replace it.

    Of several processes of one run, only the first looks: the others may have begun.
    """
    if config.resume or config.force or int(os.environ.get("RANK", "0")):
        return
    if is_complete(config.out):
        raise UsageError(
            f"{config.out} has a finished run.",
            hint="Choose another folder with --out, or train again in this one with --force.",
        )
    names = [name for name in contents(config.out) if _is_filled(config.out / name)] if config.out.is_dir() else []
    if names:
        raise UsageError(
            f"{config.out} is not empty: it contains {names[0]}.",
            hint="Continue an interrupted run with --resume, choose another folder with --out, or start over with"
            " --force.",
        )


def _is_filled(path: Path) -> bool:
    return not path.is_dir() or any(path.iterdir())


def read_recipe(file: Path, overrides: Mapping[str, Any] | None = None) -> tuple[Recipe[Any], RecipeConfig]:
    """The recipe that a TOML file names under `recipe`, and its config; overrides that are None were not given."""
    values = load_toml(file)
    name = values.get("recipe")
    if not isinstance(name, str):
        raise ConfigError(
            f"{file} names no recipe.", hint=f'Start it with recipe = "NAME", one of: {", ".join(RECIPES)}'
        )
    recipe: Recipe[Any] = RECIPES.get(name)
    values |= {key: value for key, value in (overrides or {}).items() if value is not None}
    return recipe, validate(recipe.config, values, where=str(file))
