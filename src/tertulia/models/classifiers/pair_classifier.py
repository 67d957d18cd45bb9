"""A fine-tuned encoder that labels pairs of texts: a premise and a hypothesis, evidence and a response.

The two texts are read together, told apart by token types as in BERT's sentence pairs; a linear layer over the state of
the first token and the mean of the second text gives the labels. The encoder is all-MiniLM-L6-v2 unless another one is
named: a hub name, a folder, or the run folder of an earlier pair classifier, whose encoder is then trained further.

An example may allow several labels. "Not entailed" says neutral or contradiction, and the loss is then the probability
of either: sets with fewer labels teach what they know and nothing else.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import nn

from tertulia.artefacts.manifest import is_complete
from tertulia.core.config import Config, validate
from tertulia.core.errors import UsageError
from tertulia.models.checkpoint import load_weights, read_manifest, read_model, save_weights
from tertulia.models.sentence_encoder import MINILM, PairIds, SentenceEncoder

CHARACTERS_PER_TOKEN = 24
"""Characters of a text that are tokenised for each token of room: a text may be a megabyte."""
BATCH = 256
"""Pairs classified at once."""


class PairClassifierConfig(Config):
    """Sizes and shape."""

    encoder: str = MINILM
    """`minilm`, a hub name or folder of an encoder, or the run folder of a pair classifier to start from."""
    max_length: int = Field(default=128, ge=16)
    """Tokens of both texts together; of a longer first text the end is truncated."""
    max_second_length: int = Field(default=64, ge=8)
    """Tokens of the second text at most."""
    frozen: int = Field(default=3, ge=-1)
    """Frozen layers, counted from below; the embeddings are frozen with them. -1 freezes nothing."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout in training."""

    renamed: ClassVar[Mapping[str, str]] = {}


class TextPair(NamedTuple):
    """What is labelled."""

    first: tuple[str, ...]
    """The parts of the first text: evidence and the turn before, for example. The first part gets the most room."""
    second: str


class PairExample(NamedTuple):
    """A pair to learn from."""

    pair: TextPair
    allowed: tuple[int, ...]
    """The indices of the labels it may have: usually one."""
    weight: float = 1.0


class PairClassifier(nn.Module):
    """A transformer with one output for each label."""

    config_type: ClassVar[type[PairClassifierConfig]] = PairClassifierConfig

    def __init__(self, config: PairClassifierConfig, labels: Sequence[str], encoder: SentenceEncoder) -> None:
        super().__init__()
        self.config, self.labels, self.encoder = config, tuple(labels), encoder
        self.name = "untrained"
        self.register_buffer("temperature", torch.ones(()))
        self.temperature: torch.Tensor
        """What logits are divided by, so that probabilities are calibrated; set after training."""
        encoder.freeze(config.frozen)
        encoder.set_dropout(config.dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(2 * encoder.dim, len(self.labels))
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    @classmethod
    def untrained(cls, config: PairClassifierConfig, labels: Sequence[str]) -> "PairClassifier":
        """A pretrained encoder with an untrained head, or the head of an earlier run if its labels are the same."""
        folder = Path(config.encoder)
        if not is_complete(folder):
            return cls(config, labels, SentenceEncoder.load(config.encoder))
        earlier = cls.load(folder)
        model = cls(config, labels, earlier.encoder)
        if earlier.labels == model.labels:
            model.head.load_state_dict(earlier.head.state_dict())
        return model

    def forward(self, pairs: Sequence[TextPair]) -> torch.Tensor:
        """Logits (n, labels)."""
        if not pairs:
            return torch.zeros(0, len(self.labels), device=self.head.weight.device)
        logits: torch.Tensor = self.head(self.dropout(self.encoder.pair_states([self._ids(pair) for pair in pairs])))
        return logits

    def loss(self, examples: Sequence[PairExample], /) -> torch.Tensor:
        """Weighted mean of the negative log-probability of the allowed labels."""
        log_probabilities = self([example.pair for example in examples]).float().log_softmax(-1)
        losses = -allowed_logprobs(log_probabilities, [example.allowed for example in examples])
        weights = torch.tensor([example.weight for example in examples], device=losses.device)
        return (losses * weights).sum() / weights.sum()

    @torch.inference_mode()
    def label_probabilities(self, pairs: Sequence[TextPair]) -> list[tuple[float, ...]]:
        """For each pair the probabilities of `labels`, in their order. Call it in evaluation mode."""
        rows: list[tuple[float, ...]] = []
        for start in range(0, len(pairs), BATCH):
            logits = self(pairs[start : start + BATCH]).float() / self.temperature
            rows += [tuple(row) for row in logits.softmax(-1).tolist()]
        return rows

    def probabilities(self, texts: Sequence[str], second: Sequence[str] | None = None) -> list[dict[str, float]]:
        """The probability of every label for each pair of a text and its second text, as a `TextClassifier` has it."""
        if second is None:
            raise UsageError(
                f"The classifier {self.name} labels pairs of texts, not single texts.",
                hint="Use a text classifier here: a Hugging Face model for sequence classification.",
            )
        pairs = [TextPair((one,), other) for one, other in zip(texts, second, strict=True)]
        return [dict(zip(self.labels, row, strict=True)) for row in self.label_probabilities(pairs)]

    def parameter_groups(self, learning_rate: float, /) -> list[dict[str, Any]]:
        """The untrained head has a learning rate ten times as high."""
        encoder = [p for p in self.encoder.parameters() if p.requires_grad]
        head = list(self.head.parameters())
        return [{"params": encoder, "lr": learning_rate}, {"params": head, "lr": learning_rate * 10}]

    def save(self, folder: Path, /) -> list[str]:
        """Save weights, labels, tokenizer and the config of the transformer."""
        about = {"config": self.config.model_dump(), "labels": list(self.labels)}
        save_weights(folder, self, {**about, "transformer": self.encoder.describe()})
        return [self.encoder.save_tokenizer(folder)]

    @classmethod
    def load(cls, folder: Path, /) -> "PairClassifier":
        """Load a run folder; other models are refused."""
        manifest, about = read_manifest(folder), read_model(folder)
        if "labels" not in about or "transformer" not in about:
            raise UsageError(
                f"{folder} contains a model of the kind {manifest.model!r}, which does not label pairs of texts.",
                hint="Train one with: tertulia train configs/entailment.toml",
            )
        config = validate(PairClassifierConfig, about["config"], where=str(folder))
        model = cls(config, about["labels"], SentenceEncoder.from_config(about["transformer"], folder))
        load_weights(folder, model)
        model.name = f"{folder} {manifest.fingerprint[:8]}"
        return model.eval()

    def _ids(self, pair: TextPair) -> PairIds:
        """Tokens of both texts: the second keeps its beginning, later parts of the first get a quarter of the room."""
        encoder, end = self.encoder, self.encoder.end
        room = min(self.config.max_length, encoder.window)
        second = (*self._tokens(pair.second, min(self.config.max_second_length, room // 2) - 1), end)
        room -= len(second) + 1  # the beginning token
        main, *others = pair.first
        later = [token for text in others for token in (*self._tokens(text, room // 4 - 1), end) if text]
        first = (encoder.begin, *self._tokens(main, max(0, room - len(later) - 1)), end, *later)
        return PairIds((*first, *second), len(first))

    def _tokens(self, text: str, room: int) -> tuple[int, ...]:
        return self.encoder.ids(text[: CHARACTERS_PER_TOKEN * (room + 1)])[: max(0, room)]


def allowed_logprobs(log_probabilities: torch.Tensor, allowed: Sequence[tuple[int, ...]]) -> torch.Tensor:
    """For each row (n, labels) the log-probability that the label is one of those allowed: (n,)."""
    mask = torch.full_like(log_probabilities, -torch.inf)
    for row, indices in enumerate(allowed):
        mask[row, list(indices)] = 0.0
    return (log_probabilities + mask).logsumexp(-1)


@torch.inference_mode()
def calibrate(model: PairClassifier, examples: Sequence[PairExample]) -> float:
    """Set the temperature that makes held-out examples most likely (Guo et al. 2017); returns it."""
    logits = torch.cat([model([e.pair for e in examples[i : i + BATCH]]) for i in range(0, len(examples), BATCH)])
    allowed = [example.allowed for example in examples]

    def nll(log_temperature: float) -> float:
        scaled = (logits.float() / 2.0**log_temperature).log_softmax(-1)
        return -float(allowed_logprobs(scaled, allowed).mean())

    best = min((step / 8 for step in range(-16, 33)), key=nll)  # from a quarter to sixteen
    model.temperature.fill_(2.0**best)
    return float(model.temperature)
