"""The recipes of the models that write, one for each architecture; they differ in their model's config alone.

Those of the HRED family, which learn from more than words, are in `tertulia.train.recipes.hred`.
"""

from typing import Literal

from pydantic import Field
from torch import nn

from tertulia.core.progress import Progress
from tertulia.models.evolved_transformer import EvolvedConfig, EvolvedTransformer
from tertulia.models.profile_memory_writer import GenerativeProfileMemory, GenerativeProfileMemoryConfig
from tertulia.models.seq2seq import Seq2Seq, Seq2SeqConfig
from tertulia.models.tokenizer import Kind, Tokenizer
from tertulia.models.transformer import Transformer, TransformerConfig
from tertulia.train.recipe import Recipe
from tertulia.train.writers import TrainedWriter, WriterConfig, train_writer


class TransformerRecipe(WriterConfig):
    """How a Transformer is trained."""

    recipe: Literal["transformer"] = "transformer"
    """The recipe's name, so that a run's own config can be trained again."""
    model: TransformerConfig = TransformerConfig()
    """Its sizes."""


class EvolvedRecipe(WriterConfig):
    """How an Evolved Transformer is trained."""

    recipe: Literal["evolved"] = "evolved"
    """The recipe's name, so that a run's own config can be trained again."""
    model: EvolvedConfig = EvolvedConfig()
    """Its sizes."""


class RecurrentRecipe(WriterConfig):
    """What the recipes of recurrent models share: they read words."""

    tokenizer: Kind = "words"
    """Words, or SentencePiece subwords."""
    vocabulary: int = Field(20_000, ge=20)
    """Tokens to learn from the training text, at most."""


class Seq2SeqRecipe(RecurrentRecipe):
    """How a Seq2Seq is trained."""

    recipe: Literal["seq2seq"] = "seq2seq"
    """The recipe's name, so that a run's own config can be trained again."""
    model: Seq2SeqConfig = Seq2SeqConfig()
    """Its sizes and shape."""


class ProfileMemoryRecipe(RecurrentRecipe):
    """How a Generative Profile Memory is trained."""

    recipe: Literal["profile-memory-writer"] = "profile-memory-writer"
    """The recipe's name, so that a run's own config can be trained again."""
    model: GenerativeProfileMemoryConfig = GenerativeProfileMemoryConfig()
    """Its sizes."""


def train(config: WriterConfig, progress: Progress) -> TrainedWriter:
    """Train the model that the config describes."""
    name, made = _KINDS[type(config)]

    def build(tokenizer: Tokenizer) -> nn.Module:
        return made.untrained(config.model, tokenizer)  # type: ignore[attr-defined,no-any-return]

    return train_writer(config, progress, name=name, build=build)


_KINDS: dict[type[WriterConfig], tuple[str, type[nn.Module]]] = {
    TransformerRecipe: ("transformer", Transformer),
    EvolvedRecipe: ("evolved", EvolvedTransformer),
    Seq2SeqRecipe: ("seq2seq", Seq2Seq),
    ProfileMemoryRecipe: ("profile-memory-writer", GenerativeProfileMemory),
}

TRANSFORMER = Recipe("transformer", TransformerRecipe, train)
EVOLVED = Recipe("evolved", EvolvedRecipe, train)
SEQ2SEQ = Recipe("seq2seq", Seq2SeqRecipe, train)
PROFILE_MEMORY = Recipe("profile-memory-writer", ProfileMemoryRecipe, train)
