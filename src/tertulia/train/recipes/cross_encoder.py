"""The recipe of the cross-encoder, which reorders the best replies of another ranker."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

from pydantic import Field

from tertulia.metrics.ranking import ranks_of_truth
from tertulia.models.rankers.base import TrainingPair
from tertulia.models.rankers.cross_encoder import CrossEncoder, CrossEncoderConfig
from tertulia.train.recipe import Recipe
from tertulia.train.recipes.rankers import EncoderRecipe
from tertulia.train.tasks.ranking import PairTask, query_of, train_ranker


class CrossEncoderRecipe(EncoderRecipe):
    """How the cross-encoder is trained."""

    recipe: Literal["cross-encoder"] = "cross-encoder"
    """The recipe's name, so that the config saved with a run can be trained again."""
    model: CrossEncoderConfig = CrossEncoderConfig()
    """Sizes and shape of the model."""
    batch: int = Field(default=16, ge=2)
    """Pairs per batch; each true reply's distractors are a few others of its batch."""
    per_dialogue: int = Field(default=1, ge=1)
    """Pairs of one dialogue per batch; they are not each other's distractors."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the data, at most."""
    valid_dialogues: int = Field(default=20, ge=2)
    """Validate on this many dialogues: every candidate is read together with its query, which takes time."""
    pool: bool = False
    """It cannot search a pool; another bot uses it, as `rerank=RUN`."""


class CrossEncoderTask(PairTask):
    """Training of a cross-encoder."""

    module: CrossEncoder

    def validate(self) -> Mapping[str, float]:
        """hits@1 if it ranks all candidates by itself."""
        config, tasks = self.config, self.data.tasks
        queries = [query_of(task.exchange, config.persona, max_turns=config.max_turns) for task in tasks]
        scores = self.module.score_pairs(queries, [task.candidates for task in tasks])
        return {"hits@1": float((ranks_of_truth(scores, [task.truth for task in tasks]) == 1).mean())}


def build(config: CrossEncoderRecipe, pairs: Sequence[TrainingPair]) -> CrossEncoder:
    """The untrained model."""
    return CrossEncoder.untrained(config.model, pairs)


RECIPE = Recipe("cross-encoder", CrossEncoderRecipe, partial(train_ranker, build=build, task=CrossEncoderTask))
