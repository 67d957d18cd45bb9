"""Training of classifiers of text pairs: batches of pairs of similar length, labels balanced by weights.

A recipe reads labelled pairs, and the rest is here: the task for the loop, early stopping by macro-F1, and a
temperature chosen on held-out pairs, so that the probabilities can be taken at their word.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field
from sklearn.metrics import f1_score

from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError
from tertulia.core.progress import Progress
from tertulia.models.classifiers.pair_classifier import PairClassifier, PairClassifierConfig, PairExample, calibrate
from tertulia.train.loop import Loss, TrainingTask, fit
from tertulia.train.runs import PARTIAL, TrainedModel, TrainingConfig, run_id, save_run

_SIMILAR = 50
"""Batches whose examples are sorted by length together: short pairs are not padded to the length of long ones."""


class ClassifierConfig(TrainingConfig):
    """What the recipes of all classifiers of text pairs have."""

    model: PairClassifierConfig = PairClassifierConfig()
    """Sizes and shape of the model."""
    batch: int = Field(default=32, ge=1)
    """Pairs per batch."""
    epochs: int = Field(default=2, ge=1)
    """Passes over the data, at most."""
    learning_rate: float = Field(default=1e-4, gt=0)
    """Peak learning rate of the encoder; the untrained head's is ten times as high."""
    warmup: int = Field(default=50, ge=0)
    """Updates of linear warm-up."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay."""
    balance: float = Field(default=1.0, ge=0, le=1)
    """How far labels are balanced by weights: 0 leaves every example equal, 1 makes every label count the same."""
    max_pairs: int | None = Field(default=None, ge=1)
    """Train on this many pairs only, drawn by the seed."""
    max_valid_pairs: int = Field(default=2000, ge=1)
    """Validate on this many pairs at most, drawn by the seed."""


class ClassificationData(NamedTuple):
    """What a classifier is trained and validated on."""

    train: list[PairExample]
    valid: list[PairExample]


def train_classifier(
    config: ClassifierConfig,
    labels: Sequence[str],
    data: ClassificationData,
    progress: Progress,
    *,
    about: Mapping[str, Json],
) -> TrainedModel:
    """Train a classifier of pairs, calibrate it and save it in `config.out`."""
    if not data.train or not data.valid:
        raise DataError(
            f"There are {len(data.train)} pairs to train on and {len(data.valid)} to validate on.",
            hint="Give more labelled pairs; of a single file a tenth is held out for validation.",
        )
    fields = config.model.model_dump(include=set(PairClassifierConfig.model_fields))
    model = PairClassifier.untrained(PairClassifierConfig.model_validate(fields), labels)
    task = ClassificationTask(model, data, config)
    outcome = fit(
        task, config, config.out / PARTIAL, progress, resume=config.resume, run_id=run_id(config, [*data.train])
    )
    model.eval()
    sizes = {"pairs": len(data.train), "valid_pairs": len(data.valid), "labels": list(labels)}
    figures = {"temperature": round(calibrate(model, data.valid), 3)}
    return save_run(task, config, outcome, about={**about, **sizes, **figures})


class ClassificationTask(TrainingTask):
    """Training of a classifier of text pairs."""

    goal = "macro-F1"
    unit = "pairs"
    module: PairClassifier

    def __init__(self, model: PairClassifier, data: ClassificationData, config: ClassifierConfig) -> None:
        self.module, self.config, self.valid = model, config, data.valid
        self.train = weighted(data.train, config.balance)

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """The model's own groups."""
        return self.module.parameter_groups(learning_rate)

    def batches(self, epoch: int) -> Sequence[list[PairExample]]:
        """All pairs in a new order, those of some batches sorted by length; the last, incomplete batch is left out."""
        rng, size = random.Random(f"{self.config.seed} {epoch}"), min(self.config.batch, len(self.train))
        order = list(range(len(self.train)))
        rng.shuffle(order)
        batches = []
        for start in range(0, len(order), size * _SIMILAR):
            part = sorted(order[start : start + size * _SIMILAR], key=self._length)
            batches += [part[i : i + size] for i in range(0, len(part) - size + 1, size)]
        rng.shuffle(batches)
        return [[self.train[i] for i in batch] for batch in batches]

    def loss(self, batch: list[PairExample]) -> Loss:
        """The model's own loss."""
        return Loss(self.module.loss(batch), len(batch))

    def validate(self) -> Mapping[str, float]:
        """Accuracy, and macro-F1 over the labels that are certain."""
        return label_figures(self.module.label_probabilities([e.pair for e in self.valid]), self.valid)

    def _length(self, index: int) -> int:
        pair = self.train[index].pair
        return sum(map(len, pair.first)) + len(pair.second)


def weighted(examples: Sequence[PairExample], balance: float) -> list[PairExample]:
    """The examples with weights under which all labels count the same (`balance` 1), or partly so; mean weight 1.

    Examples that allow several labels keep theirs.

    >>> from tertulia.models.classifiers.pair_classifier import TextPair
    >>> pair = TextPair(("a",), "b")
    >>> [e.weight for e in weighted([PairExample(pair, (0,))] * 3 + [PairExample(pair, (1,))], 1.0)]
    [0.6666666666666666, 0.6666666666666666, 0.6666666666666666, 2.0]
    """
    totals: dict[int, float] = {}
    for example in examples:
        if len(example.allowed) == 1:
            totals[example.allowed[0]] = totals.get(example.allowed[0], 0.0) + example.weight
    mean = sum(totals.values()) / max(1, len(totals))
    factors: dict[tuple[int, ...], float] = {(label,): (mean / total) ** balance for label, total in totals.items()}
    raw = [example.weight * factors.get(example.allowed, 1.0) for example in examples]
    scale = len(raw) / sum(raw)
    return [e._replace(weight=w * scale) for e, w in zip(examples, raw, strict=True)]


def label_figures(rows: Sequence[Sequence[float]], examples: Sequence[PairExample]) -> dict[str, float]:
    """Accuracy (any allowed label is right) and macro-F1 (of examples with one label) of predictions."""
    predicted = np.array(rows).argmax(1)
    right = [int(p) in example.allowed for p, example in zip(predicted, examples, strict=True)]
    single = [(int(p), e.allowed[0]) for p, e in zip(predicted, examples, strict=True) if len(e.allowed) == 1]
    gold = [g for _, g in single]
    macro = f1_score(gold, [p for p, _ in single], average="macro", labels=sorted(set(gold)), zero_division=0)
    return {"accuracy": float(np.mean(right)), "macro-F1": float(macro) if single else float("nan")}
