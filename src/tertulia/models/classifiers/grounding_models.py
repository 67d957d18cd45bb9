"""Trained grounding classifiers: what they read, how they are saved as a run folder, and how they are loaded again.

- lexical: the features that can be counted (`grounding_features`), in an additive model that explains its decisions
- encoder: a fine-tuned encoder that reads evidence, previous turn and response together (`pair_classifier`)
- likelihood: how much more probable a language model finds the response once it has read the evidence
- combined: an additive model of all of these, with or without the encoder

A run folder has `grounding.json`, which people can read, and for the encoder a folder `encoder` that is a run folder of
its own. The manifest is written last, with the digest of every file.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import Field

from tertulia.artefacts import manifest as artefact
from tertulia.artefacts.files import read_json, write_json
from tertulia.core.config import Config, validate
from tertulia.core.dialogue import Json
from tertulia.core.errors import DataError, UsageError
from tertulia.core.grounding import LABELS, GroundingInput
from tertulia.models.classifiers.evidence_focus import focus
from tertulia.models.classifiers.grounding_features import FEATURES, grounding_features
from tertulia.models.classifiers.grounding_heads import Contribution, GroundingHeads, prior_values, reweigh

if TYPE_CHECKING:  # torch and transformers take seconds to import, and the lexical model needs neither
    from tertulia.models.classifiers.pair_classifier import PairClassifier, TextPair
    from tertulia.models.text_likelihood import TextScorer

Kind = Literal["lexical", "encoder", "likelihood", "combined"]
KIND, FORMAT = "model", 2
MODEL = "grounding"
FILE, ENCODER = "grounding.json", "encoder"
PACKAGED = "grounding_lexical.json"
"""The lexical model of the package: made by `tertulia train configs/grounding.toml` from the bundled sample."""
LIKELIHOOD_FEATURES: Final = ("likelihood gain", "likelihood with evidence", "likelihood without evidence")
ENCODER_FEATURES: Final = tuple(f"encoder: {label}" for label in LABELS)
MAX_SCORED_WORDS, MAX_PREVIOUS_WORDS, MAX_SCORED = 60, 20, 2400
"""Words of evidence and response and of the turn before, and characters, that a language model reads."""
_RETRAIN = "Train the model again: tertulia train configs/grounding.toml"


class GroundingSettings(Config):
    """What a trained classifier needs beside its weights."""

    kind: Kind = "lexical"
    """What the model reads: lexical (counts, the fastest), encoder, likelihood, or combined (all of them)."""
    with_encoder: bool = True
    """For combined: whether an encoder is one of the sources, or only counts and likelihoods are."""
    language_model: str = "smollm2"
    """For likelihoods: `smollm2`, or a hub name or folder of a causal language model."""
    priors: dict[str, float] = Field(default_factory=dict)
    """How often labels are to be expected, as multiples of their odds in silver data, where all are as frequent."""

    @property
    def reads_encoder(self) -> bool:
        """Whether the model has an encoder."""
        return self.kind == "encoder" or (self.kind == "combined" and self.with_encoder)

    @property
    def reads_likelihood(self) -> bool:
        """Whether the model asks a language model, which takes long."""
        return self.kind in ("likelihood", "combined")


class FeatureSource(Protocol):
    """Where columns of features come from."""

    names: tuple[str, ...]

    def features(self, inputs: Sequence[GroundingInput]) -> NDArray[Any]:
        """One row for each input: (n, names)."""
        ...


class LexicalFeatures:
    """What can be counted."""

    names: tuple[str, ...] = FEATURES

    def features(self, inputs: Sequence[GroundingInput]) -> NDArray[Any]:
        """The lexical features."""
        return grounding_features(inputs)


class LikelihoodFeatures:
    """How probable a language model finds a response, for each token, with the evidence before it and without."""

    names: tuple[str, ...] = LIKELIHOOD_FEATURES

    def __init__(self, scorer: "TextScorer") -> None:
        self.scorer = scorer

    def features(self, inputs: Sequence[GroundingInput]) -> NDArray[Any]:
        """Mean log-probability of a token with and without evidence, and the difference."""
        responses = [" ".join(one.response[:MAX_SCORED].split()[:MAX_SCORED_WORDS]) or "." for one in inputs]
        previous = [" ".join(one.previous[-MAX_SCORED:].split()[-MAX_PREVIOUS_WORDS:]) for one in inputs]
        evidence = [focus(one.evidence, one.response, max_words=MAX_SCORED_WORDS) for one in inputs]
        prompts = [(f"{passage}\n\n{turn}".strip(),) for passage, turn in zip(evidence, previous, strict=True)]
        informed = self.scorer.log_likelihoods(prompts, responses)
        alone = self.scorer.log_likelihoods([(turn,) for turn in previous], responses)
        known, unknown = (np.array([s.logprob / max(1, s.tokens) for s in scores]) for scores in (informed, alone))
        return np.asarray(np.nan_to_num(np.stack([known - unknown, known, unknown], axis=1)))


class EncoderFeatures:
    """The log-probabilities of an encoder's labels."""

    names: tuple[str, ...] = ENCODER_FEATURES

    def __init__(self, model: "PairClassifier") -> None:
        self.model = model

    def features(self, inputs: Sequence[GroundingInput]) -> NDArray[Any]:
        """The log-probability of each label."""
        rows = self.model.label_probabilities([encoder_pair(one) for one in inputs])
        return np.log(np.array(rows, dtype=np.float64).reshape(-1, len(LABELS)) + 1e-6)


class FeatureClassifier:
    """Features of one or several sources, read by additive models."""

    def __init__(
        self, sources: Sequence[FeatureSource], heads: GroundingHeads, settings: GroundingSettings, *, name: str
    ) -> None:
        self.sources, self.heads, self.settings, self.name = tuple(sources), heads, settings, name
        self._priors = prior_values(settings.priors)

    def probabilities(self, inputs: Sequence[GroundingInput], /) -> list[tuple[float, ...]]:
        """For each input the probabilities of `LABELS`."""
        if not inputs:
            return []
        rows = self.heads.probabilities(features_of(self.sources, inputs), self._priors)
        return [tuple(row) for row in rows.tolist()]

    def explain(self, one: GroundingInput) -> list[Contribution]:
        """What each feature adds to the log-odds that the evidence supports the response, the most important first."""
        return self.heads.explain(features_of(self.sources, [one]))


class EncoderClassifier:
    """A fine-tuned encoder by itself."""

    def __init__(self, model: "PairClassifier", settings: GroundingSettings, *, name: str) -> None:
        self.model, self.settings, self.name = model, settings, name
        self._priors = prior_values(settings.priors)

    def probabilities(self, inputs: Sequence[GroundingInput], /) -> list[tuple[float, ...]]:
        """For each input the probabilities of `LABELS`."""
        if not inputs:
            return []
        rows = np.array(self.model.label_probabilities([encoder_pair(one) for one in inputs]))
        return [tuple(row) for row in reweigh(rows, self._priors).tolist()]


def features_of(sources: Sequence[FeatureSource], inputs: Sequence[GroundingInput]) -> NDArray[Any]:
    """The columns of all sources, side by side."""
    return np.concatenate([source.features(inputs) for source in sources], axis=1)


def encoder_pair(one: GroundingInput) -> "TextPair":
    """What an encoder reads: the nearest part of the evidence and the turn before, against the response."""
    from tertulia.models.classifiers.pair_classifier import TextPair  # imports torch: takes seconds

    return TextPair((focus(one.evidence, one.response), one.previous), one.response)


def save_grounding(
    folder: Path, settings: GroundingSettings, heads: GroundingHeads | None, *, files: Sequence[str], training: Json
) -> str:
    """Save a classifier; the folder `encoder`, if the model has one, is there already. Returns the fingerprint."""
    artefact.open_folder(folder)
    write_json(folder / FILE, as_json(settings, heads))
    about = {"bot": MODEL, "model": MODEL, "training": training}
    return artefact.seal(folder, kind=KIND, format=FORMAT, files=[FILE, *files], about=about).fingerprint


def as_json(settings: GroundingSettings, heads: GroundingHeads | None) -> dict[str, Json]:
    """The content of `grounding.json`."""
    return {"settings": settings.model_dump(), "heads": heads.as_json() if heads else None}


def load_run(folder: Path) -> FeatureClassifier | EncoderClassifier:
    """The classifier of a run folder."""
    manifest = artefact.read_manifest(folder, kind=KIND, format=FORMAT, check=True, remake=_RETRAIN)
    if manifest.about.get("model") != MODEL:
        raise UsageError(
            f"{folder} contains a model of the kind {manifest.about.get('model')!r}, not a grounding classifier.",
            hint="Train one with: tertulia train configs/grounding.toml",
        )
    return _from_json(
        read_json(folder / FILE), where=str(folder), name=f"{folder} {manifest.fingerprint[:8]}", folder=folder
    )


@cache
def packaged() -> FeatureClassifier:
    """The lexical model of the package."""
    content = orjson.loads((files("tertulia.models.classifiers") / PACKAGED).read_bytes())
    made = _from_json(content, where=PACKAGED, name="lexical", folder=None)
    assert isinstance(made, FeatureClassifier)
    return made


def _from_json(
    value: Mapping[str, Any], *, where: str, name: str, folder: Path | None
) -> FeatureClassifier | EncoderClassifier:
    try:
        settings = validate(GroundingSettings, value["settings"], where=where)
        if settings.kind == "encoder":
            return EncoderClassifier(_encoder(folder), settings, name=name)
        sources = make_sources(settings, lambda: _encoder(folder))
        heads = GroundingHeads.from_json(value["heads"], [name for source in sources for name in source.names])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"The grounding classifier in {where} is damaged ({error!r}).", hint=_RETRAIN) from None
    return FeatureClassifier(sources, heads, settings, name=name)


def make_sources(settings: GroundingSettings, encoder: "Callable[[], PairClassifier]") -> list[FeatureSource]:
    """The sources of features of a kind of model; the encoder is only asked for if it is one of them."""
    sources: list[FeatureSource] = []
    if settings.kind in ("lexical", "combined"):
        sources.append(LexicalFeatures())
    if settings.reads_encoder:
        sources.append(EncoderFeatures(encoder()))
    if settings.reads_likelihood:
        sources.append(LikelihoodFeatures(language_model(settings.language_model)))
    return sources


def _encoder(folder: Path | None) -> "PairClassifier":
    from tertulia.models.classifiers.pair_classifier import PairClassifier  # imports torch: takes seconds

    assert folder is not None, "the packaged model has no encoder"
    return PairClassifier.load(folder / ENCODER)


@cache
def language_model(name: str) -> "TextScorer":
    """A causal language model that scores texts: `smollm2`, a hub name or a folder."""
    from tertulia.models.hf.chat_model import ChatModel  # imports torch: takes seconds
    from tertulia.models.hf.generator import HuggingFaceGenerator
    from tertulia.models.hf.packaged import unpack
    from tertulia.models.text_likelihood import TextScorer

    source = str(unpack()) if name == "smollm2" else name
    return TextScorer(HuggingFaceGenerator(ChatModel.load(source)), name=name)
