"""The recipe of the Ubuntu paper's dual encoder: an RNN or LSTM that ranks replies, from dialogues without personas."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from tertulia.artefacts.word_vectors import read_word_vectors
from tertulia.core.dialogue import PersonaScope
from tertulia.core.errors import ConfigError
from tertulia.models.rankers.base import TrainingPair
from tertulia.models.rankers.dual_encoder import DualEncoder, DualEncoderConfig
from tertulia.train.recipe import Recipe
from tertulia.train.tasks.ranking import RankerConfig, train_ranker

_IN_MODEL = ("cell", "hidden", "dim", "tied", "summary", "max_tokens", "loss", "dropout", "word_dropout", "min_count")


class DualEncoderRecipe(RankerConfig):
    """How the dual encoder is trained."""

    recipe: Literal["dual-encoder"] = "dual-encoder"
    """The recipe's name, so that the config saved with a run can be trained again."""
    model: DualEncoderConfig = DualEncoderConfig()
    """Sizes and shape of the model."""
    vectors: Path | None = None
    """Word vectors in GloVe's format (text, or words + vectors in .npz) to start from, of `dim` numbers."""
    persona: PersonaScope = "none"
    """Whose persona the model sees: none, own, their or both. The paper has none; it is read before the turns."""
    max_grad_norm: float = Field(default=10.0, gt=0)
    """Gradients are clipped to this norm."""
    candidates: int = Field(default=10, ge=2)
    """Candidate replies in validation."""
    per_dialogue: int = Field(default=16, ge=1)
    """Pairs of one dialogue per batch, whose contexts are read in one pass; they are not each other's distractors."""

    renamed: ClassVar[Mapping[str, str]] = {key: f"model.{key}" for key in (*_IN_MODEL, "max_words")}


def build(config: DualEncoderRecipe, pairs: Sequence[TrainingPair]) -> DualEncoder:
    """The untrained model, with pretrained word vectors if the config names some."""
    model = DualEncoder.untrained(config.model, pairs)
    if config.vectors is not None:
        vectors = read_word_vectors(config.vectors, set(model.vocabulary.words))
        size = len(next(iter(vectors.values())))
        if size != config.model.dim:
            raise ConfigError(f"The vectors in {config.vectors} have {size} numbers, not dim = {config.model.dim}.")
        model.load_word_vectors(vectors)
    return model


RECIPE = Recipe("dual-encoder", DualEncoderRecipe, partial(train_ranker, build=build))
