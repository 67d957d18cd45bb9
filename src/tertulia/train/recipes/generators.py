"""Recipes of generative models, made from their rows in `tertulia.models.registry`.

They differ in the config of their architecture alone, which is under `model`. Architectures that need a task of
their own, such as the HRED family (`tertulia.train.recipes.hred`), have a recipe of their own.
"""

from functools import cache, partial
from typing import Any

from pydantic import Field
from torch import nn

from tertulia.models.registry import GENERATORS
from tertulia.models.tokenizer import Tokenizer, TokenizerKind
from tertulia.train.recipe import Recipe, config_for
from tertulia.train.tasks.generative import GenerativeConfig, train_generator


class RecurrentRecipe(GenerativeConfig):
    """What the recipes of recurrent models share: their tokens are words."""

    tokenizer: TokenizerKind = "words"
    """Words, or SentencePiece subwords."""
    vocabulary: int = Field(default=20_000, ge=20)
    """Tokens to learn from the training text, at most."""


@cache
def generative_recipe(name: str) -> Recipe[Any]:
    """The recipe of an architecture."""
    return Recipe(name, config_for(GenerativeConfig, name, GENERATORS.get(name).config_type), _TRAIN)


@cache
def recurrent_recipe(name: str) -> Recipe[Any]:
    """The recipe of a recurrent architecture."""
    return Recipe(name, config_for(RecurrentRecipe, name, GENERATORS.get(name).config_type), _TRAIN)


def build(config: GenerativeConfig, tokenizer: Tokenizer) -> nn.Module:
    """The untrained model of the architecture that the config names."""
    model: nn.Module = GENERATORS.get(config.recipe).untrained(config.model, tokenizer)
    return model


_TRAIN = partial(train_generator, build=build)
