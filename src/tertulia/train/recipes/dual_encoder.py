"""The recipe of the Ubuntu paper's dual encoder: an RNN or LSTM that ranks replies, from dialogues without personas."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from tertulia.core.dialogue import Whose
from tertulia.core.errors import ConfigError
from tertulia.core.progress import Progress, Silent
from tertulia.corpus.rooms.vectors import read_vectors
from tertulia.models.dual_encoder import DualEncoder, DualEncoderConfig, split_tags
from tertulia.models.ranker import Pair
from tertulia.models.vocabulary import Vocabulary
from tertulia.train.rankers import RankerConfig, TrainedRanker, train_ranker
from tertulia.train.recipe import Recipe

NAME = "dual-encoder"


class DualEncoderRecipe(DualEncoderConfig, RankerConfig):
    """What is learned from, and how."""

    recipe: Literal["dual-encoder"] = "dual-encoder"
    """The recipe's name, so that a run's own config can be trained again."""
    vectors: Path | None = None
    """Word vectors in GloVe's format (text, or words + vectors in .npz) to begin with, as long as `dim` says."""
    min_count: int = Field(2, ge=1)
    """Times a word must occur to be known."""
    max_words: int | None = Field(None, ge=1)
    """Know so many words at most, the most frequent ones."""
    persona: Whose = "none"
    """Whose persona is shown: none, own, their or both. The paper knows no personas; they are read before the turns."""
    clip: float = Field(10.0, gt=0)
    """Longest gradient."""
    candidates: int = Field(10, ge=2)
    """Replies to choose among in validation."""
    per_dialogue: int = Field(16, ge=1)
    """Pairs of one dialogue that go into the same batch, where their contexts are read in one run; they are not set
    against each other."""


def train(config: DualEncoderRecipe, progress: Progress | None = None) -> TrainedRanker:
    """Train a dual encoder and leave it in `config.out`."""
    return train_ranker(config, progress or Silent(), name=NAME, build=lambda pairs: build(pairs, config))


def build(pairs: Sequence[Pair], config: DualEncoderRecipe) -> DualEncoder:
    """The untrained model, which knows the words of the replies and of the turns that opened the dialogues."""
    openings = {pair.group: pair.query.turns[0] for pair in reversed(pairs) if pair.query.turns}
    persona = {text for pair in pairs for text in pair.query.persona}
    said = [pair.reply for pair in pairs] + [*openings.values(), *sorted(persona)]
    texts, tags = split_tags(said, min_count=config.min_count)
    vocabulary = Vocabulary.count(texts, min_count=config.min_count, max_words=config.max_words)
    shape = DualEncoderConfig(**{name: getattr(config, name) for name in DualEncoderConfig.model_fields})
    model = DualEncoder(shape, vocabulary, tags)
    if config.vectors is not None:
        vectors = read_vectors(config.vectors, set(vocabulary.words))
        length = len(next(iter(vectors.values())))
        if length != config.dim:
            raise ConfigError(f"The vectors in {config.vectors} have {length} numbers, not dim = {config.dim}.")
        model.fill(vectors)
    return model


RECIPE = Recipe(NAME, DualEncoderRecipe, train)
