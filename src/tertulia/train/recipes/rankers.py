"""Recipes of rankers, made from their rows in `tertulia.models.registry`.

Rankers of word vectors (Starspace, Profile Memory) and fine-tuned sentence encoders differ in their defaults, and
within each family in the config of the architecture, which is under `model`.
"""

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from pydantic import Field
from torch import nn

from tertulia.artefacts.word_vectors import read_word_vectors
from tertulia.core.errors import ConfigError
from tertulia.models.rankers.base import TrainingPair
from tertulia.models.rankers.starspace import Starspace, StarspaceConfig
from tertulia.models.registry import RANKERS
from tertulia.train.recipe import Recipe, config_for
from tertulia.train.tasks.ranking import RankerConfig, train_ranker


class WordVectorRecipe(RankerConfig):
    """What the recipes of all rankers of word vectors have."""

    model: StarspaceConfig = StarspaceConfig()
    """Sizes and shape of the model."""
    vectors: Path | None = None
    """Word vectors in GloVe's format (text, or words + vectors in .npz) to start from, of at most `dim` numbers."""
    batch: int = Field(default=512, ge=2)
    """Pairs per batch: each reply's distractors are the other replies of its batch."""
    learning_rate: float = Field(default=3e-3, gt=0)
    """Peak learning rate."""
    epochs: int = Field(default=3, ge=1)
    """Passes over the data, at most."""


class EncoderRecipe(RankerConfig):
    """What the recipes of all fine-tuned sentence encoders have."""

    batch: int = Field(default=96, ge=2)
    """Pairs per batch: each reply's distractors are the other replies of its batch."""
    per_dialogue: int = Field(default=4, ge=1)
    """Pairs of one dialogue per batch, so that its persona is encoded once for all of them."""
    learning_rate: float = Field(default=1e-4, gt=0)
    """Peak learning rate."""
    warmup: int = Field(default=50, ge=0)
    """Updates of linear warm-up."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay."""
    persona_share: float = Field(default=0.7, ge=0, le=1)
    """Share of the training pairs that keep their persona: the same model then works with one and without."""
    epochs: int = Field(default=2, ge=1)
    """Passes over the data, at most."""


@cache
def word_vector_recipe(name: str) -> Recipe[Any]:
    """The recipe of a ranker of word vectors."""
    config = config_for(WordVectorRecipe, name, RANKERS.get(name).config_type)
    return Recipe(name, config, partial(train_ranker, build=build_word_vectors))


@cache
def sentence_recipe(name: str) -> Recipe[Any]:
    """The recipe of a fine-tuned sentence encoder."""
    config = config_for(EncoderRecipe, name, RANKERS.get(name).config_type)
    return Recipe(name, config, partial(train_ranker, build=build_encoder))


def build_encoder(config: EncoderRecipe, pairs: Sequence[TrainingPair]) -> nn.Module:
    """The untrained model of the architecture that the config names."""
    model: nn.Module = RANKERS.get(config.recipe).untrained(config.model, pairs)
    return model


def build_word_vectors(config: WordVectorRecipe, pairs: Sequence[TrainingPair]) -> Starspace:
    """The untrained model with the vocabulary of the pairs, and pretrained vectors if the config names some."""
    model: Starspace = RANKERS.get(config.recipe).untrained(config.model, pairs)
    if config.vectors is not None:
        vectors = read_word_vectors(config.vectors, set(model.vocabulary.words))
        size = len(next(iter(vectors.values())))
        if size > config.model.dim:
            raise ConfigError(
                f"The vectors in {config.vectors} have {size} numbers, more than dim = {config.model.dim}."
            )
        model.load_word_vectors(vectors)
    return model
