"""The recipe of Starspace: sums of word vectors, learned from dialogues with or without personas."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field

from tertulia.core.errors import ConfigError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.rooms.vectors import read_vectors
from tertulia.models.ranker import Pair
from tertulia.models.starspace import Starspace, StarspaceConfig
from tertulia.train.rankers import RankerConfig, TrainedRanker, train_ranker
from tertulia.train.recipe import Recipe

NAME = "starspace"
S = TypeVar("S", bound=Starspace)


class WordVectorRecipe(RankerConfig):
    """What the recipes of all rankers of word vectors have."""

    model: StarspaceConfig = StarspaceConfig()
    """What it is made of."""
    vectors: Path | None = None
    """Word vectors in GloVe's format (text, or words + vectors in .npz) to begin with, no longer than the model's."""
    batch: int = Field(512, ge=2)
    """Pairs in a batch: each reply is set against all others of its batch."""
    rate: float = Field(3e-3, gt=0)
    """Learning rate, at its highest."""
    epochs: int = Field(3, ge=1)
    """Times through the data, at most."""


class StarspaceRecipe(WordVectorRecipe):
    """What is learned from, and how."""

    recipe: Literal["starspace"] = "starspace"
    """The recipe's name, so that a run's own config can be trained again."""


def train(config: StarspaceRecipe, progress: Progress | None = None) -> TrainedRanker:
    """Train Starspace and leave it in `config.out`."""
    return train_ranker(config, progress or Silent(), name=NAME, build=lambda pairs: build(Starspace, pairs, config))


def build(kind: type[S], pairs: Sequence[Pair], config: WordVectorRecipe) -> S:
    """The untrained model of a kind, which knows the words of the pairs."""
    model = kind.untrained(config.model, pairs)
    if config.vectors is not None:
        vectors = read_vectors(config.vectors, set(model.vocabulary.words))
        length = len(next(iter(vectors.values())))
        if length > config.model.dim:
            raise ConfigError(
                f"The vectors in {config.vectors} have {length} numbers, the model's only dim = {config.model.dim}."
            )
        model.fill(vectors)
    return model


RECIPE = Recipe(NAME, StarspaceRecipe, train)
