"""EI: what is learned from teachers, and what happens without them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tertulia.core.errors import ConfigError, UnknownName
from tertulia.models.ei import BY_HAND, EIConfig, EIHeads, find_teachers, sized
from tertulia.models.generator import Talk
from tertulia.models.hred import HRED, HREDConfig
from tertulia.models.teachers import EMOTIONS
from tertulia.models.tokenizer import WordTokenizer

TALKS = [
    Talk(("hi", "ha ha ha", "tea ?"), (False, True, False)),
    Talk(("i am sad", "ha"), (False, True)),
]
WORDS = WordTokenizer.learn(text for talk in TALKS for text in talk.turns)


def moods(texts: Sequence[str]) -> NDArray[Any]:
    """Glad, sad, neither."""
    rows = [[text.count("ha") + 0.1, text.count("sad") + 0.1, 0.3] for text in texts]
    return np.array([[number / sum(row) for number in row] for row in rows])


def letters(texts: Sequence[str]) -> NDArray[Any]:
    return np.array([[text.count(letter) / 2 for letter in "ahit"] for text in texts])


def made(kind: str, **settings: Any) -> HRED:
    torch.manual_seed(1)
    ei = EIConfig(kind=kind, emotions=3, semantics=4, hidden=8, **settings)  # type: ignore[arg-type]
    config = HREDConfig(dim=10, encoder=8, context=12, decoder=14, dropout=0.0, ei=ei)
    return HRED.untrained(config, WORDS).eval()


def taught(kind: str, **settings: Any) -> HRED:
    model = made(kind, **settings)
    model.teach(emotion=moods, semantics=letters)
    return model


@torch.no_grad()
def test_the_losses_by_hand() -> None:
    heads = EIHeads(EIConfig(kind="both", emotions=3, semantics=4), 5)
    heads.teach(emotion=moods, semantics=letters)
    states, texts, which = torch.randn(3, 5), ["ha ha", "i am sad"], torch.tensor([1, 0, 1])
    found = heads.distil(states, texts, which)
    emotion = semantics = 0.0
    for state, text in zip(states, ("i am sad", "ha ha", "i am sad"), strict=True):
        guess = np.exp(heads.emotion(state).numpy())  # type: ignore[misc]
        emotion -= float((moods([text])[0] * np.log(guess / guess.sum())).sum()) / 3
        semantics += float(((heads.semantics(state).numpy() - letters([text])[0]) ** 2).sum()) / 12  # type: ignore[misc]
    assert float(found.emotion) == pytest.approx(emotion, rel=1e-5)
    assert float(found.semantics) == pytest.approx(semantics, rel=1e-5)
    assert float(heads.weighted(found)) == pytest.approx(25 * emotion + 25_000 * semantics, rel=1e-5)


@torch.no_grad()
def test_guesses_come_from_the_state_after_each_utterance() -> None:
    model = taught("both")
    extra = 0.0
    states, texts = [], []
    for talk in TALKS:
        for n, text in enumerate(talk.turns, 1):
            states.append(model.start([Talk(talk.turns[:n], talk.own[:n])]).known[0])
            texts.append(text)
    found = model.ei.distil(torch.cat(states), texts, torch.arange(5))
    extra = float(model.ei.weighted(found))
    assert float(model.losses(TALKS).extra) == pytest.approx(extra, rel=1e-4)


@pytest.mark.parametrize(("kind", "emotion", "semantics"), [("emotion", True, False), ("semantics", False, True)])
def test_one_teacher_is_enough_for_one_head(kind: str, emotion: bool, semantics: bool) -> None:
    model = made(kind)
    model.teach(emotion=moods if emotion else None, semantics=letters if semantics else None)
    assert (model.ei.emotion is not None, model.ei.semantics is not None) == (emotion, semantics)
    assert float(model.losses(TALKS).extra.detach()) > 0


def test_without_heads_nothing_is_added_and_nobody_is_asked() -> None:
    assert float(made("none").losses(TALKS).extra) == 0


@pytest.mark.parametrize("kind", ["emotion", "semantics", "both"])
def test_what_is_distilled_needs_no_teacher_afterwards(kind: str) -> None:
    model = made(kind)
    assert model.nll(TALKS).total.shape == (2,)
    model.step(model.start(TALKS), None)
    with pytest.raises(ConfigError, match="needs its teacher") as caught:
        model.losses(TALKS)
    assert "teach(" in caught.value.hint


def test_input_needs_its_teachers_for_good(tmp_path: Path) -> None:
    model = taught("input")
    assert model.ei.emotion is None
    assert float(model.losses(TALKS).extra) == 0
    model.save(tmp_path)
    again = HRED.load(tmp_path)  # teachers that were given by hand have no name to be found by
    assert (again.config.ei.emotion_teacher, again.config.ei.semantics_teacher) == (BY_HAND, BY_HAND)
    for call in (again.nll, again.start):
        with pytest.raises(ConfigError, match="teacher of emotion"):
            call(TALKS)
    again.teach(emotion=moods)
    with pytest.raises(ConfigError, match="teacher of semantics"):
        again.start(TALKS)
    again.teach(semantics=letters)
    assert torch.equal(again.nll(TALKS).total, model.nll(TALKS).total)
    again.teach(semantics=lambda texts: letters(texts) + 1)
    assert not torch.allclose(again.nll(TALKS).total, model.nll(TALKS).total)


def test_a_teacher_of_another_size_is_told() -> None:
    model = made("both")
    model.teach(emotion=moods, semantics=moods)
    with pytest.raises(ConfigError, match=r"gave \(5, 3\) numbers for 5 texts; the model has 4") as caught:
        model.losses(TALKS)
    assert "ei.semantics" in caught.value.hint


def test_the_heads_learn_what_the_teachers_say() -> None:
    model = taught("both", emotion_weight=5.0, semantics_weight=50.0).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    first = float(model.losses(TALKS).extra.detach())
    for _ in range(60):
        optimizer.zero_grad()
        model.losses(TALKS).loss().backward()
        optimizer.step()
    entropy = -(
        moods([t for talk in TALKS for t in talk.turns]) * np.log(moods([t for talk in TALKS for t in talk.turns]))
    )
    least = 5 * float(entropy.sum(1).mean())  # no guess is better than the teacher's own doubt
    last = float(model.losses(TALKS).extra.detach())
    assert least - 1e-3 < last < least + 0.05 * (first - least)


def test_teachers_are_found_by_name_when_they_are_needed_to_read(tmp_path: Path) -> None:
    torch.manual_seed(1)
    wanted = EIConfig(kind="input", emotion_teacher="lexicon", semantics_teacher="lexicon", hidden=8)
    with pytest.raises(UnknownName, match="teacher of semantics called 'lexicon'"):
        find_teachers(wanted)
    wanted = wanted.model_copy(update={"semantics_teacher": BY_HAND, "semantics": 4})
    teachers = find_teachers(wanted)
    assert teachers.semantics is None
    ei = sized(wanted, teachers)
    assert (ei.emotions, ei.semantics) == (len(EMOTIONS), 4)
    model = HRED.untrained(HREDConfig(dim=10, encoder=8, context=12, decoder=14, ei=ei), WORDS).eval()
    model.ei.teach(emotion=teachers.emotion)
    model.teach(semantics=letters)
    model.save(tmp_path)
    again = HRED.load(tmp_path)
    assert again.config.ei.emotion_teacher == "lexicon"
    again.teach(semantics=letters)
    assert torch.equal(again.nll(TALKS).total, model.nll(TALKS).total)


def test_nothing_said_is_nothing_to_guess() -> None:
    assert float(taught("both").losses([Talk((), ())]).extra) == 0


def test_half_precision_learns_nearly_the_same() -> None:
    model = taught("both")
    whole = model.losses(TALKS).extra
    with torch.autocast("cpu", torch.bfloat16):
        half = model.losses(TALKS).extra
        half.backward()
    assert float(half.detach()) == pytest.approx(float(whole.detach()), rel=0.02)


def test_only_those_are_sought_that_are_asked() -> None:
    assert find_teachers(EIConfig(kind="none", emotion_teacher="nobody", semantics_teacher="nobody")) == (None, None)
    found = find_teachers(EIConfig(kind="emotion", semantics_teacher="nobody"))
    assert found.emotion is not None
    assert found.semantics is None


def test_a_head_of_unknown_size_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ei.semantics"):
        EIHeads(EIConfig(kind="semantics"), 5)
