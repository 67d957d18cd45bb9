"""Fine-tuning of language models on dialogues: next-token prediction on whole dialogues, validated by perplexity.

A dialogue is an example for each of its speakers, one stream of tokens with that speaker's persona in front. By default
the loss covers both speakers' turns: the partner's turns are text of the same kind, and predicting them costs nothing
extra. Further corpora are mixed in by weight; validation stays with the main one.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from pydantic import Field

from tertulia.core.dialogue import Dialogue, PersonaScope
from tertulia.core.errors import ConfigError, DataError, UsageError
from tertulia.models.generator import DialogueView, TargetTurns
from tertulia.models.hf.finetuned import SMOLLM2, FinetunedGenerator
from tertulia.models.hf.lora import TuningConfig
from tertulia.models.likelihood import batches_of, likelihoods, perplexity, views_of
from tertulia.models.sentence_encoder import SentenceEncoder
from tertulia.train.loop import Loss, TrainingTask
from tertulia.train.rewording import Rewording
from tertulia.train.runs import RunConfig, read_split, with_revised_personas
from tertulia.train.tasks.generative import drop_personas


class FinetuneConfig(RunConfig):
    """What is fine-tuned, on what, and how."""

    base: str = SMOLLM2
    """The model to fine-tune: `smollm2`, which works offline, a folder, or a name on the Hugging Face hub."""
    model: TuningConfig = TuningConfig()
    """What is trained of it, and how long a dialogue may be."""
    mix: dict[str, float] = Field(default_factory=dict)
    """Further corpora to train on, each with a weight: how many of its dialogues there are for each one of `data`."""
    learn: TargetTurns = "all"
    """Turns that the loss covers: both speakers' (all), or only those of the one that the model replies for (own)."""
    persona_dropout: float = Field(default=0.15, ge=0, lt=1)
    """Share of the examples that lose their persona in training, so that the model also works without one; of both
    personas each is dropped by itself."""
    reworded_share: float = Field(default=0.0, ge=0, le=1)
    """Share of the examples whose persona sentences are replaced, anew in each epoch, by similar ones of other personas
    (by the packaged sentence encoder): less to copy from, more to understand."""
    valid_persona: PersonaScope | None = None
    """Whose persona the model sees in validation; by default as in training."""
    min_turns: int = Field(default=3, ge=1)
    """Dialogues with fewer turns are left out; in those nobody speaks twice."""
    batch_tokens: int = Field(default=512, ge=32)
    """Tokens per batch, padding included: of long dialogues fewer fit. Memory grows with it."""
    accumulate: int = Field(default=4, ge=1)
    """Batches per update, in each process."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the data, at most."""
    warmup: int = Field(default=20, ge=0)
    """Updates of linear warm-up."""


class FinetuneData(NamedTuple):
    """What a language model is fine-tuned and validated on."""

    corpora: list[list[DialogueView]]
    """The views of each corpus, the main one first."""
    weights: list[float]
    """Of each corpus; 1 for the main one."""
    valid: list[DialogueView]
    dialogues: int

    @property
    def views(self) -> list[DialogueView]:
        """Those of all corpora, one after the other."""
        return [view for corpus in self.corpora for view in corpus]


def read_data(config: FinetuneConfig) -> FinetuneData:
    """Views to train on, of every corpus, and to validate on."""
    for corpus, weight in config.mix.items():
        if not 0 < weight < float("inf"):
            raise ConfigError(f"The weight of {corpus!r} in `mix` is {weight}.", hint="Give a number above 0.")
    corpora, count = [], 0
    for source in (config.data, *config.mix):
        dialogues = _read(config.model_copy(update={"data": source}), config.split, config.max_dialogues)
        count += len(dialogues)
        dialogues = with_revised_personas(dialogues, config, required=source == config.data)
        corpora.append(_views(dialogues, config.persona, config.speaker))
        _check(corpora[-1], source, config.split)
    valid_dialogues = _read(config, config.valid_split, config.valid_dialogues)
    valid = _views(valid_dialogues, config.valid_persona or config.persona, config.valid_speaker)
    _check(valid, config.data, config.valid_split)
    return FinetuneData(corpora, [1.0, *config.mix.values()], valid, count)


def _read(config: FinetuneConfig, split: str, count: int | None) -> list[Dialogue]:
    """The dialogues of a split that are long enough."""
    try:
        dialogues = read_split(config, split, count)
    except DataError as error:  # here a wrong setting rather than a damaged file
        raise UsageError(error.message, hint=error.hint) from error
    kept = [dialogue for dialogue in dialogues if len(dialogue.turns) >= config.min_turns]
    if dialogues and not kept:
        raise UsageError(
            f"No dialogue in the split {split!r} of {config.data} has {config.min_turns} turns"
            f"{': nobody speaks twice' if config.min_turns == 3 else ''}.",
            hint="Give dialogues (`tertulia corpus mine` makes them from messages), or lower min_turns in the recipe.",
        )
    return kept


def _views(dialogues: Sequence[Dialogue], scope: PersonaScope, speaker: str | None) -> list[DialogueView]:
    return [view for dialogue in dialogues for view in views_of(dialogue, scope, speaker) if any(view.turns)]


def _check(views: Sequence[DialogueView], source: str, split: str) -> None:
    if not views:
        raise UsageError(
            f"The split {split!r} of {source} has no dialogue with a turn of the chosen speaker.",
            hint="Check data, split and speaker in the recipe: `tertulia corpus stats` shows what there is.",
        )


class FinetuneTask(TrainingTask):
    """Next-token prediction with a language model that has been trained before."""

    goal = "-perplexity"
    unit = "tokens"

    def __init__(self, model: FinetunedGenerator, data: FinetuneData, config: FinetuneConfig) -> None:
        self.module = self.model = model
        self.data, self.config = data, config
        self._views = data.views
        self._sizes = [len(model.layout.stream(view).ids) for view in self._views]
        self._rewording = Rewording.of(self._views, SentenceEncoder.load().eval()) if config.reworded_share else None

    def batches(self, epoch: int) -> Sequence[list[DialogueView]]:
        """Views of similar length together, batches in a random order."""
        rng = random.Random(f"{self.config.seed} {epoch}")
        drawn = list(self._draw(rng))
        batches = batches_of([self._sizes[i] for i in drawn], self.config.batch_tokens, rng)
        return [[self._varied(self._views[drawn[i]], rng) for i in batch] for batch in batches]

    def _varied(self, view: DialogueView, rng: random.Random) -> DialogueView:
        """The view with its personas, with reworded ones, or without."""
        if self._rewording and rng.random() < self.config.reworded_share:
            view = self._rewording.reword(view, rng)
        return drop_personas(view, self.config.persona_dropout, rng)

    def _draw(self, rng: random.Random) -> Iterator[int]:
        """The views of an epoch: all of the main corpus, and of the others as many as their weights say."""
        start, main = 0, len(self.data.corpora[0])
        for corpus, weight in zip(self.data.corpora, self.data.weights, strict=True):
            indices = range(start, start + len(corpus))
            passes, rest = divmod(max(1, round(weight * main)), len(corpus))
            yield from list(indices) * passes
            yield from rng.sample(indices, rest)
            start += len(corpus)

    def loss(self, batch: list[DialogueView]) -> Loss:
        """Mean over the tokens of the target turns."""
        self.model.round_frozen(torch.is_autocast_enabled(self.model.chat.lm.device.type))
        total, count = self.model.loss(batch, self.config.learn)
        return Loss(total / max(1, count), count)

    def validate(self) -> Mapping[str, float]:
        """Perplexity of the turns of the speaker that the model replies for, per word and per token."""
        self.model.round_frozen(False)
        return perplexity(likelihoods(self.model, self.data.valid))
