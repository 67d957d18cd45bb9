"""EI: what a dialogue model learns from two teachers (Ghandeharioun et al. 2019, arXiv 1906.09308).

After each utterance, two small nets guess from the model's state of the conversation what the teachers make of that
utterance: one an emotion distribution, one a vector of its meaning. So the state comes to hold both, and none of the
teachers is needed afterwards. The paper's teachers were DeepMoji and InferSent; ours are any functions of texts. The
ablation `input` shows the teachers' vectors to the model instead, and needs them for good.

With w for the weights, the paper's loss is the sum over a batch's tokens + w_emotion * mean over its utterances of the
cross-entropy with the teacher's distribution + w_semantics * mean over utterances and numbers of the squared error.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn
from torch.nn import functional

from tertulia.core.config import Config
from tertulia.core.errors import ConfigError

Teacher = Callable[[Sequence[str]], NDArray[Any]]
"""What somebody makes of n texts: (n, k)."""


class EIConfig(Config):
    """What is learned from the teachers."""

    kind: Literal["none", "emotion", "semantics", "both", "input"] = "none"
    """Guess emotions, meaning, or both; or read both beside each utterance (input)."""
    emotion_weight: float = Field(25.0, ge=0)
    """Of the cross-entropy with the emotions; the paper has 25 or 150."""
    semantics_weight: float = Field(25_000.0, ge=0)
    """Of the squared error of the meaning; the paper has 25,000 to 100,000."""
    emotions: int = Field(64, ge=1)
    """Emotions that the teacher tells apart."""
    semantics: int = Field(384, ge=1)
    """Numbers in the teacher's vector of a meaning."""
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


class Distilled(NamedTuple):
    """How far the guesses are off, not weighted; zero for what is not guessed."""

    emotion: torch.Tensor  # ()
    semantics: torch.Tensor  # ()


class EIHeads(nn.Module):
    """The two small nets, and the teachers."""

    def __init__(self, config: EIConfig, state: int) -> None:
        super().__init__()
        self.config = config
        distils = config.kind != "input"
        self.emotion = _net(state, config.hidden, config.emotions) if distils and config.emotion_asked else None
        self.semantics = _net(state, config.hidden, config.semantics) if distils and config.semantics_asked else None
        self._emotion_teacher: Teacher | None = None
        self._semantics_teacher: Teacher | None = None

    @property
    def input_size(self) -> int:
        """Numbers that the teachers add to each utterance."""
        return self.config.emotions + self.config.semantics if self.config.kind == "input" else 0

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
        if self.emotion is not None:
            emotion = soft_cross_entropy(self.emotion(states), self._emotions(texts, states)[which])
        if self.semantics is not None:
            semantics = functional.mse_loss(self.semantics(states), self._meanings(texts, states)[which])
        return Distilled(emotion, semantics)

    def weighted(self, found: Distilled) -> torch.Tensor:
        """What is added to the loss."""
        return self.config.emotion_weight * found.emotion + self.config.semantics_weight * found.semantics

    def _emotions(self, texts: Sequence[str], like: torch.Tensor) -> torch.Tensor:
        return _asked(self._emotion_teacher, "emotion", self.config.emotions, texts, like)

    def _meanings(self, texts: Sequence[str], like: torch.Tensor) -> torch.Tensor:
        return _asked(self._semantics_teacher, "semantics", self.config.semantics, texts, like)


def soft_cross_entropy(logits: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Mean over rows of -sum_k shares_k log softmax(logits)_k; both (n, k)."""
    return functional.cross_entropy(logits, shares)


def remembering(teacher: Teacher) -> Teacher:
    """The same teacher, asked once for each text: training comes to the same texts in each epoch."""
    known: dict[str, NDArray[np.float16]] = {}

    def ask(texts: Sequence[str]) -> NDArray[np.float32]:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            # Half precision: half the memory, and finer than any teacher is sure of.
            known.update(zip(new, np.asarray(teacher(new)).astype(np.float16), strict=True))
        return np.stack([known[text] for text in texts]).astype(np.float32)

    return ask


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
    return torch.from_numpy(found).to(like)
