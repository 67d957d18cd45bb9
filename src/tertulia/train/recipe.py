"""What a recipe is: a config and a function; and how a TOML file names the recipe that it configures."""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from pydantic import Field, create_model

from tertulia.artefacts.manifest import is_complete
from tertulia.artefacts.outputs import Force, Output, contents
from tertulia.core.config import Cli, Config, load_toml, validate
from tertulia.core.dialogue import Json
from tertulia.core.errors import ConfigError, UnknownName, UsageError
from tertulia.core.progress import Progress
from tertulia.train.changes import with_changes
from tertulia.train.configs import shipped
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

    recipe: Annotated[str, Cli(argument=True)]
    """A name of `tertulia recipes`, or a TOML file: the key `recipe` names the recipe, the other keys configure it."""
    data: str | None = None
    """A folder of data, or `sample` for the bundled corpus; by default the one in the recipe."""
    out: Path | None = None
    """Folder for the trained model; by default the one in the recipe."""
    resume: Annotated[bool | None, Cli("--resume")] = None
    """Resume an interrupted run, if the folder has one."""
    force: Annotated[bool | None, Cli("--force")] = None
    """Train again in a folder that has a run, or something else."""
    changes: Annotated[dict[str, str], Cli("--set")] = Field(default_factory=dict)
    """Change a setting of the recipe: learning_rate=0.001, model.d_model=128. `tertulia recipes NAME` lists them."""
    seeds: int = Field(default=1, ge=1, le=1000)
    """Train so many times, with the seeds from the recipe's on, in OUT/seed-0, OUT/seed-1 and so on, and show mean and
    standard deviation of what was measured."""


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
        recipe=(only_name, Field(default=name, description=described["recipe"])),
        model=(model, Field(default=model(), description=described["model"])),
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


def read_recipe(
    recipe: str | Path, overrides: Mapping[str, Any] | None = None, *, changes: Mapping[str, str] | None = None
) -> tuple[Recipe[Any], RecipeConfig]:
    """A recipe and its config: of a TOML file, of a ready-made file by its name, or a recipe's defaults by its name.

    Overrides that are None were not given. `changes` are settings as text, by dotted keys (`model.d_model`): the config
    says what type they have.
    """
    source = find_recipe(recipe)
    made: Recipe[Any] = RECIPES.get(source.recipe)
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    values = source.values | given
    if not changes:
        return made, validate(made.config, values, where=source.where)
    changed = with_changes(made.config, values, changes)
    try:
        return made, validate(made.config, changed, where="--set")
    except ConfigError:
        validate(made.config, values, where=source.where)  # if that is wrong already, it is not because of the changes
        raise


class RecipeSource(NamedTuple):
    """Settings of a recipe, before they are checked."""

    recipe: str
    values: dict[str, Any]
    where: str
    """Where they are from, for errors."""


def find_recipe(text: str | Path) -> RecipeSource:
    """What a path or a name stands for."""
    name, path = str(text), Path(text)
    if path.suffix == ".toml" or path.is_file():
        return _named_in(load_toml(path), str(path))
    if name in (files := shipped()):
        return _named_in(tomllib.loads(files[name].text), f"the recipe {name}")
    if name in RECIPES:
        return RecipeSource(name, {"recipe": name, "out": f"run/{name}"}, f"the recipe {name}")
    if "/" in name:
        return _named_in(load_toml(path), name)
    raise UnknownName("recipe", name, {*files, *RECIPES})


def _named_in(values: dict[str, Any], where: str) -> RecipeSource:
    name = values.get("recipe")
    if not isinstance(name, str):
        raise ConfigError(
            f"{where} names no recipe.", hint=f'Start it with recipe = "NAME", one of: {", ".join(RECIPES)}'
        )
    return RecipeSource(name, values, where)
