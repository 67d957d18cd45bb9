"""Training of generative models: dialogue views in batches by token count, validated by perplexity.

A dialogue is an example for each of its speakers: the same turns, seen from the other side, with the other persona. The
loss covers all turns, the partner's too, which costs nothing extra in models that read a dialogue as one stream;
perplexity covers the turns of the speaker that the model replies for, per word whatever the tokens. A model may also
learn from a teacher's distributions (`tertulia.train.distillation`).
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import nn

from tertulia.core.config import Config
from tertulia.core.dialogue import Dialogue, Json, PersonaScope
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress
from tertulia.models.generator import DialogueView, Generator, TargetTurns
from tertulia.models.likelihood import batches_of, likelihoods, perplexity, view_size, views_of
from tertulia.models.tokenizer import SubwordTokenizer, Tokenizer, TokenizerKind, learn_tokenizer
from tertulia.train.distillation import Teacher, distillation_loss, load_teacher
from tertulia.train.loop import Loss, TrainingTask, fit
from tertulia.train.runs import (
    PARTIAL,
    RunConfig,
    TrainedModel,
    read_split,
    run_id,
    save_run,
    start_run,
    with_revised_personas,
)


class GenerativeConfig(RunConfig):
    """What the recipes of all generative models have."""

    model: Config = Config()
    """Sizes and shape of the model: the config of its architecture."""
    persona_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the examples that lose their persona in training, so that the model also works without one; of both
    personas each is dropped by itself."""
    valid_persona: PersonaScope | None = None
    """Whose persona the model sees in validation; by default as in training."""
    learn: TargetTurns = "all"
    """Turns that the loss covers: all, or only those of the speaker that the model replies for (own)."""
    tokenizer: TokenizerKind = "subwords"
    """Words, or SentencePiece subwords."""
    vocabulary: int = Field(default=8000, ge=20)
    """Tokens to learn from the training text, at most."""
    min_count: int = Field(default=2, ge=1)
    """Words seen less often in the training text are unknown, so that the model learns what an unknown word is like.
    With 1 nothing is unknown in training, and a new word costs as much as chance decides. Only for words."""
    lower_case: bool | None = None
    """Whether subwords read capitals as small letters; by default where the training text has no capitals. Words are
    always in lower case."""
    batch_tokens: int = Field(default=3000, ge=32)
    """Tokens per batch, padding included: of long dialogues fewer fit."""
    teacher: Path | None = None
    """The folder of a trained model with the same tokens, usually a larger one, to distil."""
    teacher_weight: float = Field(default=0.5, gt=0, le=1)
    """Weight of the teacher's distribution in the loss; the rest is the text's."""
    teacher_temperature: float = Field(default=1.0, gt=0)
    """Temperature of both distributions; above 1, improbable tokens matter more."""

    renamed: ClassVar[Mapping[str, str]] = {"tokens": "batch_tokens"}


class GenerativeData(NamedTuple):
    """What a generative model is trained and validated on."""

    views: list[DialogueView]
    valid: list[DialogueView]
    tokenizer: Tokenizer
    dialogues: int


Build = Callable[[Any, Tokenizer], nn.Module]
"""Builds the untrained model, a `Generator`, from the config and the tokenizer."""


def train_generator(
    config: GenerativeConfig,
    progress: Progress,
    *,
    build: Build,
    task: "type[GenerativeTask] | None" = None,
) -> TrainedModel:
    """Train a generative model and save it in `config.out`, as the bot that `config.recipe` names."""
    start_run(config, progress)
    data = read_data(config)
    training = (task or GenerativeTask)(build(config, data.tokenizer), data, config)
    teacher = [training.teacher.fingerprint] if training.teacher else []
    about: dict[str, Json] = {"teacher": teacher[0]} if teacher else {}
    about |= {
        "dialogues": data.dialogues,
        "examples": len(data.views),
        "valid_examples": len(data.valid),
        "vocabulary": len(data.tokenizer),
        "tokenizer": _describe(data.tokenizer),
    }
    identity = run_id(config, [*teacher, *data.views])
    outcome = fit(training, config, config.out / PARTIAL, progress, resume=config.resume, run_id=identity)
    training.module.eval()
    return save_run(training, config, outcome, about=about)


def read_data(config: GenerativeConfig) -> GenerativeData:
    """Views to train on and to validate on, and a tokenizer learned from the training text."""
    dialogues = read_split(config, config.split, config.max_dialogues)
    dialogues = with_revised_personas(dialogues, config)
    views = [view for dialogue in dialogues for view in views_of(dialogue, config.persona, config.speaker)]
    valid_dialogues = read_split(config, config.valid_split, config.valid_dialogues)
    scope = config.valid_persona or config.persona
    valid = [view for dialogue in valid_dialogues for view in views_of(dialogue, scope, config.valid_speaker)]
    for split, examples in ((config.split, views), (config.valid_split, valid)):
        if not examples:
            raise DataError(
                f"The split {split!r} of {config.data} has no dialogue with a turn of the chosen speaker.",
                hint="Check data, split and speaker in the recipe.",
            )
    tokenizer = learn_tokenizer(
        config.tokenizer,
        _texts(dialogues, config),
        size=config.vocabulary,
        min_count=config.min_count,
        lower_case=config.lower_case,
    )
    return GenerativeData(views, valid, tokenizer, len(dialogues))


def _texts(dialogues: Iterable[Dialogue], config: GenerativeConfig) -> Iterator[str]:
    for dialogue in dialogues:
        yield from (turn.text for turn in dialogue.turns)
        if config.persona != "none":
            yield from (sentence for persona in dialogue.personas.values() for sentence in persona.sentences)


def _describe(tokenizer: Tokenizer) -> dict[str, Json]:
    """What the run says about how its model reads text."""
    if isinstance(tokenizer, SubwordTokenizer):
        return {"kind": "subwords", "lower_case": tokenizer.lower_case, "byte_fallback": True}
    return {"kind": "words", "lower_case": True, "byte_fallback": False}


class GenerativeTask(TrainingTask):
    """Next-token prediction."""

    goal = "-perplexity"
    unit = "tokens"

    def __init__(self, model: nn.Module, data: GenerativeData, config: GenerativeConfig) -> None:
        self.module, self.data, self.config = model, data, config
        assert isinstance(model, Generator)
        self.model: Generator = model
        self.teacher: Teacher | None = load_teacher(config.teacher, model, data.tokenizer) if config.teacher else None
        self._sizes = [view_size(view, data.tokenizer) for view in data.views]

    def to(self, device: torch.device) -> None:
        """Move the model and its teacher."""
        super().to(device)
        if self.teacher:
            self.teacher.to(device)

    def batches(self, epoch: int) -> Sequence[list[DialogueView]]:
        """Views of similar length together, batches in a random order."""
        rng = random.Random(f"{self.config.seed} {epoch}")
        batches = batches_of(self._sizes, self.config.batch_tokens, rng)
        share = self.config.persona_dropout
        return [[drop_personas(self.data.views[i], share, rng) for i in batch] for batch in batches]

    def loss(self, batch: list[DialogueView]) -> Loss:
        """Mean over the tokens of the target turns."""
        if self.teacher:
            config = self.config
            weight, temperature = config.teacher_weight, config.teacher_temperature
            return distillation_loss(
                self.model, self.teacher, batch, config.learn, weight=weight, temperature=temperature
            )
        nll = self.model.nll(batch, target_turns=self.config.learn)
        count = int(nll.tokens.sum())
        return Loss(nll.total.sum() / max(1, count), count)

    def validate(self) -> Mapping[str, float]:
        """Perplexity of the turns of the speaker that the model replies for, per word and per token."""
        return perplexity(likelihoods(self.model, self.data.valid, tokens=self.config.batch_tokens))


def drop_personas(view: DialogueView, share: float, rng: random.Random) -> DialogueView:
    """The view without its personas in this share of the cases, each persona by itself."""
    if share and view.persona and rng.random() < share:
        view = replace(view, persona=())
    if share and view.partner and rng.random() < share:
        view = replace(view, partner=())
    return view
