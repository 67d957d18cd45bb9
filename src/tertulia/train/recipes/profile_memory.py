"""The recipe of Profile Memory: Starspace that attends to the persona."""

from typing import Literal

from tertulia.core.progress import Progress, Silent
from tertulia.models.profile_memory import ProfileMemory, ProfileMemoryConfig
from tertulia.train.rankers import TrainedRanker, train_ranker
from tertulia.train.recipe import Recipe
from tertulia.train.recipes.starspace import WordVectorRecipe, build

NAME = "profile-memory"


class ProfileMemoryRecipe(WordVectorRecipe):
    """What is learned from, and how."""

    recipe: Literal["profile-memory"] = "profile-memory"
    """The recipe's name, so that a run's own config can be trained again."""
    model: ProfileMemoryConfig = ProfileMemoryConfig()
    """What it is made of."""


def train(config: ProfileMemoryRecipe, progress: Progress | None = None) -> TrainedRanker:
    """Train a Profile Memory and leave it in `config.out`."""
    return train_ranker(
        config, progress or Silent(), name=NAME, build=lambda pairs: build(ProfileMemory, pairs, config)
    )


RECIPE = Recipe(NAME, ProfileMemoryRecipe, train)
