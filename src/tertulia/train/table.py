"""The table of recipes. A row points at a `Recipe`; plugins add rows through `tertulia.recipes`."""

from tertulia.core.registry import Registry

RECIPES = Registry("recipe", "tertulia.recipes")

RECIPES.add(
    "disentangler",
    "tertulia.train.recipes.disentangler:RECIPE",
    "links the lines of a chat room to those they answer (gradient-boosted trees)",
)
