"""What metrics need beside texts, by name: word vectors, emotion and sentence models, language models, rankers.

A metric names what it needs (`Metric.needs`); each name is a row of `RESOURCES`, whose target is a function from a
specification to the resource. The empty specification is the default, which works offline. So that metrics import no
models, and a user chooses better ones by name: `--resource sentences=hf:NAME_OR_FOLDER`. Plugins add rows through the
entry-point group `tertulia.metric_resources`.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tertulia.artefacts.word_vectors import read_word_vectors
from tertulia.core.codec import Problems
from tertulia.core.errors import MissingFile, UnknownName, UsageError
from tertulia.core.registry import Registry
from tertulia.corpus.load import SAMPLE, load_dialogues
from tertulia.metrics.conversation import EmotionModel
from tertulia.metrics.embeddings import VectorSource, WordVectors
from tertulia.metrics.metric import Metric
from tertulia.metrics.shared_runs import TrainingTurns
from tertulia.models.generators.teachers import EMOTION, EMOTIONS, SEMANTICS, TextTeacher, cached, make_teacher

RESOURCES = Registry("metric resource", "tertulia.metric_resources")
_HERE = "tertulia.judge.resources:"
RESOURCES.add("sentences", _HERE + "sentences", "sentence vectors: minilm, or hf:NAME_OR_FOLDER")
RESOURCES.add("emotions", _HERE + "emotions", "emotions with valences: lexicon, or hf:NAME_OR_FOLDER")
RESOURCES.add("word_vectors", _HERE + "word_vectors", "word vectors: minilm, or a file (GloVe's text, or .npz)")
RESOURCES.add("training_turns", _HERE + "training_turns", "the turns of a training set: a file or folder of dialogues")
_REPLIES = "tertulia.judge.reply_resources:"
RESOURCES.add("language_model", _REPLIES + "language_model", "smollm2, hf:NAME_OR_FOLDER, or a generative run's folder")
RESOURCES.add("ranker", _REPLIES + "ranker", "minilm (cosine of sentence vectors), or a bot that ranks, or its folder")
RESOURCES.add("idf", _REPLIES + "idf", "how rare words are: counts in the sample, or in other data")
RESOURCES.add(
    "entailment",
    _REPLIES + "entailment",
    "rules (built in), a run of the recipe entailment, hf:NAME_OR_FOLDER, or rules+ one of these",
)
MINILM_DIMENSIONS = 100
"""As many as the GloVe vectors of the papers. With fewer than all 384, average and extrema agree better with people and
tell true from random replies better, greedy matching neither gains nor loses much (docs/metrics.md), and all are
faster."""

VALENCE = {
    "joy": 1.0,
    "love": 0.9,
    "amusement": 0.8,
    "gratitude": 0.8,
    "surprise": 0.1,
    "neutral": 0.0,
    "sadness": -0.8,
    "anger": -0.9,
    "fear": -0.8,
    "disgust": -0.9,
    # the other labels of GoEmotions (Demszky et al. 2020)
    "admiration": 0.8,
    "approval": 0.5,
    "caring": 0.6,
    "desire": 0.4,
    "excitement": 0.9,
    "optimism": 0.7,
    "pride": 0.7,
    "relief": 0.6,
    "confusion": -0.3,
    "curiosity": 0.2,
    "realization": 0.1,
    "annoyance": -0.6,
    "disappointment": -0.7,
    "disapproval": -0.6,
    "embarrassment": -0.5,
    "grief": -1.0,
    "nervousness": -0.6,
    "remorse": -0.6,
    # other emotion and sentiment classifiers
    "happiness": 1.0,
    "happy": 1.0,
    "sad": -0.8,
    "angry": -0.9,
    "anticipation": 0.3,
    "trust": 0.6,
    "pessimism": -0.6,
    "positive": 1.0,
    "negative": -1.0,
    "pos": 1.0,
    "neg": -1.0,
    "neu": 0.0,
    "1 star": -1.0,
    "2 stars": -0.5,
    "3 stars": 0.0,
    "4 stars": 0.5,
    "5 stars": 1.0,
    "others": 0.0,
    "other": 0.0,
    "no emotion": 0.0,
}
"""How pleasant an emotion is, from -1 to 1, in the order of the circumplex of affect (Russell 1980); the numbers are
ours."""


def load_resources(metrics: Iterable[Metric], specs: Mapping[str, str]) -> dict[str, Any]:
    """What the metrics need, each loaded once; `specs` names others than the defaults."""
    for name in specs:
        if name not in RESOURCES:
            raise UnknownName("metric resource", name, RESOURCES)
    needed = dict.fromkeys(name for metric in metrics for name in metric.needs)
    return {name: RESOURCES.get(name)(specs.get(name, "")) for name in needed}


def sentences(spec: str) -> TextTeacher:
    """A function from n texts to vectors (n, d); every text is encoded once."""
    return cached(make_teacher(SEMANTICS, spec or "minilm"))


def emotions(spec: str) -> EmotionModel:
    """The built-in word list, or a Hugging Face classifier whose labels have a known valence."""
    name, _, argument = (spec or "lexicon").partition(":")
    if name == "hf" and argument:
        return _classifier_emotions(argument)
    if name == "hf":
        raise UsageError("The emotion model hf needs a model name or folder.", hint="Write hf:NAME_OR_FOLDER.")
    if name != "lexicon":
        raise UnknownName("emotion model", name, ("lexicon", "hf"))
    return emotion_model(EMOTIONS, _remembering(make_teacher(EMOTION, spec or name)), "the built-in word list")


def emotion_model(labels: Sequence[str], probabilities: TextTeacher, name: str) -> EmotionModel:
    """An emotion model by the labels of a classifier; labels without a known valence are an error that lists them."""
    keys = [" ".join(re.split(r"[\W_]+", label.lower())).strip() for label in labels]
    unknown = [label for label, key in zip(labels, keys, strict=True) if key not in VALENCE]
    if unknown:
        raise UsageError(
            f"There is no valence for {', '.join(map(repr, unknown))}, labels of {name}.",
            hint=f"Give a classifier whose labels are among: {', '.join(VALENCE)}.",
        )
    return EmotionModel(tuple(labels), tuple(VALENCE[key] for key in keys), probabilities)


def word_vectors(spec: str) -> WordVectors:
    """The input embeddings of the packaged sentence encoder, or the vectors of a file; only words that occur."""
    if spec in ("", "minilm"):
        return WordVectors.lazy(_minilm_words())
    if not Path(spec).is_file():
        raise MissingFile(
            f"File not found: {spec}", hint="Give a file of word vectors (GloVe's text or .npz), or `minilm`."
        )
    return WordVectors.lazy(lambda wanted: read_word_vectors(Path(spec), wanted, allow_none=True))


def training_turns(spec: str) -> TrainingTurns:
    """The turns of a corpus; of a folder (or the sample) that has a split `train`, of that split."""
    if not spec:
        raise UsageError("These metrics need the training data.", hint="Name it with --training DATA.")
    is_split = spec == SAMPLE or (Path(spec).is_dir() and any(Path(spec).glob("train*")))
    dialogues = load_dialogues(spec, split="train" if is_split else None, problems=Problems())
    return TrainingTurns((turn.text for turn in dialogue.turns) for dialogue in dialogues)


def _classifier_emotions(name: str) -> EmotionModel:
    from tertulia.models.classifiers.text_classifier import TextClassifier  # transformers takes seconds to import

    model = TextClassifier.load(name)

    def probabilities(texts: Sequence[str]) -> NDArray[np.float64]:
        rows = [[row[label] for label in model.labels] for row in model.probabilities(texts)]
        scores = np.array(rows, dtype=np.float64).reshape(-1, len(model.labels))
        return np.asarray(scores / np.maximum(scores.sum(1, keepdims=True), 1e-9), dtype=np.float64)

    return emotion_model(model.labels, _remembering(probabilities), name)


def _remembering(function: TextTeacher) -> TextTeacher:
    """The same function, called once for each text."""
    rows: dict[str, NDArray[Any]] = {}

    def outputs(texts: Sequence[str]) -> NDArray[Any]:
        new = [text for text in dict.fromkeys(texts) if text not in rows]
        if new or not texts:
            computed = function(new)
            rows.update(zip(new, computed, strict=True))
            if not texts:
                return computed
        return np.stack([rows[text] for text in texts])

    return outputs


def _minilm_words() -> VectorSource:
    """Vectors of words from the input embeddings of the packaged sentence encoder, reduced to `MINILM_DIMENSIONS`.

    A word's vector is the mean of its subwords'; a word with an unknown subword has none.
    """
    from tertulia.models.sentence_encoder import SentenceEncoder  # transformers takes seconds to import

    encoder = SentenceEncoder.load()
    table = encoder.transformer.embeddings.word_embeddings.weight.detach().numpy().astype(np.float64)
    _, axes = np.linalg.eigh(np.cov(table, rowvar=False))  # principal axes, the last ones with the largest variance
    table = (table @ axes[:, : -MINILM_DIMENSIONS - 1 : -1]).astype(np.float32)
    unknown = encoder.tokenizer.token_to_id("[UNK]")

    def vectors(wanted: Collection[str]) -> dict[str, NDArray[np.floating[Any]]]:
        listed = sorted(wanted)
        subwords = [encoding.ids for encoding in encoder.tokenizer.encode_batch(listed, add_special_tokens=False)]
        return {
            word: table[ids].mean(axis=0)
            for word, ids in zip(listed, subwords, strict=True)
            if ids and unknown not in ids
        }

    return vectors
