"""The recipes of the models that write, one for each architecture; they differ in their model's config alone.

Those with latent variables weigh the KL divergence more and more as they learn (annealing), else the latent variables
would be ignored from the first update on; their perplexity is by importance sampling, not the bound that is learned.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from tertulia.core.progress import Progress
from tertulia.models.evolved_transformer import EvolvedConfig, EvolvedTransformer
from tertulia.models.generator import Nll, Talk
from tertulia.models.hred import HRED, HREDConfig
from tertulia.models.profile_memory_writer import GenerativeProfileMemory, GenerativeProfileMemoryConfig
from tertulia.models.seq2seq import Seq2Seq, Seq2SeqConfig
from tertulia.models.tokenizer import Kind, Tokenizer
from tertulia.models.transformer import Transformer, TransformerConfig
from tertulia.models.vhcr import VHCR, VHCRConfig
from tertulia.models.vhred import VHRED, VHREDConfig
from tertulia.train.loop import Loss
from tertulia.train.recipe import Recipe
from tertulia.train.writers import TrainedWriter, WriterConfig, WriterTrainee, perplexity, train_writer


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


class HREDRecipe(RecurrentRecipe):
    """How HRED is trained."""

    recipe: Literal["hred"] = "hred"
    """The recipe's name, so that a run's own config can be trained again."""
    model: HREDConfig = HREDConfig()
    """Its sizes."""


class VariationalRecipe(RecurrentRecipe):
    """What the recipes of models with latent variables share."""

    kl_steps: int = Field(25_000, ge=0)
    """Updates until the KL divergence counts in full; it begins with nothing."""
    samples: int = Field(10, ge=1)
    """Draws for the perplexity by importance sampling."""


class VHREDRecipe(VariationalRecipe):
    """How VHRED is trained."""

    recipe: Literal["vhred"] = "vhred"
    """The recipe's name, so that a run's own config can be trained again."""
    model: VHREDConfig = VHREDConfig()
    """Its sizes."""


class VHCRRecipe(VariationalRecipe):
    """How VHCR is trained."""

    recipe: Literal["vhcr"] = "vhcr"
    """The recipe's name, so that a run's own config can be trained again."""
    model: VHCRConfig = VHCRConfig()
    """Its sizes."""


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
        """Perplexity by importance sampling, and the mean KL divergence of a talk's latent variables."""
        state = torch.get_rng_state()
        torch.manual_seed(self.config.seed)
        kl = [self.module.losses([talk], scored="own").kl for talk in self.data.valid[:100]]
        torch.set_rng_state(state)
        found = perplexity(self.model, self.data.valid, tokens=self.config.tokens, nll=self._nll)
        return found | {"kl": float(torch.cat(kl).mean())}

    def _nll(self, talks: list[Talk]) -> Nll:
        return self.module.importance_nll(talks, scored="own", samples=self.config.samples)


def train(config: WriterConfig, progress: Progress) -> TrainedWriter:
    """Train the model that the config describes."""
    name, made, trainee = _KINDS[type(config)]

    def build(tokenizer: Tokenizer) -> nn.Module:
        return made.untrained(config.model, tokenizer)  # type: ignore[attr-defined,no-any-return]

    return train_writer(config, progress, name=name, build=build, trainee=trainee)


_KINDS: dict[type[WriterConfig], tuple[str, type[nn.Module], type[WriterTrainee]]] = {
    TransformerRecipe: ("transformer", Transformer, WriterTrainee),
    EvolvedRecipe: ("evolved", EvolvedTransformer, WriterTrainee),
    Seq2SeqRecipe: ("seq2seq", Seq2Seq, WriterTrainee),
    ProfileMemoryRecipe: ("profile-memory-writer", GenerativeProfileMemory, WriterTrainee),
    HREDRecipe: ("hred", HRED, HREDTrainee),
    VHREDRecipe: ("vhred", VHRED, VariationalTrainee),
    VHCRRecipe: ("vhcr", VHCR, VariationalTrainee),
}

TRANSFORMER = Recipe("transformer", TransformerRecipe, train)
EVOLVED = Recipe("evolved", EvolvedRecipe, train)
SEQ2SEQ = Recipe("seq2seq", Seq2SeqRecipe, train)
PROFILE_MEMORY = Recipe("profile-memory-writer", ProfileMemoryRecipe, train)
HRED_RECIPE = Recipe("hred", HREDRecipe, train)
VHRED_RECIPE = Recipe("vhred", VHREDRecipe, train)
VHCR_RECIPE = Recipe("vhcr", VHCRRecipe, train)
