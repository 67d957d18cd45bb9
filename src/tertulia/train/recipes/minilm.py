"""The recipe of the sentence ranker: all-MiniLM-L6-v2 fine-tuned with in-batch negatives."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from torch import nn

from tertulia.core.progress import Progress
from tertulia.models.ranker import Pair
from tertulia.models.sentence_ranker import SentenceRanker, SentenceRankerConfig
from tertulia.train.rankers import RankerConfig, TrainedRanker, train_ranker
from tertulia.train.recipe import Recipe


class MiniLMConfig(RankerConfig):
    """How it is trained."""

    recipe: Literal["minilm"] = "minilm"
    """The recipe's name, so that a run's own config can be trained again."""
    model: SentenceRankerConfig = SentenceRankerConfig()
    """What it is made of."""
    batch: int = Field(96, ge=2)
    """Pairs in a batch: each reply is set against all others of its batch."""
    per_dialogue: int = Field(4, ge=1)
    """Pairs of one dialogue that go into the same batch, so that its persona is encoded once for all of them."""
    rate: float = Field(1e-4, gt=0)
    """Learning rate, at its highest."""
    warmup: int = Field(50, ge=0)
    """Updates until the rate is reached."""
    weight_decay: float = Field(0.01, ge=0)
    """Pull of the weights towards zero."""
    persona_share: float = Field(0.7, ge=0, le=1)
    """Share of training pairs that see a persona: the same model is then good with one and without."""
    epochs: int = Field(2, ge=1)
    """Times through the data, at most."""


def train(config: MiniLMConfig, progress: Progress) -> TrainedRanker:
    """Fine-tune a sentence encoder and leave the ranker in `config.out`."""

    def build(pairs: Sequence[Pair]) -> nn.Module:
        return SentenceRanker.untrained(config.model)

    return train_ranker(config, progress, name="minilm", build=build)


RECIPE = Recipe("minilm", MiniLMConfig, train)
