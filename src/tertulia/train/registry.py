"""The table of recipes: one for each architecture, the rows below, and those of plugins (group `tertulia.recipes`).

A row points at a `Recipe`, or at a function that makes the recipe from the row's name, as those do that several
architectures share.
"""

from collections.abc import Iterator
from typing import Any

from tertulia.core.registry import Registry, Row
from tertulia.models.registry import ARCHITECTURES


class Recipes(Registry):
    """Recipes by name."""

    def get(self, name: str) -> Any:
        """The recipe of that name."""
        recipe = super().get(name)
        return recipe(name) if callable(recipe) else recipe


def _architectures() -> Iterator[Row]:
    return (Row(row.name, row.recipe, f"trains a {row.kind}: {row.summary}") for row in ARCHITECTURES)


RECIPES = Recipes("recipe", "tertulia.recipes", derived=_architectures)

RECIPES.add(
    "disentangler",
    "tertulia.train.recipes.disentangler:RECIPE",
    "trains gradient-boosted trees that link each line of a chat log to the one it replies to",
)
RECIPES.add(
    "entailment",
    "tertulia.train.recipes.entailment:RECIPE",
    "trains a classifier of natural language inference: an encoder that reads premise and hypothesis together",
)
RECIPES.add(
    "grounding",
    "tertulia.train.recipes.grounding:RECIPE",
    "trains a classifier of grounding (BEGIN) on silver data: lexical, encoder, likelihood or combined",
)
RECIPES.add(
    "prefer",
    "tertulia.train.recipes.prefer:RECIPE",
    "improves a language model by people's preferences: DPO or KTO on a fine-tuned run or a base",
)
