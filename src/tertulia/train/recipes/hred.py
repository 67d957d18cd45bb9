"""The recipes of HRED, VHRED and VHCR, all of which can also learn from teachers (`model.ei`).

For models with latent variables the weight of the KL divergence is annealed: with the full weight from the start, the
variables would be ignored. They are validated by importance sampling, not by the bound that is trained on; bound and
divergence are reported beside it. Samples in validation depend on the seed alone, so the same weights give the same
figures.
"""

from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import Literal

from pydantic import Field
from torch import nn

from tertulia.models.generator import DialogueView, Nll
from tertulia.models.generators.ei import load_teachers, with_sizes
from tertulia.models.generators.hred import HRED, HREDConfig
from tertulia.models.generators.vhcr import VHCR, VHCRConfig
from tertulia.models.generators.vhred import VHRED, VHREDConfig
from tertulia.models.likelihood import Likelihood, likelihoods, perplexity
from tertulia.models.tokenizer import Tokenizer
from tertulia.train.loop import Loss
from tertulia.train.recipe import Recipe
from tertulia.train.recipes.generators import RecurrentRecipe
from tertulia.train.tasks.generative import GenerativeTask, train_generator


class HREDRecipe(RecurrentRecipe):
    """Options to train HRED."""

    recipe: Literal["hred"] = "hred"
    """The recipe's name, so that a run's own config can be used again."""
    model: HREDConfig = HREDConfig()
    """Sizes and teachers of the model."""


class VariationalRecipe(RecurrentRecipe):
    """Options of models with latent variables."""

    kl_steps: int = Field(default=25_000, ge=0)
    """Updates until the KL divergence has its full weight, which rises by 1 / kl_steps with each."""
    samples: int = Field(default=10, ge=1)
    """Samples for the perplexity by importance sampling."""


class VHREDRecipe(VariationalRecipe):
    """Options to train VHRED."""

    recipe: Literal["vhred"] = "vhred"
    """The recipe's name, so that a run's own config can be used again."""
    model: VHREDConfig = VHREDConfig()
    """Sizes and teachers of the model."""


class VHCRRecipe(VariationalRecipe):
    """Options to train VHCR."""

    recipe: Literal["vhcr"] = "vhcr"
    """The recipe's name, so that a run's own config can be used again."""
    model: VHCRConfig = VHCRConfig()
    """Sizes and teachers of the model."""


class HREDTask(GenerativeTask):
    """HRED: the loss includes the EI heads."""

    module: HRED
    kl_weight = 1.0
    """Weight of the KL divergence in the loss; without latent variables the divergence is zero."""

    def loss(self, batch: list[DialogueView]) -> Loss:
        """The sum of all parts, per target token."""
        losses = self.module.losses(batch, target_turns=self.config.learn)
        tokens = int(losses.nll.tokens.sum())
        return Loss(losses.loss(self.kl_weight) / max(1, tokens), tokens)


class VariationalTask(HREDTask):
    """VHRED and VHCR: KL annealing, and validation by importance sampling."""

    module: VHRED
    config: VariationalRecipe

    def begin(self, step: int) -> None:
        """Set the weight of the KL divergence."""
        self.kl_weight = min(1.0, step / self.config.kl_steps) if self.config.kl_steps else 1.0

    def validate(self) -> Mapping[str, float]:
        """Perplexity by importance sampling; by the bound; and the KL part of the bound in nats per word."""
        seeds = count(self.config.seed)  # another seed for each batch: estimates of batches stay independent
        bounds: list[float] = []
        kl: list[float] = []

        def nll(views: list[DialogueView]) -> Nll:
            estimate = self.module.importance(views, samples=self.config.samples, seed=next(seeds), target_turns="own")
            bounds.extend(estimate.bound.tolist())
            kl.extend(estimate.kl.tolist())
            return estimate.nll

        valid = self.data.valid
        estimates = likelihoods(self.model, valid, tokens=self.config.batch_tokens, nll=nll)
        words, tokens = sum(one.words for one in estimates), sum(one.tokens for one in estimates)
        bound = perplexity([Likelihood(sum(bounds), words, tokens)])["perplexity"]
        return perplexity(estimates) | {"bound": bound, "kl": sum(kl) / words}


def build(config: HREDRecipe | VHREDRecipe | VHCRRecipe, tokenizer: Tokenizer) -> nn.Module:
    """The untrained model, with its teachers."""
    teachers = load_teachers(config.model.ei)
    update = {"ei": with_sizes(config.model.ei, teachers), "personas": config.persona != "none"}
    model = _MODELS[config.recipe].untrained(config.model.model_copy(update=update), tokenizer)
    model.ei.set_teachers(emotion=teachers.emotion, semantics=teachers.semantics)
    return model


_MODELS: dict[str, type[HRED]] = {"hred": HRED, "vhred": VHRED, "vhcr": VHCR}

HRED_RECIPE = Recipe("hred", HREDRecipe, partial(train_generator, build=build, task=HREDTask))
VHRED_RECIPE = Recipe("vhred", VHREDRecipe, partial(train_generator, build=build, task=VariationalTask))
VHCR_RECIPE = Recipe("vhcr", VHCRRecipe, partial(train_generator, build=build, task=VariationalTask))
