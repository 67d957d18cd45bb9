"""The recipe of the cross-encoder that puts the best few of another ranker in order."""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from pydantic import Field

from tertulia.core.progress import Progress
from tertulia.corpus.candidates import RankTask
from tertulia.metrics.ranking import ranks_of_truth
from tertulia.models.cross_encoder import CrossEncoder, CrossEncoderConfig
from tertulia.models.ranker import Pair
from tertulia.train.rankers import PairBatches, RankerConfig, TrainedRanker, query_of, train_ranker
from tertulia.train.recipe import Recipe


class CrossConfig(RankerConfig):
    """How it is trained."""

    recipe: Literal["cross-encoder"] = "cross-encoder"
    """The recipe's name, so that a run's own config can be trained again."""
    model: CrossEncoderConfig = CrossEncoderConfig()
    """What it is made of."""
    batch: int = Field(16, ge=2)
    """Pairs in a batch; each true reply is set against a few others of its batch."""
    rate: float = Field(1e-4, gt=0)
    """Learning rate, at its highest."""
    warmup: int = Field(50, ge=0)
    """Updates until the rate is reached."""
    weight_decay: float = Field(0.01, ge=0)
    """Pull of the weights towards zero."""
    persona_share: float = Field(0.7, ge=0, le=1)
    """Share of training pairs that see a persona."""
    epochs: int = Field(1, ge=1)
    """Times through the data, at most."""
    valid_dialogues: int = Field(20, ge=2)
    """Validate on so many dialogues: every candidate is read with its query, which takes time."""
    pool: bool = False
    """It cannot search a pool; it goes with another bot, as `rerank=RUN`."""


class CrossTrainee(PairBatches):
    """A cross-encoder as the loop sees it."""

    module: CrossEncoder

    def validate(self) -> Mapping[str, float]:
        """hits@1 when it puts all candidates in order by itself."""
        return {"hits@1": hits_of(self.module, self.data.tasks, self.config)}


def hits_of(model: CrossEncoder, tasks: list[RankTask], config: RankerConfig) -> float:
    """The share of true replies that it puts first."""
    queries = [query_of(task.exchange, config.persona, max_turns=config.max_turns) for task in tasks]
    ranks = ranks_of_truth(
        model.score_pairs(queries, [task.candidates for task in tasks]), [task.truth for task in tasks]
    )
    return float((ranks == 1).mean())


def train(config: CrossConfig, progress: Progress) -> TrainedRanker:
    """Train a cross-encoder and leave it in `config.out`."""

    def build(pairs: Sequence[Pair]) -> torch.nn.Module:
        return CrossEncoder.untrained(config.model)

    return train_ranker(config, progress, name="cross-encoder", build=build, trainee=CrossTrainee)


RECIPE = Recipe("cross-encoder", CrossConfig, train)
