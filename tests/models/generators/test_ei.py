"""EI: what is distilled from teachers, and what happens without them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tertulia.core.errors import ConfigError, UnknownName
from tertulia.models.generator import DialogueView
from tertulia.models.generators.ei import IN_PROCESS, EIConfig, EIHeads, load_teachers, with_sizes
from tertulia.models.generators.gaussian import take_mean
from tertulia.models.generators.hred import HRED, HREDConfig
from tertulia.models.generators.teachers import EMOTIONS
from tertulia.models.tokenizer import WordTokenizer

from ..conftest import assert_close

VIEWS = [
    DialogueView(("hi", "ha ha ha", "tea ?"), (False, True, False)),
    DialogueView(("i am sad", "ha"), (False, True)),
]
WORDS = WordTokenizer.learn(text for view in VIEWS for text in view.turns)


def moods(texts: Sequence[str]) -> NDArray[Any]:
    """Probabilities of glad, sad and neither."""
    rows = [[text.count("ha") + 0.1, text.count("sad") + 0.1, 0.3] for text in texts]
    return np.array([[number / sum(row) for number in row] for row in rows])


def letters(texts: Sequence[str]) -> NDArray[Any]:
    return np.array([[text.count(letter) / 2 for letter in "ahit"] for text in texts])


def build(kind: str, **settings: Any) -> HRED:
    torch.manual_seed(1)
    ei = EIConfig(kind=kind, emotions=3, semantics=4, hidden=8, **settings)  # type: ignore[arg-type]
    config = HREDConfig(dim=10, encoder=8, context=12, decoder=14, dropout=0.0, ei=ei)
    return HRED.untrained(config, WORDS).double().eval()


def build_with_teachers(kind: str, **settings: Any) -> HRED:
    model = build(kind, **settings)
    model.set_teachers(emotion=moods, semantics=letters)
    return model


@torch.no_grad()
def test_losses_follow_the_formulas() -> None:
    heads = EIHeads(EIConfig(kind="both", emotions=3, semantics=4), 5).double()
    heads.set_teachers(emotion=moods, semantics=letters)
    states, texts, indices = torch.randn(3, 5).double(), ["ha ha", "i am sad"], torch.tensor([1, 0, 1])
    losses = heads.distil(states, texts, indices)
    emotion = semantics = 0.0
    for state, text in zip(states, ("i am sad", "ha ha", "i am sad"), strict=True):
        exp = np.exp(heads.emotion(state).numpy())  # type: ignore[misc]
        emotion -= float((moods([text])[0] * np.log(exp / exp.sum())).sum()) / 3
        semantics += float(((heads.semantics(state).numpy() - letters([text])[0]) ** 2).sum()) / 12  # type: ignore[misc]
    assert float(losses.emotion) == pytest.approx(emotion, rel=1e-6)
    assert float(losses.semantics) == pytest.approx(semantics, rel=1e-6)
    assert float(heads.weighted(losses)) == pytest.approx(25 * emotion + 25_000 * semantics, rel=1e-6)


@torch.no_grad()
def test_heads_predict_from_the_state_after_each_utterance() -> None:
    model = build_with_teachers("both")
    states, texts = [], []
    for view in VIEWS:
        for n, text in enumerate(view.turns, 1):
            batch = model.collate([view.before(n)], None)
            states.append(model.encode_next(batch, model.encode_utterances(batch), take_mean, 1))
            texts.append(text)
    expected = model.ei.weighted(model.ei.distil(torch.cat(states), texts, torch.arange(5)))
    assert_close(model.losses(VIEWS).distillation, expected)


@pytest.mark.parametrize(("kind", "emotion", "semantics"), [("emotion", True, False), ("semantics", False, True)])
def test_one_teacher_is_enough_for_one_head(kind: str, emotion: bool, semantics: bool) -> None:
    model = build(kind)
    model.set_teachers(emotion=moods if emotion else None, semantics=letters if semantics else None)
    assert (model.ei.emotion is not None, model.ei.semantics is not None) == (emotion, semantics)
    assert float(model.losses(VIEWS).distillation.detach()) > 0


def test_without_heads_nothing_is_added_to_the_loss() -> None:
    assert float(build("none").losses(VIEWS).distillation) == 0


@pytest.mark.parametrize("kind", ["emotion", "semantics", "both"])
def test_a_distilled_model_needs_no_teacher(kind: str) -> None:
    model = build(kind)
    assert model.nll(VIEWS).total.shape == (2,)
    model.step(model.start(VIEWS), None)
    with pytest.raises(ConfigError, match=r"needs its (emotion|semantics) teacher") as caught:
        model.losses(VIEWS)
    assert "set_teachers(" in caught.value.hint


def test_a_model_that_reads_teacher_outputs_always_needs_them(tmp_path: Path) -> None:
    model = build_with_teachers("input").float()
    assert model.ei.emotion is None
    assert float(model.losses(VIEWS).distillation) == 0
    model.save(tmp_path)
    again = HRED.load(tmp_path).double()  # teachers set as functions have no name to load them by
    assert (again.config.ei.emotion_teacher, again.config.ei.semantics_teacher) == (IN_PROCESS, IN_PROCESS)
    for call in (again.nll, again.start):
        with pytest.raises(ConfigError, match="emotion teacher"):
            call(VIEWS)
    again.set_teachers(emotion=moods)
    with pytest.raises(ConfigError, match="semantics teacher"):
        again.start(VIEWS)
    again.set_teachers(semantics=letters)
    assert_close(again.nll(VIEWS).total, model.double().nll(VIEWS).total)
    again.set_teachers(semantics=lambda texts: letters(texts) + 1)
    assert not torch.allclose(again.nll(VIEWS).total, model.nll(VIEWS).total)


def test_a_teacher_of_another_size_is_refused() -> None:
    model = build("both")
    model.set_teachers(emotion=moods, semantics=moods)
    with pytest.raises(ConfigError, match=r"shape \(5, 3\) for 5 texts; the model expects 4") as caught:
        model.losses(VIEWS)
    assert "ei.semantics" in caught.value.hint


def test_heads_learn_the_outputs_of_the_teachers() -> None:
    model = build_with_teachers("both", emotion_weight=5.0, semantics_weight=50.0).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    first = float(model.losses(VIEWS).distillation.detach())
    for _ in range(60):
        optimizer.zero_grad()
        model.losses(VIEWS).loss().backward()
        optimizer.step()
    entropy = -(
        moods([t for view in VIEWS for t in view.turns]) * np.log(moods([t for view in VIEWS for t in view.turns]))
    )
    least = 5 * float(entropy.sum(1).mean())  # no prediction beats the entropy of the teacher's distribution
    last = float(model.losses(VIEWS).distillation.detach())
    assert least - 1e-3 < last < least + 0.05 * (first - least)


def test_teachers_whose_outputs_are_read_are_loaded_by_name(tmp_path: Path) -> None:
    torch.manual_seed(1)
    config = EIConfig(kind="input", emotion_teacher="lexicon", semantics_teacher="lexicon", hidden=8)
    with pytest.raises(UnknownName, match="semantics teacher called 'lexicon'"):
        load_teachers(config)
    config = config.model_copy(update={"semantics_teacher": IN_PROCESS, "semantics": 4})
    teachers = load_teachers(config)
    assert teachers.semantics is None
    ei = with_sizes(config, teachers)
    assert (ei.emotions, ei.semantics) == (len(EMOTIONS), 4)
    model = HRED.untrained(HREDConfig(dim=10, encoder=8, context=12, decoder=14, ei=ei), WORDS).eval()
    model.ei.set_teachers(emotion=teachers.emotion)
    model.set_teachers(semantics=letters)
    model.save(tmp_path)
    again = HRED.load(tmp_path).double()
    assert again.config.ei.emotion_teacher == "lexicon"
    again.set_teachers(semantics=letters)
    assert_close(again.nll(VIEWS).total, model.double().nll(VIEWS).total)


def test_an_empty_dialogue_has_no_distillation_loss() -> None:
    assert float(build_with_teachers("both").losses([DialogueView((), ())]).distillation) == 0


def test_half_precision_gives_nearly_the_same_loss() -> None:
    model = build_with_teachers("both").float()
    full = model.losses(VIEWS).distillation
    with torch.autocast("cpu", torch.bfloat16):
        half = model.losses(VIEWS).distillation
        half.backward()
    assert float(half.detach()) == pytest.approx(float(full.detach()), rel=0.02)


def test_only_teachers_that_are_needed_are_loaded() -> None:
    assert load_teachers(EIConfig(kind="none", emotion_teacher="nobody", semantics_teacher="nobody")) == (None, None)
    teachers = load_teachers(EIConfig(kind="emotion", semantics_teacher="nobody"))
    assert teachers.emotion is not None
    assert teachers.semantics is None


def test_a_head_without_a_size_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ei.semantics"):
        EIHeads(EIConfig(kind="semantics"), 5)
