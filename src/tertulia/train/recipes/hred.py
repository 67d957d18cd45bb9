"""The recipes of HRED, VHRED and VHCR, all of which can learn from teachers too (`model.ei`).

Those with latent variables weigh the KL divergence more and more as they learn (annealing), else the variables would be
ignored from the first update on. They are judged by importance sampling, not by the bound that is learned; the bound
and the divergence stand beside it. What validation draws depends on the seed alone: the same weights, the same figures.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from tertulia.core.progress import Progress
from tertulia.models.ei import find_teachers, sized
from tertulia.models.generator import Nll, Talk, counted
from tertulia.models.hred import HRED, HREDConfig
from tertulia.models.likelihood import Likelihood, likelihoods, perplexity
from tertulia.models.tokenizer import Tokenizer
from tertulia.models.vhcr import VHCR, VHCRConfig
from tertulia.models.vhred import VHRED, VHREDConfig
from tertulia.train.loop import Loss
from tertulia.train.recipe import Recipe
from tertulia.train.recipes.writers import RecurrentRecipe
from tertulia.train.writers import TrainedWriter, WriterTrainee, train_writer


class HREDRecipe(RecurrentRecipe):
    """How HRED is trained."""

    recipe: Literal["hred"] = "hred"
    """The recipe's name, so that a run's own config can be trained again."""
    model: HREDConfig = HREDConfig()
    """Its sizes, and its teachers."""


class VariationalRecipe(RecurrentRecipe):
    """What the recipes of models with latent variables share."""

    kl_steps: int = Field(25_000, ge=0)
    """Updates until the KL divergence counts in full: its weight rises by 1 / kl_steps at each."""
    samples: int = Field(10, ge=1)
    """Draws for the perplexity by importance sampling."""


class VHREDRecipe(VariationalRecipe):
    """How VHRED is trained."""

    recipe: Literal["vhred"] = "vhred"
    """The recipe's name, so that a run's own config can be trained again."""
    model: VHREDConfig = VHREDConfig()
    """Its sizes, and its teachers."""


class VHCRRecipe(VariationalRecipe):
    """How VHCR is trained."""

    recipe: Literal["vhcr"] = "vhcr"
    """The recipe's name, so that a run's own config can be trained again."""
    model: VHCRConfig = VHCRConfig()
    """Its sizes, and its teachers."""


class HREDTrainee(WriterTrainee):
    """HRED: what the teachers add is learned too."""

    module: HRED

    def loss(self, batch: list[Talk]) -> Loss:
        """The sum of all parts over the tokens of the turns that count."""
        found = self.module.losses(batch, scored=self.config.learn)
        count = int(found.nll.tokens.sum())
        return Loss(found.loss(self.module.kl_weight) / max(1, count), count)


class VariationalTrainee(HREDTrainee):
    """VHRED and VHCR: annealed, and judged by importance sampling."""

    module: VHRED
    config: VariationalRecipe

    def begin(self, step: int) -> None:
        """Weigh the KL divergence."""
        self.module.kl_weight = min(1.0, step / self.config.kl_steps) if self.config.kl_steps else 1.0

    def validate(self) -> Mapping[str, float]:
        """Perplexity by importance sampling; by the bound; and the KL divergence in nats a turn, part of the latter."""
        dice = torch.Generator(next(self.module.parameters()).device).manual_seed(self.config.seed)
        bounds: list[float] = []
        kl: list[float] = []

        def nll(talks: list[Talk]) -> Nll:
            found = self.module.importance(talks, scored="own", samples=self.config.samples, generator=dice)
            bounds.extend(found.bound.tolist())
            kl.extend(found.kl.tolist())
            return found.nll

        valid = self.data.valid
        found = likelihoods(self.model, valid, tokens=self.config.tokens, nll=nll)
        words = sum(one.words for one in found)
        bound = perplexity([Likelihood(sum(bounds), words, sum(one.tokens for one in found))])["perplexity"]
        turns = sum(sum(counted(talk, "own")) for talk in valid)
        return perplexity(found) | {"bound": bound, "kl": sum(kl) / turns}


def train(config: HREDRecipe | VHREDRecipe | VHCRRecipe, progress: Progress) -> TrainedWriter:
    """Train the model that the config describes."""
    made = _MODELS[config.recipe]

    def build(tokenizer: Tokenizer) -> nn.Module:
        teachers = find_teachers(config.model.ei)
        update = {"ei": sized(config.model.ei, teachers), "personas": config.persona != "none"}
        model = made.untrained(config.model.model_copy(update=update), tokenizer)
        model.ei.teach(emotion=teachers.emotion, semantics=teachers.semantics)
        return model

    trainee = VariationalTrainee if isinstance(config, VariationalRecipe) else HREDTrainee
    return train_writer(config, progress, name=config.recipe, build=build, trainee=trainee)


_MODELS: dict[str, type[HRED]] = {"hred": HRED, "vhred": VHRED, "vhcr": VHCR}

HRED_RECIPE = Recipe("hred", HREDRecipe, train)
VHRED_RECIPE = Recipe("vhred", VHREDRecipe, train)
VHCR_RECIPE = Recipe("vhcr", VHCRRecipe, train)
