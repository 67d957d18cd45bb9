"""What metrics need, and every metric of texts with it, on texts that nobody would write."""

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tertulia.core.errors import DataError, UnknownName, UsageError
from tertulia.judge.resources import RESOURCES, VALENCE, emotion_model, emotions, load_resources, word_vectors
from tertulia.metrics.metric import ConversationExample, Metric, MetricFamily, ReplyExample
from tertulia.metrics.registry import METRICS, metric_named
from tertulia.metrics.significance import estimate
from tertulia.models.generators.teachers import EMOTIONS

HOSTILE = (
    *("", " \n", "ok", "🙂🙂", "👩\u200d👩\u200d👧", "?!...", "a\x00b"),
    *("你好，你今天怎么样？", "नमस्ते दुनिया", "مرحبا بالعالم"),
    *("so " * 33_000, "x" * 100_000),
)


def text_metrics() -> list[Metric]:
    """All metrics of replies and conversations whose resources can be loaded by name; of a family, the one of 2; of the
    follow-ups, which differ in their sentences alone, one."""
    metrics = []
    for row in METRICS.rows():
        if row.name.startswith("follow-up") and row.name != "follow-up: overall":
            continue
        metric = METRICS.get(row.name)
        if isinstance(metric, MetricFamily):
            numbers = range(2, 2 + sum(row.name.count(letter) for letter in "KMN"))
            metric = metric.make(row.name, *numbers)
        if metric and metric.unit in ("reply", "conversation") and all(need in RESOURCES for need in metric.needs):
            metrics.append(metric)
    return metrics


@pytest.fixture(scope="module")
def resource(tiny_models: Any) -> Callable[[str], Any]:
    """Resources by name, each loaded once: the defaults where there are any; a tiny language model saves minutes."""
    labels = ("entailment", "neutral", "contradiction")
    specs = {
        "training_turns": "sample",
        "language_model": f"hf:{tiny_models.make('chat')}",
        "entailment": f"hf:{tiny_models.make_classifier('inference', labels)}",
    }
    return cache(lambda name: RESOURCES.get(name)(specs.get(name, "")))


def batches(metric: Metric) -> list[list[Any]]:
    """Hostile texts in every role; no texts at all."""
    if metric.unit == "reply":
        replies = [ReplyExample(text, reference) for text in HOSTILE for reference in ("", "I like tea.", text)]
        return [[], replies, [ReplyExample(text, "tea", (text, "hi"), ("I like tea.",)) for text in HOSTILE]]
    chats = [ConversationExample((text, text, "hi", text), (False, True, False, True)) for text in HOSTILE]
    chats += [ConversationExample((text,) * n, (True,) * n) for text in HOSTILE for n in (1, 3)]
    chats += [ConversationExample((), ()), ConversationExample(("hi", "you"), (False, False))]
    return [[], chats, *([chat] for chat in chats[:3])]


@pytest.mark.slow
@pytest.mark.parametrize("metric", text_metrics(), ids=lambda metric: metric.name)
def test_every_metric_gives_a_number_or_nan_for_any_text(metric: Metric, resource: Callable[[str], Any]) -> None:
    resources = {name: resource(name) for name in metric.needs}
    for batch in batches(metric):
        units = [str(i) for i, _ in enumerate(batch)]
        score = metric.score(batch, subject="bot", setting="", units=units, clusters=units, resources=resources)
        assert len(score.values) == len(batch)
        assert not any(map(math.isinf, score.values))
        figure = estimate(score, metric)
        assert (figure.n == 0) == math.isnan(figure.value)


def test_names_of_resources_are_checked() -> None:
    with pytest.raises(UnknownName, match="'sentences'"):
        load_resources([], {"sentence": "minilm"})
    with pytest.raises(UsageError, match="need the training data"):
        load_resources([metric_named("copied run of 2 turns")], {})
    assert load_resources([metric_named("turns")], {}) == {}


def test_the_built_in_emotions_have_valences() -> None:
    model = emotions("")
    assert model.labels == EMOTIONS
    joy, sadness, nothing = model.sentiment(["I am so happy!", "So sad, I cried", "the table"]).tolist()
    assert joy > 0.3
    assert sadness < -0.3
    assert abs(nothing) < 0.05
    assert model.probabilities([]).shape == (0, len(EMOTIONS))


def test_a_classifier_needs_labels_with_a_valence() -> None:
    model = emotion_model(["POSITIVE", "5 stars"], lambda texts: np.ones((len(texts), 2)), "reviews")
    assert model.valence == (VALENCE["positive"], 1.0)
    with pytest.raises(UsageError, match="no valence for 'LABEL_0', 'grumpiness', labels of mine"):
        emotion_model(["joy", "LABEL_0", "grumpiness"], lambda texts: np.ones((len(texts), 3)), "mine")


def test_word_vectors_from_files(tmp_path: Path) -> None:
    text, arrays = tmp_path / "vectors.txt", tmp_path / "vectors.npz"
    text.write_text("tea 1 0\ndog 0 1\n")
    np.savez(arrays, words=np.array(["tea", "dog"]), vectors=np.eye(2, dtype=np.float16))
    metric = metric_named("embedding greedy")
    for path in (text, arrays):
        vectors = word_vectors(str(path))
        batch = [ReplyExample("tea", "tea and a dog"), ReplyExample("nothing", "known")]
        values, _ = metric.measure(batch[1:], {"word_vectors": vectors})
        assert np.isnan(values).all()
        values, _ = metric.measure(batch, {"word_vectors": vectors})
        assert values[0] == pytest.approx(0.75)
    with pytest.raises(DataError, match="File not found: nowhere"):
        word_vectors("nowhere.txt")


@pytest.mark.slow
def test_the_default_word_vectors_know_what_is_related(resource: Callable[[str], Any]) -> None:
    vectors = resource("word_vectors")
    batch = [ReplyExample("dog", other) for other in ("cat", "puppy", "spreadsheet")]
    cat, puppy, spreadsheet = metric_named("embedding average").measure(batch, {"word_vectors": vectors})[0].tolist()
    assert min(cat, puppy) > spreadsheet + 0.1
    assert vectors.matrix.shape[1] == 100
