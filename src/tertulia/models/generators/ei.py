"""EI: a dialogue model distils emotion and meaning from two teachers (Ghandeharioun et al. 2019, arXiv 1906.09308).

After each utterance, two small networks predict the teachers' outputs for that utterance from the model's state of the
conversation: an emotion distribution, and a vector of its meaning. So the state comes to hold both, and the teachers
are not needed afterwards. The paper's teachers were DeepMoji and InferSent; here they are any functions of texts, by
name in `teachers`. The ablation `input` feeds the teachers' outputs to the model instead, and needs them permanently:
their names stay in the model's config.

With w for the weights, the paper's loss is the sum over a batch's tokens + w_emotion * mean over its utterances of the
cross-entropy with the teacher's distribution + w_semantics * mean over utterances and dimensions of the squared error.
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
from tertulia.models.generators.base import full_precision
from tertulia.models.generators.teachers import EMOTION, SEMANTICS, TextTeacher, cached, make_teacher, output_size

IN_PROCESS = ""
"""The name of a teacher that a program provided as a function: it cannot be loaded by name."""


class EIConfig(Config):
    """What is learned from the teachers."""

    kind: Literal["none", "emotion", "semantics", "both", "input"] = "none"
    """Predict emotions, meaning, or both; or read both with each utterance (input)."""
    emotion_weight: float = Field(default=25.0, ge=0)
    """Weight of the cross-entropy with the emotion distribution; the paper has 25 or 150."""
    semantics_weight: float = Field(default=25_000.0, ge=0)
    """Weight of the squared error of the meaning; the paper has 25,000 to 100,000."""
    emotion_teacher: str = "lexicon"
    """Teacher of emotions: `lexicon`, or `hf:NAME_OR_FOLDER` for any text classifier."""
    semantics_teacher: str = "minilm"
    """Teacher of meaning: `minilm`, or `hf:NAME_OR_FOLDER` for any sentence encoder."""
    emotions: int | None = Field(default=None, ge=1)
    """Number of emotions that the teacher distinguishes; by default taken from the teacher."""
    semantics: int | None = Field(default=None, ge=1)
    """Size of the teacher's sentence embedding; by default taken from the teacher."""
    hidden: int = Field(default=256, ge=1)
    """Size of the hidden layer of each head."""

    @property
    def needs_emotion(self) -> bool:
        """Whether the teacher of emotions is needed."""
        return self.kind in ("emotion", "both", "input")

    @property
    def needs_semantics(self) -> bool:
        """Whether the teacher of meaning is needed."""
        return self.kind in ("semantics", "both", "input")


class Teachers(NamedTuple):
    """The teachers that are needed and available."""

    emotion: TextTeacher | None
    semantics: TextTeacher | None


def load_teachers(config: EIConfig, *, cache_size: int | None = None) -> Teachers:
    """Load the teachers that a config names; each caches its outputs, for at most `cache_size` texts."""

    def load(registry: Registry, name: str, needed: bool) -> TextTeacher | None:
        return cached(make_teacher(registry, name), cache_size) if needed and name != IN_PROCESS else None

    return Teachers(
        load(EMOTION, config.emotion_teacher, config.needs_emotion),
        load(SEMANTICS, config.semantics_teacher, config.needs_semantics),
    )


def with_sizes(config: EIConfig, teachers: Teachers) -> EIConfig:
    """The config with its missing sizes filled in from the teachers."""
    emotions = output_size(teachers.emotion) if config.emotions is None and teachers.emotion else config.emotions
    semantics = output_size(teachers.semantics) if config.semantics is None and teachers.semantics else config.semantics
    return config.model_copy(update={"emotions": emotions, "semantics": semantics})


class DistillationLoss(NamedTuple):
    """Losses of the two heads, unweighted; zero for a head that does not exist."""

    emotion: torch.Tensor  # ()
    semantics: torch.Tensor  # ()


class EIHeads(nn.Module):
    """The two small networks, and their teachers."""

    def __init__(self, config: EIConfig, state: int) -> None:
        super().__init__()
        self.config = config
        emotions = _required(config.emotions, "emotions") if config.needs_emotion else 0
        semantics = _required(config.semantics, "semantics") if config.needs_semantics else 0
        as_input = config.kind == "input"
        self.input_size = emotions + semantics if as_input else 0
        """Dimensions that the teachers add to each utterance."""
        self.sizes = emotions, semantics
        self.emotion = _head(state, config.hidden, emotions) if emotions and not as_input else None
        self.semantics = _head(state, config.hidden, semantics) if semantics and not as_input else None
        self._emotion_teacher: TextTeacher | None = None
        self._semantics_teacher: TextTeacher | None = None

    def set_teachers(self, *, emotion: TextTeacher | None = None, semantics: TextTeacher | None = None) -> None:
        """Set the teachers; None leaves one as it is."""
        self._emotion_teacher = emotion or self._emotion_teacher
        self._semantics_teacher = semantics or self._semantics_teacher

    def teacher_inputs(self, texts: Sequence[str], like: torch.Tensor) -> torch.Tensor:
        """The teachers' outputs that the model reads with each utterance: (n, input_size)."""
        if self.config.kind != "input":
            return like.new_zeros(len(texts), 0)
        return torch.cat([self._emotions(texts, like), self._meanings(texts, like)], -1)

    def distil(self, states: torch.Tensor, texts: Sequence[str], indices: torch.Tensor) -> DistillationLoss:
        """Losses of the predictions from `states` (n, state) for the utterances texts[indices]; indices: (n,)."""
        emotion = semantics = states.new_zeros(())
        if not len(states):  # the mean over nothing would be NaN
            return DistillationLoss(emotion, semantics)
        if self.emotion is not None:
            emotion = soft_cross_entropy(self.emotion(states), self._emotions(texts, states)[indices])
        if self.semantics is not None:
            semantics = functional.mse_loss(self.semantics(states), self._meanings(texts, states)[indices])
        return DistillationLoss(emotion, semantics)

    def weighted(self, losses: DistillationLoss) -> torch.Tensor:
        """What is added to the training loss."""
        return self.config.emotion_weight * losses.emotion + self.config.semantics_weight * losses.semantics

    def _emotions(self, texts: Sequence[str], like: torch.Tensor) -> torch.Tensor:
        return _teacher_outputs(self._emotion_teacher, "emotion", self.sizes[0], texts, like)

    def _meanings(self, texts: Sequence[str], like: torch.Tensor) -> torch.Tensor:
        return _teacher_outputs(self._semantics_teacher, "semantics", self.sizes[1], texts, like)


def soft_cross_entropy(logits: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
    """Mean over rows of -sum_k probabilities_k log softmax(logits)_k; both (n, k)."""
    return functional.cross_entropy(logits, probabilities)


def _required(size: int | None, name: str) -> int:
    if size is None:
        raise ConfigError(f"The size of the teacher's output is missing (ei.{name}).", hint=f"Set ei.{name}.")
    return size


def _head(state: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(state, hidden), nn.Tanh(), nn.Linear(hidden, out))


def _teacher_outputs(
    teacher: TextTeacher | None, name: str, size: int, texts: Sequence[str], like: torch.Tensor
) -> torch.Tensor:
    """(texts, size), on the device of `like` and at least as precise as float32."""
    if teacher is None:
        raise ConfigError(
            f"The model needs its {name} teacher and has none.", hint=f"Call set_teachers({name}=...) first."
        )
    outputs = np.asarray(teacher(texts) if texts else np.zeros((0, size)), dtype=np.float32)
    if outputs.shape != (len(texts), size):
        raise ConfigError(
            f"The {name} teacher returned shape {outputs.shape} for {len(texts)} texts; the model expects {size} each.",
            hint=f"Set ei.{'emotions' if name == 'emotion' else name} to the teacher's size and train again.",
        )
    return torch.from_numpy(outputs).to(like.device, full_precision(like[:0]).dtype)
