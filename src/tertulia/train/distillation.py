"""Learning from a larger model: what it expects at each token, not only what stands in the text (Hinton et al. 2015).

A text says which word came; a good model says which other ones could have come as well. Teacher and pupil see the same
talks and have the same tokens, whatever else they are made of. The loss is a mean of two cross-entropies, with the text
and with the teacher's distribution; a temperature T softens the distributions of both, and as that makes gradients T
squared times smaller, the second one is multiplied by as much.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from tertulia.core.errors import DataError, UsageError
from tertulia.models.generator import Generator, Scored, Talk
from tertulia.models.token_logits import GivesLogits
from tertulia.models.tokenizer import SubwordTokenizer, Tokenizer, WordTokenizer
from tertulia.models.writers import load_writer
from tertulia.train.loop import Loss


@dataclass(frozen=True, slots=True)
class Teacher:
    """A trained model that another one learns from."""

    model: GivesLogits
    fingerprint: str
    """Tells teachers apart."""


def load_teacher(folder: Path, pupil: nn.Module, tokenizer: Tokenizer) -> Teacher:
    """The model of a run, if it can teach this pupil."""
    model, manifest = load_writer(folder)
    for who, one in (("The teacher", model), ("This model", pupil)):
        if not isinstance(one, GivesLogits):
            raise UsageError(
                f"{who} ({type(one).__name__}) does not tell what it expects at each token.",
                hint="Teach a transformer, an evolved or a seq2seq by another one of them.",
            )
    if not same_tokens(model.tokenizer, tokenizer):
        raise DataError(
            f"The teacher in {folder} has other tokens than this model will have.",
            hint="Tokens are learned from the training text: give both the same data, split, tokenizer and vocabulary.",
        )
    assert isinstance(model, GivesLogits)
    assert isinstance(model, nn.Module)
    model.eval().requires_grad_(False)
    return Teacher(model, manifest.fingerprint)


def same_tokens(one: Tokenizer, other: Tokenizer) -> bool:
    """Whether two tokenizers have the same tokens under the same numbers."""
    if isinstance(one, WordTokenizer) and isinstance(other, WordTokenizer):
        return one.words == other.words
    if isinstance(one, SubwordTokenizer) and isinstance(other, SubwordTokenizer):
        return one.model == other.model
    return False


def distilled(
    pupil: Generator, teacher: Teacher, talks: Sequence[Talk], scored: Scored, *, weight: float, temperature: float
) -> Loss:
    """What a batch gives: a mean over the tokens of the turns that count."""
    assert isinstance(pupil, GivesLogits)
    found = pupil.token_logits(talks, scored=scored)
    with torch.no_grad():
        told = teacher.model.token_logits(talks, scored=scored)
    if not torch.equal(found.tokens, told.tokens):
        raise AssertionError("teacher and pupil were asked about other tokens")
    losses = soft_losses(found.logits, told.logits, found.tokens, weight=weight, temperature=temperature)
    return Loss(losses.sum() / max(1, len(losses)), len(losses))


def soft_losses(
    logits: torch.Tensor, taught: torch.Tensor, tokens: torch.Tensor, *, weight: float, temperature: float
) -> torch.Tensor:
    """Of each token, the text's loss and the teacher's, weighed. (n, vocabulary), (n, vocabulary), (n,) as (n,)

    >>> sure = torch.tensor([[9.0, 0.0]])
    >>> round(float(soft_losses(sure, sure, torch.tensor([0]), weight=0.5, temperature=1.0)), 4)
    0.0007
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    text = functional.cross_entropy(logits, tokens, reduction="none")
    expected = (taught.to(logits) / temperature).softmax(-1)
    soft = functional.cross_entropy(logits / temperature, expected, reduction="none") * temperature**2
    return (1 - weight) * text + weight * soft
