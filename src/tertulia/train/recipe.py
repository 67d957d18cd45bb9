"""What a recipe is: a config and a function; and how a TOML file names the one it is for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tertulia.core.config import Config, load_toml, validate
from tertulia.core.dialogue import Json
from tertulia.core.errors import ConfigError
from tertulia.core.progress import Progress
from tertulia.train.table import RECIPES


class RecipeConfig(Config):
    """What every recipe has: where its data is, where the run goes, and whether it goes on."""

    recipe: str = ""
    """The recipe's name, so that a run's own config can be trained again."""
    data: str = "sample"
    """A folder of data, or `sample` for the bundled corpus."""
    out: Path = Path("run")
    """Folder for the trained model; it explains itself."""
    resume: bool = False
    """Go on with a run that was interrupted, where its folder has one."""


C = TypeVar("C", bound=RecipeConfig)


class Outcome(Protocol):
    """What came of a training."""

    @property
    def folder(self) -> Path:
        """Where the model is."""
        ...

    def figures(self) -> Mapping[str, Json]:
        """What was measured, flat."""
        ...


@dataclass(frozen=True, slots=True)
class Recipe(Generic[C]):
    """A way to train something."""

    name: str
    config: type[C]
    train: Callable[[C, Progress], Outcome]


def read_recipe(file: Path, overrides: Mapping[str, Any] | None = None) -> tuple[Recipe[Any], RecipeConfig]:
    """The recipe that a TOML file names under `recipe`, and its config; options that are None were not given."""
    values = load_toml(file)
    name = values.get("recipe")
    if not isinstance(name, str):
        raise ConfigError(f"{file} names no recipe.", hint=f"Begin it with recipe = one of: {', '.join(RECIPES)}")
    recipe: Recipe[Any] = RECIPES.get(name)
    values |= {key: value for key, value in (overrides or {}).items() if value is not None}
    return recipe, validate(recipe.config, values, where=str(file))
