"""The recipe of grounding classifiers: BEGIN's five labels from silver data, with any of four kinds of model.

`data` is silver data (exchanges with BEGIN's labels, as `tertulia corpus silver` writes them), or a corpus of grounded
dialogues of which silver data is made first; `sample` is the bundled one. Passages of evidence are kept apart: some are
for training, some for what reads an encoder's predictions (which on its own training examples are too good to learn
from), the rest for validation. Sets of inference can be added for the encoder: "neutral" then stands for any of
hallucination, off-topic and generic.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tertulia import sample
from tertulia.artefacts.cache import cache_folder
from tertulia.artefacts.files import fingerprint, save_config
from tertulia.artefacts.manifest import MANIFEST
from tertulia.core.codec import Problems
from tertulia.core.dialogue import Exchange, Json
from tertulia.core.errors import DataError
from tertulia.core.grounding import COARSE, COARSE_LABELS, LABELS, GroundingInput, GroundingLabel, parse_label
from tertulia.core.progress import Progress
from tertulia.corpus.identity import describe_data
from tertulia.corpus.load import SAMPLE, holds, load_exchanges
from tertulia.corpus.silver.generate import SilverConfig, silver_exchanges
from tertulia.corpus.silver.sources import grounded_dialogues, labelled
from tertulia.models.classifiers.grounding_heads import INVISIBLE, GroundingHeads, extend_heads, fit_heads
from tertulia.models.classifiers.grounding_models import (
    ENCODER,
    FeatureSource,
    GroundingSettings,
    LexicalFeatures,
    encoder_pair,
    features_of,
    language_model,
    load_run,
    make_sources,
    save_grounding,
)
from tertulia.models.classifiers.pair_classifier import PairClassifier, PairClassifierConfig, PairExample
from tertulia.train.recipe import Recipe
from tertulia.train.recipes.entailment import EntailmentRecipe
from tertulia.train.recipes.entailment import read_data as read_inference
from tertulia.train.runs import CONFIG, TrainedModel, start_run, subsample
from tertulia.train.tasks.classification import ClassificationData, ClassifierConfig, label_figures, train_classifier

BY_HAND = "labelled by hand"
LIKELIHOODS = "likelihoods"
"""Folder of the cache for what language models have scored."""
AT_ONCE = 64
"""Examples whose features are read together."""
MAX_SLOW = 40
"""Examples to validate on at most where a language model reads them."""
VALID, STACKED = 1, 3
"""Of ten passages, how many are for validation, and up to which share the next ones are for combining."""


class GroundingModelConfig(GroundingSettings, PairClassifierConfig):
    """What the model reads, and the shape of its encoder."""

    penalty: float = Field(default=0.03, gt=0)
    """How strongly the curves of the additive model are kept flat."""
    max_scored: int = Field(default=800, ge=50)
    """Examples whose likelihood is computed: that takes time."""
    max_length: int = Field(default=128, ge=16)
    """Tokens of both texts together; of a longer first text the end is truncated."""

    renamed: ClassVar[Mapping[str, str]] = {}


class GroundingRecipe(ClassifierConfig):
    """How a grounding classifier is trained."""

    recipe: Literal["grounding"] = "grounding"
    """The recipe's name, so that the config saved with a run can be trained again."""
    data: str = SAMPLE
    """Silver data, a corpus of grounded dialogues, or `sample` for the bundled one."""
    model: GroundingModelConfig = GroundingModelConfig()
    """What the model reads, and the shape of its encoder."""
    split: str | None = None
    """The split of a corpus of dialogues to make silver data of."""
    per_label: int = Field(default=2000, ge=1)
    """Silver examples of each label, where they are made from dialogues."""
    balance: float = Field(default=0.0, ge=0, le=1)
    """How far labels are balanced by weights: silver data is balanced already."""
    invisible_weight: float = Field(default=0.1, ge=0)
    """What an example counts for the encoder whose names, numbers, roles or verbs are exchanged: small encoders do not
    see that, and learn to distrust overlap instead."""
    contradiction_weight: float = Field(default=0.3, ge=0)
    """What a contradiction counts for the encoder, for the same reason."""
    inference: str = ""
    """A file or folder of inference pairs that the encoder learns from, too."""
    max_inference: int = Field(default=8000, ge=0)
    """Inference pairs at most, drawn by the seed."""


class SilverExample(NamedTuple):
    """One example to learn from."""

    input: GroundingInput
    label: GroundingLabel
    operation: str


class SilverData(NamedTuple):
    """Examples whose passages of evidence are disjoint."""

    train: list[SilverExample]
    stacked: list[SilverExample]
    """For the additive model of what an encoder predicts."""
    valid: list[SilverExample]


def train(config: GroundingRecipe, progress: Progress) -> TrainedModel:
    """Train a grounding classifier and save it in `config.out`."""
    start, cpu = time.perf_counter(), time.process_time()
    start_run(config, progress, step="Reading silver data")
    data = split_by_evidence(read_silver(config, progress))
    settings = GroundingSettings.model_validate(config.model.model_dump(include=set(GroundingSettings.model_fields)))
    files: list[str] = []
    encoder_record: Mapping[str, Json] = {}
    if settings.reads_encoder:
        encoder_record = _train_encoder(config, data, progress).figures()
        files.append(f"{ENCODER}/{MANIFEST}")
    heads = None if settings.kind == "encoder" else _fit(config, settings, data, progress)
    config.out.mkdir(parents=True, exist_ok=True)
    save_config(config.model_copy(update={"resume": False, "force": False}), config.out / CONFIG)
    counts = Counter(example.label for example in data.train)
    record: dict[str, Json] = {"kind": settings.kind, "examples": dict(counts), "valid_examples": len(data.valid)}
    record["data"] = describe_data(config.data, config.split or None)
    save_grounding(config.out, settings, heads, files=[*files, CONFIG], training=record)
    progress.step("Validating")
    record |= {"valid": _validate(config, data.valid), "seconds": round(time.perf_counter() - start, 1)}
    record |= {"cpu_seconds": round(time.process_time() - cpu, 1)}
    if encoder_record:
        record["encoder"] = {key: encoder_record[key] for key in ("pairs", "steps", "valid", "temperature")}
    save_grounding(config.out, settings, heads, files=[*files, CONFIG], training=record)
    return TrainedModel(config.out, record)


def read_silver(config: GroundingRecipe, progress: Progress) -> list[SilverExample]:
    """Labelled examples: read, or made from grounded dialogues."""
    if config.data != SAMPLE and holds(config.data, split=config.split) == "exchanges":
        return [_example(exchange, config.data) for exchange in load_exchanges(config.data, split=config.split)]
    source = SilverConfig(target=config.data, split=config.split, per_label=config.per_label, seed=config.seed)
    made = silver_exchanges(grounded_dialogues(source, Problems()), source, progress=progress)
    if config.data == SAMPLE:
        made += labelled(sample.grounded())
    return [_example(exchange, config.data) for exchange in made]


def _example(exchange: Exchange, source: str) -> SilverExample:
    label = parse_label(exchange.label or "")
    if label is None:
        raise DataError(
            f"{source}: the exchange {exchange.id!r} has the label {exchange.label!r}.",
            hint=f"Expected one of: {', '.join(LABELS)}. `tertulia corpus silver` makes such data.",
        )
    return SilverExample(grounding_input(exchange), label, str(exchange.response.meta.get("operation", "")))


def grounding_input(exchange: Exchange) -> GroundingInput:
    """What a grounding classifier reads of an exchange."""
    previous = exchange.context[-1].text if exchange.context else ""
    return GroundingInput(" ".join(passage.text for passage in exchange.evidence), previous, exchange.response.text)


def split_by_evidence(examples: Sequence[SilverExample]) -> SilverData:
    """Examples of a passage of evidence are on one side together."""
    data = SilverData([], [], [])
    for example in examples:
        tenth = int(fingerprint([example.input.evidence]), 16) % 10
        (data.valid if tenth < VALID else data.stacked if tenth < STACKED else data.train).append(example)
    if not all(data):
        raise DataError(
            f"There are too few passages of evidence: {len(examples)} examples cannot be split.",
            hint="Give more silver data; thirty different passages are enough to try it out.",
        )
    return data


def _train_encoder(config: GroundingRecipe, data: SilverData, progress: Progress) -> TrainedModel:
    """The encoder, as a run of its own inside the folder."""
    pairs = [_pair(example)._replace(weight=_weight(example, config)) for example in data.train]
    valid = [_pair(example) for example in data.valid]
    pairs = subsample(pairs, config.max_pairs, config.seed) + _inference_pairs(config)
    inner = config.model_copy(update={"out": config.out / ENCODER})
    cut = ClassificationData(pairs, subsample(valid, config.max_valid_pairs, config.seed))
    return train_classifier(inner, LABELS, cut, progress, about={"inference": config.inference})


def _pair(example: SilverExample) -> PairExample:
    return PairExample(encoder_pair(example.input), (LABELS.index(example.label),))


def _weight(example: SilverExample, config: GroundingRecipe) -> float:
    if example.operation in INVISIBLE:
        return config.invisible_weight
    return config.contradiction_weight if example.label == "contradiction" else 1.0


def _inference_pairs(config: GroundingRecipe) -> list[PairExample]:
    if not config.inference:
        return []
    read = read_inference(EntailmentRecipe(data=config.inference, seed=config.seed), Problems()).train
    allowed = {
        names: tuple(i for i, label in enumerate(LABELS) if COARSE_LABELS.index(COARSE[label]) in names)
        for names in {example.allowed for example in read}
    }
    chosen = subsample(read, config.max_inference, config.seed)
    return [example._replace(allowed=allowed[example.allowed]) for example in chosen]


def _fit(config: GroundingRecipe, settings: GroundingSettings, data: SilverData, progress: Progress) -> GroundingHeads:
    """The additive model; people's labels are for encoders only.

    What people wrote to mislead (a detail added to a copy of the evidence) looks supported to anything that counts.
    Counts are learned from all examples. Likelihoods take long, so they are learned from some; and what an encoder
    predicts, from examples that it has not seen.
    """
    everything = [example for example in data.train + data.stacked if example.operation != BY_HAND]
    sources = make_sources(settings, lambda: PairClassifier.load(config.out / ENCODER))
    names = [name for source in sources for name in source.names]
    fast = [source for source in sources if isinstance(source, LexicalFeatures)]
    heads = None
    if fast:
        counts = _read_features(fast, everything, progress)
        wide = np.pad(counts, ((0, 0), (0, len(names) - counts.shape[1])))  # what never changes has no curve
        heads = fit_heads(wide, *_labels_of(everything), features=names, penalty=config.model.penalty)
    if len(sources) == len(fast):
        assert heads is not None
        return heads
    if settings.reads_likelihood:
        language_model(settings.language_model).remember_in(cache_folder() / LIKELIHOODS)
    unseen = [e for e in data.stacked if e.operation != BY_HAND] if settings.reads_encoder else everything
    read = subsample(unseen, config.model.max_scored, config.seed)
    values = _read_features(sources, read, progress)
    given = _labels_of(read)
    if heads is None:
        return fit_heads(values, *given, features=names, penalty=config.model.penalty)
    return extend_heads(heads, values, *given, features=names, penalty=config.model.penalty)


def _read_features(
    sources: Sequence[FeatureSource], examples: Sequence[SilverExample], progress: Progress
) -> NDArray[Any]:
    progress.step("Reading features", total=len(examples))
    parts = []
    for start in range(0, len(examples), AT_ONCE):
        batch = examples[start : start + AT_ONCE]
        parts.append(features_of(sources, [example.input for example in batch]))
        progress.advance(len(batch))
    return np.concatenate(parts)


def _labels_of(examples: Sequence[SilverExample]) -> tuple[list[GroundingLabel], list[str]]:
    return [example.label for example in examples], [example.operation for example in examples]


def _validate(config: GroundingRecipe, valid: Sequence[SilverExample]) -> dict[str, float]:
    """Accuracy and macro-F1 on held-out silver data, without the priors that bots' replies have."""
    chosen = subsample([e for e in valid if e.operation != BY_HAND], config.max_valid_pairs, config.seed)
    if config.model.reads_likelihood:
        chosen = chosen[:MAX_SLOW]
    classifier = load_run(config.out)
    classifier._priors = (1.0,) * len(LABELS)
    rows = classifier.probabilities([example.input for example in chosen])
    pairs = [_pair(example) for example in chosen]
    return {name: round(value, 5) for name, value in label_figures(rows, pairs).items()}


RECIPE = Recipe("grounding", GroundingRecipe, train)
