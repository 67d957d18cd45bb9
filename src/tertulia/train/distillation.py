"""Distillation: learning from a larger model's distributions, not only from the text (Hinton et al. 2015).

The text says which token came; a good model also says which others could have come. Teacher and student see the same
dialogues and have the same tokens, whatever their architectures. The loss is a weighted mean of two cross-entropies,
with the text and with the teacher's distribution. A temperature T softens the distributions of both; since that makes
gradients T squared times smaller, the second cross-entropy is multiplied by T squared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from tertulia.core.errors import DataError, UsageError
from tertulia.models.generator import DialogueView, Generator, TargetTurns
from tertulia.models.loading import load_generator
from tertulia.models.token_logits import GivesLogits
from tertulia.models.tokenizer import SubwordTokenizer, Tokenizer, WordTokenizer
from tertulia.train.loop import Loss


@dataclass(frozen=True, slots=True)
class Teacher:
    """A trained model that another one learns from."""

    model: GivesLogits
    fingerprint: str
    """Tells teachers apart."""

    def to(self, device: torch.device) -> None:
        """Move its weights to a device."""
        assert isinstance(self.model, nn.Module)
        self.model.to(device)


def load_teacher(folder: Path, student: nn.Module, tokenizer: Tokenizer) -> Teacher:
    """The model of a run, if it can teach this student."""
    model, manifest = load_generator(folder)
    for role, one in (("The teacher", model), ("The student", student)):
        if not isinstance(one, GivesLogits):
            raise UsageError(
                f"{role} ({type(one).__name__}) does not give logits for every token.",
                hint="Teacher and student can be transformer, evolved or seq2seq.",
            )
    if not same_tokens(model.tokenizer, tokenizer):
        raise DataError(
            f"The teacher in {folder} has other tokens than the model to be trained.",
            hint="Tokens are learned from the training text: give both the same data, split, tokenizer and vocabulary.",
        )
    assert isinstance(model, GivesLogits)
    assert isinstance(model, nn.Module)
    model.eval().requires_grad_(False)
    return Teacher(model, manifest.fingerprint)


def same_tokens(one: Tokenizer, other: Tokenizer) -> bool:
    """Whether two tokenizers have the same tokens with the same ids."""
    if isinstance(one, WordTokenizer) and isinstance(other, WordTokenizer):
        return one.words == other.words
    if isinstance(one, SubwordTokenizer) and isinstance(other, SubwordTokenizer):
        return one.model == other.model
    return False


def distillation_loss(
    student: Generator,
    teacher: Teacher,
    views: Sequence[DialogueView],
    target_turns: TargetTurns,
    *,
    weight: float,
    temperature: float,
) -> Loss:
    """The loss of a batch: a mean over the tokens of the target turns."""
    assert isinstance(student, GivesLogits)
    predicted = student.token_logits(views, target_turns=target_turns)
    with torch.no_grad():
        taught = teacher.model.token_logits(views, target_turns=target_turns)
    if not torch.equal(predicted.tokens, taught.tokens):
        raise AssertionError("teacher and student predicted different tokens")
    losses = token_losses(predicted.logits, taught.logits, predicted.tokens, weight=weight, temperature=temperature)
    return Loss(losses.sum() / max(1, len(losses)), len(losses))


def token_losses(
    logits: torch.Tensor, teacher_logits: torch.Tensor, tokens: torch.Tensor, *, weight: float, temperature: float
) -> torch.Tensor:
    """The weighted loss of each token: (n, vocabulary), (n, vocabulary), (n,) -> (n,).

    >>> sure = torch.tensor([[9.0, 0.0]])
    >>> round(float(token_losses(sure, sure, torch.tensor([0]), weight=0.5, temperature=1.0)), 4)
    0.0007
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    hard = functional.cross_entropy(logits, tokens, reduction="none")
    targets = (teacher_logits.to(logits) / temperature).softmax(-1)
    soft = functional.cross_entropy(logits / temperature, targets, reduction="none") * temperature**2
    return (1 - weight) * hard + weight * soft
