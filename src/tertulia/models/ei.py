"""EI: what a dialogue model learns from two teachers (Ghandeharioun et al. 2019, arXiv 1906.09308).

After each utterance, two small nets guess from the model's state of the conversation what the teachers make of that
utterance: one an emotion distribution, one a vector of its meaning. So the state comes to hold both, and none of the
teachers is needed afterwards. The paper's teachers were DeepMoji and InferSent; ours are any functions of texts, by
name in `tertulia.models.teachers`. The ablation `input` shows the teachers' vectors to the model instead, and needs
them for good: their names stay in the model's config.

With w for the weights, the paper's loss is the sum over a batch's tokens + w_emotion * mean over its utterances of the
cross-entropy with the teacher's distribution + w_semantics * mean over utterances and numbers of the squared error.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import nn
from torch.nn import functional

from tertulia.core.config import Config
from tertulia.core.errors import ConfigError
from tertulia.core.registry import Registry
from tertulia.models.teachers import EMOTION, SEMANTICS, Teacher, make_teacher, remembering, size_of

BY_HAND = ""
"""The name of a teacher that a program gives itself."""


class EIConfig(Config):
    """What is learned from the teachers."""

    kind: Literal["none", "emotion", "semantics", "both", "input"] = "none"
    """Guess emotions, meaning, or both; or read both beside each utterance (input)."""
    emotion_weight: float = Field(25.0, ge=0)
    """Of the cross-entropy with the emotions; the paper has 25 or 150."""
    semantics_weight: float = Field(25_000.0, ge=0)
    """Of the squared error of the meaning; the paper has 25,000 to 100,000."""
    emotion_teacher: str = "lexicon"
    """Who tells emotions: `lexicon`, or `hf:NAME_OR_FOLDER` for any text classifier."""
    semantics_teacher: str = "minilm"
    """Who tells the meaning: `minilm`, or `hf:NAME_OR_FOLDER` for any sentence encoder."""
    emotions: int | None = Field(None, ge=1)
    """Emotions that the teacher tells apart; what it gives by default."""
    semantics: int | None = Field(None, ge=1)
    """Numbers in the teacher's vector of a meaning; what it gives by default."""
    hidden: int = Field(256, ge=1)
    """Numbers between state and guess."""

    @property
    def emotion_asked(self) -> bool:
        """Whether the teacher of emotions is needed."""
        return self.kind in ("emotion", "both", "input")

    @property
    def semantics_asked(self) -> bool:
        """Whether the teacher of meaning is needed."""
        return self.kind in ("semantics", "both", "input")


class Teachers(NamedTuple):
    """Those that are needed, and given."""

    emotion: Teacher | None
    semantics: Teacher | None


def find_teachers(config: EIConfig, *, most: int | None = None) -> Teachers:
    """The teachers that a config asks for by name; each remembers what it said of texts, of at most so many."""

    def found(table: Registry, name: str, asked: bool) -> Teacher | None:
        return remembering(make_teacher(table, name), most) if asked and name != BY_HAND else None

    return Teachers(
        found(EMOTION, config.emotion_teacher, config.emotion_asked),
        found(SEMANTICS, config.semantics_teacher, config.semantics_asked),
    )


def sized(config: EIConfig, teachers: Teachers) -> EIConfig:
    """The config with the sizes that the teachers have, where it says nothing."""
    emotions = size_of(teachers.emotion) if config.emotions is None and teachers.emotion else config.emotions
    semantics = size_of(teachers.semantics) if config.semantics is None and teachers.semantics else config.semantics
    return config.model_copy(update={"emotions": emotions, "semantics": semantics})


class Distilled(NamedTuple):
    """How far the guesses are off, not weighted; zero for what is not guessed."""

    emotion: torch.Tensor  # ()
    semantics: torch.Tensor  # ()


class EIHeads(nn.Module):
    """The two small nets, and the teachers."""

    def __init__(self, config: EIConfig, state: int) -> None:
        super().__init__()
        self.config = config
        emotions = _known(config.emotions, "emotions") if config.emotion_asked else 0
        semantics = _known(config.semantics, "semantics") if config.semantics_asked else 0
        shown = config.kind == "input"
        self.input_size = emotions + semantics if shown else 0
        """Numbers that the teachers add to each utterance."""
        self.sizes = emotions, semantics
        self.emotion = _net(state, config.hidden, emotions) if emotions and not shown else None
        self.semantics = _net(state, config.hidden, semantics) if semantics and not shown else None
        self._emotion_teacher: Teacher | None = None
        self._semantics_teacher: Teacher | None = None

    def teach(self, *, emotion: Teacher | None = None, semantics: Teacher | None = None) -> None:
        """Give the teachers; one that is None stays as it was."""
        self._emotion_teacher = emotion or self._emotion_teacher
        self._semantics_teacher = semantics or self._semantics_teacher

    def seen(self, texts: Sequence[str], like: torch.Tensor) -> torch.Tensor:
        """What the teachers add to each utterance: (n, input_size)."""
        if self.config.kind != "input":
            return like.new_zeros(len(texts), 0)
        return torch.cat([self._emotions(texts, like), self._meanings(texts, like)], -1)

    def distil(self, states: torch.Tensor, texts: Sequence[str], which: torch.Tensor) -> Distilled:
        """How far the guesses from states (n, state) are off what the teachers make of texts[which]; which: (n,)."""
        emotion = semantics = states.new_zeros(())
        if not len(states):  # the mean of nothing would be no number
            return Distilled(emotion, semantics)
        if self.emotion is not None:
            emotion = soft_cross_entropy(self.emotion(states), self._emotions(texts, states)[which])
        if self.semantics is not None:
            semantics = functional.mse_loss(self.semantics(states), self._meanings(texts, states)[which])
        return Distilled(emotion, semantics)

    def weighted(self, found: Distilled) -> torch.Tensor:
        """What is added to the loss."""
        return self.config.emotion_weight * found.emotion + self.config.semantics_weight * found.semantics

    def _emotions(self, texts: Sequence[str], like: torch.Tensor) -> torch.Tensor:
        return _asked(self._emotion_teacher, "emotion", self.sizes[0], texts, like)

    def _meanings(self, texts: Sequence[str], like: torch.Tensor) -> torch.Tensor:
        return _asked(self._semantics_teacher, "semantics", self.sizes[1], texts, like)


def soft_cross_entropy(logits: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Mean over rows of -sum_k shares_k log softmax(logits)_k; both (n, k)."""
    return functional.cross_entropy(logits, shares)


def _known(size: int | None, name: str) -> int:
    if size is None:
        raise ConfigError(f"How many numbers the teacher gives is not known (ei.{name}).", hint=f"Set ei.{name}.")
    return size


def _net(state: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(state, hidden), nn.Tanh(), nn.Linear(hidden, out))


def _asked(teacher: Teacher | None, name: str, size: int, texts: Sequence[str], like: torch.Tensor) -> torch.Tensor:
    if teacher is None:
        raise ConfigError(
            f"The model needs its teacher of {name}, and was given none.", hint=f"Call teach({name}=...) first."
        )
    found = np.asarray(teacher(texts) if texts else np.zeros((0, size)), dtype=np.float32)
    if found.shape != (len(texts), size):
        raise ConfigError(
            f"The teacher of {name} gave {found.shape} numbers for {len(texts)} texts; the model has {size} for each.",
            hint=f"Set ei.{'emotions' if name == 'emotion' else name} to what the teacher gives, and train anew.",
        )
    return torch.from_numpy(found).to(like.device)
